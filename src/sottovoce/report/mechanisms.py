"""Draw the curves of a mechanisms study beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from sottovoce.core.errors import InputError
from sottovoce.report.figures import PALETTE
from sottovoce.report.save import save


def write_mechanisms_png(cells: Sequence[Mapping[str, Any]], curves: Sequence[Any], path: Path) -> None:
    """Write accuracy by iteration: a row a data set and mode, a column a number of clients and records.

    `cells` are those of studies; `curves` are printed ones, drawn dotted where a cell of mode "printed" has the same
    data set, mechanism, epsilon, clients and records. A lighter line has an epsilon below 1.
    """
    from matplotlib.figure import Figure

    if not cells:
        raise InputError("--png draws the cells of a study, and there are none")
    down = list(dict.fromkeys((cell["data"], cell["mode"]) for cell in cells))
    across = sorted({(cell["clients"], cell["samples"]) for cell in cells})
    mechanisms = dict.fromkeys(cell["mechanism"] for cell in cells)
    colours = {mechanism: PALETTE[place % len(PALETTE)] for place, mechanism in enumerate(mechanisms)}
    known = {tuple(curve[1:6]): curve.accuracy for curve in curves}
    figure = Figure(figsize=(2.9 * len(across), 2.5 * len(down) + 0.9), layout="constrained")
    places = figure.subplots(len(down), len(across), squeeze=False, sharex=True, sharey="row")
    lines: dict[str, Any] = {}
    for cell in cells:
        row, column = down.index((cell["data"], cell["mode"])), across.index((cell["clients"], cell["samples"]))
        axes, mechanism, epsilon = places[row][column], cell["mechanism"], cell["epsilon"]
        look: dict[str, Any] = {"color": colours[mechanism], "alpha": 1.0 if epsilon is None or epsilon >= 1 else 0.5}
        dashes = "--" if list(mechanisms).index(mechanism) >= len(PALETTE) else "-"  # a colour that is used again
        values = [step["federated"] for step in cell["iterations"]]
        (line,) = axes.plot(range(1, len(values) + 1), values, dashes, linewidth=1.4, **look)
        lines.setdefault(mechanism if epsilon is None else f"{mechanism}, epsilon {epsilon:g}", line)
        there = known.get((cell["data"], mechanism, epsilon, cell["clients"], cell["samples"]))
        if there is not None and cell["mode"] == "printed":
            axes.plot(range(1, len(there) + 1), there, ":", linewidth=1.2, **look)
    for (data, mode), row_of in zip(down, places, strict=True):
        for (clients, samples), axes in zip(across, row_of, strict=True):
            axes.set_title(f"{data}, {mode}: {clients} clients, {samples} records", fontsize=8)
            axes.grid(color="0.9")
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
    for axes in places[-1]:
        axes.set_xlabel("iteration; dotted: the thesis", fontsize=8)
    figure.supylabel("accuracy", fontsize=9)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=100)
    save(picture.getvalue(), path, "--png")
