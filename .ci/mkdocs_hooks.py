"""The documentation site: pages that mkdocs.yml does not list are under More; links out of docs/ lead to the source."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def on_config(config: Any) -> Any:
    """Let no page be lost: append those that the navigation lacks. Addresses are pyproject.toml's."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    config.repo_url, config.repo_name, config.site_url = urls["Source"], "source", urls["Documentation"]
    listed = {page for section in config.nav for page in _pages(section)}
    found = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    if more := [page for page in found if page not in listed]:
        config.nav.append({"More": more})
    return config


def on_post_build(config: Any) -> None:
    """Write the page of all printed rows beside the results, from the files of evidence."""
    from sottovoce.report.evidence import write_evidence
    from sottovoce.studies.campaign import evidence

    write_evidence(evidence(ROOT / "docs" / "results" / "cells"), Path(config.site_dir) / "results" / "evidence.html")


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for each in inner for page in _pages(each)]


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrite relative links that leave docs/; they must exist."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def rewrite(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        if path.is_relative_to(ROOT / "docs") and not path.is_dir() and path.suffix != ".json":
            return link[0]
        if not path.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {link[1]}, which is not there")
        return f"]({config.repo_url}/{path.relative_to(ROOT).as_posix()})"

    return re.sub(r"\]\((?!https?:|#)([^)#]+)\)", rewrite, markdown)
