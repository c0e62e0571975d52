"""`sottovoce privacy`: noise to epsilon, or epsilon to noise; no experiment needed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import note, put_json, put_tables, waiting
from sottovoce.core.errors import InputError

DOOR = "plan"
EXAMPLE = "Example: sottovoce privacy --sample-rate 1/60 --rounds 200 --delta 1e-5 --epsilon 1 --html epsilon.html"


def privacy(
    rounds: Annotated[int, typer.Option(help="Number of rounds.")],
    sample_rate: Annotated[
        str | None,
        typer.Option(help="Chance of a client to be asked, a number or a fraction.", show_default=False),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta, at most one over the number of clients or units.")] = 1e-5,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise of the sum, in clip norms.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget; the noise is found for it.")] = None,
    epsilon_server: Annotated[
        float | None, typer.Option(help="With --unit: the budget against the server.", show_default=False)
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Who is protected: client, or the records or persons of sites: record, person.")
    ] = "client",
    units: Annotated[
        int | None, typer.Option(help="With --unit: records or persons of all sites together.", show_default=False)
    ] = None,
    sites: Annotated[int, typer.Option(help="With --unit: number of sites.")] = 5,
    unit_rate: Annotated[
        str, typer.Option(help="With --unit: chance of each to be taken into a round, by a secret coin.")
    ] = "1",
    colluders: Annotated[int, typer.Option(help="With --unit: sites that may help the server.")] = 0,
    sampling: Annotated[str, typer.Option(help="poisson or fixed.")] = "poisson",
    accountant: Annotated[str, typer.Option(help="pld, rdp or moments.")] = "pld",
    max_participations: Annotated[int | None, typer.Option(help="Most rounds that one client takes part in.")] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            help="Share of a cohort that must stay to the end; the server may know the noise of the rest. With --unit "
            "also the number of sites. As in a run, 2/3 if not given.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a plot of epsilon over rounds, as a page.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the same plot as a picture.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute noise and both epsilons: against outsiders and against the server; of records also another site's."""
    from sottovoce.privacy import calculate
    from sottovoce.privacy.accounting.calculator import DEFAULT_THRESHOLD
    from sottovoce.report.png import can_draw
    from sottovoce.report.tables import grouped

    can_draw(png)
    stays = threshold or str(DEFAULT_THRESHOLD)
    _check_unit(unit, units, sample_rate, epsilon_server, html or png)
    if unit != "client":
        rates = {
            "unit_rate": _rate("--unit-rate", unit_rate),
            "threshold": _rate("--threshold", stays),
        }
        targets = {"noise_multiplier": noise_multiplier, "epsilon": epsilon, "epsilon_server": epsilon_server}
        asked = {"units": units, "sites": sites, "rounds": rounds, "delta": delta, "colluders": colluders}
        _put_units({"unit": unit, "accountant": accountant, **asked, **rates, **targets}, as_json=as_json)
        return
    keys: dict[str, Any] = {
        "sample_rate": _rate("--sample-rate", sample_rate or ""),
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
            threshold=_rate("--threshold", stays),
        )
        if html is not None or png is not None:
            _plot({**keys, "noise_multiplier": found["noise_multiplier"]}, found, html, png)
    if as_json:
        put_json(found)
    else:
        put_tables(grouped(found))
        note("epsilon holds against anyone who does not know who was sampled; epsilon_server against the server.")


def _check_unit(
    unit: str, units: int | None, sample_rate: str | None, epsilon_server: float | None, plot: Path | None
) -> None:
    """Raise if options of clients and of records are mixed."""
    from sottovoce.core.validate import one_of
    from sottovoce.privacy.adjacency import UNITS

    one_of("--unit", unit, UNITS)
    if unit == "client":
        if epsilon_server is not None:
            raise InputError("--epsilon-server is for --unit record or person; give --epsilon, or --unit")
        if units is not None:
            raise InputError("--units is for --unit record or person; give --unit, or remove it")
        if sample_rate is None:
            raise InputError("--sample-rate is missing: the chance of a client to be asked; or give --unit record")
        return
    if units is None:
        raise InputError(f"--units is missing: how many {unit}s all sites hold together")
    if sample_rate is not None:
        raise InputError(
            f"--sample-rate of sites amplifies nothing for a {unit}, because the server chooses them; remove it"
        )
    if plot is not None:
        raise InputError(f"--html and --png draw epsilon over rounds of clients, not of {unit}s; remove them")


def _put_units(asked: dict[str, Any], *, as_json: bool) -> None:
    """Print the answer for records or persons."""
    from sottovoce.privacy import calculate_units
    from sottovoce.report.tables import grouped

    with waiting("reckoning epsilon"):
        told = calculate_units(**asked)
    if as_json:
        put_json(told)
        return
    put_tables(grouped(told))
    note(
        f"epsilon holds against outsiders, epsilon_server against the server with {told['colluders']} colluding sites, "
        "epsilon_site against another site."
    )


def _rate(option: str, text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise InputError(f'{option} must be a number or a fraction such as "1/60", got {text!r}') from None


def _plot(keys: dict[str, Any], found: dict[str, Any], html: Path | None, png: Path | None) -> None:
    from sottovoce.privacy import curve
    from sottovoce.privacy.accounting.calculator import server_curve
    from sottovoce.report.figures import epsilon_by_round
    from sottovoce.report.html import write_figure
    from sottovoce.report.png import write_epsilon_png
    from sottovoce.report.units import epsilon, human_value

    title = (
        f"noise multiplier {found['noise_multiplier']:.4g}, {found['sampling']} sampling at "
        f"{found['sample_rate']:.4g}, delta {found['delta']:g}, {found['accountant']} accountant"
    )
    values = curve(**keys)
    if html is not None:
        words = {key.replace("_", " "): human_value(key, value) for key, value in found.items()}
        write_figure(
            epsilon_by_round(values, server_curve(found)),
            html,
            title=f"Epsilon of {found['rounds']} rounds",
            caption="Both epsilons, round by round",
            lines=[
                f"Epsilon is {epsilon(found['epsilon'])} against outsiders, who do not know who was asked, and "
                f"{epsilon(found['epsilon_server'])} against the server, which does, at delta {found['delta']:g}.",
                "Smaller is more private. Both are for all rounds together. Nothing was trained.",
            ],
            facts=words,
        )
        note(f"wrote {html}")
    if png is not None:
        write_epsilon_png(values, title, png)
        note(f"wrote {png}")
