"""`sottovoce explain`: the keys of an experiment file and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import put, put_json, put_tables, width

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.experiment.reference import TableReference

__all__ = ["EXAMPLE", "explain"]

EXAMPLE = "Example: sottovoce explain privacy.epsilon"

_WIDEST = 80  # long lines of prose are hard to read


def explain(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE[.KEY]]", help="One table, or one key of it.", show_default=False),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/reference.md: all tables.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain the keys of an experiment file: type, range, default, and when to change them."""
    from sottovoce.core.errors import InputError
    from sottovoce.experiment import reference

    if markdown and (name is not None or as_json):
        raise InputError("--markdown prints all tables and goes with nothing else; leave out the other words")
    if markdown:
        put(reference.markdown())
        return
    found = reference.reference() if name is None else reference.find(name)
    if as_json:
        put_json([table.plain() for table in found])
    else:
        put_tables(*(part for table in found for part in _parts(table)), at_most=min(width(), _WIDEST))


def _parts(table: TableReference) -> list[Table | str]:
    """Return what is printed of one table: what it is for, then its keys."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, leading=1)
    drawn.add_column("key", no_wrap=True)
    drawn.add_column("value", max_width=22, overflow="fold")
    drawn.add_column("what it does", ratio=1, overflow="fold")
    for key in table.keys:
        value = f"{key.type}{', ' * bool(key.range)}{key.range}\ndefault: {key.default_words}"
        drawn.add_row(Text(key.key), Text(value), Text(f"{key.of} {key.description}".strip()))
    return ["", escape(table.description.replace("`", "")), "", drawn]
