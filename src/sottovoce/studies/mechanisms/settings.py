"""The `[study]` table of a mechanisms file, and the cells that it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from sottovoce.config.experiment import read_tables
from sottovoce.config.names import check_names
from sottovoce.config.table import Table, sentence
from sottovoce.core.errors import ConfigError

Mode = Literal["printed", "right"]
Mechanism = Literal[
    "base", "none", "laplace", "gaussian", "staircase", "staircase-coordinates", "gamma-shares", "radial"
]
Epsilon = Annotated[float, Field(gt=0, le=100)]

NOISELESS: Final = ("base", "none")
DEFAULT: Final = Path(__file__).with_name("default.toml")


@dataclass(frozen=True)
class Cell:
    """One cell of a table: one federation to play."""

    mechanism: Mechanism
    epsilons: tuple[float, ...]  # of each client; empty without noise
    clients: int
    samples: int

    @property
    def epsilon(self) -> float | None:
        """Return the epsilon that all clients share, or the largest; None without noise."""
        return max(self.epsilons) if self.epsilons else None


class Settings(Table):
    """The `[study]` table: what is played, on what, and whether as the thesis did or right."""

    name: str = Field(
        "mechanisms",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the study. Its results go to the folder runs/<name> unless --out says otherwise.",
    )
    mode: Mode = Field(
        "right",
        description='"printed" repeats the thesis: its training, sensitivity, delta, gamma and samplers, which give no '
        'guarantee. "right" trains to the optimum of a regularised loss, takes the true sensitivity and charges all '
        "iterations.",
    )
    data: str = Field("mnist", description="Data set of images; the thesis has mnist and cifar10.")
    mechanisms: list[Mechanism] = Field(
        ["base", "none", "laplace", "gaussian", "staircase"],
        description='Noise on what clients send. "none" is the same federation without noise; "base" is the thesis\' '
        "base case, which has no noise but also fresh data in place of cumulative and no warm start.",
    )
    epsilons: list[Epsilon | list[Epsilon]] = Field(
        [0.1, 1.0],
        description="Epsilons to play, each one number for all clients or a list of one number a client. In mode "
        '"right" it is for all iterations together, in mode "printed" for each, as the thesis has it.',
    )
    clients: list[Annotated[int, Field(ge=1)]] = Field([3, 8], description="Numbers of clients to play.")
    samples: list[Annotated[int, Field(ge=1)]] = Field(
        [100, 200], description="Numbers of new records that a client gets in each iteration."
    )
    iterations: int = Field(10, ge=1, description="Number of iterations: in each, everybody fits, sends and receives.")
    cumulative: bool = Field(
        True, description="Train on all records that came so far; if false, on those of this iteration alone."
    )
    warm_start: bool = Field(
        True,
        description='Start from the received model. In mode "right" the minimiser is one and the same wherever the '
        "search starts, so this changes nothing there.",
    )
    subtract_own_noise: bool = Field(
        False,
        description="Let each client subtract its own noise, divided by the number of clients, from the model that it "
        "receives; the client knows its noise anyway, so this costs no privacy against others.",
    )
    seed: int = Field(1, ge=0, lt=2**63, description="Start of all random numbers.")
    test_records: int = Field(
        0,
        ge=0,
        description="Judge by this many of the last test records; 0 takes all. The thesis' code takes 1000.",
    )
    sensitivity: float = Field(
        0.0,
        ge=0,
        description="Mode \"printed\": sensitivity of the noise; the thesis' text says 1. 0 takes that of its author's "
        "code, 2 / (clients * records).",
    )
    regulariser: float = Field(
        0.1,
        gt=0,
        description='Mode "right": weight of ||W||^2 / 2 in the loss. More of it needs less noise and learns less.',
    )
    centre: float = Field(
        0.0,
        ge=0,
        le=1,
        description='Mode "right": constant that is taken from every value (0 to 1) before a record is scaled to '
        "length 1; 0.5 suits photographs, whose brightness would else be most of their length.",
    )
    tolerance: float = Field(
        1e-6,
        gt=0,
        description='Mode "right": norm of the gradient at which the fit stops; it is part of the sensitivity.',
    )
    delta: float = Field(1e-4, gt=0, lt=1, description='Delta of the Gaussian mechanism; "printed" takes 1e-4 always.')

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key in ("mechanisms", "epsilons", "clients", "samples"):
            if not getattr(self, key):
                raise ValueError(f"[study] {key} must have at least one entry, got []")
        for epsilon in self.epsilons:
            if isinstance(epsilon, list) and set(self.clients) != {len(epsilon)}:
                raise ValueError(
                    f"[study] epsilons: a list of {len(epsilon)} epsilons needs clients = [{len(epsilon)}], got "
                    f"{self.clients}"
                )
        if self.mode == "printed" and "radial" in self.mechanisms:
            raise ValueError('[study] mechanisms: "radial" is not of the thesis; set mode = "right" or leave it out')
        return self

    def cells(self) -> Iterator[Cell]:
        """Yield every cell; those without noise once, not once an epsilon."""
        for clients in self.clients:
            for samples in self.samples:
                for mechanism in dict.fromkeys(self.mechanisms):
                    for epsilon in [()] if mechanism in NOISELESS else self.epsilons:
                        own = epsilon if isinstance(epsilon, list | tuple) else [epsilon] * clients
                        yield Cell(mechanism, tuple(own), clients, samples)


class _File(Table):
    """A whole mechanisms file."""

    study: Settings = Settings()


def read_settings(path: Path | None, changes: Iterable[str] = ()) -> Settings:
    """Read a mechanisms file and apply `study.key=value` changes; without a file, those of the package."""
    tables = read_tables(path or DEFAULT, changes)
    where = "study" if path is None else path.name
    kinds: dict[str, type[Table]] = {"study": Settings}
    check_names(tables, kinds, where)
    try:
        return _File.model_validate(tables).study
    except ValidationError as error:
        problem = error.errors()[0]
        own = len(problem["loc"]) == 1  # a check of the whole table
        words = problem["msg"].removeprefix("Value error, ") if own else sentence(error, kinds)
        raise ConfigError(f"{where}: {words}") from None
