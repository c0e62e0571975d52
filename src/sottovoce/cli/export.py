"""`sottovoce export`: a run's model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Best, RunFolderPath
from sottovoce.cli.output import put, put_json, waiting
from sottovoce.core.errors import InputError

__all__ = ["EXAMPLE", "export"]

EXAMPLE = "Example: sottovoce export runs/patients --to torch --out patients.pt2"


def export(
    run: RunFolderPath,
    to: Annotated[str, typer.Option("--to", metavar="FORM", help="torch, onnx or npz.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where to write; else <run>.pt2, .onnx, .npz.", show_default=False),
    ] = None,
    best: Best = False,
    as_json: AsJson = False,
) -> None:
    """Write a run's model in a form that is used without sottovoce.

    torch is a program of torch.export, onnx the same by ONNX: both take stored records and return probabilities. npz
    holds the tensors by name, and the architecture as JSON.
    """
    from sottovoce.core.validate import one_of
    from sottovoce.experiment.saved import read_model
    from sottovoce.models.export import FORMS, SUFFIX
    from sottovoce.models.export import export as write

    one_of("--to", to, FORMS)
    model = read_model(run, best=best)
    file = out if out is not None else Path(run.resolve().name + SUFFIX[to])
    if not file.parent.is_dir():
        raise InputError(f"--out {file} cannot be written: there is no folder {file.parent}")
    with waiting(f"exporting to {to}"):
        write(model.network, model.params, to, file, model.inputs)
    if as_json:
        put_json(
            {
                "run": str(run),
                "model": "best" if best else "final",
                "form": to,
                "file": str(file),
                "bytes": file.stat().st_size,
                "input_shape": list(model.network.input_shape),
                "input_type": "int64" if model.inputs.get("input_type") == "uint16" else model.inputs.get("input_type"),
                "classes": list(model.class_names),
            }
        )
    else:
        put(f"{file}\n")
