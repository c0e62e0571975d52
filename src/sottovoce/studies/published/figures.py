"""The numbers of the published figures: curves over rounds, and how weights are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import RunError
from sottovoce.experiment.folder import read_rounds
from sottovoce.experiment.parts import gather
from sottovoce.studies.published.cells import Outcome
from sottovoce.studies.published.table import Published, Row

__all__ = ["series"]

_BINS: Final = 60

Series = dict[str, Any]


def series(table: Published, played: Sequence[tuple[Row, Outcome]]) -> list[Series]:
    """Return what a figure draws, as plain numbers: a curve or a histogram for each row; none for a table."""
    done = [(row, outcome) for row, outcome in played if outcome.summary is not None]
    if table.kind == "curves":
        return [_curve(row, outcome, metric) for row, outcome in done for metric in table.columns]
    if table.kind == "weights":
        groups = list(dict.fromkeys(row.group for row, _ in done))
        return [one for group in groups for one in _histograms([pair for pair in done if pair[0].group == group])]
    return []


def _curve(row: Row, outcome: Outcome, metric: str) -> Series:
    rounds = [record for record in read_rounds(outcome.folder) if record.get(metric) is not None]
    return {
        "row": row.name,
        "metric": metric,
        "round": [record["round"] for record in rounds],
        "value": [record[metric] for record in rounds],
    }


def _histograms(done: Sequence[tuple[Row, Outcome]]) -> list[Series]:
    """Return the weights of each row at the coordinates that the first of them trains (the thesis' set T).

    These are the weights that its best model has moved from w_0, which all rows of a group share.
    """
    if len(done) < 2:
        return []
    first = done[0][1]
    moved = _weights(first.folder) != gather(first.experiment).start
    weights = [_weights(outcome.folder)[moved] for _, outcome in done]
    ends = float(np.quantile(np.abs(np.concatenate(weights)), 0.999)) or 1.0
    edges = np.linspace(-ends, ends, _BINS + 1)
    return [
        {
            "row": row.name,
            "group": row.group,
            "coordinates": int(moved.sum()),
            "norm": float(np.linalg.norm(values)),
            "mean_size": float(np.abs(values).mean()),
            "edges": edges.tolist(),
            "count": np.histogram(np.clip(values, -ends, ends), edges)[0].tolist(),
        }
        for (row, _), values in zip(done, weights, strict=True)
    ]


def _weights(folder: Path) -> NDArray[np.float32]:
    """Return the flat weights of the best round."""
    path = folder / "model-best.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return np.concatenate([arrays[name].ravel() for name in arrays.files])
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; delete its run folder to run the cell again") from None
