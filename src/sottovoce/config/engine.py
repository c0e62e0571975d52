"""The `[engine]` table of an experiment file."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from sottovoce.config.table import Table, named
from sottovoce.core.errors import InputError
from sottovoce.federation.engines.kinds import ENGINES
from sottovoce.federation.engines.mqtt.carrier import Address, DeclaredLink


class EngineTable(Table):
    """The `[engine]` table: how a run is computed; it never changes the result."""

    name: Annotated[str, named(ENGINES)] = Field(
        "local",
        description='What plays the clients: "local" simulates them on this machine, "ray" on a Ray cluster '
        '(docs/ray.md); "mqtt" are nodes of a federation, which `sottovoce serve` and `sottovoce join` bring together '
        '(docs/deploy.md); "flower" are the SuperNodes of a Flower fleet (`sottovoce flower`, docs/flower.md).',
    )
    workers: int = Field(
        0,
        ge=0,
        description="Processes that train clients at the same time. 1: this process itself, so that breakpoints and "
        "profilers see everything. 0: this process for short runs, else one for each core, of this machine or of the "
        "Ray cluster.",
    )
    address: str = Field(
        "local",
        description='For name = "ray": "local" starts a cluster on this machine and never joins another, "auto" joins '
        'the one that runs on this machine, "host:port" joins that one. A sweep on a cluster that it joined runs '
        "several of its points at the same time.",
    )
    data: str | None = Field(
        None,
        description='For name = "ray": the folder in which each machine finds its part of the records, which '
        '`sottovoce data split` made, such as "/data/parts"; ~ and $VARIABLES are each machine\'s own. The machine '
        "that leads the run needs its folder `common` alone. Not set: that machine reads all records, and gives them "
        "to the others.",
    )
    broker: str | None = Field(
        None,
        description='For name = "mqtt": address of the broker, such as "mqtts://broker.example:8883". Not set: the '
        "server must be told by the command line.",
    )
    phase_timeout: float = Field(
        60.0,
        gt=0,
        description='For name = "mqtt" and "flower": '
        "seconds that the server waits for the answers to a phase in which nobody "
        "trains; who has not answered by then has dropped out of the round. A request that carries the model has as "
        "long beside that as its bytes need on the node's link, up to train_timeout.",
    )
    train_timeout: float = Field(
        600.0,
        gt=0,
        description='For name = "mqtt" and "flower": '
        "seconds that the server waits for the answers to a phase in which nodes train.",
    )
    slowest_link: str | None = Field(
        None,
        description='For name = "mqtt": the slowest link of the federation, such as "20 kbit/s, 1 s" (rate and round '
        'trip) or "64 kbit/s, 1 s, 40 s down" (how long it may be gone at a time). `plan` and `serve` say before the '
        "run whether a round's bytes fit into the time-outs on it, and the server waits so long for whoever is gone. "
        "Not set: only what nodes measure counts.",
    )
    close: float = Field(
        1.0,
        gt=0,
        le=1,
        description='For name = "mqtt" and "flower": '
        "share of a round's nodes at which a phase goes on without those who have not answered; never fewer than the "
        "sum needs. 1: a phase waits for all, as long as its time-outs say. Lower values leave slow nodes out.",
    )
    min_nodes: int = Field(
        3,
        ge=1,
        description='For name = "mqtt" and "flower": '
        "nodes that must have come before the first round begins. Later rounds wait for "
        "nobody.",
    )
    max_aborts: int = Field(
        10,
        ge=1,
        description='For name = "mqtt" and "flower": '
        "rounds without enough answers after which the run ends; it can be resumed.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            own = ("name", "workers", *ENGINES[self.name].keys)
        except InputError as error:  # a package that is broken
            raise ValueError(f"[engine] {error}") from None
        for key, field in type(self).model_fields.items():
            if key not in own and getattr(self, key) != field.default:
                names = " or ".join(f'"{name}"' for name, kind in ENGINES.items() if key in kind.keys)
                raise ValueError(f"[engine] {key} is for name = {names}; set that, or remove {key}")
        if self.address not in ("local", "auto") and not _names_a_port(self.address):
            raise ValueError(
                '[engine] address must be "local", "auto" or "host:port" with a port in [1024, 65535], got '
                f'"{self.address}"'
            )
        if self.data is not None and not self.data.startswith(("/", "~", "$")):
            raise ValueError(f'[engine] data must be a path from /, ~ or a $VARIABLE on, got "{self.data}"')
        try:
            if self.broker is not None:
                Address.parse(self.broker)
            if self.slowest_link is not None:
                DeclaredLink.parse(self.slowest_link)
        except InputError as error:
            raise ValueError(f"[engine] {error}") from None
        return self

    @property
    def slowest(self) -> DeclaredLink | None:
        """Return the slowest link; None: it is not declared."""
        return None if self.slowest_link is None else DeclaredLink.parse(self.slowest_link)


def _names_a_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and "/" not in host and port.isascii() and port.isdigit() and 1024 <= int(port) <= 65535
