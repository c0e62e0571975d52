"""`sottovoce plan`: what a run will cost, before any training, and which runs keep given limits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile
from sottovoce.cli.output import messages, note, put_json, put_tables, waiting
from sottovoce.core.errors import InputError

__all__ = ["EXAMPLE", "plan"]

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
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the plan as one offline page.", show_default=False),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time a round of real clients; no private sum is opened.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a run will cost, before any training: privacy, bytes, joules, time; or what keeps given limits."""
    from sottovoce.experiment.config import load
    from sottovoce.experiment.constraints import parse_constraints
    from sottovoce.report.planning import plan_sections, section_tables, write_plan

    if limits is not None and (measure or scale is not None):
        raise InputError("--solve measures nothing and is for the file's own clients; leave --measure and --scale out")
    constraints = None if limits is None else parse_constraints(limits)
    experiment = load(file, changes or [])
    name = experiment.experiment.name or file.stem
    private = experiment.privacy is not None
    with messages(private=private), waiting("playing a round to time it" if measure else "working out what it costs"):
        if constraints is not None:
            from sottovoce.experiment.solve import solve
            from sottovoce.report.solving import solved_section

            told = solve(experiment, constraints).describe()
            sections = [solved_section(told)]
        elif scale is not None:
            from sottovoce.experiment.scale import at_scale
            from sottovoce.report.solving import scale_section

            if not all(map(math.isfinite, scale)):
                raise InputError(f"--scale must be two finite numbers, got {scale[0]:g} and {scale[1]:g}")
            told = at_scale(experiment, clients=round(scale[0]), cohort=round(scale[1]))
            sections = [scale_section(told)]
        else:
            from sottovoce.experiment.plan import plan as reckon

            told = reckon(experiment, measure=measure)
            sections = plan_sections(told)
    if html is not None:
        write_plan(sections, f"Plan: {name}", html)
        note(f"wrote {html}")
    if as_json:
        put_json(told)
    else:
        put_tables(*(table for section in sections for table in section_tables(section)))
