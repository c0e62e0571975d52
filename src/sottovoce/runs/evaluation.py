"""Measure the model of a round, keep the best one, and tell when measuring says that a run is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.parts import Parts
from sottovoce.assembly.stages import MEASUREMENT, ServerSide, stages
from sottovoce.assembly.threat import ATTACKED, is_lost
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.provenance import Owned
from sottovoce.core.streams import Purpose
from sottovoce.core.vectors import Vector
from sottovoce.federation.engine import Engine, Evaluator, drive
from sottovoce.federation.growth import gone
from sottovoce.federation.optimise import model_of
from sottovoce.federation.stages.evaluation import measure
from sottovoce.federation.stages.local_evaluation import summarise_clients
from sottovoce.models import better, evaluate
from sottovoce.models.judgement import judged
from sottovoce.models.metrics import as_answers
from sottovoce.models.noisy_quality import NoisySums, choose_threshold
from sottovoce.models.own_metrics import measure_own, read_metrics
from sottovoce.models.quality import by_group, remedies
from sottovoce.privacy import Ledger
from sottovoce.runs.exposure import UNMEASURED, with_seen
from sottovoce.runs.journal import Journal
from sottovoce.runs.keys import record_keys
from sottovoce.runs.records import Record, RoundEntry, best_of, tell_operator
from sottovoce.schemes import State


def with_own_metrics(parts: Parts, given: Sequence[Callable[..., Any]]) -> Parts:
    """Return the parts of a run with the metrics of the user's own, which were tried on made-up records.

    Guarantee: they are measured where all metrics of the server are. Clients tell none of them: a function of one's own
    has no public bound, so no noise could be chosen for it.
    """
    taken = {**record_keys("rounds"), **record_keys("summary")}
    own = read_metrics([*parts.experiment.model.metrics, *given], taken)
    if own and parts.experiment.evaluation != "server":
        refusal = PrivacyError if parts.experiment.privacy is not None else InputError
        raise refusal(
            f"metric {own[0].name!r} is measured by the server on test records, and this run has "
            f'[experiment] evaluation = "{parts.experiment.evaluation}": clients cannot tell it, as it has no public '
            "bound; name a file of others' records in [data] test, or remove the metric"
        )
    for metric in own:
        metric.check(parts.network.task)
    return replace(parts, metrics=own)


@dataclass(frozen=True)
class Evaluation:
    """Instrument of the server: the metrics on test records, and how many clients left for good."""

    parts: Parts
    evaluator: Evaluator

    def after(self, entry: RoundEntry) -> None:
        """Measure the model if a measurement is due."""
        if "gone" in entry.state:
            entry.public["left_for_good"] = len(gone(entry.state))
        if entry.due and self.parts.experiment.evaluation == "server":
            entry.public |= evaluate_model(self.parts, self.evaluator, entry.state)


@dataclass(frozen=True)
class Measurement:
    """Instrument that asks the clients: metrics on records that they keep out of training."""

    side: ServerSide
    engine: Engine
    ledger: Ledger | None

    @classmethod
    def enrolled(cls, ready: ServerSide, engine: Engine, ledger: Ledger | None) -> list[Measurement]:
        """Return it with all clients enrolled; nothing where clients do not measure."""
        stage = stages(ready.protection).get(MEASUREMENT)
        if stage is None:
            return []
        side = stage.server_side()
        side.enrol(engine)
        return [cls(side, engine, ledger)]

    def after(self, entry: RoundEntry) -> None:
        """Ask for a measurement if one is due and paid for; one without quorum shows."""
        if not entry.due or not (self.ledger is None or self.ledger.affords(-entry.round)):
            return
        measured = drive(self.engine, measure(self.side.server, model_of(entry.state), entry.round, self.ledger))
        entry.public |= measured.metrics
        taken = time.perf_counter() - entry.began
        entry.secret["evaluation"] = tell_operator(entry.round, measured.cohort, measured.total, taken)
        if self.ledger is not None and measured.total.reason is not None:
            entry.state = with_seen(entry.state, UNMEASURED)


@dataclass(frozen=True)
class BestModel:
    """Callback that keeps the model of the best round so far."""

    parts: Parts
    journal: Journal
    metric: str

    def on_start(self, _: Record) -> None:
        """Raise if a run that goes on has lost its best model; that of the checkpoint itself is written again."""
        best = best_of(self.journal.records, self.metric)
        if best is not None and best["round"] == self.journal.done:
            self._keep(self.journal.state)  # a kill may have come between checkpoint and best
        elif best is not None:
            self.journal.folder.check_best(best["round"])

    def on_round(self, record: Record, state: State) -> None:
        """Keep the model of a new best round."""
        best = best_of(self.journal.records, self.metric)
        if best is not None and best["round"] == record["round"]:
            self._keep(state)

    def _keep(self, state: State) -> None:
        self.journal.folder.keep_best(self.parts.network.tensors(model_of(state)))


def evaluate_model(parts: Parts, evaluator: Evaluator, state: State) -> Record:
    """Measure the model on test data, and on held-out data if there is any.

    Guarantee: a private run measures here on nobody's records, or under `unsafe_test`.
    """
    params, task = model_of(state), parts.network.task
    release = parts.boundary.release
    scores = release(evaluator.scores(params, "test"), parts.provenance("test"), "the test records")
    metrics = evaluate(scores, parts.dataset.y_test, task)
    metrics |= measure_own(parts.metrics, scores, parts.dataset.y_test, task)
    if "held_out" in parts.splits:
        labels = parts.splits["held_out"].y_train
        found = evaluator.scores(params, "held_out")
        found = release(found, parts.provenance("held_out"), "the held-out records")
        held_out = evaluate(found, labels, task) | measure_own(parts.metrics, found, labels, task)
        metrics |= {f"held_out_{name}": value for name, value in held_out.items()}
    # JSON has no NaN; a loss that is not a number is null.
    told: Record = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    if parts.threat is not None:
        struck = task.guesses(evaluator.scores(params, ATTACKED)) if ATTACKED in parts.splits else None
        told |= parts.threat.metrics(task.guesses(scores), parts.dataset.y_test, struck, parts.network.classes)
        told |= {"diverged": True} if is_lost(told, parts.network.classes) else {}
    return told


_ASKED_LITTLE: Final = (
    "clients told their accuracy and loss alone: how frequent each class is among their records was not asked, as "
    "every number more needs more noise"
)


def model_quality(parts: Parts, evaluator: Evaluator, state: State, records: Sequence[Record] = ()) -> Record:
    """Judge the final model against always giving the most frequent answer, on the records that it was measured on.

    Guarantee: as of `evaluate_model`; the baseline is a function of the same records, and leaves under the same rule.
    Where sites measured on their units, everything follows from the noisy sums that were charged.
    """
    way, final = parts.experiment.evaluation, records[-1] if records else {}
    if way == "federated" and final.get("sums"):
        quality = NoisySums.of(final["sums"]).judge(class_names(parts), final["accuracy"], final["intervals"])
        chosen = {"chosen_on": "records that sites set aside, by the same noisy sums"}
        quality["threshold"] = quality["threshold"] and quality["threshold"] | chosen
        reason = None if quality["threshold"] else _HIDDEN if parts.network.binary else _TWO_ONLY
        quality["threshold_reason"] = reason
        return _told(parts, quality | dict.fromkeys(("subgroups", "sites")) | dict.fromkeys(_GROUP_REASONS, _SUMS))
    if way != "server":
        reason = "nothing was measured"
        if way == "federated":
            reason = _ASKED_LITTLE if parts.units is None else "the last measurement had too few answers"
        return {"baseline_accuracy": None, "verdict": None, "quality": None, "quality_reason": reason}
    scores = evaluator.scores(model_of(state), "test")
    scores = parts.boundary.release(scores, parts.provenance("test"), "the test records")
    quality = judged(scores, parts.dataset.y_test, parts.network.task, class_names(parts))
    return _told(parts, quality | _threshold(parts, evaluator, state) | _by_groups(parts, scores))


_GROUP_REASONS: Final = ("subgroups_reason", "sites_reason")
_SUMS: Final = "sites send noisy sums of classes alone; name test records that are nobody's ([data] test)"


def _by_groups(parts: Parts, scores: NDArray[np.float32]) -> Record:
    """Judge the model by the declared subgroup and by site, or say why not.

    Guarantee: `scores` were released, and groups are of the same records. A private run tells of no single site.
    """
    dataset, told = parts.dataset, Record()
    unknown = {
        "subgroups": "[data] subgroup names no column"
        if parts.experiment.data.subgroup is None
        else "test records do not tell their subgroup",
        "sites": "test records do not tell which site they are from, or there are too many sites",
    }
    answers = as_answers(scores, dataset.y_test, parts.network.task)
    for name, grouping in (("subgroups", dataset.subgroups), ("sites", dataset.sites)):
        reason = None
        if grouping is None or len(grouping.places) != len(dataset.y_test):
            reason = unknown[name]
        if name == "sites" and parts.experiment.privacy is not None:
            reason = "a private run tells nothing of a single site; operator.jsonl has what its operator may see"
        judged_so = None if grouping is None or reason else by_group(answers, *grouping)
        told |= {name: judged_so, f"{name}_reason": reason}
    return told


def _told(parts: Parts, quality: Record) -> Record:
    tries = remedies(quality, private=parts.experiment.privacy is not None) if quality["verdict"] else []
    return {
        "baseline_accuracy": (quality["baseline"] or {}).get("accuracy"),
        "verdict": quality["verdict"],
        "quality": quality | {"try": tries},
        "quality_reason": None,
    }


_TWO_ONLY: Final = "a threshold is for two classes"
_HIDDEN: Final = "the noise hides how many records of each class were set aside"
_OWNED: Final = (
    "it is chosen on training records, and a private run may not look at them; let sites measure "
    '([experiment] evaluation = "federated", with unit = "record" or "person"), which chooses one by noisy sums'
)


def _threshold(parts: Parts, evaluator: Evaluator, state: State) -> Record:
    """Choose a decision threshold on training records; of a private run they may not be looked at."""
    reason = None
    if not parts.network.binary:
        reason = _TWO_ONLY
    elif not parts.boundary.passes(Owned()):
        reason = _OWNED
    elif parts.parties.machines:
        reason = "it is chosen on training records, which only the clients have"
    if reason is not None:
        return {"threshold": None, "threshold_reason": reason}
    found = choose_threshold(evaluator.scores(model_of(state), "train"), parts.dataset.y_train)
    if found is None:
        return {"threshold": None, "threshold_reason": "the training records have one class, or the model diverged"}
    return {"threshold": found | {"chosen_on": "training records"}, "threshold_reason": None}


def class_names(parts: Parts) -> tuple[str, ...]:
    """Return the classes in the user's words, else their numbers."""
    return parts.dataset.class_names or tuple(map(str, range(parts.network.classes)))


def no_patience_left(records: list[Record], patience: int, metric: str) -> bool:
    """Tell whether the last `patience` values of a metric brought no new best."""
    seen = [record[metric] for record in records if record.get(metric) is not None]
    if patience <= 0 or len(seen) <= patience:
        return False
    before = seen[0]
    for value in seen[1:-patience]:
        before = value if better(metric, value, before) else before
    return not any(better(metric, value, before) for value in seen[-patience:])


def given_up(parts: Parts, records: list[Record]) -> bool:
    """Tell whether the last measurements of an attacked model were all at the level of guessing."""
    most = 0 if parts.threat is None else parts.threat.table.give_up
    measured = [record for record in records if "accuracy" in record]
    return most > 0 and len(measured) >= most and all("diverged" in record for record in measured[-most:])


MEASURED_CLIENTS: Final = 1000  # at most; of more clients, so many are drawn


def client_accuracy(parts: Parts, evaluator: Evaluator, params: Vector) -> Record:
    """Return mean, worst tenth and worst of the clients' accuracies; with `personal_steps`, of personal models too.

    This is not private: whoever publishes the result of a private run must leave it out.
    """
    clients, steps = _measured(parts), parts.experiment.client.personal_steps
    found: Record = summarise_clients(np.array(evaluator.client_accuracies(params, clients)))
    if steps:
        personal = np.array(evaluator.client_accuracies(params, clients, steps))
        found |= summarise_clients(personal, "personal")
        del found["personal_accuracy_clients"]  # the same clients
    return found


def clients_note(parts: Parts) -> Record:
    """Return what must be said beside these numbers, or in their place; it follows from the configuration alone."""
    if parts.experiment.privacy is not None:
        told = "not published, as no noise protects a single client's accuracy; operator.jsonl has it, for the operator"
        return {"client_accuracy_note": told}
    clients = parts.partition.clients
    if clients <= MEASURED_CLIENTS:
        return {}
    return {"client_accuracy_note": f"measured on {MEASURED_CLIENTS:,} of {clients:,} clients, drawn at random"}


def _measured(parts: Parts) -> list[int]:
    clients = parts.partition.clients
    if clients <= MEASURED_CLIENTS:
        return list(range(clients))
    drawn = parts.seeds.world.get(Purpose.COHORT).choice(clients, MEASURED_CLIENTS, replace=False, shuffle=False)
    return [int(client) for client in np.sort(drawn)]
