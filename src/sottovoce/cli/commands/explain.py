"""`sottovoce explain`: the keys of an experiment file and what they do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import put, put_json, put_tables, width

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.config.reference import TableReference
    from sottovoce.runs.keys import Key

DOOR = "explain"
EXAMPLE = "Example: sottovoce explain privacy.epsilon"

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_WIDEST = 80  # long lines of prose are hard to read


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE[.KEY]|rounds|summary|plan]",
            help="One table or key, or what a run or plan tells.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/reference.md: all tables.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain the keys of an experiment file (type, range, default, when to change them), or those of results."""
    from sottovoce.config import reference
    from sottovoce.core.errors import InputError
    from sottovoce.runs.keys import RECORDS, keys_markdown, record_keys

    if name in RECORDS:
        if as_json:
            put_json(
                [{"key": key, "in": told.where, "meaning": told.meaning} for key, told in record_keys(name).items()]
            )
        elif markdown:
            put(keys_markdown(name))
        else:
            put_tables(_results(record_keys(name)), at_most=min(width(), _WIDEST))
        return
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


def _results(keys: dict[str, Key]) -> Table:
    """Return the keys of a record as a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, leading=1)
    drawn.add_column("key", max_width=30, overflow="fold")
    drawn.add_column("what it tells", ratio=1, overflow="fold")
    for key, told in keys.items():
        where = f"\n({told.where})" if told.where else ""
        drawn.add_row(Text(key), Text(_LINK.sub(r"\1", told.meaning + where).replace("`", "").replace("*", "")))
    return drawn


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
