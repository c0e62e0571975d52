"""What the operator of a site allows others to do with its records, in a file of the site's own.

A policy is read and enforced on the node. It is checked before records are read and before anything is sent, and what
changes with time (hours, bytes, budgets) again before every answer. The server is told "policy", and no more.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from sottovoce.config.experiment import Experiment
from sottovoce.config.table import Table, problem_sentence
from sottovoce.core.errors import InputError, PolicyError
from sottovoce.core.files import replace_file
from sottovoce.core.validate import nearest
from sottovoce.deployment.roster import Roster, canonical
from sottovoce.privacy.accounting.population import Limit
from sottovoce.secagg.primitives import KEY, SIGNATURE, sign, verify, verifying_key

UNITS: Final = ("record", "person", "client")  # from the finest to the coarsest: who protects one protects those before
DATA: Final = "records"  # the name of a site's records where nobody gives one
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DOMAIN: Final = b"sottovoce experiment 1\n"
_LIMITS: Final = ("epsilon", "epsilon_server", "epsilon_a_year", "epsilon_server_a_year")


class RulesTable(Table):
    """The `[rules]` table: whom, what and when; what is not set is not limited."""

    private: bool = Field(True, description="Only experiments with [privacy].")
    secure: list[str] | None = Field(None, description='Allowed [aggregation] secure, such as ["real", "ballot"].')
    schemes: list[str] | None = Field(None, description="Allowed schemes.")
    models: list[str] | None = Field(None, description="Allowed models.")
    servers: list[str] | None = Field(None, description="Keys of allowed training servers, 64 hex digits each.")
    helpers: list[str] | None = Field(None, description="Keys of allowed helpers of ballots, 64 hex digits each.")
    experiments: list[str] | None = Field(None, description="Digests of allowed experiments, 64 hex digits each.")
    signers: list[str] | None = Field(None, description="Keys whose signature allows an experiment too.")
    least_sites: int | None = Field(None, ge=1, description="Fewest sites that the roster may have.")
    least_cohort: float | None = Field(None, ge=1, description="Fewest sites that a round may be expected to sum.")
    hours: list[str] | None = Field(None, description='Times of day in UTC, such as ["20:00-06:00"].')
    bytes_a_day: int | None = Field(None, ge=0, description="Most bytes, up and down, in one day (UTC).")

    @field_validator("servers", "helpers", "experiments", "signers")
    @classmethod
    def _hex(cls, value: list[str] | None) -> list[str] | None:
        for each in value or ():
            if not _HEX.fullmatch(each):
                raise ValueError("64 hex digits")
        return value

    @field_validator("hours")
    @classmethod
    def _times(cls, value: list[str] | None) -> list[str] | None:
        for each in value or ():
            if not _HOURS.fullmatch(each):
                raise ValueError("HH:MM-HH:MM")
        return value


class DataRule(Table):
    """A `[data.NAME]` table: what all experiments on one data set may cost each unit of it, together."""

    unit: Literal["record", "person", "client"] = Field("client", description="Whom the limits protect at least.")
    epsilon: float | None = Field(None, gt=0, description="Most against outsiders, in all.")
    epsilon_server: float | None = Field(None, gt=0, description="Most against the server, in all.")
    epsilon_a_year: float | None = Field(None, gt=0, description="Most against outsiders in a calendar year (UTC).")
    epsilon_server_a_year: float | None = Field(None, gt=0, description="The same against the server.")
    delta: float | None = Field(None, gt=0, lt=1, description="Of the limits; twice that of an experiment, or more.")

    @model_validator(mode="after")
    def _whole(self) -> DataRule:
        if self.delta is None and any(getattr(self, name) is not None for name in _LIMITS):
            raise ValueError("an epsilon needs delta; set it to twice that of the experiments, or more")
        return self

    def limit(self, *, year: bool) -> Limit | None:
        """Return the limit in all, or that of a year; None: there is none."""
        epsilon = self.epsilon_a_year if year else self.epsilon
        server = self.epsilon_server_a_year if year else self.epsilon_server
        if self.delta is None or (epsilon is None and server is None):
            return None
        # A function of the limit alone, so that the order is fixed before anything is released.
        order = 8.0 if epsilon is None else _known_order(1 + 10.0 / epsilon)
        return Limit(epsilon=epsilon, epsilon_server=server, delta=self.delta, order=order)


def _known_order(wanted: float) -> float:
    """Return the nearest order at which divergences are known: tenths up to 10.9, whole numbers up to 63.

    >>> _known_order(2.25), _known_order(11.4), _known_order(1e4)
    (2.2, 11.0, 63.0)
    """
    nearest = max(1.5, min(63.0, wanted))
    return round(nearest, 1) if nearest < 10.95 else float(round(nearest))


@dataclass(frozen=True)
class SitePolicy:
    """A site's policy: rules for all that it plays, and limits for each data set."""

    rules: RulesTable = field(default_factory=RulesTable)
    data: Mapping[str, DataRule] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> SitePolicy:
        """Read a policy; what is wrong with it is one sentence."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"--policy {path} does not exist; nothing was read or sent") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"--policy {path} cannot be read: {error}; nothing was read or sent") from None
        try:
            return cls.parse(document)
        except InputError as error:
            raise InputError(f"{path}: {error}; nothing was read or sent") from None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> SitePolicy:
        """Return the policy in TOML tables."""
        for name in document:
            if name not in ("rules", "data"):
                guess = nearest(name, ["rules", "data"])
                hint = f"did you mean [{guess}]?" if guess else "it has [rules] and [data.NAME]"
                raise InputError(f"a policy has no table [{name}]; {hint}")
        data = document.get("data", {})
        if not isinstance(data, dict) or not all(isinstance(each, dict) for each in data.values()):
            raise InputError("limits stand in a table for each data set, such as [data.patients]")
        rules = _table(RulesTable, "rules", document.get("rules", {}))
        return cls(
            rules, {check_data_name(name): _table(DataRule, f"data.{name}", each) for name, each in data.items()}
        )

    def data_name(self, asked: str | None) -> str:
        """Return the name of the data set that a node plays with: the one asked for, or the only one there is."""
        names = list(self.data)
        if asked is not None:
            if names and asked not in names:
                raise PolicyError(f"the policy has no [data.{asked}]; it allows {', '.join(names)}")
            return check_data_name(asked)
        if len(names) > 1:
            raise InputError(f"the policy has the data sets {', '.join(names)}; say with --dataset which one it is")
        return names[0] if names else DATA

    def check(self, experiment: Experiment, digest: str, *, signatures: Mapping[str, str] | None = None) -> None:
        """Raise if an experiment is not allowed, whoever plays it."""
        rules = self.rules
        if rules.private and experiment.privacy is None:
            raise PolicyError("the policy allows private experiments only, and this one has no [privacy]")
        for name, allowed, value in (
            ("secure", rules.secure, experiment.secure),
            ("schemes", rules.schemes, experiment.scheme.name),
            ("models", rules.models, experiment.model.name),
        ):
            if allowed is not None and value not in allowed:
                raise PolicyError(f"the policy's {name} are {', '.join(allowed) or 'none'}, and this one has {value}")
        if rules.least_sites is not None and experiment.data.clients < rules.least_sites:
            raise PolicyError(f"the policy asks for {rules.least_sites} sites, and there are {experiment.data.clients}")
        cohort = float(experiment.cohort.sample_rate) * experiment.data.clients
        if rules.least_cohort is not None and cohort < rules.least_cohort:
            raise PolicyError(f"the policy asks for {rules.least_cohort:g} sites a round, and {cohort:g} are expected")
        if rules.experiments is None and rules.signers is None:
            return
        known = digest in (rules.experiments or ())
        signers = set(rules.signers or ()) & set(signatures or {})
        vouched = any(vouches(key, (signatures or {})[key], digest) for key in signers)
        if not known and not vouched:
            raise PolicyError(
                f"the policy allows experiments by digest or signer, and nobody that it names vouches for {digest[:16]}"
            )

    def check_roster(self, roster: Roster) -> None:
        """Raise if the aggregators of a roster are not allowed."""
        helper = None if roster.helper is None else roster.helper.key.hex()
        for what, allowed, key in (
            ("servers", self.rules.servers, roster.server.hex()),
            ("helpers", self.rules.helpers, helper),
        ):
            if allowed is not None and key is not None and key not in allowed:
                raise PolicyError(f"the key {key[:16]}... is not among the policy's {what}")

    def check_unit(self, name: str, unit: str) -> None:
        """Raise if an experiment protects less than the data set's limits are for."""
        rule = self.data.get(name)
        if rule is not None and UNITS.index(unit) < UNITS.index(rule.unit):
            raise PolicyError(f"the policy's [data.{name}] is for unit {rule.unit}, and this one protects a {unit}")

    def check_hours(self, now: datetime) -> None:
        """Raise outside of the hours that are allowed."""
        if self.rules.hours is None:
            return
        minute = now.astimezone(UTC).strftime("%H:%M")
        for span in self.rules.hours:
            begin, end = span.split("-")
            if begin <= minute < end or (begin >= end and (minute >= begin or minute < end)):
                return
        raise PolicyError(f"the policy's hours are {', '.join(self.rules.hours)} UTC, and it is {minute}")


@dataclass
class Guard:
    """What of a policy changes with time, while a node plays: hours, and bytes of a day in a file of the node.

    Guarantee: when `admit` returns, the bytes are counted on disk, and no more than the policy's of a day were let by.
    """

    policy: SitePolicy
    file: Path | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def check(self) -> None:
        """Raise if nothing may be done now."""
        self.policy.check_hours(self.now())

    def admit(self, size: int, *, came: bool = False) -> None:
        """Count bytes that are to be sent, or that came, or raise if the day has no room for them."""
        most = self.policy.rules.bytes_a_day
        if most is None:
            return
        day, used = self.now().astimezone(UTC).date().isoformat(), self._used()
        if used + size > most and not came:
            raise PolicyError(f"the policy allows {most} bytes a day; {used} are used, and {size} more were to be sent")
        if self.file is not None:
            replace_file(self.file, json.dumps({"day": day, "bytes": used + size}) + "\n")
        if used + size > most:
            raise PolicyError(f"the policy allows {most} bytes a day, and {used + size} have come and gone")

    def _used(self) -> int:
        """Return the bytes of today; a file that cannot be read is refused."""
        if self.file is None:
            return 0
        try:
            told = json.loads(self.file.read_bytes())
            return int(told["bytes"]) if told["day"] == self.now().astimezone(UTC).date().isoformat() else 0
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError):
            raise PolicyError(f"{self.file} is damaged, and counts the bytes of today; delete it tomorrow") from None


def check_data_name(name: str) -> str:
    """Return the name if a data set can have it; it becomes a file's name."""
    if not _NAME.fullmatch(name):
        raise InputError(f"the name of a data set has letters, digits, '.', '_' and '-', at most 64, got {name!r}")
    return name


def vouch(digest: str, signing_key: bytes) -> dict[str, str]:
    """Return the signature of an experiment by its digest, under the signer's verifying key."""
    return {verifying_key(signing_key).hex(): sign(signing_key, _vouched(digest)).hex()}


def vouches(key: str, signature: str, digest: str) -> bool:
    """Tell whether the owner of a key signed an experiment."""
    whole = _HEX.fullmatch(key) and re.fullmatch(rf"[0-9a-f]{{{2 * SIGNATURE}}}", signature) and len(key) == 2 * KEY
    return bool(whole) and verify(bytes.fromhex(key), bytes.fromhex(signature), _vouched(digest))


def signed_path(file: Path) -> Path:
    """Return where the signatures of an experiment file are."""
    return file.with_name(f"{file.name}.signed")


def read_vouchers(file: Path | None) -> dict[str, str]:
    """Return the signatures beside an experiment file, by key; none if there is no such file."""
    if file is None or not signed_path(file).exists():
        return {}
    try:
        told = json.loads(signed_path(file).read_bytes())
        return {str(key): str(value) for key, value in told.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{signed_path(file)} is damaged: {error}; have the experiment signed again") from None


def _vouched(digest: str) -> bytes:
    return _DOMAIN + canonical({"experiment": digest})


def _table(kind: type[Any], name: str, document: Any) -> Any:
    if not isinstance(document, dict):
        raise InputError(f"[{name}] must be a table")
    for key in document:
        if key not in kind.model_fields:
            guess = nearest(key, kind.model_fields)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(kind.model_fields)}"
            raise InputError(f"[{name}] has no key {key!r}; {hint}")
    try:
        return kind(**document)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "value_error":
            words = problem["msg"].removeprefix("Value error, ")
            where = f"[{name}] {problem['loc'][0]} must hold {words} each" if problem["loc"] else f"[{name}] {words}"
            raise InputError(where) from None
        shifted = {**problem, "loc": (name, *problem["loc"])}
        raise InputError(problem_sentence(shifted, {name: kind})) from None
