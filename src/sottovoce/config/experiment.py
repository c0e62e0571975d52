"""Read an experiment file: TOML in, immutable and complete tables out."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, get_args

from pydantic import Field, ValidationError, model_validator

from sottovoce.config.data import check_data
from sottovoce.config.devices import check_devices, make_dropout
from sottovoce.config.model import squared_defaults
from sottovoce.config.names import GRIDS, NAMED, check_names
from sottovoce.config.privacy import (
    ballot_form,
    check_ballots,
    check_defence,
    check_units,
    head_defaults,
    unit_defaults,
)
from sottovoce.config.statistics import StatisticsTable, check_statistics, one_round
from sottovoce.config.switches import SwitchesTable, check_switches
from sottovoce.config.table import sentence
from sottovoce.config.tables import (
    AggregationTable,
    ClientTable,
    CohortTable,
    DataTable,
    DevicesTable,
    EncoderTable,
    EngineTable,
    GeneralTable,
    InferenceTable,
    ModelTable,
    PrivacyTable,
    ProjectionTable,
    SchemeTable,
    ServerTable,
    Table,
    ThreatTable,
    check_once,
)
from sottovoce.config.threat import check_threat
from sottovoce.core.errors import ConfigError, PrivacyError
from sottovoce.data import OVER, Aside, is_table
from sottovoce.devices import Dropout
from sottovoce.federation.aggregation.aggregator import AggregationProtocol
from sottovoce.federation.aggregation.protocols import find_protocol
from sottovoce.models.fronts import check_front, is_function
from sottovoce.privacy.plan.request import NoiseBy
from sottovoce.schemes import Scheme, make


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
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)  # JSON's strings, numbers and booleans are TOML's


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def with_settings(tables: Mapping[str, Any], settings: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Return tables with some keys set; the tables that are given stay as they are."""
    changed = {name: _copy(table) for name, table in tables.items()}
    for path, value in settings.items():
        place = changed
        for step in path[:-1]:
            inner = place.get(step)
            place[step] = dict(inner) if isinstance(inner, Mapping) else {}
            place = place[step]
        place[path[-1]] = value
    return changed


def _copy(table: Any) -> Any:
    return dict(table) if isinstance(table, Mapping) else table


def check_evaluation(experiment: Experiment) -> None:
    """Raise if clients cannot measure the model, or would do so without noise in a private run."""
    private = experiment.privacy
    noise = None if private is None else private.evaluation_noise_multiplier
    if experiment.evaluation != "federated":
        if noise is not None:
            raise ValueError(
                '[privacy] evaluation_noise_multiplier is for [experiment] evaluation = "federated"; set that, or '
                "remove it"
            )
        return
    key = '[experiment] evaluation = "federated"'
    if not experiment.client.held_out:
        raise ValueError(
            f"{key} measures on records that clients keep out, but [client] held_out is 0; set it, for example to 0.2"
        )
    if experiment.threat is not None or experiment.aggregation.defence != "none" or experiment.switches is not None:
        raise ValueError(f"{key} cannot be played with [threat], [switches] or a defence; remove them")
    if experiment.protocol.counts_votes:
        raise ValueError(f'{key} sums three numbers, which a ballot cannot; set [aggregation] secure = "real"')
    if private is not None and noise is None and private.unit == "client":
        raise PrivacyError(
            f"{key} tells of the clients' records in a private run, and needs noise of its own; set [privacy] "
            "evaluation_noise_multiplier"
        )


def check_whiten(experiment: Experiment) -> None:
    """Raise if features cannot be whitened with the other tables."""
    model, private, default = experiment.model, experiment.privacy, PrivacyTable.model_fields["whiten_share"].default
    if not model.whiten:
        if model.whiten_dims != ModelTable.model_fields["whiten_dims"].default:
            raise ValueError("[model] whiten_dims is for whiten = true; set it, or remove whiten_dims")
        if private is not None and private.whiten_share != default:
            raise ValueError("[privacy] whiten_share is for [model] whiten = true; set it, or remove whiten_share")
        return
    scheme, clipping = experiment.make_scheme(), None if private is None else private.clipping
    voted = private is not None and private.vote_noise_multiplier is not None
    threatened = experiment.threat is not None
    for key, wrong, reason in (
        ('front = "gabor"', model.front == "gabor", "it fills layers and gives no features"),
        ("[scheme] warm_start", experiment.scheme.warm_start is not None, "both would be round 0"),
        ("[privacy] vote_noise_multiplier", voted, "both would be round 0"),
        (
            f'[scheme] name = "{scheme.name}"',
            scheme.needs_importance and not voted,
            "it chooses coordinates before",
        ),
        (f'[privacy] clipping = "{clipping}"', clipping in ("public", "private"), "it is measured before"),
        ("[threat]", threatened and not experiment.protocol.counts_votes, "only a ballot bounds what its clients tell"),
        ("[switches]", experiment.switches is not None, "records that come later are not in it"),
        ("a defence", experiment.aggregation.defence != "none", "it judges updates, and this is a sum over records"),
        ('[aggregation] key_life = "session"', experiment.protocol.key_life == "session", "keys are made for rounds"),
    ):
        if wrong:
            raise ValueError(f"[model] whiten is not played with {key}: {reason}; remove one of them")


class Experiment(Table):
    """A whole experiment: all tables of a file, checked one by one and against each other."""

    experiment: GeneralTable = GeneralTable()
    data: DataTable = DataTable()
    model: ModelTable = ModelTable()
    client: ClientTable = ClientTable()
    cohort: CohortTable = CohortTable()
    scheme: SchemeTable = SchemeTable()
    server: ServerTable = ServerTable()
    privacy: PrivacyTable | None = None
    aggregation: AggregationTable = AggregationTable()
    threat: ThreatTable | None = None
    devices: DevicesTable = DevicesTable()
    switches: SwitchesTable | None = None
    engine: EngineTable = EngineTable()
    inference: InferenceTable | None = None
    statistics: StatisticsTable | None = None
    sweep: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="The `[sweep]` table: a grid of runs. `sottovoce sweep` makes one run for every combination of the "
        "values listed, or of a range such as {from = 0.05, to = 2.0, step = 0.05}; `sottovoce run` ignores it.",
    )
    tune: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="The `[tune]` table: values that `sottovoce tune` chooses among, on public data only "
        "(docs/tuning.md); `sottovoce run` ignores it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, tables: Any) -> Any:
        """Fill in what the file leaves out: by units, for squared losses, or for private heads on features."""
        if not isinstance(tables, Mapping):
            return tables
        if tables.get("statistics") is not None:
            return one_round(tables)
        privacy = tables.get("privacy")
        unit = privacy.get("unit") if isinstance(privacy, Mapping) else getattr(privacy, "unit", None)
        filled, defaults_of = dict(tables), squared_defaults(tables) or head_defaults(tables)
        if unit in ("record", "person"):
            defaults_of = unit_defaults(tables)
        for name, defaults in defaults_of.items():
            given = tables.get(name, {})
            if isinstance(given, Mapping):
                filled[name] = {**defaults, **given}
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.experiment.patience and not self.data.held_out and self.evaluation != "federated":
            raise ValueError(
                "[experiment] patience stops on held-out data, but [data] held_out is 0; set it, for example to 0.1, "
                'or evaluation = "federated"'
            )
        if self.client.held_out and self.client.balanced == OVER:
            raise ValueError(
                '[client] balanced = "over-sampling" would put copies of the records that a client keeps out into its '
                'training; remove held_out, or set balanced = "down-sampling"'
            )
        if self.client.personal_steps and not self.client.held_out:
            raise ValueError(
                "[client] personal_steps is judged on records that clients keep out, but [client] held_out is 0; set "
                "it, for example to 0.2"
            )
        check_data(self)
        check_statistics(self)
        check_evaluation(self)
        self._check_front()
        check_whiten(self)
        self.check_scheme(self.make_scheme())
        if self.protocol.masks and self.privacy is not None and self.privacy.mechanism == "gaussian":
            raise ValueError('[privacy] mechanism = "gaussian" is not made of integers and cannot be masked')
        self._check_key_life()
        check_switches(self)
        return self

    def _check_front(self) -> None:
        front, given = self.model.front, self.model.projection.model_fields_set
        check_front(front)
        measured = {"dims", "seed", "source", "samples"}
        keys = {
            "none": set(),
            "fourier": {"dims", "seed", "bandwidth"},
            "hashed": {"dims", "seed", "ngrams"},
        }.get(front, measured)
        defaults = ProjectionTable()
        for key in ProjectionTable.model_fields:
            if key in given - keys and getattr(self.model.projection, key) != getattr(defaults, key):
                has = f"it has {', '.join(sorted(keys))}" if keys else "set a front, or remove it"
                raise ValueError(f'[model] front = "{front}" does nothing with projection.{key}; {has}')
        if front != "encoder" and self.model.encoder != EncoderTable():
            raise ValueError(f'[model] encoder is for front = "encoder", and front is "{front}"; set it, or remove it')
        if is_function(front) and self.model.projection.source is not None and self.model.projection.dims is None:
            raise ValueError("[model] projection.source is given, but not how many features it should give; set dims")

    def check_scheme(self, scheme: Scheme) -> None:
        """Raise if a scheme, named in the file or given as an object, cannot be played with the other tables."""
        if scheme.everyone and self.cohort.sample_rate != 1:
            raise ValueError(
                f"{scheme.name} needs every client in every round, but [cohort] sample_rate is "
                f"{self.cohort.sample_rate}; set it to 1"
            )
        if scheme.everyone and self.cohort.cap is not None:
            raise ValueError(f"{scheme.name} needs every client in every round; remove [cohort] cap")
        if self.scheme.downlink_bits != 32 and not scheme.sends_weights:
            raise ValueError(f"{scheme.name} sends no weights down; remove [scheme] downlink_bits")
        if self.aggregation.weighting == "records" and not scheme.linear:  # an encoded update forgets its scale
            raise ValueError(f"{scheme.name} counts every client the same; remove [aggregation] weighting")
        self._check_server(scheme)
        check_defence(self, scheme)
        self._check_privacy(scheme)
        check_threat(self, scheme)
        check_once(self, scheme)
        check_ballots(self, scheme)
        check_units(self, scheme)
        check_devices(self, scheme)
        self._check_guard()

    def _check_server(self, scheme: Scheme) -> None:
        head = self.model.whiten or self.model.front not in ("none", "gabor")
        if self.server.lr == "auto" and (self.privacy is None or (self.privacy.unit == "client" and not head)):
            raise ValueError(
                '[server] lr = "auto" is for private runs with [privacy] unit = "record" or "person", or on features '
                "of a front or a whitening; set a number"
            )
        table, key = self.server, f'[server] optimizer = "{self.server.optimizer}"'
        own = {"sgd": ["momentum"], "adagrad": ["beta1", "tau"]}.get(table.optimizer, ["beta1", "beta2", "tau"])
        for other in ("momentum", "beta1", "beta2", "tau"):
            if other not in own and getattr(table, other) != ServerTable.model_fields[other].default:
                raise ValueError(f"{key} does nothing with {other}; remove it (this optimizer has {', '.join(own)})")
        if table.momentum and getattr(scheme, "selection", None) == "random-per-round":
            raise ValueError(
                f"[server] momentum adds up the steps of earlier rounds value by value, but {scheme.name} sends other "
                'coordinates in every round; remove it, or set [server] optimizer = "adam", which keeps to parameters'
            )
        if table.optimizer == "sgd":
            return
        if scheme.form == "signs":
            raise ValueError(
                f"{key} adapts to the size of each step, but {scheme.name} sends signs, and all its steps have one "
                'size, server_lr; use optimizer = "sgd"'
            )
        if scheme.everyone:
            raise ValueError(
                f"{key} moves the model on the server alone, but the clients of {scheme.name} follow it by themselves; "
                'use optimizer = "sgd"'
            )

    def _check_guard(self) -> None:
        if self.server.guard != "none" and self.privacy is None:
            raise ValueError(
                '[server] guard = "energy" compares a sum with the noise that it must carry, and this run is not '
                "private; add [privacy], or remove guard"
            )

    def _check_key_life(self) -> None:
        if self.protocol.key_life == "round":
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
        if not self.protocol.hides_updates:
            raise PrivacyError(
                'a private run needs [aggregation] secure = "real", or "ideal" in a simulation: a single client\'s '
                "share of the noise does not protect it from a server that sees single messages"
            )
        if self.privacy.vote_noise_multiplier is not None:
            self._check_vote(scheme)
        self._check_clip_norm(self.privacy)
        if self.aggregation.weighting == "records":
            raise PrivacyError(
                "weighting by data size changes what one client may weigh after clipping; a private run weighs every "
                'client equally: set [aggregation] weighting = "equal" or leave it out'
            )

    def _check_clip_norm(self, table: PrivacyTable) -> None:
        if table.clip_norm is None or table.clipping not in ("public", "private"):
            return
        if table.clipping == "private" and not table.unsafe_clip_norm:
            return  # not private whatever the norm is; the plan says so
        raise ValueError(
            f'[privacy] clipping = "{table.clipping}" measures clip_norm, but {table.clip_norm:g} is given; remove it, '
            'or set clipping = "fixed"'
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

    @property
    def protocol(self) -> type[AggregationProtocol]:
        """Return the aggregation protocol that makes the sums."""
        return find_protocol(self.secure, self.aggregation.key_life)

    @property
    def noise_by(self) -> NoiseBy:
        """Return who adds the noise of a private run: two aggregators together, if the file asks for that."""
        noise_by = self.protocol.noise_by
        return "jointly" if noise_by == "aggregators" and self.aggregation.noise == "joint" else noise_by

    @property
    def protects_persons(self) -> bool:
        """Tell whether all rows of a person at a site are protected together."""
        return self.privacy is not None and self.privacy.unit == "person"

    @property
    def evaluation(self) -> str:
        """Return who measures the model; nobody, where a private run has no test records but the clients' own."""
        if self.experiment.evaluation is not None:
            return self.experiment.evaluation
        if self.statistics is not None:
            return "none"
        return "none" if self.data.test is None and self.aside == "nothing" and self.threat is None else "server"

    @property
    def aside(self) -> Aside:
        """Return what is cut from a table for tests: nothing in a private run that may not measure on it."""
        table, private = self.data, self.privacy
        if not is_table(table.source, table.folder) or table.split is not None:
            return "fifth"  # the file has test records of its own
        if table.test is not None:
            return "nothing"
        if table.test_public:
            return "owners"
        return "fifth" if private is None or private.unsafe_test else "nothing"

    def make_dropout(self) -> Dropout:
        """Return who leaves when, beside what a device profile brings."""
        return make_dropout(self)

    def make_scheme(self) -> Scheme:
        """Return the scheme, not yet bound to a model."""
        return self.complete(make(self.scheme.name, **self.scheme.keys))

    def make_warm(self) -> Scheme | None:
        """Return the scheme that finds a warm start, not yet bound to a model; None: training begins at w_0."""
        table = self.scheme
        return None if table.warm_start is None else make(table.warm_start, **table.warm_keys)

    def complete(self, scheme: Scheme) -> Scheme:
        """Return a scheme with what `[scheme]` says of every scheme."""
        bits = self.scheme.downlink_bits
        return scheme if bits == scheme.downlink_bits else replace(scheme, downlink_bits=bits)

    def tables(self) -> dict[str, Any]:
        """Return the experiment as TOML tables, complete; parsing them gives the same experiment."""
        tables = self.model_dump(mode="json", exclude_none=True, exclude={"sweep", "tune"})
        for name in NAMED:
            if name in tables:
                tables[name] |= tables[name].pop("keys")
        tables["aggregation"]["secure"] = self.secure
        tables["experiment"]["evaluation"] = self.evaluation
        if self.protocol.counts_votes:
            tables["aggregation"]["ballot"] = ballot_form(self)
        scheme = self.make_scheme()
        tables["scheme"] |= {key: value for key in scheme.own_keys() if (value := getattr(scheme, key)) is not None}
        return tables

    def identity(self) -> dict[str, Any]:
        """Return the tables that decide the result; a resumed run must have the same."""
        tables = self.tables()
        tables["aggregation"].pop("helper", None)  # an address; who the helper is says the roster
        return {name: table for name, table in tables.items() if name not in ("engine", "inference")}


EXAMPLES: Final = Path(__file__).parents[1] / "experiments"  # the files that come with the package

TABLES: Final[dict[str, type[Table]]] = {
    name: kind
    for name, field in Experiment.model_fields.items()
    for kind in (field.annotation, *get_args(field.annotation))  # a table, or a table or None
    if isinstance(kind, type) and issubclass(kind, Table)
}


def load(path: Path, changes: Iterable[str] = ()) -> Experiment:
    """Read a file, apply `table.key=value` changes, and check everything."""
    return parse(read_tables(path, changes), where=path.name)


def read_tables(path: Path, changes: Iterable[str] = ()) -> dict[str, Any]:
    """Read a file and apply `table.key=value` changes; nothing is checked or completed."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no experiment file {path}{_way_out(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    return with_changes(tables, changes)


def with_changes(tables: dict[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Apply `table.key=value` changes to tables, and return these."""
    for change in changes:
        _apply(tables, change)
    return tables


def _way_out(path: Path) -> str:
    """Return how to get a file that is not there, if it is one of the examples."""
    name = path.as_posix().partition("experiments/")[2] or path.name
    if not (EXAMPLES / name).is_file():
        return ""
    return f"; `sottovoce examples get {name.removesuffix('.toml')}` writes {path.name}"


def parse(tables: Mapping[str, Any], where: str = "experiment") -> Experiment:
    """Check tables and return the experiment."""
    check_names(tables, TABLES, where)
    tables = dict(tables)
    for name, named in NAMED.items():
        if name in tables:
            tables[name] = named.split(tables[name])
    try:
        return Experiment.model_validate(tables)
    except ValidationError as error:
        raise ConfigError(f"{where}: {sentence(error, TABLES)}") from None


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
    if table in GRIDS and isinstance(place, dict):
        inner, dot, key = key.partition(".")
        if not (inner and dot and key):
            raise ConfigError(f"--set wants {table}.table.key=[values], got {change!r}")
        table, place = f"{table}.{inner}", place.setdefault(inner, {})
    while isinstance(place, dict) and "." in key:
        inner, _, key = key.partition(".")
        table, place = f"{table}.{inner}", place.setdefault(inner, {})
    if not isinstance(place, dict):
        raise ConfigError(f"--set {change}: {table} is not a table")
    place[key] = value
