"""`sottovoce start`: from tables to a first private run and its report."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sottovoce.cli.options import AsJson, Quiet
from sottovoce.cli.output import messages, note, put, put_json
from sottovoce.core.errors import InputError, RunError, SottovoceError
from sottovoce.core.files import replace_file

if TYPE_CHECKING:
    from sottovoce.data.csv_file import CsvTable
    from sottovoce.data.draft import Declared, Draft
    from sottovoce.planning.start import FirstRun

DOOR = "try"
EXAMPLE = "Example: sottovoce start hospital_*.csv --label died --yes"

_UNSAFE: Final = (
    "UNSAFE: this folder holds a run without privacy on the same records. Its model and every figure in it tell of\n"
    "single records, and no epsilon covers them. It is for whoever holds the records, and for no shared page.\n"
)


def start(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Tables, one a site; also a folder.", show_default=False)
    ],
    label: Annotated[
        str | None, typer.Option("--label", metavar="COLUMN", help="The column to predict.", show_default=False)
    ] = None,
    person: Annotated[
        str | None,
        typer.Option("--person", metavar="COLUMN", help="The column that says whose a row is.", show_default=False),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option("--classes", metavar="A,B", help="All values that the label can have.", show_default=False),
    ] = None,
    declare: Annotated[
        list[str] | None,
        typer.Option(
            "--declare",
            metavar="COLUMN=...",
            help="What you know without the records: age=0..120, sex=f,m.",
            show_default=False,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="COLUMN", help="Leave it out.", show_default=False)
    ] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", metavar="E", help="Against the server.")] = 1.0,
    learn_schema: Annotated[
        float | None,
        typer.Option(
            "--learn-schema",
            metavar="E",
            help="Part of --epsilon for ranges and lists that you do not declare.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing, and run.")] = False,
    test: Annotated[
        Path | None,
        typer.Option("--test", metavar="FILE", help="Public records to measure on.", show_default=False),
    ] = None,
    test_public: Annotated[
        bool,
        typer.Option("--test-public", help="Declare a fifth of the people (or files) public, and measure on them."),
    ] = False,
    plain_twin: Annotated[
        bool, typer.Option("--plain-twin", help="Add a run without privacy, for the operator alone: unsafe.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Declare all records public: the twin may stand in the report.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder for all that is written.")] = Path(
        "start"
    ),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draft a schema and an experiment file from tables, plan, run and report; nothing is overwritten.

    No range and no category is read off the records: what you declare is used, and features that need neither.
    """
    from sottovoce.planning.start import choose

    if out.exists():
        raise InputError(f"{out} is already there and was not changed; give another --out")
    if not 1e-3 <= epsilon <= 1e4:
        raise InputError(f"--epsilon must be in [0.001, 10000], got {epsilon:g}")
    if learn_schema is not None and not 0 < learn_schema < epsilon:
        raise InputError(f"--learn-schema must be a part of --epsilon {epsilon:g}, above 0, got {learn_schema:g}")
    if test is not None and (test_public or public):
        raise InputError("--test names the records to measure on; leave --test-public and --public out")
    with messages(quiet=quiet, private=True):
        paths, table, drafted = _drafted(files, label, person, classes, _declared(declare or []), ignore or [], yes=yes)
        measures = test is None and not test_public and not public
        learns = learn_schema if learn_schema is not None and drafted.undeclared else 0.0
        chosen = choose(table, drafted, epsilon, measures=measures, learns=learns)
    for line in chosen.rules:
        note(line)
    for line in chosen.notes if sys.stderr is not None and sys.stderr.isatty() else ():
        note(f"operator only: {line}")
    if not yes and not _confirmed():
        raise InputError("nothing was written; start again with --yes, or answer at a terminal")
    work = _Work(out, paths, drafted, chosen, test, test_public or public, quiet=quiet, as_json=as_json)
    work.write()
    summary = work.play()
    twin = work.play_twin(public=public) if plain_twin else None
    work.report(twin if public else None)
    if as_json:
        put_json(work.told(summary, twin, public=public))


def _drafted(
    files: list[str],
    label: str | None,
    person: str | None,
    classes: str | None,
    declared: dict[str, Declared],
    ignored: list[str],
    *,
    yes: bool,
) -> tuple[tuple[Path, ...], CsvTable, Draft]:
    """Read the tables, ask what is not said, and draft their schema."""
    from sottovoce.data import read_tables, table_files
    from sottovoce.data.draft import check_column, draft, guess_label, guess_person, known_pair

    paths = table_files(files)
    table = read_tables(paths)
    label = label or _asked("label, the column to predict", guess_label(table), table, yes=yes)
    if label is None:
        raise InputError(
            f"no column of {table.name} is clearly the label; name it with --label, one of {', '.join(table.columns)}"
        )
    check_column(table, label, "the label")
    if label in ignored or person in ignored:
        raise InputError(f"--ignore {label if label in ignored else person} is the label or the person; leave one out")
    person = person or _asked("person, the column that says whose a row is", guess_person(table), table, yes=yes)
    words = None if classes is None else [word.strip() for word in classes.split(",")]
    if not yes and sys.stdin.isatty():
        if words is None and known_pair(table, label) is None:
            words = [word.strip() for word in _prompt(f"all classes of {label}, with commas between").split(",")]
        declared = _ask_columns(table, (label, person, *ignored), declared)
    return paths, table, draft(table, label, person, classes=words, declared=declared, ignored=ignored)


@dataclass(frozen=True)
class _Work:
    """The folder of a first run, and what is done in it."""

    out: Path
    paths: tuple[Path, ...]
    drafted: Draft
    chosen: FirstRun
    test: Path | None
    test_public: bool
    quiet: bool
    as_json: bool

    @property
    def schema(self) -> Path:
        return self.out / "schema.toml"

    @property
    def experiment(self) -> Path:
        return self.out / "experiment.toml"

    def write(self) -> None:
        """Write schema and experiment file; nothing half-written stays."""
        self.out.mkdir(parents=True)
        try:
            replace_file(self.schema, self._schema_text())
            replace_file(self.experiment, self._text(private=True))
        except BaseException:
            shutil.rmtree(self.out, ignore_errors=True)
            raise
        note(f"wrote {self.schema} and {self.experiment}")
        if self.drafted.undeclared and not self.chosen.learns:
            note(
                f"check {self.schema}: a range or list that you know without the records makes the model better "
                f"(--declare), for {', '.join(self.drafted.undeclared)}"
            )

    def _schema_text(self) -> str:
        """Return the schema, with what is learnt privately where that was asked for."""
        if not self.chosen.learns:
            return self.drafted.text()
        from sottovoce.config.experiment import parse
        from sottovoce.planning.start import learning_tables
        from sottovoce.runs.loop import run

        with messages(quiet=self.quiet, private=True):
            told = run(parse(learning_tables(self.paths, self.drafted, self.chosen)), self.out / "schema-run")
        if told["statistics"] is None:
            raise RunError("no range was learnt, because too few sites answered; start again without --learn-schema")
        drafted = self.drafted.with_learnt(told["statistics"])
        if drafted.undeclared:
            note(f"nothing stood out of the noise for {', '.join(drafted.undeclared)}: features that need no range")
        return drafted.text()

    def _text(self, *, private: bool) -> str:
        from sottovoce.planning.start import experiment_text

        return experiment_text(
            self.paths,
            self.drafted,
            self.chosen,
            self.schema,
            test=self.test,
            test_public=self.test_public,
            private=private,
        )

    def play(self) -> dict[str, Any]:
        """Plan and run; return the summary. Where records are refused nothing stays, so that the next try can begin."""
        try:
            return self._played()
        except SottovoceError:
            if not (self.out / "run").exists():
                shutil.rmtree(self.out, ignore_errors=True)
                note(f"nothing was run, and {self.out} was removed again")
            raise

    def _played(self) -> dict[str, Any]:
        from sottovoce.cli.commands import plan, run

        if self.as_json:
            return self._run(self.experiment, self.out / "run", private=True)
        plan.plan(self.experiment)
        put("\n")
        run.run(self.experiment, out=self.out / "run", quiet=self.quiet)
        summary: dict[str, Any] = json.loads((self.out / "run" / "summary.json").read_text("utf-8"))
        return summary

    def play_twin(self, *, public: bool) -> Path:
        """Run the same without privacy into a folder of the operator's; return the run's folder."""
        folder = self.out / "operator"
        folder.mkdir(mode=0o700)
        replace_file(folder / "UNSAFE.txt", _UNSAFE)
        file = folder / "plain-twin.toml"
        replace_file(file, self._text(private=False))
        self._run(file, folder / "plain-twin", private=not public)  # what it logs is of the same records
        where = "it stands in the report too" if public else "it stands in no page"
        note(f"unsafe: the twin without privacy is in {folder / 'plain-twin'}, for the operator alone; {where}")
        return folder / "plain-twin"

    def report(self, twin: Path | None) -> None:
        """Write the report of the private run, and of a twin on public records."""
        from sottovoce.report.html import write_html
        from sottovoce.report.runs import read_runs

        runs, damaged = read_runs([self.out / "run", *([twin] if twin is not None else [])])
        write_html(runs, self.out / "report.html", damaged)
        note(f"the report is {self.out / 'report.html'}")

    def told(self, summary: dict[str, Any], twin: Path | None, *, public: bool) -> dict[str, Any]:
        """Return all of it for a program; of the twin no figure."""
        columns = {column.name: {"kind": column.kind, "why": column.reason} for column in self.drafted.columns}
        return {
            "schema": str(self.schema),
            "experiment": str(self.experiment),
            "run": str(self.out / "run"),
            "report": str(self.out / "report.html"),
            "rules": list(self.chosen.rules),
            "columns": columns,
            "check": self.drafted.undeclared,
            "plain_twin": None if twin is None else {"run": str(twin), "unsafe": True, "in_report": public},
            "summary": summary,
        }

    def _run(self, file: Path, folder: Path, *, private: bool) -> dict[str, Any]:
        from sottovoce.config.experiment import load
        from sottovoce.runs.loop import run

        with messages(quiet=self.quiet, private=private):
            return run(load(file), folder)


def _declared(texts: list[str]) -> dict[str, Declared]:
    from sottovoce.data.draft import parse_declared

    found: dict[str, Declared] = {}
    for text in texts:
        name, values = parse_declared(text)
        if name in found:
            raise InputError(f"--declare names {name!r} twice; leave one out")
        found[name] = values
    return found


def _ask_columns(table: CsvTable, known: tuple[str | None, ...], declared: dict[str, Declared]) -> dict[str, Declared]:
    """Ask what is known of each column without its records; nothing that is in them is shown."""
    from sottovoce.data.draft import parse_values

    note("what do you know of each column without the records? A range (0..120), a list (f,m), or nothing")
    answers = dict(declared)
    for name in table.columns:
        if name not in known and name not in answers and (said := _prompt(name)):
            answers[name] = parse_values(said)
    return answers


def _asked(what: str, guess: str | None, table: CsvTable, *, yes: bool) -> str | None:
    """Return the user's answer at a terminal, else the guess."""
    if yes or not sys.stdin.isatty():
        return guess
    note(f"columns: {', '.join(table.columns)}")
    return _prompt(f"{what} (empty: none)", guess or "") or None


def _prompt(what: str, default: str = "") -> str:
    return str(typer.prompt(what, default=default, show_default=bool(default), err=True)).strip()


def _confirmed() -> bool:
    return sys.stdin.isatty() and typer.confirm("go on?", default=True, err=True)
