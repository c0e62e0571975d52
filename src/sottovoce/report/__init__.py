"""Tell what runs did, from their folders alone: a table, figures, and one HTML file that needs no network.

>>> from sottovoce.report import facts, read_runs, rows, write_html
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.report.html import page, write_html
    from sottovoce.report.runs import Run, facts, label, read_run, read_runs
    from sottovoce.report.tables import rows, table

__all__ = ["Run", "facts", "label", "page", "read_run", "read_runs", "rows", "table", "write_html"]

# Imported when first asked for: the commands that only draw a table need neither the readers nor plotly.
_HOMES = {
    "html": ("page", "write_html"),
    "runs": ("Run", "facts", "label", "read_run", "read_runs"),
    "tables": ("rows", "table"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"sottovoce.report.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
