"""`sottovoce statistics`: private statistics of the records of all sites."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sottovoce.cli.options import AsJson, Changes, Out, Quiet
from sottovoce.cli.output import messages, note, put, put_json, put_tables
from sottovoce.core.errors import InputError, RunError

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment

DOOR = "try"
EXAMPLE = "Example: sottovoce statistics hospital_*.csv --schema schema.toml --epsilon 1 --by ward"

_DELTA: Final = 1e-6


def statistics(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="An experiment file with [statistics], a run folder of one, or tables, one a site.",
            show_default=False,
        ),
    ],
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="FILE", help="Ranges and categories.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Columns to tell of; else all.", show_default=False)
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="A,B", help="Columns that make groups.", show_default=False)
    ] = None,
    what: Annotated[
        str | None, typer.Option("--what", metavar="A,B", help="Statistics to tell; else all.", show_default=False)
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="Budget against outsiders.", show_default=False)
    ] = None,
    epsilon_server: Annotated[
        float | None,
        typer.Option("--epsilon-server", help="Budget against the server; 1 if neither is given.", show_default=False),
    ] = None,
    person: Annotated[
        str | None,
        typer.Option("--person", metavar="COLUMN", help="Protect each person, named here.", show_default=False),
    ] = None,
    learn: Annotated[
        Path | None,
        typer.Option(
            "--learn", metavar="FILE", help="Learn a schema privately, write it, and stop.", show_default=False
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="The column with the classes.", show_default=False),
    ] = None,
    changes: Changes = None,
    out: Out = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the answers as a page.", show_default=False)
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Tell counts, histograms, quantiles, means and correlations of all sites' records, with noise and intervals.

    All that one call tells is one sum: composed by one plan, and charged before it is opened.
    """
    if learn is not None and (learn.exists() or html is not None):
        raise InputError(f"--learn {learn} is already there, or meets --html; give a new file, and no --html")
    told = _finished(files)
    if told is None:
        given: dict[tuple[str, ...], Any] = {
            ("data", "schema"): schema,
            ("statistics", "columns"): _words(columns),
            ("statistics", "by"): _words(by),
            ("statistics", "what"): _words(what),
            ("privacy", "epsilon"): epsilon,
            ("privacy", "epsilon_server"): epsilon_server,
            ("privacy", "unit"): None if person is None else "person",
            ("data", "person"): person,
            ("data", "label"): label,
            ("statistics", "learn"): True if learn is not None else None,
        }
        told = _play(_experiment(files, given, changes), out, quiet=quiet)
    elif any((schema, columns, by, what, epsilon, epsilon_server, person, changes, out)):
        raise InputError(
            f"{files[0]} is finished: its answers are only shown again; remove all options but --html and --learn"
        )
    name, answers = told
    if "learnt" in answers:
        _tell_schema(answers, learn, label, as_json=as_json)
        return
    if learn is not None:
        raise InputError(f"{files[0]} learnt no schema, so --learn has nothing to write; remove --learn")
    if html is not None:
        from sottovoce.report.save import save
        from sottovoce.report.statistics import page

        save(page(answers, name).encode(), html, "--html")
        note(f"the page is {html}")
    if as_json:
        put_json(answers)
        return
    from sottovoce.report.statistics import terminal

    put_tables(*terminal(answers))


def _tell_schema(answers: dict[str, Any], file: Path | None, label: str | None, *, as_json: bool) -> None:
    """Write the schema that was learnt, and show it."""
    from sottovoce.data.learnt import learnt_text

    text = learnt_text(answers, label)
    if file is not None:
        from sottovoce.report.save import save

        save(text.encode(), file, "--learn")
        note(f"the schema is {file}; a private run that uses it adds what it cost")
    if as_json:
        put_json(answers)
    else:
        put(text)


def _words(text: str | None) -> list[str] | None:
    words = None if text is None else [word.strip() for word in text.split(",") if word.strip()]
    if words == []:
        raise InputError("an option that lists columns or statistics names none; name some, or leave it out")
    return words


def _finished(files: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    """Return name and answers of a run folder that is finished; None if no folder is named."""
    folder = Path(files[0])
    if len(files) > 1 or not (folder / "config.toml").is_file():
        return None
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} is not finished; it has no summary.json") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / 'summary.json'} is damaged: {error}") from None
    return str(summary.get("name")), _answers(folder, summary)


def _answers(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    if "statistics" not in summary:
        raise InputError(f"{folder} is a run that trained a model, and asked for no statistics")
    if summary["statistics"] is None:
        raise RunError(f"{folder}: nothing was told, because too few sites answered; run it again")
    answers: dict[str, Any] = summary["statistics"]
    return answers


def _experiment(files: Sequence[str], given: dict[tuple[str, ...], Any], changes: list[str] | None) -> Experiment:
    """Return the experiment of a file, or that of some tables, with what the options say."""
    from sottovoce.config.experiment import parse, read_tables, with_changes, with_settings

    if len(files) == 1 and files[0].endswith(".toml"):
        tables, where = read_tables(Path(files[0]), changes or ()), files[0]
    else:
        tables, where = with_changes(_of_tables(files), changes or ()), "options"
    settings = {path: value for path, value in given.items() if value is not None}
    tables = with_settings(tables, settings)
    privacy = tables.get("privacy", {})
    if where == "options" and not {"epsilon", "epsilon_server"} & set(privacy):
        tables = with_settings(tables, {("privacy", "epsilon_server"): 1.0})
    tables.setdefault("statistics", {})
    return parse(tables, where=where)


def _of_tables(files: Sequence[str]) -> dict[str, Any]:
    """Return an experiment over tables, one a site; its seed is nobody's choice."""
    from sottovoce.data import table_files

    paths = [str(path) for path in table_files(list(files))]
    data: dict[str, Any] = {"source": paths, "partition": "by-id", "clients": len(paths)}
    if len(paths) == 1:
        data = {"source": paths, "partition": "iid", "clients": 1}
    return {
        "experiment": {"name": "statistics", "seed": secrets.randbits(62)},
        "data": data,
        "privacy": {"unit": "record", "delta": _DELTA},
    }


def _play(experiment: Experiment, out: Path | None, *, quiet: bool) -> tuple[str, dict[str, Any]]:
    from sottovoce.runs.loop import default_folder, run

    folder = out or default_folder(experiment)
    if (folder / "config.toml").exists():
        raise InputError(
            f"{folder} already holds a run, which `sottovoce statistics {folder}` shows again; give another --out"
        )
    with messages(quiet=quiet, private=True):
        summary = run(experiment, folder)
    if not quiet:
        note(f"the run is in {folder}; sottovoce statistics {folder} shows it again")
    return experiment.experiment.name, _answers(folder, summary)
