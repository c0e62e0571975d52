"""`sottovoce attacks`: what malicious clients can be told to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Wide
from sottovoce.cli.output import put_json, put_tables

if TYPE_CHECKING:
    from rich.table import Table

DOOR = "explain"
EXAMPLE = "Example: sottovoce run experiment.toml --set threat.attack=sign-inversion --set threat.fraction=0.2"


def attacks(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One attack.", show_default=False)] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """List the attacks of the \\[threat] table, or describe one."""
    from sottovoce.report.tables import grouped
    from sottovoce.threats.attacks import ATTACKS

    if name is not None:
        described = ATTACKS[name].describe()
        if as_json:
            put_json(described)
        else:
            put_tables(grouped(described))
        return
    everything = ATTACKS.describe(lambda _, kind: kind.describe())
    if as_json:
        put_json(everything)
    else:
        put_tables(_table(everything))


def _table(everything: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "what malicious clients do", "goal", "collude", "formula", "paper"):
        drawn.add_column(title, overflow="fold", no_wrap=title == "name")
    for attack in everything:
        if "error" in attack:
            drawn.add_row(Text(attack["name"]), Text(f"cannot be used: {attack['error']}"))
            continue
        collude = "yes" if attack["colludes"] else "no"
        cells = (attack["name"], attack["does"], attack["goal"], collude, attack["formula"], attack["paper"])
        drawn.add_row(*(Text(cell) for cell in cells))
    return drawn
