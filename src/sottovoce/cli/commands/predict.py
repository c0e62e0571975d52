"""`sottovoce predict`: what a run's model says about new records."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Best, RunFolderPath
from sottovoce.cli.output import messages, note, put, put_json
from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file

if TYPE_CHECKING:
    from sottovoce.runs.saved_model import Prediction

DOOR = "try"
EXAMPLE = "Example: sottovoce predict runs/patients --data new-patients.csv --out predicted.csv"


def predict(
    run: RunFolderPath,
    data: Annotated[
        Path,
        typer.Option("--data", metavar="FILE", help="Records: tables (also a folder), or .npz.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the predictions here, as CSV.", show_default=False),
    ] = None,
    best: Best = False,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="P",
            help="Of two classes: answer the second from this probability on, or 'chosen': the run's own.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the class, the number or the answers of each record of a file; a table is treated as the run's own was.

    Where the file has labels, the accuracy is told. Of an npz file, x (and y) are read, else x_test (and y_test).
    """
    from sottovoce.models import METRICS
    from sottovoce.runs.saved_model import read_model

    if out is not None and out.exists() and data.exists() and out.samefile(data):
        raise InputError(f"--out {out} is the file with the records; choose another")
    with messages(note):
        made = read_model(run, best=best).predict_file(data)
        if threshold is not None:
            made = made.at(_probability(run, threshold, best=best))
    metrics, quality = made.metrics(), made.quality()
    if out is not None:
        _write(out, _table(made))
    if as_json:
        document = {
            "run": str(run),
            "model": "best" if best else "final",
            "records": len(made.scores),
            "task": made.task.name,
            "classes": list(made.names),
            "threshold": made.threshold,
            "labelled": int(made.known.sum()),
            **{name: metrics.get(name) for name in METRICS},
            "verdict": quality and quality["verdict"],
            "quality": quality,
        }
        put_json(document | ({"out": str(out)} if out is not None else {"predictions": _list(made)}))
        return
    if out is None:
        put(_table(made))
    told = ", ".join(f"{METRICS[name].words} {value:.4f}" for name, value in metrics.items() if value is not None)
    note(f"{len(made.scores)} records{f': {told}' if told else ', without labels'}")
    if quality is not None:
        _note_quality(quality)
    if out is not None:
        note(f"the predictions are in {out}")


def _note_quality(quality: dict[str, Any]) -> None:
    """Say what the labels tell of the model."""
    if quality["verdict"] is not None:
        note(f"on these records the model is {quality['verdict']}")
    if quality.get("sensitivity") is not None and quality.get("specificity") is not None:
        note(f"sensitivity {quality['sensitivity']:.4f}, specificity {quality['specificity']:.4f}")


def _probability(run: Path, text: str, *, best: bool) -> float:
    """Return the probability that a user names, or the one that the run chose for its final model."""
    if text != "chosen":
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"--threshold must be a probability between 0 and 1, or 'chosen', got {text!r}") from None
        if not 0 < value < 1:
            raise InputError(f"--threshold must be a probability between 0 and 1, got {text}")
        return value
    if best:
        raise InputError("--threshold chosen is of the final model; leave --best out, or name a probability")
    from sottovoce.runs.folder import read_summary

    quality = (read_summary(run) or {}).get("quality") or {}
    chosen = quality.get("threshold")
    if not isinstance(chosen, dict):
        reason = quality.get("threshold_reason") or "the run judged no model"
        raise InputError(f"{run} chose no threshold: {reason}; name a probability, such as --threshold 0.2")
    return float(chosen["probability"])


def _table(made: Prediction) -> str:
    """Return a CSV: the number of the record, the answer, the label where one is known, each probability."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    labelled, chances = made.labels is not None, made.probabilities.shape[1] > 0
    kind = made.task.target.kind
    heads = ["predicted"] if kind != "answers" else [f"predicted {name}" for name in made.names]
    labels = [] if not labelled else ["label"] if kind != "answers" else [f"label {name}" for name in made.names]
    writer.writerow(["record", *heads, *labels, *(f"probability {name}" for name in made.names if chances)])
    for row, answer in enumerate(made.answers):
        known = [] if made.labels is None else _words(made, made.labels[row])
        writer.writerow(
            [row + 1, *_words(made, answer), *known, *(f"{chance:.6g}" for chance in made.probabilities[row])]
        )
    return text.getvalue()


def _words(made: Prediction, answer: Any) -> list[str]:
    """Return an answer, or a label, as the cells of a table; empty where there is none."""
    kind = made.task.target.kind
    if kind == "number":
        return [f"{answer:.7g}" if math.isfinite(answer) else ""]
    if kind == "answers":
        return [str(int(each)) if each >= 0 else "" for each in answer]
    return [made.names[answer] if answer >= 0 else ""]


def _list(made: Prediction) -> list[dict[str, object]]:
    kind = made.task.target.kind
    if kind == "number":
        return [{"predicted": float(value) if math.isfinite(value) else None} for value in made.answers]
    told: list[dict[str, object]] = []
    for answer, chances in zip(made.answers, made.probabilities, strict=True):
        named = dict(zip(made.names, map(float, chances), strict=True))
        said: object = dict(zip(made.names, map(int, answer), strict=True)) if kind == "answers" else made.names[answer]
        told.append({"predicted": said, "probabilities": named})
    return told


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as error:
        raise InputError(f"--out {path} cannot be written: {error.strerror}") from None
