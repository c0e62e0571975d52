"""`sottovoce schemes`: what there is to choose from."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Wide
from sottovoce.cli.output import put_json, put_tables

if TYPE_CHECKING:
    from rich.table import Table

DOOR = "explain"
EXAMPLE = "Example: sottovoce schemes fl-top"


def schemes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One scheme.", show_default=False)] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """List the schemes, or describe one."""
    from sottovoce.report.tables import grouped
    from sottovoce.schemes import SCHEMES

    if name is not None:
        described = _describe(name)
        if as_json:
            put_json(described)
        else:
            put_tables(grouped(described))
        return
    everything = SCHEMES.describe(lambda name, _: _describe(name))
    if as_json:
        put_json(everything)
    else:
        put_tables(_table(everything))


def _describe(name: str) -> dict[str, Any]:
    from sottovoce.schemes import make

    scheme = make(name)
    first = (inspect.getdoc(type(scheme)) or "").split("\n\n")[0]
    described = scheme.describe()
    return {"name": described.pop("name"), "does": " ".join(first.split()), **described}


def _table(everything: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "what it does", "saves", "linear", "private twin", "keys and defaults", "paper"):
        drawn.add_column(title, overflow="fold", no_wrap=title == "name")
    for scheme in everything:
        if "error" in scheme:
            drawn.add_row(Text(scheme["name"]), Text(f"cannot be used: {scheme['error']}"))
            continue
        values = {key: "automatic" if value is None else value for key, value in scheme["keys"].items()}
        keys = ", ".join(f"{key} = {value}" for key, value in values.items()) or "none"
        linear, twin = ("yes" if scheme[key] else "no" for key in ("linear", "private_twin"))
        cells = (scheme["name"], scheme["does"], scheme["saves"], linear, twin, keys, scheme["paper"])
        drawn.add_row(*(Text(str(cell)) for cell in cells))
    return drawn
