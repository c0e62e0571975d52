"""What `--solve` chooses from: schemes with their ratios, and paces, which are cohorts with numbers of rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from sottovoce.core.errors import ConfigError, InputError, PrivacyError
from sottovoce.experiment.config import Experiment, parse
from sottovoce.experiment.constraints import Constraint
from sottovoce.experiment.names import SCHEME_KEYS
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.public import is_clients
from sottovoce.federation.costs import downlink_size
from sottovoce.schemes import Scheme, known
from sottovoce.schemes.registry import scheme_class

__all__ = ["RATES", "RATIOS", "ROUNDS", "Pace", "Sender", "limited", "paces", "senders", "with_pace"]

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
    names = [own.name, *(name for name in known() if name not in (own.name, *_LEFT_OUT))]
    for name in names:
        if "ratio" not in scheme_class(name).own_keys():
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
    if privacy is not None and scheme_class(name).form == "signs":
        tables["privacy"] = {key: value for key, value in privacy.items() if key not in _SIGNS_HAVE_NONE}
    return parse(tables)


def _changed(experiment: Experiment, changes: Mapping[str, Mapping[str, Any]]) -> Experiment:
    """Return the experiment with other values; None takes a key away."""
    tables = experiment.tables()
    for name, table in changes.items():
        merged = {**tables.get(name, {}), **table}
        tables[name] = {key: value for key, value in merged.items() if value is not None}
    return parse(tables)
