"""Play one training over several rosters: between two rounds nodes join, leave, get new certificates or are revoked.

OUT/epochs.json     the epochs so far: folder, revision of the roster, clients, noise, and the rounds that were begun
OUT/epoch-1, ...    one run folder for each; the model of one is where the next begins

An epoch is a run of its own: its own clients, plan, session keys, divisor, modulus and threshold, which follow from its
own experiment. What it shares with the others is the model, the number of rounds, and of a private training the budget
of the population (`[privacy] budget`), which never begins anew. An epoch that ends early pays for the rounds that it
began; the next one is solved before its first round so that it fits into what is left. No plan, no epoch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.overrides import Stop
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.protection import protect
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, PrivacyError, RunError, SottovoceError
from sottovoce.core.files import replace_file
from sottovoce.core.vectors import Vector
from sottovoce.deployment.node.build import config_digest, owners_of
from sottovoce.deployment.offer import Offers, read_certificates
from sottovoce.deployment.party import Identity
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.serve import serve
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.folder import STATES, read_summary
from sottovoce.runs.journal import read_begun
from sottovoce.runs.population import check_budget, settle
from sottovoce.runs.records import Record

FILE: Final = "epochs.json"
UNITS: Final = "units.json"  # beside the server's keys: the units of each node, by name
_LOUDEST: Final = 64.0  # times the noise of the file: beyond it an epoch teaches nothing
_STEPS: Final = 6  # of bisection: the noise is at most 7 % above the least

log = logging.getLogger(__name__)


class RosterChanged(RunError):  # noqa: N818 - what happened, and not what went wrong
    """Reason why an epoch ends before its first round: there is a newer roster."""


@dataclass(frozen=True)
class Epoch:
    """One epoch: with whom, by which noise, and how many rounds it has begun."""

    number: int
    revision: int
    clients: int
    noise: float | None = None  # None: not private, or as the file has it
    units: list[int] | None = None
    begun: int = 0
    ended: bool = False


@dataclass
class RosterWatch:
    """A look at the server's folder between two rounds: is there a newer roster?"""

    keys: Path
    roster: Roster
    also: Callable[[], None] = lambda: None  # what else is looked at while nodes are waited for
    newer: Roster | None = None
    _seen: bytes = b""

    def look(self) -> bool:
        """Tell whether the root key holder has signed a newer roster; one that cannot be used is said once."""
        try:
            raw = (self.keys / "roster.json").read_bytes()
        except OSError:
            return False  # it is being replaced
        if raw != self._seen:
            self._seen = raw
            try:
                found = Identity.read(self.keys).read_roster()
                self.newer = found if found.revision > self.roster.revision else None
            except InputError as error:
                log.warning("the new roster is not taken: %s", error)
        return self.newer is not None

    def on_round(self, _: Record, __: Any) -> None:
        """End the epoch after a round."""
        if self.look():
            raise Stop

    def check(self) -> None:
        """End an epoch that waits for nodes."""
        self.also()
        if self.look():
            raise RosterChanged("there is a newer roster")

    def announcements(self, experiment: Experiment) -> dict[int, bytes]:
        """Return what each node of the old roster is told by its old number: the new roster, and its certificate.

        Whoever was taken out is told nothing, and no message of it opens any more.
        """
        if self.newer is None:
            return {}
        raw, certificates = (self.keys / "roster.json").read_bytes(), read_certificates(self.keys)
        offers = Offers(experiment, self.newer, raw, certificates, {}, self.keys / "requests", log.warning)
        staying = {entry.name for entry in self.newer.entries}
        return {each.id: offers.offer(each.name).pack() for each in self.roster.entries if each.name in staying}


def play_epochs(
    experiment: Experiment,
    out: Path,
    *,
    keys: Path,
    resume: bool = False,
    check: Callable[[], None] = lambda: None,
    began: Callable[[Epoch, Experiment], None] = lambda epoch, experiment: None,
    **more: Any,
) -> tuple[Record, Path]:
    """Play a training over as many rosters as there are, and return the last summary and its folder.

    Guarantee: of a private training all epochs together keep the limits of the budget, whenever each ends.
    """
    check_epochs(experiment, out, resume=resume)
    while True:
        roster = Identity.read(keys).read_roster()
        epochs = read_epochs(out)
        last = epochs[-1] if epochs else None
        if last is not None and not last.ended:
            summary = read_summary(folder_of(out, last))
            if summary is None and last.revision == roster.revision:
                played = _experiment(experiment, last, epochs[:-1])
            else:
                epochs[-1] = last = _end(experiment, out, epochs)
                _write(out, experiment, epochs)
        if last is None or last.ended:
            left = experiment.experiment.rounds - sum(each.begun for each in epochs)
            summary = None if last is None else read_summary(folder_of(out, last))
            if last is not None and summary is not None and (left <= 0 or last.revision == roster.revision):
                return summary, folder_of(out, last)
            last, played = _solve(experiment, epochs, roster, keys)
            epochs.append(last)
            _write(out, experiment, epochs)
            log.info("epoch %d: %d nodes, up to %d rounds", last.number, last.clients, played.experiment.rounds)
        began(last, played)
        watch = RosterWatch(keys, roster, check)
        try:
            serve(
                played,
                folder_of(out, last),
                keys=keys,
                resume=folder_of(out, last).exists(),
                callbacks=[watch],
                check=watch.check,
                initial=_model(out, epochs[:-1]),
                successor=partial(watch.announcements, played),
                **more,
            )
        except RosterChanged:
            log.info("a newer roster came before the first round of epoch %d", last.number)


def check_epochs(experiment: Experiment, out: Path, *, resume: bool) -> None:
    """Raise if a training cannot have epochs, or its folder is another's."""
    table = experiment.privacy
    if table is not None and (table.budget is None or (table.budget_epsilon or table.budget_epsilon_server) is None):
        raise InputError(
            "the epochs of a private training share a budget: set [privacy] budget to a file, and budget_epsilon, "
            "budget_epsilon_server or both"
        )
    if table is not None and Path(table.budget or "").is_absolute():
        raise InputError("with --epochs [privacy] budget must be a path below this folder: the nodes are told it")
    if experiment.protocol.needs_helper:
        raise InputError("an epoch cannot count ballots yet: its helper holds for one run; leave out --epochs")
    there = (out / FILE).exists()
    if there and not resume:
        raise InputError(f"{out} already holds epochs; add --resume, or choose another --out")
    if not there and out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty and holds no epochs; choose another with --out")
    if there and _read(out)["experiment"] != config_digest(experiment):
        raise InputError(f"{out} was started with another experiment; resume with the same, or choose another --out")


def folder_of(out: Path, epoch: Epoch) -> Path:
    """Return the run folder of an epoch."""
    return out / f"epoch-{epoch.number}"


def read_epochs(out: Path) -> list[Epoch]:
    """Return the epochs of a training so far."""
    return [Epoch(**each) for each in _read(out)["epochs"]] if (out / FILE).exists() else []


def _read(out: Path) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads((out / FILE).read_bytes())
        told["epochs"], told["experiment"]
        return told
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{out / FILE} is damaged; restore it") from None


def _write(out: Path, experiment: Experiment, epochs: list[Epoch]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    told = {"experiment": config_digest(experiment), "epochs": [asdict(each) for each in epochs]}
    replace_file(out / FILE, json.dumps(told, indent=1) + "\n")


def _experiment(base: Experiment, epoch: Epoch, before: list[Epoch]) -> Experiment:
    """Return the experiment of an epoch: the file's, with its own clients, rounds, units and noise."""
    tables = base.tables()
    tables["data"]["clients"] = epoch.clients
    general = tables["experiment"]
    general |= {
        "name": f"{general['name']}-epoch-{epoch.number}",
        "rounds": base.experiment.rounds - sum(each.begun for each in before),
    }
    if before:  # it begins at the model of the one before
        tables["scheme"] = {key: value for key, value in tables["scheme"].items() if not key.startswith("warm_")}
    if (table := tables.get("privacy")) is not None:
        if epoch.noise is not None:
            tables["privacy"] = table = {k: v for k, v in table.items() if k not in ("epsilon", "epsilon_server")}
            table["noise_multiplier"] = epoch.noise
        if epoch.units is not None:
            table["units"] = epoch.units
        if before:
            table.pop("warm_noise_multiplier", None)
    return parse(tables, f"epoch {epoch.number}")


def _plan(experiment: Experiment) -> PrivacyPlan | None:
    """Return the plan of an epoch, which follows from how many nodes there are and not from who they are."""
    keys = {number: bytes(32) for number in range(experiment.data.clients)}
    parties = Parties.of_machines(owners_of(experiment, simulated=False), keys)
    return protect(gather_without_records(experiment, parties)).plan


def _solve(base: Experiment, before: list[Epoch], roster: Roster, keys: Path) -> tuple[Epoch, Experiment]:
    """Return the next epoch with the least noise that fits into what is left of the budget, or raise: no plan."""
    number, clients = len(before) + 1, len(roster.entries)
    epoch = Epoch(number, roster.revision, clients, units=_units(base, roster, keys))
    try:
        played = _experiment(base, epoch, before)
        plan = _plan(played)
        if plan is None or _fits(played, plan):
            return epoch, played
        low, high = plan.noise_multiplier, None
        noise = low
        while high is None:
            noise *= 2
            if noise > _LOUDEST * plan.noise_multiplier:
                check_budget(played, plan)  # says what is left
            low, high = (low, noise) if _fitting(base, epoch, before, noise) else (noise, None)
        for _ in range(_STEPS):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if _fitting(base, epoch, before, middle) else (middle, high)
        epoch = _with_noise(epoch, high)
        return epoch, _experiment(base, epoch, before)
    except (InputError, PrivacyError) as error:
        raise type(error)(f"no plan, no epoch: with {clients} nodes {error}") from None


def _with_noise(epoch: Epoch, noise: float) -> Epoch:
    return Epoch(epoch.number, epoch.revision, epoch.clients, float(f"{noise:.4g}") * 1.001, epoch.units)


def _fitting(base: Experiment, epoch: Epoch, before: list[Epoch], noise: float) -> bool:
    played = _experiment(base, _with_noise(epoch, noise), before)
    plan = _plan(played)
    return plan is not None and _fits(played, plan)


def _fits(experiment: Experiment, plan: PrivacyPlan) -> bool:
    try:
        check_budget(experiment, plan)
    except PrivacyError:
        return False
    return True


def _units(base: Experiment, roster: Roster, keys: Path) -> list[int] | None:
    """Return the units of each node of a roster, where a file beside the server's keys has them by name."""
    if base.privacy is None or not isinstance(base.privacy.units, list):
        return None
    path = keys / UNITS
    try:
        told: Mapping[str, int] = json.loads(path.read_bytes())
        return [int(told[entry.name]) for entry in roster.entries]
    except FileNotFoundError:
        if len(base.privacy.units) == len(roster.entries):
            return None
        raise InputError(
            f"[privacy] units lists {len(base.privacy.units)} nodes, and the roster has {len(roster.entries)}; write "
            f'{path} with the units of each by name, such as {{"lyon": 120}}'
        ) from None
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} must have the units of every node of the roster by name: {error}") from None


def _end(base: Experiment, out: Path, epochs: list[Epoch]) -> Epoch:
    """Close an epoch for good: it pays for the rounds that it has begun, and cannot go on."""
    *before, last = epochs
    folder = folder_of(out, last)
    opened = read_begun(folder) if folder.exists() else None
    begun = 0 if opened is None else opened.round
    played = _experiment(base, last, before)
    if played.privacy is not None and folder.exists() and (plan := _plan(played)) is not None:
        settle(played, plan, folder, begun)
    return Epoch(**(asdict(last) | {"begun": begun, "ended": True}))


def _model(out: Path, before: list[Epoch]) -> Vector | None:
    """Return the newest model of the epochs before; None: training begins at w_0."""
    import numpy as np

    for epoch in reversed(before):
        for name in STATES:
            path = folder_of(out, epoch) / "checkpoint" / name
            try:
                with np.load(path, allow_pickle=False) as arrays:
                    return np.asarray(arrays["params"])
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError) as error:
                raise SottovoceError(f"{path} is damaged ({error}); restore it: the next epoch begins there") from None
    return None
