"""Hashes of a finished run's files: a change in any of them shows.

Files that tell the size of a cohort have none: few sizes are likely, and whoever has a hash can try them out. For the
same reason nobody's own ledger is here but the server's, whose lines hold salted commitments.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import RunError
from sottovoce.privacy.ledger import hash_of

DIGESTS: Final = "digests.json"
SUMMARY: Final = "summary.json"
FILES: Final = (
    *("config.toml", "environment.json", "preprocessing.json", "front.bin", "whitening.bin"),
    *("rounds.jsonl", "ledger.jsonl", "model-best.npz", "model.npz"),
)


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a summary as it is written."""
    return json.dumps(summary, indent=2) + "\n"


def describe_digests(folder: Path, summary: str) -> dict[str, Any]:
    """Return the SHA-256 of each file of a run that ends with this summary, and a hash over all of them."""
    files = {name: sha256_of(folder / name) for name in FILES if (folder / name).exists()}
    document = {"version": 1, "files": files | {SUMMARY: hashlib.sha256(summary.encode()).hexdigest()}}
    return document | {"hash": hash_of(document)}


def read_digests(folder: Path) -> dict[str, Any] | None:
    """Return the digests of a run, or None if it has none; raise RunError if they are damaged."""
    path = folder / DIGESTS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    if problem := digests_problem(document):
        raise RunError(f"{path} is damaged: {problem}")
    return dict(document)


def digests_problem(document: Any) -> str | None:
    """Say what is wrong with digests; None if nothing is."""
    if not isinstance(document, dict) or set(document) != {"version", "files", "hash"}:
        return "it must hold version, files and hash"
    if document["version"] != 1:
        return f"version {document['version']!r} is not known here"
    files = document["files"]
    if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
        return "files must name hashes"
    if document["hash"] != hash_of({key: value for key, value in document.items() if key != "hash"}):
        return "its own hash is another one"
    return None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
