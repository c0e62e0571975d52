"""Draw pictures for a paper or a slide; the interactive figures are in `figures.py`."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.report.figures import PALETTE
from sottovoce.report.save import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sottovoce.report.matrix import MatrixView


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
    _write(figure, path)


def write_images_png(rows: Sequence[tuple[str, NDArray[Any]]], path: Path, *, across: int = 8) -> None:
    """Write rows of images in [0, 1] (count, height, width, channels) under each other, each with a title at its left.

    Of each row the first `across` are shown.
    """
    from matplotlib.figure import Figure

    columns = min(across, max(len(images) for _, images in rows))
    figure = Figure(figsize=(2.2 + 0.8 * columns, 0.86 * len(rows)), layout="constrained")
    grid = np.reshape(figure.subplots(len(rows), columns, squeeze=False), (len(rows), columns))
    for axes, (title, images) in zip(grid, rows, strict=True):
        for place, cell in enumerate(axes):
            cell.set_axis_off()
            if place < len(images):
                shown = images[place] if images.shape[-1] == 3 else images[place][..., 0]
                cell.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes[0].text(-0.1, 0.5, title, ha="right", va="center", fontsize=8, transform=axes[0].transAxes)
    _write(figure, path, dpi=80)


def _write(figure: Any, path: Path, dpi: int = 150) -> None:
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=dpi)
    save(picture.getvalue(), path, "--png")


def write_robustness_png(drawn: Sequence[MatrixView], said: Sequence[str], path: Path) -> None:
    """Write the robustness matrix as heat maps, one below the other, and what is to be said of it below them.

    A file called `.svg` holds SVG, any other PNG.
    """
    from matplotlib.figure import Figure

    if not drawn:
        raise InputError("--png draws a robustness matrix; give runs that cover more than one attack or fraction")
    across = max(len(view.columns) for view in drawn)
    lines = [len(view.rows) for view in drawn]
    names = max(len(row) for view in drawn for row in view.rows)
    size = (1 + 0.07 * names + 0.8 * across, 0.3 + sum(0.9 + 0.34 * rows for rows in lines))
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(len(drawn), 1, squeeze=False, gridspec_kw={"height_ratios": lines})
    for view, axes in zip(drawn, places[:, 0], strict=True):
        _draw_view(view, axes, across)
    if said:
        figure.supxlabel(fill("; ".join(said), width=int(14 * size[0])), fontsize=7, x=0.01, ha="left")
    picture = BytesIO()
    figure.savefig(picture, format="svg" if path.suffix.lower() == ".svg" else "png", dpi=150)
    save(picture.getvalue(), path, "--png")


def _draw_view(view: MatrixView, axes: Axes, across: int) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    scale = LinearSegmentedColormap.from_list("depth", ["#ffffff", PALETTE[view.quantity == "attack_success"]])
    for row, cells in enumerate(view.cells):
        for column, cell in enumerate(cells):
            if cell is None:
                continue
            share = view.share(cell)
            # Two thirds of the colour at most, so that black figures can be read on all of it.
            look = {"facecolor": scale(share / 1.6)} if share is not None else {"facecolor": "none", "hatch": "///"}
            axes.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, edgecolor="0.8", linewidth=0.3, **look))
            paper = None if share is not None else {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            axes.text(column, row, view.text(cell), ha="center", va="center", fontsize=8, bbox=paper)
    # As wide as the widest view, so that cells of all views have one size.
    axes.set(xlim=(-0.5, across - 0.5), ylim=(len(view.rows) - 0.5, -0.5))
    axes.set_xticks(range(len(view.columns)), ["\n".join(column) for column in view.columns], fontsize=8)
    axes.set_yticks(range(len(view.rows)), view.rows, fontsize=8)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{view.title}, best round", fontsize=9, loc="left")


def can_draw(png: Path | None) -> None:
    """Raise if a picture is wanted and matplotlib, which draws it, is not installed; called before any work is done."""
    if png is not None:
        require("--png", "matplotlib")
