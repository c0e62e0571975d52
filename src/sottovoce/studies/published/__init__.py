"""Published tables and figures as data, and ours beside them.

`tables/` has one TOML file for each table, figure or result in the text of the documents: its rows, what they set, and
the cells as printed. `setups/` has the parameters that several tables share, once as the papers have them and once
small.
"""

from __future__ import annotations

from sottovoce.studies.published.answer import printed, reproduce
from sottovoce.studies.published.progress import listing
from sottovoce.studies.published.setup import resolve
from sottovoce.studies.published.table import COLUMNS, SCALES, Published, Row, names, read_table

__all__ = ["COLUMNS", "SCALES", "Published", "Row", "listing", "names", "printed", "read_table", "reproduce", "resolve"]
