"""`sottovoce plan`: what a run will cost, before any training, and which runs keep given limits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Wide
from sottovoce.cli.output import messages, note, put_json, put_tables, waiting
from sottovoce.core.errors import InputError

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment
    from sottovoce.planning.solve import Solved

DOOR = "plan"
EXAMPLE = 'Example: sottovoce plan experiment.toml --solve "epsilon<=1, epsilon_server<=4, up<=200kB, joules<=50"'


def plan(
    file: ExperimentFile,
    changes: Changes = None,
    limits: Annotated[
        str | None,
        typer.Option(
            "--solve",
            metavar="LIMITS",
            help="Search for plans that keep all limits, such as 'epsilon<=1, up<=200kB, joules<=50, hours<=48'.",
            show_default=False,
        ),
    ] = None,
    scale: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--scale",
            metavar="CLIENTS COHORT",
            help="Plan on paper for so many clients, and so many a round.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--try",
            metavar="SECONDS",
            help="With --solve: play the plans for so long on records that are nobody's, and rank them by it.",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="PUBLIC", help="With --try: public records; else synthetic.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the plan as one offline page.", show_default=False),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time a round of real clients; no private sum is opened.")
    ] = False,
    plain: Annotated[
        float | None,
        typer.Option(
            "--plain-accuracy",
            metavar="VALUE",
            help="Of the same model without privacy, known or measured on public data: say what to expect with it.",
            show_default=False,
        ),
    ] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Say what a run will cost, before any training: privacy, bytes, joules, time; or what keeps given limits."""
    from sottovoce.config.experiment import load
    from sottovoce.planning.candidates import parse_constraints
    from sottovoce.report.planning import plan_sections, section_tables, write_plan

    if limits is not None and (measure or scale is not None):
        raise InputError("--solve measures nothing and is for the file's own clients; leave --measure and --scale out")
    if plain is not None and (limits is not None or scale is not None):
        raise InputError("--plain-accuracy is for the plan of a file; leave --solve and --scale out")
    if limits is None and (seconds is not None or on is not None):
        raise InputError("--try and --on are for the plans that --solve finds; add --solve LIMITS")
    if on is not None and seconds is None:
        raise InputError("--on names the records of --try; add --try 60")
    constraints = None if limits is None else parse_constraints(limits)
    experiment = load(file, changes or [])
    name = experiment.experiment.name or file.stem
    private = experiment.privacy is not None
    with messages(private=private), waiting("playing a round to time it" if measure else "working out what it costs"):
        if constraints is not None:
            from sottovoce.planning.solve import solve
            from sottovoce.report.planning import solved_section

            solved = solve(experiment, constraints)
            told = solved.describe() if seconds is None else _tried(experiment, solved, on, seconds)
            sections = [solved_section(told)]
        elif scale is not None:
            from sottovoce.planning.scale import at_scale
            from sottovoce.report.planning import scale_section

            if not all(map(math.isfinite, scale)):
                raise InputError(f"--scale must be two finite numbers, got {scale[0]:g} and {scale[1]:g}")
            told = at_scale(experiment, clients=round(scale[0]), cohort=round(scale[1]))
            sections = [scale_section(told)]
        else:
            from sottovoce.planning.plan import plan as reckon

            told = reckon(experiment, measure=measure, plain=plain)
            sections = plan_sections(told)
    if html is not None:
        write_plan(sections, f"Plan: {name}", html)
        note(f"wrote {html}")
    if as_json:
        put_json(told)
    else:
        put_tables(*(table for section in sections for table in section_tables(section)))


def _tried(experiment: Experiment, solved: Solved, on: str | None, seconds: float) -> dict[str, Any]:
    """Play the plans that a search found, and return all of it with the plans ranked by what they reached."""
    from sottovoce.planning.plan import gather_shapes
    from sottovoce.planning.solve import apply
    from sottovoce.search.trial import ranked, try_plans, without_records

    parts = gather_shapes(experiment)[0]
    shape = without_records(parts.dataset)
    plans = [apply(experiment, solution.changes) for solution in solved.solutions]
    trials, tried = try_plans(experiment, plans, shape, on=on, units=parts.units, seconds=seconds, observe=note)
    told = solved.describe()
    return told | {"solutions": ranked(told["solutions"], trials), "tried": tried}
