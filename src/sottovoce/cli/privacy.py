"""`sottovoce privacy`: noise to epsilon, or epsilon to noise; no experiment needed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import note, put_json, put_tables, waiting
from sottovoce.core.errors import InputError

__all__ = ["EXAMPLE", "privacy"]

EXAMPLE = "Example: sottovoce privacy --sample-rate 1/60 --rounds 200 --delta 1e-5 --epsilon 1 --html epsilon.html"


def privacy(
    sample_rate: Annotated[str, typer.Option(help="Chance of a client to be asked, a number or a fraction.")],
    rounds: Annotated[int, typer.Option(help="Number of rounds.")],
    delta: Annotated[float, typer.Option(help="Delta, at most one over the number of clients.")] = 1e-5,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise of the sum, in clip norms.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget; the noise is found for it.")] = None,
    sampling: Annotated[str, typer.Option(help="poisson or fixed.")] = "poisson",
    accountant: Annotated[str, typer.Option(help="pld, rdp or moments.")] = "pld",
    max_participations: Annotated[int | None, typer.Option(help="Most rounds that one client takes part in.")] = None,
    threshold: Annotated[
        str,
        typer.Option(help="Share of a cohort that must stay to the end; the server may know the noise of the rest."),
    ] = "1",
    html: Annotated[Path | None, typer.Option(help="Write a plot of epsilon over rounds, as a page.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the same plot as a picture.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute noise and both epsilons: against outsiders and against the server."""
    from sottovoce.privacy import calculate
    from sottovoce.report.tables import grouped
    from sottovoce.report.with_matplotlib import can_draw

    can_draw(png)
    keys: dict[str, Any] = {
        "sample_rate": _rate("--sample-rate", sample_rate),
        "rounds": rounds,
        "delta": delta,
        "sampling": sampling,
        "accountant": accountant,
    }
    with waiting("reckoning epsilon"):
        found = calculate(
            **keys,
            noise_multiplier=noise_multiplier,
            epsilon=epsilon,
            max_participations=max_participations,
            threshold=_rate("--threshold", threshold),
        )
        if html is not None or png is not None:
            _plot({**keys, "noise_multiplier": found["noise_multiplier"]}, found, html, png)
    if as_json:
        put_json(found)
    else:
        put_tables(grouped(found))
        note("epsilon holds against anyone who does not know who was sampled; epsilon_server against the server.")


def _rate(option: str, text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise InputError(f'{option} must be a number or a fraction such as "1/60", got {text!r}') from None


def _plot(keys: dict[str, Any], found: dict[str, Any], html: Path | None, png: Path | None) -> None:
    from sottovoce.privacy import curve
    from sottovoce.report.figures import epsilon_by_round
    from sottovoce.report.html import write_figure
    from sottovoce.report.png import write_epsilon_png

    title = (
        f"noise multiplier {found['noise_multiplier']:.4g}, {found['sampling']} sampling at "
        f"{found['sample_rate']:.4g}, delta {found['delta']:g}, {found['accountant']} accountant"
    )
    values = curve(**keys)
    if html is not None:
        write_figure(epsilon_by_round(values, title), html)
        note(f"wrote {html}")
    if png is not None:
        write_epsilon_png(values, title, png)
        note(f"wrote {png}")
