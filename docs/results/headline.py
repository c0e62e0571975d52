"""Draw headline.png from headline.json: accuracy against both epsilons, and against the bytes that a client sends.

    python docs/results/headline.py

A point is a file of experiments/ or a row of docs/results.md; those of the papers are their printed tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
COLOURS = {"here": "#1b6ca8", "rule": "#2a8f4f", "before": "#7a7a7a", "papers": "#c8641e"}
LABELS = {
    "here": "this page: five fresh seeds, settings chosen on MNIST",
    "rule": "this page: whitened, settings by a rule, seeds from 301 on",
    "before": "the papers' schemes run here, one seed",
    "papers": "as printed in the papers",
}


def draw(points: list[dict[str, Any]], limit: dict[str, Any]) -> Figure:
    """Return the figure: `limit` is the accuracy without privacy."""
    figure = Figure(figsize=(11, 4.9), layout="constrained", dpi=140)
    epsilons, sent = figure.subplots(1, 2, sharey=True)
    for axes in (epsilons, sent):
        axes.axhline(limit["accuracy"], color="#444444", linewidth=1, linestyle="--")
        axes.grid(color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xscale("log")
    for point in points:
        if point["epsilon"] is not None:
            _against_epsilon(epsilons, point)
        _against_bytes(sent, point)
    epsilons.text(85, limit["accuracy"] + 0.004, limit["name"], fontsize=8, color="#444444", ha="right")
    epsilons.set(xlim=(0.5, 90), ylim=(0.6, 0.9), ylabel="accuracy on Fashion-MNIST's test images")
    epsilons.set_xlabel("epsilon: circle, against outsiders; square, against the server")
    sent.set(xlim=(1e4, 2.5e8), xlabel="bytes of model messages that a client sends in the whole run (expected)")
    ticks = [0.5, 1, 2, 4, 8, 16, 32]
    epsilons.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    sent.set_xticks([1e5, 1e6, 1e7], ["100 kB", "1 MB", "10 MB"])
    for kind, label in LABELS.items():
        sent.plot([], [], "o", color=COLOURS[kind], label=label)
    sent.legend(loc=(0.02, 0.17), fontsize=8, frameon=False)
    return figure


def _against_epsilon(axes: Axes, point: dict[str, Any]) -> None:
    colour, accuracy = COLOURS[point["kind"]], point["accuracy"]
    axes.plot(point["epsilon"], accuracy, "o", color=colour)
    if point["epsilon_server"] is None:
        axes.annotate(point["name"], (point["epsilon"], accuracy), xytext=(7, -3), **_NOTE, color=colour)
        return
    axes.plot([point["epsilon"], point["epsilon_server"]], [accuracy, accuracy], color=colour, linewidth=1, alpha=0.5)
    axes.plot(point["epsilon_server"], accuracy, "s", color=colour)
    where = point.get("label_epsilon", (7, -3))
    axes.annotate(point["name"], (point["epsilon_server"], accuracy), xytext=where, **_NOTE, color=colour)


def _against_bytes(axes: Axes, point: dict[str, Any]) -> None:
    colour = COLOURS[point["kind"]]
    axes.plot(point["bytes_up"], point["accuracy"], "o", color=colour)
    where = point.get("label", (7, -3))
    axes.annotate(point["name"], (point["bytes_up"], point["accuracy"]), xytext=where, **_NOTE, color=colour)


_NOTE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}


def main() -> None:
    """Write the picture beside the numbers."""
    data = json.loads((HERE / "headline.json").read_text())
    draw(data["points"], data["limit"]).savefig(HERE / "headline.png")


if __name__ == "__main__":
    main()
