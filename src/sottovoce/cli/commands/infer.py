"""`sottovoce infer`: what an attacker learns about the clients' records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes, ExperimentFile, Quiet
from sottovoce.cli.output import messages, note, put_json, put_tables

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.config.experiment import Experiment

DOOR = "research"
infer = typer.Typer(
    help="Attack the clients' records: tell a property of them, or rebuild images from what is sent.",
    epilog="Example: sottovoce infer property experiments/threats/property-inference.toml",
    no_args_is_help=True,
)

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Also write the numbers as JSON to this folder.", show_default=False),
]
Png = Annotated[
    Path | None,
    typer.Option("--png", metavar="FILE", help="Write the images, true and rebuilt, as a picture.", show_default=False),
]

_PAUSE = 5.0  # seconds between two lines of progress


@infer.callback()
def _start(context: typer.Context, as_json: AsJson = False) -> None:
    context.obj = as_json  # `infer --json property` means the same as `infer property --json`


@infer.command("property", epilog="Example: sottovoce infer property FILE --set inference.property=White")
def _property(
    context: typer.Context,
    file: ExperimentFile,
    changes: Changes = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Let client 0 tell in which rounds the records of others had a property."""
    from sottovoce.studies.property import infer_property

    points = _points(file, changes)
    with messages(quiet=quiet):
        found = [infer_property(point, tell=_ticker(point, "round", quiet=quiet)) for point in points]
    _answer("property", found, out, as_json=as_json or context.obj, table=_property_table)


@infer.command("images", epilog="Example: sottovoce infer images FILE --set inference.sees=sum --png images.png")
def _images(
    context: typer.Context,
    file: ExperimentFile,
    changes: Changes = None,
    png: Png = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a client's images from its first message, or from the first sum."""
    from sottovoce.report.png import can_draw
    from sottovoce.studies.inversion import infer_images

    can_draw(png)
    points = _points(file, changes)
    with messages(quiet=quiet):
        pictures = [infer_images(point, tell=_ticker(point, "step", quiet=quiet)) for point in points]
    if png is not None:
        from sottovoce.report.png import write_images_png

        write_images_png(_rows(pictures), png)
        if not quiet:
            note(f"the images are in {png}")
    _answer("images", [picture.facts for picture in pictures], out, as_json=as_json or context.obj, table=_images_table)


def _points(file: Path, changes: list[str] | None) -> list[Experiment]:
    """Return the experiments of a file: one, or all of its sweep."""
    from sottovoce.config.experiment import load
    from sottovoce.search.sweep import layout

    experiment = load(file, changes or [])
    return layout(experiment) if experiment.sweep else [experiment]


def _ticker(point: Experiment, unit: str, *, quiet: bool) -> Callable[[int, int], None]:
    """Return what tells how far an attack is, every few seconds."""
    began = last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if quiet or now - last < (_PAUSE if last > began else 2.0):
            return
        last = now
        left = (now - began) / done * (total - done)
        note(f"{point.experiment.name}: {unit} {done} of {total}, {left:.0f} s left")

    return tell


def _answer(
    what: str, found: list[dict[str, Any]], out: Path | None, *, as_json: bool, table: Callable[[Any], Table]
) -> None:
    from sottovoce.report.save import save

    if out is not None:
        save((json.dumps(found, indent=2) + "\n").encode(), out / f"{what}.json", "--out")
    if as_json:
        put_json(found)
    else:
        put_tables(table(found))


def _rows(pictures: list[Any]) -> list[tuple[str, Any]]:
    """Return the rows of the picture: what came back of each attack, under what was there."""
    rows: list[tuple[str, Any]] = []
    true = None
    for facts, images, rebuilt in pictures:
        if true is None or true.shape != images.shape or (true != images).any():
            rows.append(("the clients' images", images))
            true = images
        rows.append((f"{_what(facts)}\nSSIM {facts['ssim']:.2f}", rebuilt))
    return rows


def _what(facts: dict[str, Any]) -> str:
    """Return what was attacked, in a few words."""
    words = [facts["scheme"]]
    if facts["ratio"] is not None:
        words.append(f"{100 * facts['ratio']:g} %")
    if facts["private"]:
        words.append(f"noise {facts['noise_multiplier']:.3g}")
    if facts["local_steps"] > 1:
        words.append(f"{facts['local_steps']} steps")
    if facts["sees"] == "sum":
        words.append(f"sum of {facts['clients']}")
    return ", ".join(words)


def _property_table(found: list[dict[str, Any]]) -> Table:
    drawn = _table("scheme", "private", "clients", "rounds", "features", "AUC", "accuracy", "main task", "seconds")
    for facts in found:
        epsilon = facts["epsilon_member"]
        private = "no" if not facts["private"] else "no bound" if epsilon is None else f"epsilon {epsilon:.3g}"
        drawn.add_row(
            facts["scheme"] + (f", active {facts['active']:g}" if facts["active"] else ""),
            private,
            str(facts["clients"]),
            str(facts["rounds"]),
            f"{facts['features']}, {facts['classifier']}",
            *(
                f"{facts[key]:.3f} ({facts[f'{key}_low']:.2f} to {facts[f'{key}_high']:.2f})"
                for key in ("auc", "accuracy")
            ),
            f"{facts['main_accuracy']:.3f}",
            f"{facts['seconds']:.0f}",
        )
    return drawn


def _images_table(found: list[dict[str, Any]]) -> Table:
    drawn = _table("attacked", "images", "values", "SSIM", "SSIM of unrelated", "labels found", "seconds")
    for facts in found:
        drawn.add_row(
            _what(facts),
            str(facts["images"]),
            f"{facts['values']:,}",
            *(f"{facts[key]:.3f}" for key in ("ssim", "ssim_unrelated")),
            f"{100 * facts['labels']:.0f} %",
            f"{facts['seconds']:.0f}",
        )
    return drawn


def _table(*titles: str) -> Table:
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        drawn.add_column(title, overflow="fold")
    return drawn
