"""The `[devices]` table of an experiment file, and what it cannot be combined with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from sottovoce.config.table import Table
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.streams import Streams
from sottovoce.devices import Dropout, Population
from sottovoce.devices.clock import PHASES

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment
    from sottovoce.schemes import Scheme

SERVER: Final = "server"
_OF_PROFILES: Final = ("rates", "failures", "availability", "deadline", "over_select", "round_every", "latency")

Ways = Mapping[int, tuple[float | None, float | None]]


class DevicesTable(Table):
    """The `[devices]` table: what clients run on, how long rounds take there, and who leaves before which phase."""

    profile: str | dict[str, float] | None = Field(
        None,
        description="Devices of the clients, as `sottovoce devices` lists them: one profile, or a mix with shares that "
        "sum to 1, such as {phone-lte = 0.3, phone-wifi = 0.7}. With it a run has a simulated clock and an account of "
        "joules, and clients are lost as on such devices. Not set: no clock.",
    )
    rates: Literal["drawn", "median"] = Field(
        "drawn",
        description="Speed of links and processors. \"drawn\": each client's own, log-normal around its profile's; "
        '"median": all clients of a profile have the same.',
    )
    failures: bool = Field(
        True,
        description="Whether messages are lost and devices leave as often as their profiles say. Such clients drop out "
        "of the round.",
    )
    availability: Literal["always", "daily"] = Field(
        "always",
        description='Who is online when asked. "always": the server asks only those that are. "daily": it asks '
        "anybody, and who is not online drops out; phones are there mostly at night.",
    )
    deadline: float | None = Field(
        None,
        gt=0,
        description="Seconds that the server waits for the answers of a phase (a round without secure aggregation has "
        "one phase). Who is later drops out. Not set: it waits for the slowest.",
    )
    over_select: float = Field(
        1.0,
        ge=1,
        le=10,
        description="Clients that are invited for each one that is needed; the server takes the fastest. Google's "
        "phones: 1.3. Not in a private run, where this would not be the sampling that epsilon counts on.",
    )
    round_every: float = Field(
        0.0,
        ge=0,
        description="Seconds from the beginning of one round to that of the next, if the round itself is shorter. It "
        "decides at which hours of the day rounds are played.",
    )
    latency: list[list[int | float | str]] = Field(
        default_factory=list,
        description="Seconds that a message takes between a client and the server, as [from, to, seconds], such as "
        '[[0, "server", 0.3], ["server", 0, 0.1]]. Others take half of their profile\'s round-trip time.',
    )
    dropout: float | dict[str, float] = Field(
        0.0,
        description="Chance that a client leaves before it sends its message, in [0, 1); or one chance for each phase, "
        "such as {advertise = 0.1, mask = 0.2}. Phases: advertise, share, mask, consistency, unmask. It adds to what "
        "a profile brings.",
    )
    leave: list[list[int | str]] = Field(
        default_factory=list,
        description='Clients that leave for certain, as [round, client, phase], such as [[3, 7, "mask"]]. Round 0 is '
        "the private vote; clients are numbered from 0.",
    )


def check_devices(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if the table contradicts itself, or cannot be had with the others."""
    table = experiment.devices
    make_dropout(experiment)
    read_latency(table)
    _check_answers(experiment)
    if table.profile is None:
        for key in _OF_PROFILES:
            if getattr(table, key) != DevicesTable.model_fields[key].get_default(call_default_factory=True):
                raise ValueError(f"[devices] {key} is about devices, and none are named; set [devices] profile")
        return
    try:
        Population.of(table.profile, Streams(0))
    except InputError as error:
        raise ValueError(f"[devices] {error}") from None
    if table.availability == "daily" and not table.failures:
        raise ValueError(
            '[devices] availability = "daily" is about devices that are not there, and failures = false means that '
            "none is lost; remove one of them"
        )
    for client in read_latency(table):
        if client >= experiment.data.clients:
            raise ValueError(
                f"[devices] latency names client {client}, but clients are numbered from 0 to "
                f"{experiment.data.clients - 1}"
            )
    if table.over_select > 1:
        _check_over_select(experiment, scheme)


def _check_over_select(experiment: Experiment, scheme: Scheme) -> None:
    over, rate = experiment.devices.over_select, experiment.cohort.sample_rate
    if experiment.privacy is not None:
        raise PrivacyError(
            f"[devices] over_select = {over:g} takes the fastest of the clients that were drawn, which is not the "
            "random sampling that epsilon counts on; raise [cohort] sample_rate instead, which is charged, and set "
            "[devices] deadline: who is late drops out, as the threshold allows"
        )
    if scheme.everyone or rate * Fraction(over) > 1:
        raise ValueError(
            f"[devices] over_select = {over:g} invites {float(rate) * over:.3g} of all clients; lower it, or [cohort] "
            "sample_rate"
        )
    asked = experiment.aggregation.threshold
    share = float(asked) if asked is not None and asked <= 1 else 2 / 3
    if experiment.protocol.hides_updates and 1 / over <= share:
        raise ValueError(
            f"[devices] over_select = {over:g} keeps {1 / over:.2g} of the clients that were invited, but a secure sum "
            f"needs more than {share:.2g} of them to stay; lower it"
        )


def answer_rate(experiment: Experiment, *, deployment: bool) -> float | None:
    """Return the least chance of each client to answer to the end of a round, whatever others do; None if unknown.

    It is what the file declares. In a simulation it also follows from the chances to leave; which clients leave for
    certain, and whom a device loses, is no such chance. With keys of a session one client that leaves can end a round
    however many are left, and no rate tells how likely that is.
    """
    declared, table = experiment.aggregation.answer_rate, experiment.devices
    if declared is not None:
        return declared
    if deployment or table.leave or _loses(table):
        return None
    rate = _staying(experiment)
    return None if rate < 1 and _standing(experiment) else rate


def _check_answers(experiment: Experiment) -> None:
    """Raise if the declared answer rate contradicts what is simulated, or what the keys of the sum need."""
    declared, table = experiment.aggregation.answer_rate, experiment.devices
    if declared is None:
        return
    key = f"[aggregation] answer_rate = {declared:g}"
    if declared < 1 and _standing(experiment):
        raise ValueError(
            f'{key}: with [aggregation] key_life = "session" one client that leaves can end a round however many are '
            'left, and nobody can charge for that; remove it, or set key_life = "round"'
        )
    if table.leave:
        raise ValueError(f"{key}, but [devices] leave names clients that leave for certain; remove one of them")
    if declared > (rate := _staying(experiment)):
        raise ValueError(f"{key}, but with [devices] dropout clients answer with a chance of {rate:.4g}; lower it")


def _staying(experiment: Experiment) -> float:
    chances = make_dropout(experiment).chances
    phases = PHASES if experiment.protocol.masks else PHASES[: PHASES.index("mask") + 1]
    return math.prod(1 - chances.get(phase, 0.0) for phase in phases)


def _standing(experiment: Experiment) -> bool:
    return experiment.protocol.key_life == "session"


def _loses(table: DevicesTable) -> bool:
    return table.profile is not None and (table.failures or table.deadline is not None)


def make_dropout(experiment: Experiment) -> Dropout:
    """Return who leaves when, beside what a profile brings."""
    table = experiment.devices
    chances = table.dropout if isinstance(table.dropout, dict) else {"mask": table.dropout}
    try:
        leave = tuple((int(round_), int(client), str(phase)) for round_, client, phase in table.leave)
    except (ValueError, TypeError):
        raise ValueError(f"[devices] leave wants [round, client, phase] triples, got {table.leave}") from None
    for round_, client, phase in leave:
        if not 0 <= round_ <= experiment.experiment.rounds or not 0 <= client < experiment.data.clients:
            raise ValueError(
                f"[devices] leave [{round_}, {client}, {phase!r}] never happens: rounds are 1 to "
                f"{experiment.experiment.rounds} (0 is the vote), and clients are numbered from 0 to "
                f"{experiment.data.clients - 1}"
            )
    return Dropout(chances, leave)


def read_latency(table: DevicesTable) -> Ways:
    """Return the seconds from and to each client that has its own, by client: (to the server, from it)."""
    ways: dict[int, tuple[float | None, float | None]] = {}
    for triple in table.latency:
        match triple:
            case [int(client), str(server), int() | float() as seconds] if server == SERVER and client >= 0:
                ways[client] = (float(seconds), ways.get(client, (None, None))[1])
            case [str(server), int(client), int() | float() as seconds] if server == SERVER and client >= 0:
                ways[client] = (ways.get(client, (None, None))[0], float(seconds))
            case [int(), int(), _]:
                raise ValueError(
                    f'[devices] latency {triple} is between two clients, and all messages travel over the "server"; '
                    "give the way of each client to it"
                )
            case _:
                raise ValueError(
                    f'[devices] latency wants [client, "server", seconds] or ["server", client, seconds], got {triple}'
                )
        if not float(triple[2]) >= 0:
            raise ValueError(f"[devices] latency must be at least 0 seconds, got {triple}")
    return ways
