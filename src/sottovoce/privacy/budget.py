"""Keep the account of a population: what all private runs on its records may cost together, in one file.

A run reserves the cost of its whole plan before anything is released, and is never given any of it back; but an epoch
that has ended for good pays for the rounds that it began (`settle`), and begins no more. The file is JSON lines, each
chained to the one before by its hash, written under an exclusive lock and synchronised:

    {"index": 0, "kind": "open", "population": "patients", "epsilon": 4.0, ..., "previous": "...", "hash": "..."}
    {"index": 1, "kind": "run", "run": "<16 bytes>", "name": "first", "plan": "...", "cost": {...}, ...}

Beside it lies `<file>.mark` with the number of lines and the hash of the last: it is replaced after a line is on disk
and before the run goes on. So a file that was cut, replaced or removed is known by its mark, and a torn end that the
mark does not count is a reservation that was never granted. What cannot be told apart is refused. Both files removed
together is a new account, which only the runs that it has charged could contradict: they are refused when resumed.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.files import replace_file, sync_folder
from sottovoce.privacy.accounting.population import Cost, Limit, TotalCost, added, fixed, order_for
from sottovoce.privacy.ledger import GENESIS, chained, hash_of, open_locked, split_torn
from sottovoce.privacy.plan.plan import PrivacyPlan

VERSION: Final = 1
PATIENCE: Final = 60.0  # seconds that a run waits for another one that writes
USUAL_ORDER: Final = 8.0  # where only the server has a limit

_BEGIN: Final = b'{"index": 0, "kind": "open", '  # of every budget: what begins otherwise is another file

Step = Callable[[str], None]


def _nothing(step: str) -> None:
    """Do nothing: tests pass a function that kills the process here."""


def cost_of(plan: PrivacyPlan, rounds: int | None = None) -> Cost:
    """Return what a run of this plan may cost, whenever it ends; with `rounds` one that has begun no more than these.

    Its epsilons are the plan's in any case: how many rounds are played may be decided after looking at some.

    Records and persons that are set aside pay for what is measured on them, and the others for training: against the
    server the larger of both counts, as if it knew the sites' coins.
    """
    [*before, own] = events = plan.events(rounds)
    part, apart = plan.shares.server_part, plan.request.apart
    most = plan.max_participations if rounds is None else min(plan.max_participations, rounds)
    lefts = [*((event.left(part), event.rounds) for event in before), (own.left(part), most)]
    aside = [(event.left(part), event.rounds) for event in apart]
    cost = Cost(
        epsilon=plan.epsilon,
        epsilon_server=plan.epsilon_server,
        delta=plan.request.delta,
        events=tuple(events),
        precision=max(_precision(lefts), _precision(aside)),
        lattice=max(sum(event.rounds * event.lattice for event in each) for each in (events, apart)),
        apart=apart,
    )
    return cost if math.isfinite(plan.epsilon) else cost.exposed()


def _precision(lefts: Sequence[tuple[float, int]]) -> float:
    return sum(count / left**2 if left > 0 else math.inf for left, count in lefts)


@dataclass(frozen=True, kw_only=True)
class BudgetTerms:
    """What a run asks of its budget: whose it is, who is protected, and the limits, where the run names any.

    `delta` is the limit's; None: twice that of the run that opens the file. Costs for clients and for their records or
    persons are about different neighbours and do not add up, so a file is for one `unit`.
    """

    population: str
    unit: str = "client"
    epsilon: float | None = None
    epsilon_server: float | None = None
    delta: float | None = None


class Budget:
    """The account of one population, held by one process for as long as it takes to read or to reserve.

    Guarantee: when `reserve` returns, the cost is on disk; no cost of a round that was begun is ever taken back; with a
    limit, no run is granted that would exceed it.
    """

    def __init__(self, path: Path, terms: BudgetTerms, *, step: Step = _nothing) -> None:
        self.path = path = Path(os.path.realpath(path))  # a link has the mark of what it names
        self.terms = terms
        self._step = step
        self._limit: Limit | None = None
        self._costs: dict[tuple[str, str], Cost] = {}  # by the id of the run and the digest of its plan
        self._exposed: set[str] = set()
        self._settled: set[str] = set()
        self._declared: list[Cost] = []
        self._lines: list[dict[str, Any]] = []
        self._heads: list[str] = []
        try:
            self._file = open_locked(path, patience=PATIENCE)
        except OSError as error:
            raise InputError(f"[privacy] budget = {str(path)!r} cannot be opened: {error.strerror}") from None
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; an empty one, which we made, is not left behind."""
        if not self._file.closed:
            with suppress(OSError):
                if not os.fstat(self._file.fileno()).st_size:
                    self.path.unlink()
            self._file.close()

    @property
    def costs(self) -> list[Cost]:
        """Return what was declared and what runs have reserved."""
        runs = [cost.exposed() if run in self._exposed else cost for (run, _), cost in self._costs.items()]
        return [*self._declared, *runs]

    @property
    def runs(self) -> int:
        """Count the runs that have reserved."""
        return len({run for run, _ in self._costs})

    @property
    def limit(self) -> Limit | None:
        """Return the limit that was fixed when the file was made."""
        return self._limit

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return every reservation: run, name, plan, cost, what is said about it, whether it is its run's first."""
        return [dict(line) for line in self._lines]

    def holds(self, run: str, plan: str, year: int | None = None) -> bool:
        """Tell whether a run has reserved this plan, with `year` in that one: a resumed run does not pay twice."""
        if year is None:
            return (run, plan) in self._costs
        return any((line["run"], line["plan"], line["about"].get("year")) == (run, plan, year) for line in self._lines)

    def total(self) -> TotalCost:
        """Return what holds for everything that was reserved so far, however its runs were chosen."""
        costs = self.costs
        total, limit = added(costs), self._limit
        if limit is None:
            return total
        kept = limit.fits(costs)  # a run whose cohorts were seen may have broken it
        return TotalCost(
            total.epsilon if limit.epsilon is None else limit.epsilon if kept else math.inf,
            total.epsilon_server if limit.epsilon_server is None else limit.epsilon_server if kept else math.inf,
            limit.delta if None not in (limit.epsilon, limit.epsilon_server) else max(limit.delta, total.delta),
            limit.words,
        )

    def composed(self) -> TotalCost:
        """Return what everything so far costs if all of it was fixed before the first run."""
        return fixed(self.costs)

    def check(self, cost: Cost, declared: Sequence[Cost] = ()) -> None:
        """Raise if a run would exceed the limit; writes nothing."""
        limit, fresh = self._limit or self._limit_for(cost), self._undeclared(declared)
        if limit is None or limit.fits([*self.costs, *fresh, cost]):
            return
        before, after = limit.share([*self.costs, *fresh]), limit.share([*self.costs, *fresh, cost])
        left = max(0.0, 1 - before)
        need = after - before
        # Divergences grow as epsilon^2, so this is about what fits.
        hint = f", which is about epsilon {cost.epsilon * math.sqrt(left / need):.2g} for a run of this kind"
        named = (("budget_epsilon", limit.epsilon), ("budget_epsilon_server", limit.epsilon_server))
        limits = " and ".join(f"{key} {value:g}" for key, value in named if value is not None)
        raise PrivacyError(
            f"[privacy] {limits} at delta {limit.delta:g}: {self.path.name} has {len(self.costs) + len(fresh)} "
            f"releases on {self.terms.population!r}, which use {before:.0%} of it, and this run (epsilon "
            f"{cost.epsilon:.4g}) would bring them to {after:.0%}; {left:.0%} is left"
            f"{hint if left > 0 and 0 < need < math.inf and math.isfinite(cost.epsilon) else ''}; lower [privacy] "
            "epsilon"
        )

    def reserve(
        self,
        run: str,
        name: str,
        plan: str,
        cost: Cost,
        declared: Sequence[Cost] = (),
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Charge a run for its whole plan; on return that is on disk, and something may be released.

        `about` is kept with the line. With a `year` in it, each year has a line, and the sums count the run once.
        """
        if self.holds(run, plan, None if about is None else about.get("year")):
            return
        self.check(cost, declared)
        if not self._heads:
            limit = self._limit_for(cost)
            told: dict[str, Any] = {"epsilon": None, "epsilon_server": None, "delta": None, "order": None}
            told |= {} if limit is None else asdict(limit)
            told |= {} if self.terms.unit == "client" else {"unit": self.terms.unit}  # older files have clients
            self._append({"kind": "open", "version": VERSION, "population": self.terms.population, **told})
            sync_folder(self.path.parent)
            self._limit = limit
        for each in self._undeclared(declared):
            self._append({"kind": "declared", "cost": each.told()})
            self._declared.append(each)
        line = {"kind": "run", "run": run, "name": name, "plan": plan, "cost": cost.told()}
        self._append(line | ({} if about is None else {"about": dict(about)}))
        self._remember(line | {"about": dict(about or {})})
        self._costs[run, plan] = cost

    def _remember(self, line: Mapping[str, Any]) -> None:
        kept = {key: line[key] for key in ("run", "name", "plan", "cost", "about")}
        self._lines.append(kept | {"first": (kept["run"], kept["plan"]) not in self._costs})

    def settle(self, run: str, plan: str, cost: Cost) -> None:
        """Lower the charge of a run that has ended for good to that of the rounds that it began; it cannot go on.

        Guarantee: `settled` is true of the run from then on, so that no further round of it is charged to this line.
        """
        if run not in self._settled:
            if (run, plan) not in self._costs:
                raise PrivacyError(f"{self.path.name} has no run {run}, which is to be settled; restore the file")
            self._append({"kind": "settled", "run": run, "plan": plan, "cost": cost.told()})
            self._settled.add(run)
            self._costs[run, plan] = cost

    def settled(self, run: str) -> bool:
        """Tell whether a run has ended for good."""
        return run in self._settled

    def expose(self, run: str) -> None:
        """Charge a run as against the server from now on: outsiders learnt who was sampled."""
        if run not in self._exposed and any(run == known for known, _ in self._costs):
            self._append({"kind": "exposed", "run": run})
            self._exposed.add(run)

    def _limit_for(self, cost: Cost) -> Limit | None:
        """Return the limit that the first run fixes."""
        terms = self.terms
        if self._heads or (terms.epsilon is None and terms.epsilon_server is None):
            return None
        delta = 2 * cost.delta if terms.delta is None else terms.delta
        order = USUAL_ORDER if terms.epsilon is None else order_for(cost, terms.epsilon, delta)
        return Limit(epsilon=terms.epsilon, epsilon_server=terms.epsilon_server, delta=delta, order=order)

    def _undeclared(self, declared: Sequence[Cost]) -> list[Cost]:
        """Return the declared releases that are not in the file yet; every run of a population may declare them."""
        known, fresh = Counter(self._declared), []
        for cost in declared:
            if known[cost] > 0:
                known[cost] -= 1
            else:
                fresh.append(cost)
        return fresh

    # The file.

    def _load(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole, torn = split_torn(content)
        for number, line in enumerate(whole, start=1):
            self._read(line, number)
        if torn and not whole and not (torn.startswith(_BEGIN) or _BEGIN.startswith(torn)):
            raise PrivacyError(f"{self.path.name} is no budget, and is left as it is; name another file")
        lines, head = self._read_mark()
        if lines > len(self._heads) or (lines and self._heads[lines - 1] != head):
            raise PrivacyError(
                f"{self.path.name} was cut or replaced: its mark counts {lines} lines, and {len(self._heads)} of them "
                "are there; restore the file"
            )
        if not lines and len(self._heads) > 1:  # killed before the first mark a file has one line
            raise PrivacyError(
                f"{self._mark.name}, which says how long {self.path.name} is, is missing; restore it, because the "
                "file may have been cut"
            )
        if torn:  # a reservation that was never granted: its line would be counted by the mark
            self._file.truncate(len(content) - len(torn))
            os.fsync(self._file.fileno())
        self._file.seek(0, os.SEEK_END)
        if len(self._heads) > lines:
            self._write_mark()
        self._agree()

    def _agree(self) -> None:
        """Raise if the file is another population's, or has other limits than the run names."""
        terms, limit = self.terms, self._limit
        if not self._heads:
            return
        if self._population != terms.population:
            raise PrivacyError(
                f"{self.path.name} is the budget of {self._population!r}, and this run is on {terms.population!r}; "
                f"give it a file of its own, or set [privacy] population = {self._population!r} if they are the same "
                "people"
            )
        if self._unit != terms.unit:
            raise PrivacyError(
                f"{self.path.name} counts what each {self._unit} of {self._population!r} pays, and this run protects "
                f"each {terms.unit}; these do not add up, so give [privacy] budget another file for unit = "
                f'"{terms.unit}"'
            )
        for key in ("epsilon", "epsilon_server", "delta"):
            asked, there = getattr(terms, key), None if limit is None else getattr(limit, key)
            if asked is not None and asked != there:
                raise PrivacyError(
                    f"[privacy] budget_{key} is {asked:g}, but {self.path.name} was made with "
                    f"{'none' if there is None else format(there, 'g')}, and a limit is fixed when the file is made; "
                    f"remove budget_{key}, or give the population's next records a file of their own"
                )

    def _read(self, line: bytes, number: int) -> None:
        entry = chained(line, len(self._heads), self._heads[-1] if self._heads else GENESIS)
        problem = f"{self.path.name} line {number} is damaged: the chain of hashes is broken; restore it"
        if entry is None:
            raise PrivacyError(problem)
        try:
            kind = entry["kind"]
            if (kind == "open") != (number == 1) or (kind == "open" and entry["version"] != VERSION):
                raise ValueError
            if kind == "open":
                self._population, self._unit = str(entry["population"]), str(entry.get("unit", "client"))
                if entry["delta"] is not None:
                    self._limit = Limit(**{key: entry[key] for key in ("epsilon", "epsilon_server", "delta", "order")})
            elif kind == "declared":
                self._declared.append(Cost.read(entry["cost"]))
            elif kind == "run":
                self._remember({"about": {}} | entry)
                self._costs[str(entry["run"]), str(entry["plan"])] = Cost.read(entry["cost"])
            elif kind == "exposed":
                self._exposed.add(str(entry["run"]))
            elif kind == "settled":
                if (paid := (str(entry["run"]), str(entry["plan"]))) not in self._costs:
                    raise ValueError
                self._settled.add(paid[0])
                self._costs[paid] = Cost.read(entry["cost"])
            else:
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise PrivacyError(
                f"{self.path.name} line {number} is of an unknown kind; a newer version made it"
            ) from None
        self._heads.append(str(entry["hash"]))

    def _append(self, fields: dict[str, Any]) -> None:
        if self._file.closed:
            raise PrivacyError(f"{self.path.name} could not be written before; start anew, so that it is read again")
        entry = {"index": len(self._heads), **fields, "previous": self._heads[-1] if self._heads else GENESIS}
        entry["hash"] = hash_of(entry)
        line = (json.dumps(entry, allow_nan=False) + "\n").encode()
        size = self._file.tell()
        self._step("before the write")
        try:
            # Two writes, so that the tests can kill in between; a real kill can fall inside either.
            self._file.write(line[: len(line) // 2])
            self._file.flush()
            self._step("within the line")
            self._file.write(line[len(line) // 2 :])
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):  # a full disk still lets a file be cut
                os.ftruncate(self._file.fileno(), size)
                os.fsync(self._file.fileno())
            self._fail(error)
        self._heads.append(str(entry["hash"]))
        self._step("before the mark")
        try:
            self._write_mark()
        except OSError as error:
            self._fail(error)  # the line stays, and counts
        self._step("after the mark")

    def _fail(self, error: OSError) -> NoReturn:
        with suppress(OSError):
            self._file.close()
        raise RunError(f"{self.path} cannot be written: {error.strerror}; mend that, and start again") from None

    @property
    def _mark(self) -> Path:
        return self.path.with_name(f"{self.path.name}.mark")

    def _read_mark(self) -> tuple[int, str]:
        try:
            told = json.loads(self._mark.read_bytes())
            return int(told["lines"]), str(told["hash"])
        except FileNotFoundError:
            return 0, GENESIS
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise PrivacyError(f"{self._mark.name} is damaged; restore it") from None

    def _write_mark(self) -> None:
        replace_file(self._mark, json.dumps({"lines": len(self._heads), "hash": self._heads[-1]}))
