"""Draw epsilon over rounds as a picture, for a paper or a slide; the interactive figures are in `figures.py`."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from sottovoce.report.figures import PALETTE
from sottovoce.report.save import save

__all__ = ["write_epsilon_png"]


def write_epsilon_png(values: Sequence[float], title: str, path: Path) -> None:
    """Write epsilon after each round, all rounds counted."""
    # matplotlib, because plotly needs a browser to make a picture. Its object interface keeps no global state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(range(1, len(values) + 1), values, color=PALETTE[0], linewidth=2, marker="o" if len(values) == 1 else "")
    axes.set(xlabel="round", ylabel="epsilon, all rounds so far", xlim=(0, len(values)))
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=9)
    axes.grid(color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    save(picture.getvalue(), path, "--png")
