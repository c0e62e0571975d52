"""Run an experiment from start, or from where it was left, to its summary."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from sottovoce.core.errors import InputError
from sottovoce.core.provenance import Owned
from sottovoce.core.vectors import Vector
from sottovoce.experiment.client_accuracy import client_accuracy, clients_note
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.deployed import Deployed
from sottovoce.experiment.engine_table import NETWORKS
from sottovoce.experiment.environment import check_environment, describe_environment
from sottovoce.experiment.fingerprint import check_fingerprint, keep_fingerprint
from sottovoce.experiment.folder import RunFolder
from sottovoce.experiment.fronts import front_numbers
from sottovoce.experiment.given import NOTHING, Callbacks, Given
from sottovoce.experiment.loads import load_of
from sottovoce.experiment.opened import (
    check_kept,
    check_kind,
    check_opened,
    check_roster,
    keys_digest,
    read_opened,
    run_id,
    sync_records,
    void,
    write_opened,
)
from sottovoce.experiment.opening import found_before, keep_found
from sottovoce.experiment.parts import Parts, gather
from sottovoce.experiment.population import expose, make_folder, population_facts, reserve_again
from sottovoce.experiment.protection import protect
from sottovoce.experiment.ready import Ready, elect, make_ready, measuring, own_records, start_engine, warming
from sottovoce.experiment.records import Record, Told, best_of, tell, tell_operator
from sottovoce.experiment.scoring import evaluate_model, given_up, no_patience_left
from sottovoce.experiment.summary import patient_metric, selecting_metric, summarise
from sottovoce.experiment.timing import check_memory, invite, make_timing
from sottovoce.experiment.visible import (
    UNANSWERED,
    UNMEASURED,
    VOID,
    Aborts,
    deployed_facts,
    seen,
    visible_epsilon,
    why_no_epsilon,
    with_seen,
)
from sottovoce.federation.ballots.counting import counting
from sottovoce.federation.costs import costs_of
from sottovoce.federation.engine import Engine, Evaluator, drive
from sottovoce.federation.evaluation import measure
from sottovoce.federation.growth import gone, too_few_left
from sottovoce.federation.optimise import model_of
from sottovoce.federation.round import draws_commitment, server_round
from sottovoce.federation.vote import VOTE
from sottovoce.federation.warm import WARM, find_start
from sottovoce.privacy import Ledger, PrivacyPlan
from sottovoce.schemes import State

__all__ = ["Observer", "default_folder", "play", "run"]

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
    deployed: Deployed | None = None,
) -> Record:
    """Run an experiment into a folder and return its summary.

    `observe` sees each round as the operator may: of a private run also what must not be published (`operator.jsonl`).
    `callbacks` are objects with any of the methods `on_start(config)`, `on_round(record, state)` and `on_end(summary)`,
    for the rounds that are played now; of a private run they see what may be published. `given` are parts of the
    experiment as objects, in place of those that its tables name.

    A run that was killed goes on from its last checkpoint with `resume=True` and ends with the same model, bit for bit.

    With `deployed` the clients are machines that it reaches. `observe` hears of a round when it is on disk, and what it
    raises ends the run between two rounds. A round that was open when the run was killed is void (`opened`).
    """
    path = Path(out) if out is not None else default_folder(experiment)
    RunFolder.check(path, resume=resume)
    told = Callbacks(callbacks, private=experiment.privacy is not None)
    if deployed is not None:
        return _run_deployed(experiment, path, deployed, observe, told)
    if (command := NETWORKS.get(experiment.engine.name)) is not None:
        name = experiment.engine.name
        raise InputError(
            f'[engine] name = "{name}" is played by nodes, which sottovoce run has none of; use sottovoce {command}, '
            f"or --set engine.name=local without the keys of {name} to simulate it"
        )
    if resume and (path / "config.toml").exists():
        with RunFolder.reopen(path, experiment, given.names) as folder:
            if folder.finished is not None:
                return folder.finished
            check_kind(path, deployed=False)
            parts = gather(experiment, given, folder.front)
            folder.check_inputs(parts.dataset.describe_inputs())
            check_fingerprint(folder.path, parts)
            protection = protect(parts)
            with start_engine(parts) as (engine, evaluator):
                ready = make_ready(protection, evaluator)
                reserve_again(experiment, ready.plan, folder)
                return play(parts, ready, engine, evaluator, folder, observe, told)
    parts = gather(experiment, given)
    check_memory(parts)
    protection = protect(parts)
    with start_engine(parts) as (engine, evaluator):
        ready = make_ready(protection, evaluator)
        if protection.vote_plan is None:  # elected coordinates are not known yet
            make_timing(parts, costs_of(ready.server, ready.server.init(parts.start)))
        environment, inputs = describe_environment(parts, given), parts.dataset.describe_inputs()
        front = front_numbers(experiment, parts.network)

        def make(more: Record) -> RunFolder:
            return RunFolder.create(path, experiment, environment | more, inputs, front)

        with make_folder(experiment, ready.plan, make) as folder:
            keep_fingerprint(folder.path, parts)
            return play(parts, ready, engine, evaluator, folder, observe, told)


def _run_deployed(experiment: Experiment, path: Path, deployed: Deployed, observe: Observer, told: Callbacks) -> Record:
    """Run an experiment whose records only nodes hold; the server's own, if it has any, are measured here."""
    with ExitStack() as stack:
        known, front, run_ = (path / "config.toml").exists(), b"", deployed.new_run
        if known:
            folder = stack.enter_context(RunFolder.reopen(path, experiment))
            if folder.finished is not None:
                return folder.finished
            check_kind(path, deployed=True)
            if deployed.lasting:
                check_roster(path, deployed.keys)
            front, run_ = folder.front, run_id(path)
        parts = deployed.parts(experiment, front, run_)
        if known:
            folder.check_inputs(parts.dataset.describe_inputs())
        protection = protect(parts)
        evaluator = own_records(parts)
        ready = make_ready(protection, evaluator)
        if known:
            reserve_again(experiment, ready.plan, folder)
        else:
            environment = describe_environment(parts, NOTHING) | {"run": run_.hex()}
            environment["keys"] = keys_digest(deployed.keys)
            inputs = parts.dataset.describe_inputs()
            front = front_numbers(experiment, parts.network)

            def make(more: Record) -> RunFolder:
                return RunFolder.create(path, experiment, environment | more, inputs, front)

            folder = stack.enter_context(make_folder(experiment, ready.plan, make))
        engine = stack.enter_context(deployed.connect(parts, run_))
        return play(parts, ready, engine, evaluator, folder, observe, told, deployed)


def play(
    parts: Parts,
    ready: Ready,
    engine: Engine,
    evaluator: Evaluator,
    folder: RunFolder,
    observe: Observer,
    callbacks: Callbacks,
    deployed: Deployed | None = None,
) -> Record:
    """Play the rounds of a federation that can play, into its folder, and return the summary."""
    callbacks.start(parts.experiment.tables())
    general, metric = parts.experiment.experiment, selecting_metric(parts)
    done, state = folder.restore() or (0, {})
    records, operator = folder.rewind(done, private=ready.plan is not None)
    for record, mine in itertools.zip_longest(records, operator, fillvalue=None):
        observe(Told(record or {}, mine).whole)
    best = best_of(records, metric)
    if best is not None and deployed is not None and best["round"] == done:
        folder.keep_best(parts.network.tensors(model_of(state)))  # a kill may have come between checkpoint and best
    elif best is not None:
        folder.check_best(best["round"])
    opened = None if deployed is None else read_opened(folder.path)
    with _ledger(folder, ready, records) as ledger:
        if ledger is not None and deployed is not None:
            check_opened(ledger, done, state, opened)
        elif ledger is not None and done:
            ledger.check_draws(done, draws_commitment(state))
        if deployed is not None:
            check_kept(folder.path, done, opened, ledger)
        elif done or (ledger is not None and ledger.rounds):
            check_environment(folder.path, parts, ledger, done)
        if ledger is not None:
            ready = _elect(ready, engine, folder, ledger, deployed=deployed is not None)
        state = state or ready.server.init(_start(ready, engine, folder, ledger, deployed=deployed is not None))
        ready.enrol(engine, state if done else None)
        if (measurer := measuring(ready)) is not None:
            measurer.enrol(engine)
        server = ready.server if ledger is None else ready.server.with_account(ledger)
        costs = costs_of(server, state)
        timing = make_timing(parts, costs)
        timed = None if timing is None else timing.around(engine)
        server = invite(server, parts.experiment.devices.over_select)
        last = general.rounds if ready.plan is None else ready.plan.rounds
        aborts = None if deployed is None else Aborts(deployed)
        if deployed is not None:
            server = replace(server, opened=partial(write_opened, folder.path))
        while opened is not None and opened.round > done:  # two of them, after a checkpoint that the disk has spoilt
            done += 1
            state = with_seen({**state, **opened.draws}, VOID)
            told = void(folder, done, state, ledger, None if ready.plan is None else costs)
            expose(parts.experiment, ready.plan, folder.path)
            records.append(told.public)
            observe(told.whole)
        for round_ in range(done + 1, last + 1):
            if no_patience_left(records, general.patience, patient_metric(parts)) or given_up(parts, records):
                break
            if ledger is not None and not ledger.affords(round_):
                break
            began = time.perf_counter()
            result = drive(timed or engine, server_round(server, state, round_))
            state, seconds = result.state, time.perf_counter() - began
            if ready.plan is not None and result.total.reason is not None:
                state = with_seen(state, UNANSWERED)
            more = _state_of_privacy(round_, state, ledger, ready.plan)
            if aborts is not None:
                aborts.after(result.cohort, result.total)
            if "gone" in state:
                more["left_for_good"] = len(gone(state))
            over = "gone" in state and too_few_left(state)
            due = round_ % general.evaluate_every == 0 or round_ == last or over
            if due and parts.experiment.evaluation == "server":
                more |= evaluate_model(parts, evaluator, state)
            expected = None if ready.plan is None else costs
            secret: Record = {}
            if due and measurer is not None and (ledger is None or ledger.affords(-round_)):
                found = drive(engine, measure(measurer.server, model_of(state), round_, ledger))
                more |= found.metrics
                secret["evaluation"] = tell_operator(round_, found.cohort, found.total, time.perf_counter() - began)
                if ready.plan is not None and found.total.reason is not None:
                    state = with_seen(state, UNMEASURED)
            if timing is not None and timed is not None:
                public, told_secret = timing.tell(timed.told(round_))
                secret |= told_secret
                more = public | more
            if aborts is not None:
                secret["rounds_without_quorum"] = aborts.count
            told = tell(round_, result.cohort, result.total, seconds=seconds, costs=expected, more=more, secret=secret)
            records.append(told.public)
            tensors = parts.network.tensors(model_of(state)) if best_of(records, metric) is told.public else None
            if aborts is None and tensors is not None:
                folder.keep_best(tensors)
            folder.append(told.public, told.operator)
            if aborts is not None:  # every round is on disk before anybody hears of it
                sync_records(folder.path)
                folder.save(round_, state)
            if seen(state):  # charged before a pause or an end shows it
                expose(parts.experiment, ready.plan, folder.path)
            if aborts is not None and tensors is not None:
                folder.keep_best(tensors)
            observe(told.whole)
            stop = callbacks.round(told.public, state)
            if aborts is None and (round_ % general.checkpoint_every == 0 or round_ == last):
                folder.save(round_, state)
            if stop or over:
                break
            if aborts is not None and round_ < last:
                aborts.wait(round_)
        if len(records) % general.checkpoint_every and len(records) != last:
            folder.save(len(records), state)  # stopped between two checkpoints
        summary = summarise(parts, ready, records, costs, spent=0 if ledger is None else ledger.spent)
        if deployed is not None:
            summary |= deployed_facts(ready.plan, void=sum("void" in record for record in records))
        summary |= visible_epsilon(summary, state, ready.plan)
        summary |= population_facts(parts.experiment, ready.plan)
        if timing is not None:
            load = load_of(ready, costs)
            share = len(records) / load.rounds * parts.experiment.devices.over_select
            summary |= timing.summarise(records, load.participations * share, (load.once_up, load.once_down))
        if parts.experiment.client.held_out and deployed is None:
            measured = client_accuracy(parts, evaluator, model_of(state))
            if parts.boundary.passes(Owned()):
                summary |= measured
            else:  # a client's accuracy is a function of its records, and no noise protects it
                folder.append_end(measured)
            summary |= clients_note(parts)
        folder.finish(summary, parts.network.tensors(model_of(state)))
        callbacks.end(summary)
        return summary


def _elect(ready: Ready, engine: Engine, folder: RunFolder, ledger: Ledger, *, deployed: bool) -> Ready:
    """Let the clients vote, if the coordinates are theirs to choose; who voted is for the operator."""
    if ready.protection.vote_plan is None:
        return ready
    known = found_before(folder.path) if deployed else None
    began, opened = time.perf_counter(), partial(write_opened, folder.path) if deployed else None
    ready = elect(ready, engine, ledger, opened, known)
    if ready.election is not None and known is None:
        election, seconds = ready.election, time.perf_counter() - began
        folder.append_vote(tell_operator(VOTE, election.cohort, election.total, seconds))
        if deployed:
            keep_found(folder.path, election.importance, election.total)
    return ready


def _start(ready: Ready, engine: Engine, folder: RunFolder, ledger: Ledger | None, *, deployed: bool) -> Vector:
    """Return the model that training begins at: w_0, or what every client helps to find in one message."""
    start, warm = ready.protection.parts.start, warming(ready)
    if warm is None:
        return start
    if deployed and (known := found_before(folder.path)) is not None:
        return known
    began = time.perf_counter()
    warm.enrol(engine)
    server = warm.server if ledger is None else warm.server.with_account(ledger)
    if deployed:
        told = partial(write_opened, folder.path)
        server = replace(server, opened=told)
    found = drive(engine, find_start(server, start))
    if ledger is not None:
        folder.append_vote(tell_operator(WARM, found.cohort, found.total, time.perf_counter() - began))
    if deployed:
        keep_found(folder.path, found.params, found.total)
    return found.params


@contextmanager
def _ledger(folder: RunFolder, ready: Ready, records: list[Record]) -> Iterator[Ledger | None]:
    """Open the ledger of a private run, and refuse one that knows less than the checkpoint.

    Ballots are counted by two, and the other one's account is opened too.
    """
    if (plan := ready.plan) is None:
        yield None
        return
    # An aborted or void round released nothing and need not be in the ledger.
    played = max((record["round"] for record in records if not {"aborted", "void"} & record.keys()), default=0)
    with Ledger.of_server(folder.path / "ledger.jsonl", plan) as ledger:
        ledger.check_checkpoint(played)
        with counting(ready.server.aggregator, folder.path, played):
            yield ledger


def _state_of_privacy(round_: int, state: State, ledger: Ledger | None, plan: PrivacyPlan | None) -> Record:
    """Return the plan's epsilon, what is spent of it and, under adaptive clipping, the next clip norm.

    Both are null where no epsilon can be promised, and after outsiders saw a failure.
    """
    if plan is None or ledger is None or why_no_epsilon(plan, state) is not None:
        told: Record = {"epsilon": None, "epsilon_spent": None}
    else:
        told = {"epsilon": plan.epsilon, "epsilon_spent": plan.epsilon_after(ledger.spent_after(round_))}
    return told | ({} if plan is None or plan.adaptive is None else {"clip_norm": float(state["clip_norm"])})
