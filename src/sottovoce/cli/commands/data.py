"""`sottovoce data`: the data sets, where they are, how to get them, and how to divide one among machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Wide
from sottovoce.cli.output import messages, put, put_json, put_tables

if TYPE_CHECKING:
    from rich.table import Table

DOOR = "explain"
data = typer.Typer(
    help="List the data sets; fetch one, say where they are looked for, or divide one among machines.",
    epilog="Example: sottovoce data fetch fashion-mnist",
    invoke_without_command=True,
)


@data.callback()
def _list(context: typer.Context, as_json: AsJson = False) -> None:
    context.obj = as_json  # `data --json path` means the same as `data path --json`
    if context.invoked_subcommand is not None:
        return
    from sottovoce.data.catalogue import SOURCES
    from sottovoce.data.sources import describe_source

    described = SOURCES.describe(lambda _, source: _entry(describe_source(source)._asdict()))
    if as_json:
        put_json(described)
    else:
        put_tables(_table(described))


@data.command("fetch", epilog="Example: sottovoce data fetch mnist")
def _fetch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set.", show_default=False)],
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Download a data set into the cache and verify it."""
    import sys

    from sottovoce.data import fetch

    folder = fetch(name, progress=sys.stderr.isatty())
    if as_json or context.obj:
        put_json({"name": name, "path": str(folder)})
    else:
        put(f"{folder}\n")


@data.command("path", epilog="Example: sottovoce data path fashion-mnist")
def _path(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A data set.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Say where data sets are looked for, in order, or where one was found."""
    from sottovoce.data import cache_folder, describe, locate
    from sottovoce.data.sources import VARIABLE
    from sottovoce.report.tables import grouped

    shared = os.environ.get(VARIABLE)
    told: dict[str, Any] = {
        "1": "the folder given by [data] folder",
        "2": f"{VARIABLE}, {f'now {shared}' if shared else 'not set'}",
        "3": "the system's package, under /usr/share/datasets",
        "4": f"the cache, {cache_folder()}",
    }
    if name is not None:
        found = locate(name)
        where = str(found) if found is not None else None
        if as_json or context.obj:
            put_json({"name": name, "path": where})
        else:
            known = {description.name: description.where for description in describe()}
            put(f"{where or known.get(name, 'missing')}\n")
    elif as_json or context.obj:
        put_json(
            {"cache": str(cache_folder()), "variable": VARIABLE, "variable_value": shared, "order": [*told.values()]}
        )
    else:
        put_tables(grouped(told))


@data.command("check", epilog="Example: sottovoce data check experiment.toml --data hospital_1.csv")
def _check(
    context: typer.Context,
    file: ExperimentFile,
    own: Annotated[str, typer.Option("--data", metavar="MINE", help="Your records, as for join.", show_default=False)],
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Read your records as a node of an experiment would, and count what [privacy] units asks for."""
    from sottovoce.assembly.elsewhere import in_units, shape_of
    from sottovoce.config.experiment import load
    from sottovoce.deployment.node.records import read_own_records
    from sottovoce.federation.units import count_units
    from sottovoce.report.tables import grouped

    with messages():
        experiment = load(file, changes or ())
        shape = shape_of(experiment)
        records = in_units(experiment, read_own_records(own, None, experiment.data, shape))
    unit = "record" if experiment.privacy is None else experiment.privacy.unit
    told: dict[str, Any] = {
        "data": own,
        "rows": len(records.y),
        "unit": unit,
        "units": 1 if unit == "client" else count_units(records),
        "features": list(shape.shape),
        "classes": list(shape.class_names or range(shape.classes)),
    }
    if as_json or context.obj:
        put_json(told)
    else:
        put_tables(grouped(told))


@data.command("split", epilog="Example: sottovoce data split experiment.toml --parts 3 --out /data/parts")
def _split(
    context: typer.Context,
    file: ExperimentFile,
    parts: Annotated[int, typer.Option("--parts", metavar="N", min=1, help="Parts, one for each machine.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder to write them to.")],
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Divide the records of an experiment into a folder for each machine of a Ray cluster."""
    from sottovoce.assembly.division import divide
    from sottovoce.config.experiment import load

    with messages():
        told = divide(load(file, changes or []), parts, out)
    if as_json or context.obj:
        put_json(told)
        return
    for part in told["parts"]:
        clients, records, size = (part[key] for key in ("clients", "records", "bytes"))
        put(f"{out / part['folder']}: {clients:,} clients, {records:,} records, {size:,} bytes\n")
    put(f"{out / 'common'}: for the machine that leads the run\n")


def _entry(described: dict[str, Any]) -> dict[str, Any]:
    return {**described, "shape": list(described["shape"])}


def _table(described: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "train", "test", "shape", "classes", "licence", "where"):
        numeric = title in ("train", "test", "classes")
        drawn.add_column(title, justify="right" if numeric else "left", overflow="fold", no_wrap=title == "name")
    for entry in described:
        if "error" in entry:
            drawn.add_row(Text(entry["name"]), *[""] * 5, Text(f"cannot be used: {entry['error']}"))
            continue
        cells = (
            entry["name"],
            f"{entry['train']:,}",
            f"{entry['test']:,}",
            " x ".join(map(str, entry["shape"])),
            str(entry["classes"]),
            entry["licence"],
            entry["where"],
        )
        drawn.add_row(*map(Text, cells))
    return drawn
