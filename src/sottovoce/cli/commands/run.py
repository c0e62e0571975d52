"""`sottovoce run`: one experiment."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Out, Quiet, command_line
from sottovoce.cli.output import messages, note, put_json, put_tables
from sottovoce.core.errors import PrivacyError, RunError

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment

DOOR = "try"
EXAMPLE = "Example: sottovoce run experiment.toml --set scheme.name=fl-sign --out runs/sign"


def run(
    file: ExperimentFile,
    changes: Changes = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    quiet: Quiet = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=0, help="Worker processes; 0 is one a core.", show_default=False),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Play a private run once more on the same records, at the cost of both.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", metavar="N", help="Run with N seeds, a folder each; mean and spread.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one experiment into a run folder; with --seeds several times, each charged, and tell mean and spread."""
    if seeds is not None:
        _run_seeds(file, _changes(changes, workers), out, seeds, quiet=quiet, as_json=as_json)
        return
    from sottovoce.config.experiment import load

    rounds, experiment = 0, load(file, _changes(changes, workers))
    folder = out or _usual_folder(experiment, resume=resume, again=again)

    def count(record: Any) -> None:
        nonlocal rounds
        rounds = int(record["round"])

    try:
        _run(experiment, folder, resume=resume, quiet=quiet, as_json=as_json, count=count)
    except KeyboardInterrupt:
        resumed = command_line("run", file, changes, folder, workers=workers, quiet=quiet, as_json=as_json, resume=True)
        when = f"after round {rounds}" if rounds else "before the first round was done"
        note(f"interrupted {when}; go on with: {resumed}")
        raise typer.Exit(RunError.exit_code) from None


def _changes(changes: list[str] | None, workers: int | None) -> list[str]:
    return [*(changes or ()), *([f"engine.workers={workers}"] if workers is not None else ())]


def _usual_folder(experiment: Experiment, *, resume: bool, again: bool) -> Path:
    """Return where a run goes when nobody says: runs/<name>, or runs/<name>-2 and so on if there is one.

    `resume` takes the last of them. A private run is refused without `again` if there is one: both add up.
    """
    from sottovoce.runs.loop import default_folder

    usual = default_folder(experiment)
    taken = [usual] if (usual / "config.toml").exists() else []
    while taken and (following := usual.with_name(f"{usual.name}-{len(taken) + 1}")).exists():
        taken.append(following)
    if not taken or resume:
        return taken[-1] if taken else usual
    if experiment.privacy is not None and not again:
        raise PrivacyError(
            f"{taken[-1]} already holds a private run; another one on the same records adds to it"
            f"{_sum_words(experiment, taken)}. Add --again if that is meant, or --resume to go on"
        )
    return following


def _sum_words(experiment: Experiment, taken: list[Path]) -> str:
    """Return what earlier private runs and one more come to, as far as they tell what they cost."""
    from sottovoce.planning.plan import plan_of
    from sottovoce.privacy.accounting.population import added
    from sottovoce.privacy.budget import cost_of
    from sottovoce.report.units import epsilon
    from sottovoce.runs.population import recorded_costs

    costs, plan = recorded_costs(experiment, taken), plan_of(experiment)
    if plan is None or not costs:
        return ""
    alone, total = cost_of(plan), added([*costs, cost_of(plan)])
    return (
        f": epsilon {epsilon(alone.epsilon)} against outsiders and {epsilon(alone.epsilon_server)} against the server, "
        f"together {epsilon(total.epsilon)} and {epsilon(total.epsilon_server)} at delta {total.delta:.3g}"
    )


def _run(experiment: Experiment, folder: Path, *, resume: bool, quiet: bool, as_json: bool, count: Any) -> None:
    from sottovoce.cli.progress import view
    from sottovoce.runs.loop import run as play
    from sottovoce.runs.outcome import warn_once
    from sottovoce.runs.population import ALONE

    name, private, played = experiment.experiment.name, experiment.privacy is not None, False

    with view(quiet=quiet) as shown, messages(shown.say, quiet=quiet, private=private):
        shown.start(name, experiment.experiment.rounds, private=private)
        warn = warn_once(shown.say)

        def observe(record: dict[str, Any]) -> None:
            nonlocal played
            played = True
            count(record)
            shown.show(name, record)
            warn(record)

        summary = play(experiment, folder, resume=resume, observe=observe)
    if not played and not quiet:
        note(f"{folder} is finished already; nothing was run")
    if as_json:
        put_json(summary)
        check_learned(folder, experiment.experiment.least_rounds)
        return
    put_card(folder)
    check_learned(folder, experiment.experiment.least_rounds)
    if not quiet:
        if (summary.get("population") or {}).get("method") == ALONE:
            note(ALONE)
        note(f"the run is in {folder}")


def check_learned(folder: Path, least: float) -> None:
    """Raise RunError, exit code 4, if a finished run learned nothing, or in fewer rounds than was asked."""
    from sottovoce.runs.outcome import shortfall

    if (words := shortfall(folder, least)) is not None:
        raise RunError(words)


def _run_seeds(file: Path, changes: list[str], out: Path | None, count: int, *, quiet: bool, as_json: bool) -> None:
    from sottovoce.cli.progress import view
    from sottovoce.config.experiment import load
    from sottovoce.report.quality import seed_lines
    from sottovoce.report.tables import pairs
    from sottovoce.runs.loop import default_folder
    from sottovoce.search.seeds import run_seeds

    experiment = load(file, changes)
    general, private = experiment.experiment, experiment.privacy is not None
    started: set[str] = set()
    with view(quiet=quiet, named=True) as shown, messages(shown.say, quiet=quiet, private=private):

        def observe(name: str, record: dict[str, Any]) -> None:
            if name not in started:
                started.add(name)
                shown.start(name, general.rounds, private=private)
            shown.show(name, record)

        try:
            told = run_seeds(experiment, count, out, observe=observe)
        except KeyboardInterrupt:
            note("interrupted; the same command goes on: finished seeds are not run again")
            raise typer.Exit(RunError.exit_code) from None
    if as_json:
        put_json(told)
        return
    put_tables(pairs(seed_lines(told)))
    if not quiet:
        folder = out or default_folder(experiment)
        note(f"{count} runs are in {folder}; figures: sottovoce report {folder}/*/ --html report.html")


def put_card(folder: Path) -> None:
    """Print the numbers of a finished run as a table."""
    from sottovoce.report.runs import facts, read_run
    from sottovoce.report.tables import card
    from sottovoce.report.units import decimal, epsilon

    record = facts([read_run(folder)])[0]
    drawn = card(record)
    if record.get("best_round") is not None and record.get("selected_by"):
        drawn.add_row("best round chosen by", str(record["selected_by"]).replace("_", " "))
    if record.get("chosen_on") is not None:
        drawn.add_row("settings chosen on", str(record["chosen_on"]))
    plan = record.get("privacy") or {}
    if plan and (plan.get("epsilon_member") or inf) > (record.get("epsilon_server") or inf):
        drawn.add_row("epsilon against a client of the cohort", epsilon(plan.get("epsilon_member")))
    if record.get("epsilon_spent") is not None:
        told = f"{epsilon(record['epsilon_spent'])} (an odometer reading, no guarantee: quote epsilon)"
        drawn.add_row("epsilon spent, against outsiders", told)
    if record.get("epsilon_population") is not None:
        drawn.add_row(*_population(record))
    for key, title in (("client", "accuracy on clients' own records"), ("personal", "after training further there")):
        if record.get(f"{key}_accuracy_mean") is not None:
            mean, tenth, worst = (
                decimal(record[f"{key}_accuracy_{kind}"]) for kind in ("mean", "worst_tenth", "worst")
            )
            drawn.add_row(title, f"{mean} mean, {tenth} worst tenth, {worst} worst client")
    if record.get("client_accuracy_note") is not None:
        drawn.add_row("clients' own records", str(record["client_accuracy_note"]))
    put_tables(drawn)


def _population(record: dict[str, Any]) -> tuple[str, str]:
    """Return what all runs on the same records cost together, as a row of the table."""
    from sottovoce.report.units import epsilon, percent

    told, advance = record["population"], record["population"].get("if_fixed_in_advance") or {}
    used = "" if told.get("spent") is None else f", {percent(round(told['spent'], 4))} of it used"
    words = (
        f"{epsilon(record['epsilon_population'])} against outsiders, {epsilon(record['epsilon_server_population'])} "
        f"against the server, at delta {record['delta_population']:.3g}{used} ({told['method']})"
    )
    if advance:
        words += f"; {epsilon(advance['epsilon'])} if all were fixed in advance"
    return f"epsilon of the population {told['name']}", words
