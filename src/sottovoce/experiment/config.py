"""Read an experiment file: TOML in, frozen and complete tables out."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from sottovoce.core.errors import ConfigError, PrivacyError
from sottovoce.core.validate import nearest
from sottovoce.devices import Dropout
from sottovoce.schemes import Scheme, make

__all__ = ["Experiment", "load", "parse", "to_toml"]


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
    public: str | None = None  # a data set; None: a slice of the training data, set aside before partitioning
    public_samples: int = Field(10, ge=1)
    public_batch: int = Field(10, ge=1)
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
    noise_multiplier: float | None = None
    delta: float = 1e-5
    accountant: Literal["pld", "rdp", "moments"] = "pld"
    mechanism: Literal["discrete-gaussian", "gaussian"] = "discrete-gaussian"
    clipping: Literal["fixed", "public", "adaptive", "private"] = "fixed"
    clip_norm: float | None = None
    clip_quantile: float = 0.5
    clip_lr: float = 0.2
    count_stddev: float | None = None
    max_participations: int | None = None
    vote_noise_multiplier: float | None = Field(None, ge=0.01, le=1e5)  # None: coordinate sets come from public data
    grid: Literal["solved", "papers"] = "solved"
    bits: int | None = None
    unsafe_delta: bool = False
    unsafe_clip_norm: bool = False


class Aggregation(Table):
    """The `[aggregation]` table: what the server sees of single clients.

    `threshold` is how many of a cohort must stay to the end: a share (2/3 means floor(2n/3) + 1) or a number.
    """

    secure: Literal["none", "ideal", "real"] | None = None  # None: "ideal" for a private run, else "none"
    weighting: Literal["auto", "records", "equal"] = "auto"
    threshold: Rate | None = None  # None: 2/3 where clients may drop out or masks are real, else everyone
    colluders: int = Field(0, ge=0)
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


class Experiment(Table):
    """Hold a whole experiment."""

    experiment: General = General()
    data: Data = Data()
    model: Model = Model()
    client: Client = Client()
    cohort: CohortTable = CohortTable()
    scheme: SchemeTable = SchemeTable()
    server: ServerTable = ServerTable()
    privacy: Privacy | None = None
    aggregation: Aggregation = Aggregation()
    devices: Devices = Devices()
    engine: Engine = Engine()
    sweep: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 0 < self.cohort.sample_rate <= 1:
            raise ValueError(f"[cohort] sample_rate must be in (0, 1], got {self.cohort.sample_rate}")
        if self.experiment.patience and not self.data.held_out:
            raise ValueError(
                "[experiment] patience stops on held-out data, but [data] held_out is 0; set it, for example to 0.1"
            )
        scheme = self.make_scheme()
        if scheme.everyone and self.cohort.sample_rate != 1:
            raise ValueError(
                f"{scheme.name} needs every client in every round, but [cohort] sample_rate is "
                f"{self.cohort.sample_rate}; set it to 1"
            )
        if scheme.everyone and self.cohort.cap is not None:
            raise ValueError(f"{scheme.name} needs every client in every round; remove [cohort] cap")
        if self.aggregation.weighting == "records" and not scheme.weighted:
            raise ValueError(f"{scheme.name} counts every client the same; remove [aggregation] weighting")
        self._check_privacy(scheme)
        if self.secure == "real" and self.privacy is not None and self.privacy.mechanism == "gaussian":
            raise ValueError('[privacy] mechanism = "gaussian" is not made of integers and cannot be masked')
        self._check_key_life()
        self.make_dropout()
        return self

    def _check_key_life(self) -> None:
        if self.secure != "real" or self.aggregation.key_life == "round":
            return
        key = '[aggregation] key_life = "session" needs every client in every round'
        if self.cohort.sample_rate != 1:
            raise ValueError(f"{key}, but [cohort] sample_rate is {self.cohort.sample_rate}; set it to 1")
        if self.cohort.cap is not None:
            raise ValueError(f"{key}; remove [cohort] cap")
        most = None if self.privacy is None else self.privacy.max_participations
        if most is not None and most < self.experiment.rounds:
            raise ValueError(f"{key}; remove [privacy] max_participations")

    def _check_privacy(self, scheme: Scheme) -> None:
        if self.privacy is None:
            return
        if not scheme.private:
            raise PrivacyError(f"{scheme.name} has no private twin; choose another scheme or remove [privacy]")
        if self.secure == "none":
            raise PrivacyError(
                'a private run needs [aggregation] secure = "ideal" or "real": a single client\'s share of the noise '
                "does not protect it from a server that sees single messages"
            )
        if self.privacy.vote_noise_multiplier is not None:
            self._check_vote(scheme)
        if self.aggregation.weighting == "records":
            raise PrivacyError(
                "weighting by data size changes what one client may weigh after clipping; a private run weighs every "
                'client equally: set [aggregation] weighting = "equal" or leave it out'
            )

    def _check_vote(self, scheme: Scheme) -> None:
        key = "[privacy] vote_noise_multiplier"
        if not scheme.needs_importance:
            raise ValueError(f"{key} is for schemes that choose their coordinates once; {scheme.name} does not")
        if self.scheme.public is not None:
            raise ValueError(f"{key} lets the clients choose the coordinates; remove it or [scheme] public")
        if self.privacy is not None and self.privacy.clipping == "public":
            raise ValueError(f'{key} leaves no public data to clip by; set [privacy] clipping = "fixed" or "adaptive"')

    @property
    def secure(self) -> str:
        """Return how sums are made."""
        return self.aggregation.secure or ("none" if self.privacy is None else "ideal")

    def make_dropout(self) -> Dropout:
        """Return who leaves when."""
        table = self.devices
        chances = table.dropout if isinstance(table.dropout, dict) else {"mask": table.dropout}
        try:
            leave = tuple((int(round_), int(client), str(phase)) for round_, client, phase in table.leave)
        except (ValueError, TypeError):
            raise ValueError(f"[devices] leave wants [round, client, phase] triples, got {table.leave}") from None
        return Dropout(chances, leave)

    def make_scheme(self) -> Scheme:
        """Return the scheme, not yet bound to a model."""
        return make(self.scheme.name, **self.scheme.keys)

    def tables(self) -> dict[str, Any]:
        """Return the experiment as TOML tables, complete; parsing them gives the same experiment."""
        tables = self.model_dump(mode="json", exclude_none=True, exclude={"sweep"})
        tables["scheme"] |= tables["scheme"].pop("keys")
        tables["aggregation"]["secure"] = self.secure
        scheme = self.make_scheme()
        tables["scheme"] |= {key: value for key in scheme.own_keys() if (value := getattr(scheme, key)) is not None}
        return tables

    def identity(self) -> dict[str, Any]:
        """Return the tables that decide the result; a resumed run must have the same."""
        return {name: table for name, table in self.tables().items() if name != "engine"}


def load(path: Path, changes: Iterable[str] = ()) -> Experiment:
    """Read a file, apply `table.key=value` changes, and check everything."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no experiment file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    for change in changes:
        _apply(tables, change)
    return parse(tables, where=path.name)


def parse(tables: Mapping[str, Any], where: str = "experiment") -> Experiment:
    """Check tables and return the experiment."""
    _known_keys(tables, where)
    tables = dict(tables)
    if "scheme" in tables:
        own = {key: value for key, value in tables["scheme"].items() if key not in SchemeTable.model_fields}
        common = {key: value for key, value in tables["scheme"].items() if key in SchemeTable.model_fields}
        tables["scheme"] = {**common, "keys": own}
    try:
        return Experiment.model_validate(tables)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_sentence(error)}") from None


def to_toml(tables: Mapping[str, Any]) -> str:
    """Write tables of plain values as TOML."""
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines.extend(f"{_key(key)} = {_value(value)}" for key, value in table.items())
        lines.append("")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)  # JSON's strings, numbers, booleans and lists are TOML's


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def _apply(tables: dict[str, Any], change: str) -> None:
    path, equals, text = change.partition("=")
    table, dot, key = path.strip().partition(".")
    if not (equals and dot and table and key):
        raise ConfigError(f"--set wants table.key=value, got {change!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    place = tables.setdefault(table, {})
    if table == "sweep":  # sweep.table.key
        inner, _, key = key.partition(".")
        place = place.setdefault(inner, {})
    if not isinstance(place, dict):
        raise ConfigError(f"--set {change}: {table} is not a table")
    place[key] = value


def _known_keys(tables: Mapping[str, Any], where: str) -> None:
    for name, table in tables.items():
        if name not in Experiment.model_fields:
            guess = nearest(name, Experiment.model_fields)
            hint = f"did you mean [{guess}]?" if guess else f"known: {', '.join(Experiment.model_fields)}"
            raise ConfigError(f"{where}: there is no table [{name}]; {hint}")
        if not isinstance(table, dict):
            raise ConfigError(f"{where}: {name} must be a table, got {table!r}")
        kind = Privacy if name == "privacy" else Experiment.model_fields[name].annotation
        if name in ("scheme", "sweep") or not (isinstance(kind, type) and issubclass(kind, Table)):
            continue  # a scheme knows its own keys; a sweep's keys are checked when it is laid out
        for key in table:
            if key not in kind.model_fields:
                guess = nearest(key, kind.model_fields)
                hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(kind.model_fields)}"
                raise ConfigError(f"{where}: [{name}] has no key {key!r}; {hint}")


def _sentence(error: ValidationError) -> str:
    """Say the first problem: table, key, rule, value."""
    problem = error.errors()[0]
    message = problem["msg"].removeprefix("Value error, ")
    place = [str(part) for part in problem["loc"]]
    if not place:
        return message
    message = message.removeprefix("Input should be ").replace("'", '"')
    rule = message if message.startswith("must") else f"must be {message[:1].lower()}{message[1:]}"
    return f"[{place[0]}] {'.'.join(place[1:2])} {rule}, got {problem['input']!r}"
