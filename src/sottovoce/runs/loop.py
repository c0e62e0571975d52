"""Run an experiment from start, or from where it was left, to its summary."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from sottovoce.assembly.elsewhere import gather_for_server
from sottovoce.assembly.engines import own_records, start
from sottovoce.assembly.model import front_numbers
from sottovoce.assembly.overrides import NOTHING, Callbacks, Given
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import Parts, gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, ServerSide, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.provenance import Owned
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.aggregator import Costs
from sottovoce.federation.aggregation.ballots.count import counting
from sottovoce.federation.engine import Engine, Evaluator, drive
from sottovoce.federation.engines.kinds import ENGINES
from sottovoce.federation.growth import too_few_left
from sottovoce.federation.link_costs import check_link
from sottovoce.federation.optimise import model_of
from sottovoce.federation.round import Server, costs_of, server_round
from sottovoce.privacy import Ledger
from sottovoce.runs.devices import DeviceTimes, Timing, check_memory, invite, load_of, make_timing
from sottovoce.runs.evaluation import (
    BestModel,
    Evaluation,
    Measurement,
    client_accuracy,
    clients_note,
    given_up,
    model_quality,
    no_patience_left,
    with_own_metrics,
)
from sottovoce.runs.exposure import EpsilonReading, deployed_facts, visible_epsilon
from sottovoce.runs.fingerprint import check_fingerprint, keep_fingerprint
from sottovoce.runs.folder import RunFolder, describe_environment
from sottovoce.runs.journal import (
    Journal,
    check_kind,
    check_roster,
    found_before,
    keys_digest,
    make_journal,
    run_id,
)
from sottovoce.runs.loggers import make_loggers
from sottovoce.runs.population import ExposedCost, make_folder, population_facts, reserve_again
from sottovoce.runs.records import Instrument, Record, RoundEntry, RoundRecords, tell, tell_operator
from sottovoce.runs.statistics import told_statistics
from sottovoce.runs.summary import patient_metric, selecting_metric, summarise
from sottovoce.schemes import State

Over = Callable[[list[Record], State], bool]
"""A rule that ends a run: it sees the records of all rounds so far, and the state after the last."""

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
    parties: Parties | None = None,
) -> Record:
    """Run an experiment into a folder and return its summary.

    `observe` sees each round as the operator may: of a private run also what must not be published (`operator.jsonl`).
    `callbacks` are objects with any of the methods `on_start(config)`, `on_round(record, state)` and `on_end(summary)`,
    for the rounds that are played now; of a private run they see what may be published. `given` are parts of the
    experiment as objects, in place of those that its tables name.

    A run that was killed goes on from its last checkpoint with `resume=True` and ends with the same model, bit for bit.

    Without `parties` it is a simulation. With those of machines, `observe` hears of a round when it is on disk, and
    what it raises ends the run between two rounds. A round that was begun when the run was killed is void (`journal`).
    """
    path = Path(out) if out is not None else default_folder(experiment)
    RunFolder.check(path, resume=resume)
    heard = Callbacks([*make_loggers(experiment), *callbacks], private=experiment.privacy is not None)
    if parties is None:
        _check_simulated(experiment)
    with ExitStack() as stack:
        folder = None
        if (path / "config.toml").exists():
            folder = stack.enter_context(RunFolder.reopen(path, experiment, given.names))
            if folder.finished is not None and (parties is None or not parties.unsigned()):
                return folder.finished
        parts = with_own_metrics(_gathered(experiment, given, parties, folder), given.metrics or ())
        check_memory(parts)
        protection = protect(parts)
        reach, evaluator = stack.enter_context(start(parts))
        ready = stages(protection)[TRAINING].server_side(evaluator)
        if ready.plan is not None and ready.plan.too_few is not None:
            logging.getLogger(__name__).warning(ready.plan.too_few)
        if folder is None:
            folder = stack.enter_context(_new_folder(path, parts, ready, given))
        else:
            reserve_again(experiment, ready.plan, folder)
        engine = stack.enter_context(reach())
        if folder.finished is not None:  # its nodes have not signed it yet
            _greet_again(ready, engine, folder)
            return folder.finished
        return play(parts, ready, engine, evaluator, folder, observe, heard)


def _check_simulated(experiment: Experiment) -> None:
    """Raise if only nodes can play an experiment."""
    name = experiment.engine.name
    if (command := ENGINES[name].command) is not None:
        raise InputError(
            f'[engine] name = "{name}" is played by nodes, which sottovoce run has none of; use sottovoce {command}, '
            f"or --set engine.name=local without the keys of {name} to simulate it"
        )


def _gathered(experiment: Experiment, given: Given, parties: Parties | None, folder: RunFolder | None) -> Parts:
    """Return the parts of a run that begins, or of one that goes on in its folder, which must be of the same kind."""
    front = b"" if folder is None else folder.front
    if folder is not None:
        check_kind(folder.path, deployed=parties is not None)
    if parties is None:
        parts = gather(experiment, given, front)
    else:
        if folder is not None and parties.lasting:
            check_roster(folder.path, parties.keys)
        run_ = parties.new_run if folder is None else run_id(folder.path)
        parts = gather_for_server(experiment, parties.in_run(run_), front)
    if folder is not None:
        folder.check_inputs(parts.dataset.describe_inputs())
        if parties is None:
            check_fingerprint(folder.path, parts)
    return parts


def _new_folder(path: Path, parts: Parts, ready: ServerSide, given: Given) -> RunFolder:
    """Make the folder of a run that begins, after everything that can be refused was checked."""
    experiment, parties = parts.experiment, parts.parties
    if ready.protection.vote_plan is None:  # elected coordinates are not known yet
        costs, table = costs_of(ready.server, ready.server.init(parts.start)), experiment.engine
        make_timing(parts, costs)
        if parties.machines and table.slowest is not None:
            check_link(
                costs.phases, table.slowest, phase_timeout=table.phase_timeout, train_timeout=table.train_timeout
            )
    environment, inputs = describe_environment(parts, given), parts.dataset.describe_inputs()
    if parties.machines:
        environment |= {"run": parties.new_run.hex(), "keys": keys_digest(parties.keys)}
    front = front_numbers(experiment, parts.network)

    def make(more: Record) -> RunFolder:
        return RunFolder.create(path, experiment, environment | more, inputs, front)

    folder = make_folder(experiment, ready.plan, make)
    if not parties.machines:
        keep_fingerprint(folder.path, parts)
    return folder


def play(
    parts: Parts,
    ready: ServerSide,
    engine: Engine,
    evaluator: Evaluator,
    folder: RunFolder,
    observe: Observer,
    callbacks: Callbacks,
) -> Record:
    """Play the rounds of a federation that can play, into its folder, and return the summary."""
    general = parts.experiment.experiment
    callbacks.start(parts.experiment.tables())
    journal = make_journal(folder, parts)
    for before in journal.told:
        observe(before.whole)
    best = BestModel(parts, journal, selecting_metric(parts))
    own = Callbacks([ExposedCost(parts.experiment, ready.plan, folder.path), best], private=False)
    own.start({})
    with _ledger(folder, ready, journal.records) as ledger, ExitStack() as counts:
        journal.check(ledger)
        found = _before(ready, engine, journal, ledger)
        ready = _informed(ready, found)
        if "whitening" in found:
            parts = ready.protection.parts
            folder.keep_whitening(found["whitening"])
            if parts.parties.machines:  # the server's own records are whitened as the nodes' are
                evaluator = own_records(parts)
        # Ballots are counted by two, and the other one has an account too.
        counts.enter_context(counting(ready.server.aggregator, folder.path, _played(journal.records)))
        first = parts.start if parts.parties.initial is None else parts.parties.initial
        state = journal.state or ready.server.init(found.get("params", first))
        ready.enrol(engine, state if journal.done else None)
        measurement = Measurement.enrolled(ready, engine, ledger)
        costs = costs_of(ready.server, state)
        expected = None if ready.plan is None else costs
        timing = make_timing(parts, costs)
        timed = [] if timing is None else [DeviceTimes(timing, timing.around(engine))]
        for told, after in journal.lost(state, ledger, expected):
            state = after
            own.round(told.public, state)
            observe(told.whole)
        reading = EpsilonReading(ready.plan, ledger)
        state = play_rounds(
            _charged(invite(ready.server, parts.experiment.devices.over_select), journal, ledger),
            timed[0].engine if timed else engine,
            journal,
            state,
            last=general.rounds if ready.plan is None else ready.plan.rounds,
            evaluate_every=general.evaluate_every,
            expected=expected,
            instruments=[*timed, reading, Evaluation(parts, evaluator), *measurement, *journal.instruments],
            stopping=_stopping(parts, ledger),
            hear=partial(_hear, own, observe, callbacks),
        )
        summary = _summary(parts, ready, evaluator, journal, state, costs, timing, ledger)
        summary |= _client_accuracy(parts, evaluator, folder, state)
        folder.finish(summary, parts.network.tensors(model_of(state)))
        callbacks.end(summary)
        return summary


def play_rounds(
    server: Server,
    engine: Engine,
    journal: Journal,
    state: State,
    *,
    last: int,
    evaluate_every: int,
    expected: Costs | None,
    instruments: Sequence[Instrument],
    stopping: Sequence[Over],
    hear: Callable[[RoundRecords, State], bool],
) -> State:
    """Play one round after another, up to the last or until the run is over, and return the state after them."""
    for round_ in range(journal.done + 1, last + 1):
        if any(over(journal.records, state) for over in stopping):
            break
        journal.await_turn(round_)
        began = time.perf_counter()
        result = drive(engine, server_round(server, state, round_))
        entry = RoundEntry(
            round_,
            result.state,
            result.cohort,
            result.total,
            began=began,
            seconds=time.perf_counter() - began,
            due=round_ % evaluate_every == 0 or round_ == last or too_few_left(result.state),
        )
        for instrument in instruments:
            instrument.after(entry)
        state = entry.state
        told = tell(
            round_,
            entry.cohort,
            entry.total,
            seconds=entry.seconds,
            costs=expected,
            more=entry.public,
            secret=entry.secret,
        )
        with journal.keeping(told, state):
            stop = hear(told, state)
        if stop:
            break
    journal.close(state)
    return state


def _hear(own: Callbacks, observe: Observer, callbacks: Callbacks, told: RoundRecords, state: State) -> bool:
    """Tell those who hear of a round, the run's own callbacks first; return whether a user's callback ends the run."""
    own.round(told.public, state)
    observe(told.whole)
    return callbacks.round(told.public, state)


def _stopping(parts: Parts, ledger: Ledger | None) -> list[Over]:
    """Return what ends a run before its last round."""
    patience, metric = parts.experiment.experiment.patience, patient_metric(parts)
    return [
        lambda records, _: no_patience_left(records, patience, metric),
        lambda records, _: given_up(parts, records),
        lambda _, state: too_few_left(state),
        lambda records, _: ledger is not None and not ledger.affords(len(records) + 1),
    ]


def _charged(server: Server, journal: Journal, ledger: Ledger | None) -> Server:
    """Return a server that notes every round before it asks, and charges a private one before it opens its sum."""
    server = replace(server, begin=journal.begin)
    return server if ledger is None else server.with_account(ledger)


def _before(ready: ServerSide, engine: Engine, journal: Journal, ledger: Ledger | None) -> dict[str, Vector]:
    """Play the stages before round 1, and return what training takes from them; who answered is for the operator."""
    found: dict[str, Vector] = {}
    for stage in stages(ready.protection).values():
        if stage.gives is None or stage.ask is None:
            continue
        vector = journal.found()
        if vector is None:
            began, side = time.perf_counter(), stage.server_side()
            side.enrol(engine)
            with counting(side.server.aggregator, journal.folder.path, account=ready.plan):
                result = drive(engine, stage.ask(_charged(side.server, journal, ledger), stage.parts.start))
            taken = time.perf_counter() - began
            if ledger is not None:
                journal.folder.append_vote(tell_operator(stage.rounds[0], result.cohort, result.total, taken))
            vector = result.state[stage.gives]
            journal.keep_found(vector, result.total)
        found[stage.gives] = vector
    return found


def _informed(ready: ServerSide, found: Mapping[str, Vector]) -> ServerSide:
    """Return the server's side with what stages before round 1 found."""
    if "importance" in found:
        ready = ready.with_importance(found["importance"])
    return ready.with_whitening(found["whitening"]) if "whitening" in found else ready


def _greet_again(ready: ServerSide, engine: Engine, folder: RunFolder) -> None:
    """Welcome the nodes of a finished run with the set-up that they had; no round is begun."""
    gives = [stage.gives for stage in stages(ready.protection).values() if stage.gives is not None and stage.ask]
    found: dict[str, Vector] = {}
    if gives and (vector := found_before(folder.path)) is not None:
        found[gives[0]] = vector
    restored = folder.restore()
    _informed(ready, found).enrol(engine, None if restored is None else restored[1])


def _played(records: list[Record]) -> int:
    """Return the last round of which anything was released; an aborted or void one need not be in an account."""
    return max((record["round"] for record in records if not {"aborted", "void"} & record.keys()), default=0)


@contextmanager
def _ledger(folder: RunFolder, ready: ServerSide, records: list[Record]) -> Iterator[Ledger | None]:
    """Open the ledger of a private run, and refuse one that knows less than the checkpoint."""
    if (plan := ready.plan) is None:
        yield None
        return
    played = _played(records)
    with Ledger.of_server(folder.path / "ledger.jsonl", plan) as ledger:
        ledger.check_checkpoint(played)
        yield ledger


def _summary(
    parts: Parts,
    ready: ServerSide,
    evaluator: Evaluator,
    journal: Journal,
    state: State,
    costs: Costs,
    timing: Timing | None,
    ledger: Ledger | None,
) -> Record:
    """Sum up what came out, what it cost, and what it promises."""
    records = journal.records
    summary = summarise(parts, ready, records, costs, spent=0 if ledger is None else ledger.spent)
    if parts.parties.machines:
        void = sum("void" in record for record in records)
        summary |= deployed_facts(ready.plan, void=void, seeded=parts.parties.seeded, lasting=parts.parties.lasting)
    summary |= model_quality(parts, evaluator, state, records)
    summary |= visible_epsilon(summary, state, ready.plan)
    summary |= population_facts(parts.experiment, ready.plan)
    summary |= told_statistics(parts, ready.plan, state, summary)
    if timing is not None:
        load = load_of(ready, costs)
        share = len(records) / load.rounds * parts.experiment.devices.over_select
        summary |= timing.summarise(records, load.participations * share, (load.once_up, load.once_down))
    return summary


def _client_accuracy(parts: Parts, evaluator: Evaluator, folder: RunFolder, state: State) -> Record:
    """Return what the summary of a simulation tells of single clients; their numbers may be the operator's alone."""
    if not parts.experiment.client.held_out or parts.parties.machines or parts.network.task.target.kind != "class":
        return {}
    accuracy = client_accuracy(parts, evaluator, model_of(state))
    if parts.boundary.passes(Owned()):
        return accuracy | clients_note(parts)
    folder.append_end(accuracy)  # a client's accuracy is a function of its records, and no noise protects it
    return clients_note(parts)
