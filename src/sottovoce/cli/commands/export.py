"""`sottovoce export`: a run's model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Best, RunFolderPath
from sottovoce.cli.output import put, put_json, waiting

DOOR = "try"
EXAMPLE = "Example: sottovoce export runs/patients --to torch --out patients.pt2"


def export(
    run: RunFolderPath,
    to: Annotated[
        str, typer.Option("--to", metavar="FORM", help="torch, onnx, npz or safetensors.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write; else <run>.pt2, .onnx, .npz, .safetensors.",
            show_default=False,
        ),
    ] = None,
    features: Annotated[
        bool, typer.Option("--features", help="onnx of a table: the graph reads features, not columns.")
    ] = False,
    best: Best = False,
    as_json: AsJson = False,
) -> None:
    """Write a run's model in a form that is used without sottovoce.

    torch is a program of torch.export, onnx the same by ONNX: both take stored records and return probabilities, or
    the values of numbers. The ONNX of a table has one input a column instead, numbers (double) and words (string).
    npz and safetensors hold the tensors by name, and the architecture as JSON.
    """
    from sottovoce.core.validate import one_of
    from sottovoce.models.export import FORMS, SUFFIX
    from sottovoce.runs.saved_model import read_model

    one_of("--to", to, FORMS)
    model = read_model(run, best=best)
    file = out if out is not None else Path(run.resolve().name + SUFFIX[to])
    with waiting(f"exporting to {to}"):
        model.export(file, to, features=features)
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
                "columns": model.graph_columns(to, features=features),
                "classes": list(model.class_names),
            }
        )
    else:
        put(f"{file}\n")
