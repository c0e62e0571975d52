"""Draw how large the weights of the best models became, as Fig. 5.1 of the thesis does.

FL-TOP trains few weights and leaves the others at their first values. Those few become larger than in a model that
trains all, and noise hurts them less. Where the FL-TOP runs show which weights they train (the best and the final
model differ in these and in no others), the same ones are drawn of every run.
"""

from __future__ import annotations

import html
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.report.figures import frame, styles
from sottovoce.report.runs import Run, label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Vector = NDArray[np.float32]
_BINS: Final = 51
_ENOUGH: Final = 200_000  # weights whose distribution looks like that of all


class Weights(NamedTuple):
    """The weights to draw of every run, None where a folder holds no model, and which they are in words."""

    values: list[Vector | None]
    which: str


def weight_figure(runs: Sequence[Run]) -> tuple[str, Figure] | None:
    """Return a caption and the shares of weights by size, one line a run; None if there is no model to read."""
    from plotly.graph_objects import Figure, Scatter

    found = read_weights(runs)
    sizes = [np.abs(values) for values in found.values if values is not None and len(values)]
    if not sizes:
        return None
    # One weight in a thousand may lie beyond the edge; the edge bins hold them.
    edge = max(float(np.quantile(size, 0.999)) for size in sizes) or 1.0
    edges = np.linspace(-edge, edge, _BINS + 1)
    centres = [float(f"{centre:.4g}") for centre in (edges[1:] + edges[:-1]) / 2]
    figure = Figure()
    for name, values, (color, dash, _, _) in zip(label(runs), found.values, styles(runs), strict=True):
        shares: list[float] = []
        if values is not None and len(values):
            counts, _ = np.histogram(np.clip(values, -edge, edge), edges)
            shares = [float(f"{share:.4g}") for share in counts / len(values)]
        figure.add_trace(
            Scatter(
                x=centres if shares else [],
                y=[share or None for share in shares],  # a log axis has no zero: the line passes over it
                name=html.escape(name),
                hovertemplate="%{y:.3g} of the weights near %{x:.3g}<extra>%{fullData.name}</extra>",
                mode="lines",
                connectgaps=True,
                line={"color": color, "width": 2, "dash": dash, "shape": "hvh"},
            )
        )
    frame(figure, "weight", "share of the weights")
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    figure.update_xaxes(range=[-edge, edge])
    return f"Weights of the model of the best round, {found.which}", figure


def read_weights(runs: Sequence[Run]) -> Weights:
    """Read the models of the best rounds; of all runs the weights that FL-TOP trains, where every FL-TOP run tells."""
    best = [_read(run, "model-best.npz") for run in runs]
    trained = {place: _trained(run, best[place]) for place, run in enumerate(runs) if run.scheme.startswith("fl-top")}
    told = {place: chosen for place, chosen in trained.items() if chosen is not None}
    if not told or len(told) < len(trained):
        return Weights([_thin(one) for one in best], "all weights")
    first = next(iter(told.values()))
    values: list[Vector | None] = []
    for place, one in enumerate(best):
        chosen = told.get(place, first)
        values.append(_thin(one[chosen]) if one is not None and len(one) == len(chosen) else None)
    return Weights(values, "those that FL-TOP trains")


def _trained(run: Run, best: Vector | None) -> NDArray[np.bool_] | None:
    """Return which weights a run trained; None if its two models are one, or do not tell."""
    final = _read(run, "model.npz")
    if best is None or final is None or len(best) != len(final):
        return None
    moved: NDArray[np.bool_] = best != final
    return moved if moved.any() else None


def _read(run: Run, name: str) -> Vector | None:
    """Return all weights of a model as one vector; None if it is absent or damaged, which the table does not need."""
    try:
        with np.load(run.path / name, allow_pickle=False) as arrays:
            tensors: Mapping[str, Any] = {key: arrays[key] for key in sorted(arrays.files)}
        flat = np.concatenate([np.asarray(tensor, np.float32).ravel() for tensor in tensors.values()])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return flat if np.isfinite(flat).all() else None


def _thin(values: Vector | None) -> Vector | None:
    return None if values is None else values[:: max(1, len(values) // _ENOUGH)]
