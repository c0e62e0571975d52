"""Fill the templates of pages."""

from __future__ import annotations

from typing import Any

from sottovoce.core.packages import require


def page_environment() -> Any:
    """Return what fills the templates of this folder; it escapes whatever a file is called."""
    require("a page", "jinja2")
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("sottovoce.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
