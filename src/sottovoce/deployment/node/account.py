"""One account a data set, on the node: whatever is played on the same records adds up here.

state/accounts/
    NAME.jsonl         one line for each experiment, with the cost of its whole plan: training, vote, measurements
    NAME.jsonl.mark    how many lines there are (`privacy.budget`)

NAME is declared by the site's operator, and never by an experiment file: whoever writes that could begin a new account
with every run. An experiment is charged once, before its first message leaves, and what was charged stays charged,
whoever withdraws. A policy's limits are kept by a filter (`privacy.accounting.population.Limit`); what is read for
information is an odometer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from sottovoce.core.errors import InputError, PolicyError, PrivacyError
from sottovoce.core.files import replace_file
from sottovoce.deployment.policy import UNITS, DataRule, check_data_name
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.accounting.population import Cost, Limit, added, fixed
from sottovoce.privacy.budget import Budget, BudgetTerms, cost_of
from sottovoce.privacy.ledger import GENESIS, chained, split_torn, verify

ACCOUNTS: Final = "accounts"
_BOUND: Final = "dataset"  # beside a ledger: the name of the account, and the experiment's digest


@dataclass(frozen=True)
class DataAccount:
    """The account of one data set of a site; it is opened for each question, so that several nodes can share it.

    Guarantee: when `charge` returns, the experiment's whole cost is on disk; it is never taken back; with a rule, no
    experiment is charged that would exceed it, in all or in a year.
    """

    folder: Path
    name: str
    rule: DataRule | None = None
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    @property
    def path(self) -> Path:
        """Return its file."""
        return self.folder / f"{self.name}.jsonl"

    @property
    def limited(self) -> bool:
        """Tell whether a rule limits what may be charged."""
        return self.rule is not None and any(self.rule.limit(year=year) is not None for year in (False, True))

    def check(self, experiment: str, plan: PrivacyPlan, unit: str) -> None:
        """Raise if an experiment would exceed the rule; nothing is charged."""
        if self.path.exists():
            with self._opened() as budget:
                self._check(budget, experiment, plan, unit)
        else:
            self._check(None, experiment, plan, unit)

    def charge(self, experiment: str, name: str, plan: PrivacyPlan, unit: str) -> None:
        """Charge an experiment for its whole plan, once, and once more for each further year in which it is played."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._opened() as budget:
            if budget.holds(experiment, plan.digest(), self._year):
                return
            self._check(budget, experiment, plan, unit)
            budget.reserve(experiment, name, plan.digest(), cost_of(plan), about={"unit": unit, "year": self._year})

    @property
    def _year(self) -> int:
        return self.now().astimezone(UTC).year

    def _opened(self) -> Budget:
        return Budget(self.path, BudgetTerms(population=self.name))

    def _check(self, budget: Budget | None, experiment: str, plan: PrivacyPlan, unit: str) -> None:
        lines = [] if budget is None else budget.lines
        if any((line["run"], line["plan"]) == (experiment, plan.digest()) for line in lines):
            all_ = [Cost.read(line["cost"]) for line in lines if line["first"]]
        else:
            all_ = [*(Cost.read(line["cost"]) for line in lines if line["first"]), cost_of(plan)]
        yearly = [
            Cost.read(line["cost"])
            for line in lines
            if line["about"].get("year") == self._year and (line["run"], line["plan"]) != (experiment, plan.digest())
        ]
        finest = min([unit, *(str(line["about"].get("unit", unit)) for line in lines)], key=UNITS.index)
        if self.rule is not None and UNITS.index(finest) < UNITS.index(self.rule.unit):
            raise PolicyError(f"the account of {self.name!r} is for unit {self.rule.unit}, and a {finest} is protected")
        if self.rule is not None:
            self._within("in all", self.rule.limit(year=False), all_)
            self._within(f"in {self._year}", self.rule.limit(year=True), [*yearly, cost_of(plan)])

    def _within(self, when: str, limit: Limit | None, costs: list[Cost]) -> None:
        if limit is None or limit.fits(costs):
            return
        named = (("epsilon", limit.epsilon), ("epsilon_server", limit.epsilon_server))
        most = " and ".join(f"{name} {value:g}" for name, value in named if value is not None)
        before = f" and {len(costs) - 1} before it" if len(costs) > 1 else ""
        taken = limit.share(costs)
        share = f"would take {taken:.0%} of it" if math.isfinite(taken) else "would take more"
        deltas = sum(cost.delta for cost in costs)
        why = (
            ""
            if 2 * deltas <= limit.delta
            else f"; the deltas add up to {deltas:g}, and half of the policy's is theirs"
        )
        raise PolicyError(
            f"the policy allows {most} {when} at delta {limit.delta:g} on {self.name!r}, and this experiment{before} "
            f"{share}{why}"
        )


class AccountRecord(NamedTuple):
    """The lines of an account as far as the chain of hashes holds, and what is wrong with it, if anything."""

    path: Path
    lines: tuple[dict[str, Any], ...]
    problem: str | None

    @property
    def charges(self) -> list[dict[str, Any]]:
        """Return the lines that charge an experiment, one for each year in which it was played."""
        return [line for line in self.lines if line["kind"] == "run"]

    def told(self) -> dict[str, Any]:
        """Return what the account says as one JSON object: each experiment, and the odometer over all."""
        once = {(line["run"], line["plan"]): line for line in reversed(self.charges)}.values()
        costs = [Cost.read(line["cost"]) for line in reversed(list(once))]
        units = [str(line.get("about", {}).get("unit", "client")) for line in once]
        return {
            "account": str(self.path),
            "keeper": "site",
            "data": self.path.stem,
            "unit": min(units, key=UNITS.index) if units else None,
            "experiments": [
                {
                    "name": line["name"],
                    "experiment": line["run"],
                    **line.get("about", {}),
                    **{key: line["cost"][key] for key in ("epsilon", "epsilon_server", "delta")},
                }
                for line in self.charges
            ],
            "together": _told(added(costs)._asdict()),
            "if_all_were_fixed_beforehand": _told(fixed(costs)._asdict()) if costs else None,
            "problem": self.problem,
        }


def read_account(path: Path) -> AccountRecord:
    """Read an account without locking or changing it, and compare it with its mark."""
    lines: list[dict[str, Any]] = []
    try:
        whole, torn = split_torn(path.read_bytes())
        mark = json.loads(path.with_name(f"{path.name}.mark").read_bytes())
        counted, head = int(mark["lines"]), str(mark["hash"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return AccountRecord(path, (), f"it, or the mark beside it, cannot be read: {error}")
    for number, text in enumerate(whole, start=1):
        line = chained(text, len(lines), str(lines[-1]["hash"]) if lines else GENESIS)
        if line is None or text != json.dumps(line).encode() or not _known(line, number):
            return AccountRecord(path, tuple(lines), f"line {number} is damaged: the chain of hashes is broken")
        lines.append(line)
    problem = None
    if torn:
        problem = "it ends in half a line: a write was interrupted, or the end was cut off"
    elif counted > len(lines) or not lines or lines[counted - 1]["hash"] != head:
        problem = f"its mark counts {counted} lines, the last with another hash: it was cut or replaced"
    return AccountRecord(path, tuple(lines), problem)


def _known(line: Mapping[str, Any], number: int) -> bool:
    """Tell whether a line, whose hash is right, is one of an account."""
    if number == 1:
        return line.get("kind") == "open"
    try:
        Cost.read(line["cost"])
        return line["kind"] == "run" and all(isinstance(line[key], str) for key in ("run", "name", "plan"))
    except (KeyError, ValueError):
        return False


def bind(state: Path, name: str, experiment: str) -> None:
    """Write down to which account an experiment's ledger belongs, or refuse another one than before."""
    known = _binding(state)
    if known is not None and known[0] != name:
        raise PolicyError(
            f"{state} was charged to the data set {known[0]!r}, and not to {name!r}; give --state another folder for "
            "other records"
        )
    if known is None:
        replace_file(state / _BOUND, f"{name}\n{experiment}\n")


def check_accounts(state: Path, *, limited: bool) -> None:
    """Raise if a ledger beside, or here, has charges that its account does not count: that was deleted or cut.

    A ledger of an older version belongs to no account. Where a policy has `limited` epsilon, that is refused too.
    """
    for ledger in sorted(state.parent.glob("*/ledger.jsonl")):
        folder = ledger.parent
        charges, binding = len(verify(ledger).charged), _binding(folder)
        if not charges or (binding is None and (not limited or folder == state)):
            continue
        if binding is None:
            raise PrivacyError(
                f"{folder} has {charges} charges that no account counts, and the policy has limits; name a new folder "
                "with --state if its records were others"
            )
        path = state.parent / ACCOUNTS / f"{binding[0]}.jsonl"
        if not path.exists() or binding[1] not in {line["run"] for line in _lines(path)}:
            raise PrivacyError(f"{folder} has {charges} charges that {path} does not count; restore that file")


def _binding(state: Path) -> tuple[str, str] | None:
    try:
        name, experiment = (state / _BOUND).read_text(encoding="ascii").splitlines()
        return check_data_name(name), experiment
    except FileNotFoundError:
        return None
    except (OSError, ValueError, InputError):
        raise PrivacyError(
            f"{state / _BOUND} is damaged, and says to which account the ledger belongs; restore it"
        ) from None


def _lines(path: Path) -> list[dict[str, Any]]:
    with Budget(path, BudgetTerms(population=path.stem)) as budget:
        return budget.lines


def _told(total: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _finite(value) if isinstance(value, float) else value for key, value in total.items()}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
