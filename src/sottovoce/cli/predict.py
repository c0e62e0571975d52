"""`sottovoce predict`: what a run's model says about new records."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.options import AsJson, Best, RunFolderPath
from sottovoce.cli.output import messages, note, put, put_json
from sottovoce.core.errors import InputError
from sottovoce.core.files import replace_file

if TYPE_CHECKING:
    from sottovoce.experiment.saved import Prediction

__all__ = ["EXAMPLE", "predict"]

EXAMPLE = "Example: sottovoce predict runs/patients --data new-patients.csv --out predicted.csv"


def predict(
    run: RunFolderPath,
    data: Annotated[Path, typer.Option("--data", metavar="FILE", help="Records, .csv or .npz.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the predictions here, as CSV.", show_default=False),
    ] = None,
    best: Best = False,
    as_json: AsJson = False,
) -> None:
    """Predict the class of each record of a file; a table is treated as the run's own was.

    Where the file has labels, the accuracy is told. Of an npz file, x (and y) are read, else x_test (and y_test).
    """
    from sottovoce.experiment.saved import read_model

    if out is not None and out.exists() and data.exists() and out.samefile(data):
        raise InputError(f"--out {out} is the file with the records; choose another")
    with messages(note):
        made = read_model(run, best=best).predict_file(data)
    metrics = made.metrics()
    if out is not None:
        _write(out, _table(made))
    if as_json:
        document = {
            "run": str(run),
            "model": "best" if best else "final",
            "records": len(made.probabilities),
            "classes": list(made.names),
            "labelled": 0 if made.labels is None else int((made.labels >= 0).sum()),
            **{name: metrics.get(name) for name in ("accuracy", "balanced_accuracy", "auroc", "loss")},
        }
        put_json(document | ({"out": str(out)} if out is not None else {"predictions": _list(made)}))
        return
    if out is None:
        put(_table(made))
    told = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in metrics.items() if value is not None)
    note(f"{len(made.probabilities)} records{f': {told}' if told else ', without labels'}")
    if out is not None:
        note(f"the predictions are in {out}")


def _table(made: Prediction) -> str:
    """Return a CSV: the number of the record, its class, the label where one is known, each class's probability."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    label = [] if made.labels is None else ["label"]
    writer.writerow(["record", "predicted", *label, *(f"probability {name}" for name in made.names)])
    for row, (chosen, chances) in enumerate(zip(made.classes, made.probabilities, strict=True)):
        known = [] if made.labels is None else [made.names[made.labels[row]] if made.labels[row] >= 0 else ""]
        writer.writerow([row + 1, made.names[chosen], *known, *(f"{chance:.6g}" for chance in chances)])
    return text.getvalue()


def _list(made: Prediction) -> list[dict[str, object]]:
    return [
        {"predicted": made.names[chosen], "probabilities": dict(zip(made.names, map(float, chances), strict=True))}
        for chosen, chances in zip(made.classes, made.probabilities, strict=True)
    ]


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as error:
        raise InputError(f"--out {path} cannot be written: {error.strerror}") from None
