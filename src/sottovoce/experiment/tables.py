"""Name the tables of an experiment file, their keys, defaults and ranges."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

__all__ = [
    "Aggregation",
    "Client",
    "CohortTable",
    "Data",
    "Devices",
    "Engine",
    "General",
    "Model",
    "Privacy",
    "SchemeTable",
    "ServerTable",
    "Table",
]


def _fraction(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction):
        raise ValueError('must be a number or a fraction such as "1/60"')
    try:
        return Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError('must be a number or a fraction such as "1/60"') from None


Rate = Annotated[
    Fraction,
    BeforeValidator(_fraction),
    PlainSerializer(lambda value: str(value) if value.denominator > 1 else int(value)),
]


class Table(BaseModel):
    """Be frozen and know every key."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class General(Table):
    """The `[experiment]` table."""

    name: str = Field("experiment", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seed: int = Field(1, ge=0, lt=2**63)
    rounds: int = Field(100, ge=1)
    evaluate_every: int = Field(10, ge=1)
    checkpoint_every: int = Field(10, ge=1)
    patience: int = Field(0, ge=0)  # evaluations on held-out data without a new best before stopping; 0: never stop


class Data(Table):
    """The `[data]` table: whose records."""

    source: str = "digits"
    folder: str | None = None
    clients: int = Field(100, ge=1)
    partition: Literal["iid", "dirichlet", "shards", "by-id", "hospitals", "virtual"] = "iid"
    concentration: float = Field(0.5, gt=0)  # dirichlet
    shards_per_client: int = Field(2, ge=1)  # shards
    records_per_client: int | None = Field(None, ge=1)  # virtual (10 if not given), iid
    held_out: float = Field(0.0, ge=0, lt=1)  # share of the training records set aside for early stopping


class Model(Table):
    """The `[model]` table."""

    name: str = "mlp"
    hidden: int = Field(128, ge=1)  # mlp


class Client(Table):
    """The `[client]` table: local training."""

    local_steps: int = Field(5, ge=1)
    batch_size: Annotated[int, Field(ge=1)] | Literal["all"] = 10
    client_lr: float = Field(0.1, gt=0)
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    balanced: bool = False  # down-sample the larger class on the client (medical runs)
    trainer: Literal["auto", "torch", "fast"] = "auto"
    device: str = "cpu"


class CohortTable(Table):
    """The `[cohort]` table: who is asked each round."""

    sampling: Literal["poisson", "fixed"] = "poisson"
    sample_rate: Rate = Fraction(1, 10)
    cap: int | None = Field(None, ge=1)


class SchemeTable(Table):
    """The `[scheme]` table: a name, the keys of that scheme, and where its public data comes from."""

    name: str = "fl-std"
    public: str | None = None  # a data set; None: a slice of the training data, set aside before partitioning ...
    public_samples: int = Field(10, ge=1)  # ... which a private run refuses
    public_batch: int | None = Field(None, ge=1)  # None: all of them in every step, as in the papers
    public_steps: int = Field(5, ge=1)  # T_init
    keys: dict[str, Any] = Field(default_factory=dict)


class ServerTable(Table):
    """The `[server]` table: what the server does with the mean message besides the scheme; all off by default."""

    momentum: float = Field(0.0, ge=0, lt=1)
    lr: float = Field(1.0, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    average: float = Field(0.0, ge=0, lt=1)  # weight of the past in a running mean of the models


class Privacy(Table):
    """The `[privacy]` table: absent, a run is not private."""

    epsilon: float | None = None
    epsilon_server: float | None = None  # a target too, against the server and its colluders
    noise_multiplier: float | None = None
    delta: float = 1e-5
    accountant: Literal["pld", "rdp", "moments"] = "pld"
    mechanism: Literal["discrete-gaussian", "gaussian"] = "discrete-gaussian"
    clipping: Literal["fixed", "public", "adaptive", "private"] = "fixed"
    clip_norm: float | None = None  # clipping = "fixed"; where "adaptive" starts; measured otherwise
    clip_quantile: float = 0.5
    clip_lr: float = 0.2
    count_stddev: float | None = None
    max_participations: int | None = None
    vote_noise_multiplier: float | None = Field(None, ge=0.01, le=1e5)  # None: coordinate sets come from public data
    grid: Literal["solved", "papers"] = "solved"
    bits: int | None = None
    unsafe_delta: bool = False
    unsafe_clip_norm: bool = False
    unsafe_public: bool = False  # take "public" records from the clients' own data, which epsilon does not cover


class Aggregation(Table):
    """The `[aggregation]` table: what the server sees of single clients.

    `threshold` is how many of a cohort must stay to the end: a share (2/3 means floor(2n/3) + 1) or a number.
    """

    secure: Literal["none", "ideal", "real"] | None = None  # None: "ideal" for a private run, else "none"
    weighting: Literal["auto", "records", "equal"] = "auto"  # auto: by |D_k| where the scheme's box in the papers does
    threshold: Rate | None = None  # None: 2/3
    colluders: int = Field(0, ge=0)
    graph_colluders: Rate = Field(Fraction(1, 3), ge=0, le=1)  # share of a cohort that a sparse graph is sized for
    neighbours: int = Field(0, ge=0)  # 0: everyone up to 200 clients, above as many as the bound asks for
    key_life: Literal["round", "session"] = "round"  # "session": enrol once, then three phases a round instead of five
    largest: float = Field(4.0, gt=0)  # range of one value in a secure sum that is not private


class Devices(Table):
    """The `[devices]` table: who leaves a simulated round, and before which phase."""

    dropout: float | dict[str, float] = 0.0  # a number is the chance to leave before the vector is sent
    leave: list[list[int | str]] = Field(default_factory=list)  # [round, client, phase]


class Engine(Table):
    """The `[engine]` table: how it is computed; never changes the result."""

    name: Literal["local"] = "local"
    workers: int = Field(0, ge=0)  # 0: one a core
