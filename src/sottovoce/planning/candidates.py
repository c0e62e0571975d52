"""What `--solve` chooses from: schemes with their ratios, and paces, which are cohorts with numbers of rounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from sottovoce.assembly.parts import Parts
from sottovoce.assembly.public import is_clients
from sottovoce.config.experiment import Experiment, parse
from sottovoce.config.names import SCHEME_KEYS
from sottovoce.core.errors import ConfigError, InputError, PrivacyError
from sottovoce.core.validate import nearest
from sottovoce.federation.round import downlink_size
from sottovoce.schemes import SCHEMES, Scheme

_BYTES: Final = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "epsilon": {},
    "epsilon_server": {},
    "epsilon_member": {},
    "up": _BYTES,
    "up_run": _BYTES,
    "up_month": _BYTES,
    "down": _BYTES,
    "bytes": _BYTES,
    "joules": {"J": 1.0, "kJ": 1e3},
    "hours": {"h": 1.0, "min": 1 / 60, "d": 24.0},
    "rounds": {},
}
NAMES: Final = tuple(_UNITS)
_PROMISED: Final = {  # what no plan can tell, and why
    "accuracy": "accuracy depends on data that nobody has seen yet, so it is never promised; compare the predicted "
    "signal-to-noise ratios instead",
    "seconds": "seconds of this machine are measured, not planned; use --measure, or hours for the simulated time",
}
_FORM: Final = re.compile(r"\s*([A-Za-z_]+)\s*(<=|<|>=|>|==|=)\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class Constraint:
    """One upper limit, in the unit of its name: bytes, joules, hours, or none."""

    name: str
    limit: float
    text: str  # as the user wrote it

    def holds(self, figures: Mapping[str, Any]) -> bool:
        """Tell whether a plan's figures keep it; what has no bound keeps no limit."""
        value = figures.get(self.name)
        return value is not None and float(value) <= self.limit


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """Return the constraints of a line, the strictest of each name, or say which part cannot be read.

    >>> [(c.name, c.limit) for c in parse_constraints("epsilon<=1, up<=200kB")]
    [('epsilon', 1.0), ('up', 200000.0)]
    """
    found: dict[str, Constraint] = {}
    for part in text.split(","):
        constraint = _parse(part)
        known = found.get(constraint.name)
        if known is None or constraint.limit < known.limit:
            found[constraint.name] = constraint
    return tuple(found.values())


def _parse(part: str) -> Constraint:
    shown = part.strip()
    if not shown:
        raise InputError("--solve has an empty part; write limits such as epsilon<=1, up<=200kB with commas between")
    match = _FORM.fullmatch(part)
    name = match[1] if match else re.split(r"[^A-Za-z_]", shown)[0]
    if name in _PROMISED:
        raise InputError(f"--solve cannot take {shown!r}: {_PROMISED[name]}")
    if name not in _UNITS:
        guess = nearest(name, NAMES) if name else None
        hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(NAMES)}"
        raise InputError(f"--solve has no limit {name or shown!r} in {shown!r}; {hint}")
    if match is None:
        raise InputError(f"--solve cannot read {shown!r}; write a limit such as {_example(name)}")
    if match[2] != "<=":
        raise InputError(f"--solve takes upper limits only, got {match[2]!r} in {shown!r}; write {_example(name)}")
    units = _UNITS[name]
    if match[4] and match[4] not in units:
        others = f"it has {', '.join(units)}" if units else "it has none"
        raise InputError(f"--solve: {match[4]!r} in {shown!r} is no unit of {name}; {others}")
    try:
        limit = float(match[3]) * units.get(match[4], 1.0)
    except ValueError:
        raise InputError(f"--solve: {match[3]!r} in {shown!r} is no number") from None
    if not 0 < limit < math.inf:
        raise InputError(f"--solve: the limit in {shown!r} must be finite and above 0")
    return Constraint(name, limit, shown)


def _example(name: str) -> str:
    unit = next((unit for unit in _UNITS[name] if unit in ("kB", "J", "h")), "")
    return f"{name}<=20{unit}" if name == "rounds" else f"{name}<=4{unit}"


RATIOS: Final = (0.005, 0.01, 0.05, 0.1, 0.25)
RATES: Final = tuple(map(Fraction, ("1", "1/2", "1/6", "1/12", "1/30", "1/60")))
ROUNDS: Final = (10, 20, 40, 100, 200)
_LEFT_OUT: Final = ("fl-bas-2", "fl-bas-3", "fl-bas-4", "fl-top-bis", "fl-once", "sign-sgd")  # variants for studies
_LEAST_COHORT: Final = 2
_SIGNS_HAVE_NONE: Final = ("clip_norm", "clipping", "clip_quantile", "clip_lr", "count_stddev")


@dataclass(frozen=True)
class Pace:
    """How fast a run goes: the share of the clients that is asked in a round, and how many rounds there are."""

    sample_rate: Fraction
    rounds: int


@dataclass(frozen=True, eq=False)
class Sender:
    """What clients send: a scheme with its ratio, bound to the model, and the file with it in place of its own."""

    experiment: Experiment
    scheme: Scheme
    bound: Scheme
    down: int  # bytes of a downlink

    @property
    def ratio(self) -> float | None:
        """Return the scheme's ratio, if it has one."""
        value = getattr(self.bound, "ratio", None)
        return None if value is None else float(value)

    @property
    def share(self) -> float:
        """Return the share of the model's weights that one message can move."""
        return min(1.0, self.bound.length / self.bound.dim)


def limited(experiment: Experiment, constraints: tuple[Constraint, ...]) -> Experiment:
    """Return the experiment with its privacy targets replaced by the limits on epsilon, where there are such."""
    limits = {c.name: c.limit for c in constraints if c.name.startswith("epsilon")}
    if not limits:
        return experiment
    if experiment.privacy is None:
        raise InputError(
            f"--solve limits {next(iter(limits))}, but the file is not private; add a [privacy] table with delta and "
            "clip_norm"
        )
    if experiment.privacy.noise_multiplier is not None:
        raise InputError(
            f"--solve finds the noise that keeps {next(iter(limits))}, but [privacy] noise_multiplier is given; remove "
            "it"
        )
    targets: dict[str, Any] = {name: limits[name] for name in ("epsilon", "epsilon_server") if name in limits}
    if not targets and experiment.privacy.epsilon is experiment.privacy.epsilon_server is None:
        targets = {"epsilon_server": limits["epsilon_member"]}  # a member knows less than the server, but for its share
    if "epsilon_server" in targets:
        targets["max_participations"] = None  # chosen with the noise
    try:
        return _changed(experiment, {"privacy": targets})
    except ConfigError as error:
        raise InputError(f"--solve: {error}") from None


def with_pace(parts: Parts, pace: Pace) -> Parts:
    """Return the parts of the same experiment at another pace."""
    experiment = parts.experiment
    most = None if experiment.privacy is None else experiment.privacy.max_participations
    changes: dict[str, dict[str, Any]] = {
        "experiment": {"rounds": pace.rounds},
        "cohort": {"sample_rate": str(pace.sample_rate)},
    }
    if most is not None and pace.sample_rate == 1:
        changes["privacy"] = {"max_participations": None}  # nobody would be left for the others
    cohort = replace(parts.cohort, sample_rate=pace.sample_rate)
    return replace(parts, experiment=_changed(experiment, changes), cohort=cohort)


def paces(parts: Parts, constraints: tuple[Constraint, ...]) -> list[Pace]:
    """Return the paces to compare, the file's among them: rounds beyond a limit are left out."""
    experiment, clients = parts.experiment, parts.cohort.clients
    most = min([c.limit for c in constraints if c.name == "rounds"], default=float("inf"))
    own = (experiment.cohort.sample_rate, experiment.experiment.rounds)
    rates = sorted({*RATES, own[0]}, reverse=True)
    rounds = sorted({*ROUNDS, own[1], *([int(most)] if 1 <= most < 1e7 else [])})
    if parts.scheme.everyone or experiment.aggregation.key_life == "session":
        rates = [Fraction(1)]
    largest = clients if parts.cohort.cap is None else parts.cohort.cap
    enough = [rate for rate in rates if _LEAST_COHORT <= rate * clients <= largest] or [own[0]]
    return [Pace(rate, count) for rate in enough for count in rounds if count <= most]


def senders(parts: Parts) -> tuple[list[Sender], dict[str, str]]:
    """Return the schemes that the file can be run with, its own first, and why others cannot."""
    found: list[Sender] = []
    left_out: dict[str, str] = {}
    for name, ratio in _choices(parts.experiment):
        try:
            found.append(_sender(parts, name, ratio))
        except (InputError, PrivacyError) as error:
            left_out[name] = str(error).removeprefix("experiment: ")
    return found, left_out


def _choices(experiment: Experiment) -> Iterator[tuple[str, float | None]]:
    own = experiment.make_scheme()
    kinds = {own.name: type(own), **{name: kind for name, kind in SCHEMES.items() if name not in _LEFT_OUT}}
    for name, kind in kinds.items():
        if "ratio" not in kind.own_keys():
            yield name, None
            continue
        mine = getattr(own, "ratio", None) if name == own.name else None
        yield from ((name, ratio) for ratio in dict.fromkeys((*((mine,) if mine else ()), *RATIOS)))


def _sender(parts: Parts, name: str, ratio: float | None) -> Sender:
    experiment = parts.experiment
    if name != experiment.scheme.name or ratio is not None:
        experiment = _with_scheme(experiment, name, ratio)
    scheme = experiment.make_scheme().fit(parts.network.layout)
    dim = parts.network.dim
    made_up = np.arange(dim, 0, -1, dtype=np.float32) if scheme.needs_importance else None
    bound = scheme.bind(dim, seed=parts.seeds.public.seed, start=parts.start, importance=made_up)
    if experiment.privacy is not None and scheme.needs_importance and "public" not in parts.splits:
        _check_coordinates(experiment, name)
    _check_clip_norm(experiment, bound)
    down = downlink_size(bound, bound.init(parts.start), private=experiment.privacy is not None)
    return Sender(experiment, scheme, bound, down)


def _check_clip_norm(experiment: Experiment, bound: Scheme) -> None:
    """Raise if a scheme of floats has no clip norm: one of signs needs none, and the file may be of that kind."""
    table = experiment.privacy
    if table is None or bound.form == "signs" or table.clipping != "fixed":
        return
    if table.clip_norm is None and bound.public_norm is None:
        raise InputError(f'{bound.name} needs [privacy] clip_norm, or clipping = "public" or "adaptive"')


def _check_coordinates(experiment: Experiment, name: str) -> None:
    """Raise if a private run has nothing to choose coordinates by: public records of another set, or a vote."""
    table, privacy = experiment.scheme, experiment.privacy
    voted = privacy is not None and privacy.vote_noise_multiplier is not None
    if not voted and (table.public is None or is_clients(table.public, experiment)):
        raise PrivacyError(
            f"{name} needs public data to choose its coordinates; name a data set in [scheme] public, or set "
            "[privacy] vote_noise_multiplier"
        )


def _with_scheme(experiment: Experiment, name: str, ratio: float | None) -> Experiment:
    tables = experiment.tables()
    own = tables["scheme"]
    kept = own if name == own["name"] else {key: value for key, value in own.items() if key in SCHEME_KEYS}
    tables["scheme"] = {**kept, "name": name, **({} if ratio is None else {"ratio": ratio})}
    privacy = tables.get("privacy")
    if privacy is not None and SCHEMES[name].form == "signs":
        tables["privacy"] = {key: value for key, value in privacy.items() if key not in _SIGNS_HAVE_NONE}
    return parse(tables)


def _changed(experiment: Experiment, changes: Mapping[str, Mapping[str, Any]]) -> Experiment:
    """Return the experiment with other values; None takes a key away."""
    tables = experiment.tables()
    for name, table in changes.items():
        merged = {**tables.get(name, {}), **table}
        tables[name] = {key: value for key, value in merged.items() if value is not None}
    return parse(tables)
