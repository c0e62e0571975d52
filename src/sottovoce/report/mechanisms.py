"""Draw the curves of a mechanisms study beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from sottovoce.core.errors import InputError
from sottovoce.report.figures import PALETTE
from sottovoce.report.save import save

__all__ = ["write_mechanisms_png"]


def write_mechanisms_png(cells: Sequence[Mapping[str, Any]], curves: Sequence[Any], path: Path) -> None:
    """Write accuracy by iteration: a column a data set, a row a number of clients and records, a colour a mechanism.

    `cells` are those of studies; `curves` are printed ones, drawn dotted where a cell of mode "printed" has the same
    data set, mechanism, epsilon, clients and records. Solid lines are mode "printed", dashed ones mode "right".
    """
    from matplotlib.figure import Figure

    if not cells:
        raise InputError("--png draws the cells of a study, and there are none")
    across = list(dict.fromkeys(cell["data"] for cell in cells))
    down = sorted({(cell["clients"], cell["samples"]) for cell in cells})
    names = list(dict.fromkeys((cell["mechanism"], cell["epsilon"]) for cell in cells))
    colours = {
        mechanism: PALETTE[place % len(PALETTE)] for place, mechanism in enumerate(dict.fromkeys(m for m, _ in names))
    }
    known = {(c.data, c.mechanism, c.epsilon, c.clients, c.samples): c.accuracy for c in curves}
    figure = Figure(figsize=(5.2 * len(across), 2.6 * len(down) + 0.6), layout="constrained")
    places = figure.subplots(len(down), len(across), squeeze=False, sharex=True)
    lines: dict[str, Any] = {}
    for row, (clients, samples) in enumerate(down):
        for column, data in enumerate(across):
            axes = places[row][column]
            for cell in cells:
                if (cell["data"], cell["clients"], cell["samples"]) != (data, clients, samples):
                    continue
                mechanism, epsilon = cell["mechanism"], cell["epsilon"]
                values = [step["federated"] for step in cell["iterations"]]
                rounds = range(1, len(values) + 1)
                # A lighter line is the smaller epsilon.
                look = {"color": colours[mechanism], "alpha": 1.0 if epsilon is None or epsilon >= 1 else 0.55}
                (line,) = axes.plot(rounds, values, "-" if cell["mode"] == "printed" else "--", linewidth=1.4, **look)
                words = mechanism if epsilon is None else f"{mechanism}, epsilon {epsilon:g}"
                lines.setdefault(f"{words} ({cell['mode']})", line)
                there = known.get((data, mechanism, epsilon, clients, samples))
                if there is not None and cell["mode"] == "printed":
                    axes.plot(range(1, len(there) + 1), there, ":", linewidth=1.2, **look)
            axes.set_title(f"{data}, {clients} clients, {samples} records", fontsize=9)
            axes.grid(color="0.9")
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_ylim(bottom=0)
            axes.tick_params(labelsize=8)
    figure.supxlabel("iteration; dotted: the thesis' own curves", fontsize=9)
    figure.supylabel("accuracy", fontsize=9)
    figure.legend(lines.values(), lines.keys(), loc="outside right upper", fontsize=7, frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    save(picture.getvalue(), path, "--png")
