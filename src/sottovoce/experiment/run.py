"""Run an experiment from start, or from where it was left, to its summary."""

from __future__ import annotations

import itertools
import logging
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sottovoce.core.vectors import Vector
from sottovoce.experiment.client_accuracy import client_accuracy, clients_note
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.folder import RunFolder
from sottovoce.experiment.fronts import front_numbers
from sottovoce.experiment.given import NOTHING, Callbacks, Given
from sottovoce.experiment.loads import load_of
from sottovoce.experiment.parts import Parts, gather
from sottovoce.experiment.protection import protect
from sottovoce.experiment.ready import Ready, elect, make_ready, start_engine, warming
from sottovoce.experiment.records import Record, Told, best_of, tell, tell_operator
from sottovoce.experiment.summary import selecting_metric, summarise
from sottovoce.experiment.threat import ATTACKED, is_lost
from sottovoce.experiment.timing import check_memory, invite, make_timing
from sottovoce.federation.ballots import counting
from sottovoce.federation.costs import costs_of
from sottovoce.federation.engine import Engine, Evaluator, drive
from sottovoce.federation.growth import gone, too_few_left
from sottovoce.federation.local import cores
from sottovoce.federation.optimise import model_of
from sottovoce.federation.round import draws_commitment, server_round
from sottovoce.federation.vote import VOTE
from sottovoce.federation.warm import WARM, find_start
from sottovoce.models import choose_trainer, evaluate, guessed
from sottovoce.privacy import Ledger, PrivacyPlan
from sottovoce.schemes import State

__all__ = ["Observer", "default_folder", "run"]

Observer = Callable[[Record], None]


def default_folder(experiment: Experiment) -> Path:
    """Return where a run goes when nobody says."""
    return Path("runs") / experiment.experiment.name


def run(
    experiment: Experiment,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    observe: Observer = lambda record: None,
    callbacks: Iterable[object] = (),
    given: Given = NOTHING,
) -> Record:
    """Run an experiment into a folder and return its summary.

    `observe` sees each round as the operator may: of a private run also what must not be published (`operator.jsonl`).
    `callbacks` are objects with any of the methods `on_start(config)`, `on_round(record, state)` and `on_end(summary)`,
    for the rounds that are played now; of a private run they see what may be published. `given` are parts of the
    experiment as objects, in place of those that its tables name.

    A run that was killed goes on from its last checkpoint with `resume=True` and ends with the same model, bit for bit.
    """
    path = Path(out) if out is not None else default_folder(experiment)
    RunFolder.check(path, resume=resume)
    told = Callbacks(callbacks, private=experiment.privacy is not None)
    if resume and (path / "config.toml").exists():
        with RunFolder.reopen(path, experiment, given.names) as folder:
            if folder.finished is not None:
                return folder.finished
            parts = gather(experiment, given, folder.front)
            protection = protect(parts)
            with start_engine(parts) as (engine, evaluator):
                return _play(parts, make_ready(protection, evaluator), engine, evaluator, folder, observe, told)
    parts = gather(experiment, given)
    check_memory(parts)
    protection = protect(parts)
    with start_engine(parts) as (engine, evaluator):
        ready = make_ready(protection, evaluator)
        if protection.vote_plan is None:  # elected coordinates are not known yet
            make_timing(parts, costs_of(ready.server, ready.server.init(parts.start)))
        environment, inputs = _environment(parts, given), parts.dataset.describe_inputs()
        front = front_numbers(experiment, parts.network)
        with RunFolder.create(path, experiment, environment, inputs, front) as folder:
            return _play(parts, ready, engine, evaluator, folder, observe, told)


def _play(
    parts: Parts,
    ready: Ready,
    engine: Engine,
    evaluator: Evaluator,
    folder: RunFolder,
    observe: Observer,
    callbacks: Callbacks,
) -> Record:
    callbacks.start(parts.experiment.tables())
    general, metric = parts.experiment.experiment, selecting_metric(parts)
    done, state = folder.restore() or (0, {})
    records, operator = folder.rewind(done, private=ready.plan is not None)
    for record, mine in itertools.zip_longest(records, operator, fillvalue=None):
        observe(Told(record or {}, mine).whole)
    if best := best_of(records, metric):
        folder.check_best(best["round"])
    with _ledger(folder, ready, records) as ledger:
        if ledger is not None:
            if done:
                ledger.check_draws(done, draws_commitment(state))
            ready = _elect(ready, engine, folder, ledger)
        state = state or ready.server.init(_start(ready, engine, folder, ledger))
        ready.enrol(engine, state if done else None)
        server = ready.server if ledger is None else ready.server.with_account(ledger)
        costs = costs_of(server, state)
        timing = make_timing(parts, costs)
        timed = None if timing is None else timing.around(engine)
        server = invite(server, parts.experiment.devices.over_select)
        last = general.rounds if ready.plan is None else ready.plan.rounds
        for round_ in range(done + 1, last + 1):
            if _no_patience_left(records, general.patience, metric) or _given_up(parts, records):
                break
            if ledger is not None and not ledger.affords(round_):
                break
            began = time.perf_counter()
            result = drive(timed or engine, server_round(server, state, round_))
            state, seconds = result.state, time.perf_counter() - began
            more = _state_of_privacy(round_, state, ledger, ready.plan)
            if "gone" in state:
                more["left_for_good"] = len(gone(state))
            over = "gone" in state and too_few_left(state)
            due = round_ % general.evaluate_every == 0 or round_ == last or over
            if due and general.evaluation == "server":
                more |= _evaluate(parts, evaluator, state)
            expected, secret = None if ready.plan is None else costs, None
            if timing is not None and timed is not None:
                public, secret = timing.tell(timed.told(round_))
                more = public | more
            told = tell(round_, result.cohort, result.total, seconds=seconds, costs=expected, more=more, secret=secret)
            records.append(told.public)
            if best_of(records, metric) is told.public:
                folder.keep_best(parts.network.tensors(model_of(state)))
            folder.append(told.public, told.operator)
            observe(told.whole)
            stop = callbacks.round(told.public, state)
            if round_ % general.checkpoint_every == 0 or round_ == last:
                folder.save(round_, state)
            if stop or over:
                break
        if len(records) % general.checkpoint_every and len(records) != last:
            folder.save(len(records), state)  # stopped between two checkpoints
        summary = summarise(parts, ready, records, costs, spent=0 if ledger is None else ledger.spent)
        if timing is not None:
            load = load_of(ready, costs)
            share = len(records) / load.rounds * parts.experiment.devices.over_select
            summary |= timing.summarise(records, load.participations * share, (load.once_up, load.once_down))
        if parts.experiment.client.held_out:
            measured = client_accuracy(parts, evaluator, model_of(state))
            if ready.plan is None:
                summary |= measured
            else:  # a client's accuracy is a function of its records, and no noise protects it
                folder.append_end(measured)
            summary |= clients_note(parts)
        folder.finish(summary, parts.network.tensors(model_of(state)))
        callbacks.end(summary)
        return summary


def _elect(ready: Ready, engine: Engine, folder: RunFolder, ledger: Ledger) -> Ready:
    """Let the clients vote, if the coordinates are theirs to choose; who voted is for the operator."""
    began = time.perf_counter()
    ready = elect(ready, engine, ledger)
    if ready.election is not None:
        election, seconds = ready.election, time.perf_counter() - began
        folder.append_vote(tell_operator(VOTE, election.cohort, election.total, seconds))
    return ready


def _start(ready: Ready, engine: Engine, folder: RunFolder, ledger: Ledger | None) -> Vector:
    """Return the model that training begins at: w_0, or what every client helps to find in one message."""
    start, warm = ready.protection.parts.start, warming(ready)
    if warm is None:
        return start
    began = time.perf_counter()
    warm.enrol(engine)
    server = warm.server if ledger is None else warm.server.with_account(ledger)
    found = drive(engine, find_start(server, start))
    if ledger is not None:
        folder.append_vote(tell_operator(WARM, found.cohort, found.total, time.perf_counter() - began))
    return found.params


@contextmanager
def _ledger(folder: RunFolder, ready: Ready, records: list[Record]) -> Iterator[Ledger | None]:
    """Open the ledger of a private run, and refuse one that knows less than the checkpoint.

    Ballots are counted by two, and the other one's account is opened too.
    """
    if (plan := ready.plan) is None:
        yield None
        return
    with Ledger.of_server(folder.path / "ledger.jsonl", plan) as ledger, counting(ready.server.aggregator, folder.path):
        # An aborted round released nothing and need not be in the ledger.
        ledger.check_checkpoint(max((record["round"] for record in records if "aborted" not in record), default=0))
        yield ledger


def _state_of_privacy(round_: int, state: State, ledger: Ledger | None, plan: PrivacyPlan | None) -> Record:
    """Return epsilon so far and, under adaptive clipping, the next clip norm."""
    if plan is None or ledger is None:
        return {"epsilon": None}
    epsilon = plan.epsilon_after(ledger.spent_after(round_))
    return {"epsilon": epsilon} | ({} if plan.adaptive is None else {"clip_norm": float(state["clip_norm"])})


def _evaluate(parts: Parts, evaluator: Evaluator, state: State) -> Record:
    """Measure the model on test data, and on held-out data if there is any."""
    params, binary = model_of(state), parts.network.binary
    scores = evaluator.scores(params, "test")
    metrics = evaluate(scores, parts.dataset.y_test, binary)
    if "held_out" in parts.splits:
        labels = parts.splits["held_out"].y_train
        held_out = evaluate(evaluator.scores(params, "held_out"), labels, binary)
        metrics |= {f"held_out_{name}": value for name, value in held_out.items()}
    # JSON has no NaN; a loss that is not a number is null.
    told: Record = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    if parts.threat is not None:
        struck = guessed(evaluator.scores(params, ATTACKED), binary) if ATTACKED in parts.splits else None
        told |= parts.threat.metrics(guessed(scores, binary), parts.dataset.y_test, struck, parts.network.classes)
        told |= {"diverged": True} if is_lost(told, parts.network.classes) else {}
    return told


def _no_patience_left(records: list[Record], patience: int, metric: str) -> bool:
    """Tell whether the last `patience` evaluations on held-out data brought no new best."""
    seen = [record[f"held_out_{metric}"] for record in records if record.get(f"held_out_{metric}") is not None]
    return patience > 0 and len(seen) > patience and max(seen[-patience:]) <= max(seen[:-patience])


def _given_up(parts: Parts, records: list[Record]) -> bool:
    """Tell whether the last measurements of an attacked model were all at the level of guessing."""
    most = 0 if parts.threat is None else parts.threat.table.give_up
    measured = [record for record in records if "accuracy" in record]
    return most > 0 and len(measured) >= most and all("diverged" in record for record in measured[-most:])


def _version(package: str) -> str | None:
    """Return the version of a package that is installed; None for one that is not, as torch may be."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _environment(parts: Parts, given: Given) -> dict[str, Any]:
    """Return what the run runs on; which trainer the workers take is logged too."""
    packages = ("sottovoce", "numpy", "scipy", "torch", "scikit-learn", "dp-accounting", "cryptography")
    client = parts.experiment.client
    choice = choose_trainer(parts.network, parts.training(), client.trainer, client.device)
    logging.getLogger(__name__).info("trainer: %s", choice)
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": cores(),
        "packages": {name: _version(name) for name in packages},
        "trainer": choice.trainer,
        "trainer_reason": choice.reason,
        **({"given": given.names} if given.names else {}),
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
