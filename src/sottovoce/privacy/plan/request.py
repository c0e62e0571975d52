"""Say what a private run asks for, and refuse what cannot be private."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final, Literal, get_args

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.validate import in_range, one_of
from sottovoce.privacy.accounting.events import ACCOUNTANTS, SAMPLINGS, Accountant, Event, Sampling
from sottovoce.privacy.adjacency import UNITS, Adjacency, Unit
from sottovoce.privacy.noise.clipping import LEAST_CLIP_NORM, MOST_CLIP_NORM
from sottovoce.privacy.noise.grid import Form

Clipping = Literal["fixed", "public", "adaptive", "private"]
Mechanism = Literal["discrete-gaussian", "gaussian"]
NoiseBy = Literal["clients", "aggregators", "jointly"]
CLIPPINGS: tuple[Clipping, ...] = ("fixed", "public", "adaptive", "private")
MECHANISMS: tuple[Mechanism, ...] = ("discrete-gaussian", "gaussian")
_INFINITE: Final = "infinite"
_DELETED: Final = {  # keys that once were, and what to do instead
    "weighting": "weighting by data size changes what one client may weigh, so a private run weighs every client "
    "equally; runs that are not private have [aggregation] weighting",
    "noise_seed": "a simulation seeds its noise by Randomness.simulated, a deployment takes Randomness.system; remove "
    "the seed of the noise",
}


@dataclass(frozen=True, kw_only=True)
class PrivacyRequest:
    """The keys of a private run as the user gives them; every one is checked.

    `epsilon`, against outsiders, and `epsilon_server` are targets for the noise, or with `noise_multiplier` budgets for
    rounds and participations. `threshold` 1 means that no client may drop out;
    secure aggregation's floor(2n/3) + 1 is `threshold` 2/3. `clipping` says where `clip_norm` comes from: the config
    (fixed), public updates (public), a start that adapts (adaptive), or the clients' own norms (private, which needs
    `unsafe_clip_norm`). `spent` are releases before round 1, such as a vote. `noise_by` says who adds the noise: the
    clients in shares, two aggregators half each, or the two of them jointly (secret ballots, `plan.ballots`).
    `answer_rate` is the least chance of each client to answer to the end of a round, whatever others do: 1 where nobody
    can fail, None if it is unknown. `floor_share` is the part of delta that a default `cohort_floor` may cost.

    `unit` says who is protected: a client, or a record or person of which the clients (then called sites) hold `units`
    in all; a site takes each of its units into a round by a secret coin of `unit_rate`. `apart` are releases about
    other units, set aside by a rule that looks at nobody's values, such as measurements on them: a unit is touched by
    these or by all else, so that the larger of the two costs counts.
    """

    clients: int
    sample_rate: float
    rounds: int
    delta: float
    length: int
    epsilon: float | None = None
    epsilon_server: float | None = None
    noise_multiplier: float | None = None
    clip_norm: float = 0.0  # signs: sqrt(length), which is what signs weigh
    sampling: Sampling = "poisson"
    accountant: Accountant = "pld"
    mechanism: Mechanism = "discrete-gaussian"
    form: Form = "floats"
    clipping: Clipping = "fixed"
    clip_quantile: float = 0.5
    clip_lr: float = 0.2
    count_stddev: float | None = None  # None: a twentieth of the expected cohort (Andrew et al. 2021)
    threshold: float = 1.0
    colluders: int = 0
    cohort_cap: int | None = None
    cohort_floor: int | None = None
    answer_rate: float | None = 1.0
    floor_share: float = 0.5
    max_participations: int | None = None
    grid: Literal["solved", "papers"] = "solved"
    bits: int | None = None
    spent: tuple[Event, ...] = ()
    apart: tuple[Event, ...] = ()  # releases about units that are set aside, which have an account of their own
    noise_by: NoiseBy = "clients"
    unit: Unit = "client"
    units: int | None = None  # of all sites together, which is public; for records and persons only
    unit_rate: float = 1.0
    deployment: bool = False
    unsafe_delta: bool = False
    unsafe_clip_norm: bool = False
    unsafe_public: bool = False
    unsafe_preprocessing: bool = False
    unsafe_test: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sample_rate", float(self.sample_rate))
        in_range("clients", self.clients, low=1)
        in_range("sample_rate", self.sample_rate, low=0, open_low=True, high=1)
        in_range("rounds", self.rounds, low=1, high=10**7)
        in_range("length", self.length, low=1)
        in_range("delta", self.delta, low=0, high=1, open_low=True, open_high=True)
        if self.answer_rate is not None:
            in_range("answer_rate", self.answer_rate, low=0, open_low=True, high=1)
        in_range("floor_share", self.floor_share, low=0, high=0.5)
        if self.epsilon is not None:
            in_range("epsilon", self.epsilon, low=1e-3, high=1e4)
        if self.epsilon_server is not None:
            in_range("epsilon_server", self.epsilon_server, low=1e-3, high=1e4)
        if self.noise_multiplier is not None:
            in_range("noise_multiplier", self.noise_multiplier, low=0.01, high=1e5)
        one_of("sampling", self.sampling, SAMPLINGS)
        one_of("accountant", self.accountant, ACCOUNTANTS)
        one_of("mechanism", self.mechanism, MECHANISMS)
        one_of("clipping", self.clipping, CLIPPINGS)
        one_of("form", self.form, ("floats", "signs"))
        one_of("grid", self.grid, ("solved", "papers"))
        one_of("noise_by", self.noise_by, get_args(NoiseBy))
        one_of("unit", self.unit, UNITS)
        self._check_units()
        self._check_budget()
        self._check_clipping()
        self._check_noise()
        self._check_cohort()

    @property
    def cohort_size(self) -> int:
        """Return the size of a fixed cohort."""
        return max(1, round(self.sample_rate * self.clients))

    @property
    def count_noise(self) -> float:
        """Return the standard deviation of adaptive clipping's count."""
        return self.count_stddev if self.count_stddev is not None else self.sample_rate * self.clients / 20

    @property
    def of_sites(self) -> bool:
        """Tell whether records or persons are protected, which sites hold, and not the clients themselves."""
        return self.unit != "client"

    @property
    def adjacency(self) -> Adjacency:
        """Return what neighbouring runs differ in."""
        return Adjacency(unit=self.unit)

    @property
    def protected(self) -> int:
        """Return how many units there are."""
        return self.clients if self.units is None else self.units

    @property
    def batch(self) -> float:
        """Return how many units a round is expected to have, which is public: the server divides by it."""
        return self.sample_rate * self.unit_rate * self.protected

    @property
    def local_noise(self) -> bool:
        """Tell whether all other sites may collude, so that each adds the whole noise by itself."""
        return self.of_sites and self.colluders >= self.clients - 1

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Name the unsafe keys that are in use, to be printed."""
        keys = ("unsafe_delta", "unsafe_clip_norm", "unsafe_public", "unsafe_preprocessing", "unsafe_test")
        return tuple(key for key in keys if getattr(self, key))

    def _check_budget(self) -> None:
        if self.epsilon is None and self.epsilon_server is None and self.noise_multiplier is None:
            raise InputError("a private run needs epsilon, epsilon_server or noise_multiplier")
        number, name = self.protected, "clients" if self.unit == "client" else "units"
        if (self.delta * number >= 1 or self.delta >= 1 / number) and not self.unsafe_delta:
            raise PrivacyError(
                f"delta must be below 1 / {name} = {1 / number:.3g}, got {self.delta:g}: with such a delta one "
                f"{self.unit}, chosen at random, may be published outright; lower it, for example to "
                f"{0.1 / number:.1g}, or set unsafe_delta"
            )

    def _check_units(self) -> None:
        object.__setattr__(self, "unit_rate", float(self.unit_rate))
        in_range("unit_rate", self.unit_rate, low=0, open_low=True, high=1)
        if not self.of_sites:
            if self.units is not None or self.unit_rate != 1:
                raise InputError('units and unit_rate are for unit "record" or "person", got unit "client"')
            if self.apart:
                raise InputError("apart is of units that sites set aside, and not of clients; use spent")
            return
        if self.units is None:
            raise InputError(f"units must say how many {self.unit}s all sites hold together, which is public")
        in_range("units", self.units, low=self.clients)
        in_range("colluders", self.colluders, low=0, high=self.clients - 1)
        if self.noise_by != "clients":
            raise InputError(f'a ballot is one bit a site and no sum over its {self.unit}s; use secure = "real"')
        if self.sampling == "fixed" and self.sample_rate < 1:
            raise InputError(f'sites of {self.unit}s are asked by coins, got sampling "fixed"; use "poisson"')
        for key, wrong in (
            ('clipping "fixed"', self.clipping != "fixed"),
            ('mechanism "discrete-gaussian"', self.mechanism == "gaussian"),
            ('grid "solved"', self.grid == "papers"),
        ):
            if wrong:
                raise InputError(f'unit "{self.unit}" is planned with {key} only')
        for key in ("max_participations", "cohort_cap"):
            if getattr(self, key) is not None:
                raise InputError(
                    f"{key} protects clients, and with unit {self.unit!r} every round is charged whoever takes part; "
                    "remove it"
                )

    def _check_clipping(self) -> None:
        if self.form == "signs":
            if self.clipping != "fixed":
                raise InputError(f"signs weigh sqrt(length) and need no clipping, got clipping {self.clipping!r}")
            weight = self.length**0.5
            if self.clip_norm not in (0.0, weight):
                raise InputError(
                    f"clip_norm of signs is sqrt(length) = {weight:.6g}, got {self.clip_norm:g}; leave it out"
                )
            object.__setattr__(self, "clip_norm", weight)
        in_range("clip_norm", self.clip_norm, low=LEAST_CLIP_NORM, high=MOST_CLIP_NORM)
        if self.clipping == "private" and not self.unsafe_clip_norm:
            raise PrivacyError(
                "clip_norm from the clients' own norms is not private; use fixed, public or adaptive clipping, "
                "or set unsafe_clip_norm"
            )
        in_range("clip_quantile", self.clip_quantile, low=0, high=1)
        in_range("clip_lr", self.clip_lr, low=0, open_low=True)

    def _check_noise(self) -> None:
        if self.deployment and self.mechanism == "gaussian":
            raise PrivacyError(
                "the continuous Gaussian leaks through floating point (Mironov 2012) and is for simulation only; "
                "use discrete-gaussian"
            )
        if self.mechanism == "gaussian" and (self.form == "signs" or self.clipping == "adaptive"):
            raise InputError("the continuous Gaussian is for comparing float schemes with a given clip_norm only")
        if self.grid == "papers" and self.form != "signs":
            raise InputError("the papers' grid of step 1 is for signs only")
        if self.noise_by != "clients":
            if self.mechanism == "gaussian" or self.clipping == "adaptive":
                raise InputError(
                    'ballots are counted in integers and tell no norms: they need mechanism "discrete-gaussian" and no '
                    'clipping "adaptive"'
                )
            if self.bits is not None or self.grid == "papers":
                raise InputError("a ballot has one bit a value whatever bits and grid say; leave them out")

    def _check_cohort(self) -> None:
        if self.sampling == "fixed":
            if self.cohort_cap is not None or self.cohort_floor is not None:
                raise InputError("cohort_cap and cohort_floor are for poisson sampling; a fixed cohort has one size")
            # The rate that is charged is that of the whole number of clients that is drawn.
            object.__setattr__(self, "sample_rate", float(Fraction(self.cohort_size, self.clients)))
            return
        if self.cohort_floor is not None:
            in_range("cohort_floor", self.cohort_floor, low=1, high=self.clients)
        if self.cohort_cap is not None:
            in_range("cohort_cap", self.cohort_cap, low=1)
            if self.cohort_cap < self.sample_rate * self.clients:
                raise InputError(
                    f"cohort_cap must be at least the expected cohort {self.sample_rate * self.clients:g}, "
                    f"got {self.cohort_cap}"
                )


def request_record(request: PrivacyRequest) -> dict[str, Any]:
    """Return a request as JSON has it, to the bit: a plan can be solved again from it, without any data."""
    return {name: _plain(value) for name, value in asdict(request).items()}


def read_request(record: Mapping[str, Any]) -> PrivacyRequest:
    """Return the request that a record tells; raise InputError if it tells none."""
    try:
        check_keys(record)
        keys = {name: _number(value) for name, value in record.items()}
        keys |= {name: _events(keys[name]) for name in ("spent", "apart") if name in keys}
        return PrivacyRequest(**keys)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the record of a request for privacy is damaged: {error}") from None


def _events(entries: Any) -> tuple[Event, ...]:
    return tuple(Event(**{name: _number(value) for name, value in entry.items()}) for entry in entries)


def _number(value: Any) -> Any:
    return math.inf if value == _INFINITE else value


def _plain(value: Any) -> Any:
    """Return a value without infinities, which JSON does not have."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return _INFINITE if isinstance(value, float) and math.isinf(value) else value


def check_keys(keys: Iterable[str]) -> None:
    """Raise if a key is not one of `PrivacyRequest`'s, and name the nearest; a deleted one names what replaces it."""
    for key in keys:
        if key in _DELETED:
            raise PrivacyError(f"privacy has no key {key!r} any more: {_DELETED[key]}")
        one_of("privacy", key, PrivacyRequest.__dataclass_fields__)
