"""Write down a schema that was learnt privately, with what that cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def learnt_text(told: Mapping[str, Any], label: str | None) -> str:
    """Return the schema file of columns that were learnt privately, with what that cost."""
    numbers = {key: told[key] for key in ("epsilon", "epsilon_server", "delta") if told[key] is not None}
    words = ", ".join(f"{key} {value:.6g}" for key, value in numbers.items())
    lines = [
        f"# Learnt privately with {words}, for each {told['unit']} (sottovoce statistics --learn).",
        "# Ranges are bins of powers of two; rare values may lie outside, and rare words are not listed.",
        "# A private run that uses this file adds the cost below to that of the population.",
        "",
        'others = "ignore"',
        "",
        *learnt_lines(told),
    ]
    for name, column in told["learnt"].items():
        lines += ["", *(_learnt_label(column) if name == label else _learnt_column(name, column))]
    return "\n".join(lines) + "\n"


def learnt_lines(told: Mapping[str, Any]) -> list[str]:
    """Return the table that says for whom a schema was learnt, and what that cost."""
    numbers = {key: told[key] for key in ("epsilon", "epsilon_server", "delta") if told[key] is not None}
    return [
        "[learnt]",
        f"unit = {json.dumps(told['unit'])}",
        *(f"{key} = {value!r}" for key, value in numbers.items()),
        f"cost = {json.dumps(json.dumps(told['cost']))}",
    ]


def _learnt_label(column: Mapping[str, Any]) -> list[str]:
    if column["kind"] != "category" or len(column["categories"]) < 2:
        return ["# [label]", "# classes = []   # no two classes stand out of the noise: declare them"]
    return ["[label]", f"classes = {_listed(column['categories'])}"]


def _learnt_column(name: str, column: Mapping[str, Any]) -> list[str]:
    reason = f"   # {column['reason']}" if "reason" in column else ""
    lines = [f"[columns.{json.dumps(name, ensure_ascii=False)}]{reason}", f'kind = "{column["kind"]}"']
    if column["kind"] == "number":
        lines += [f"minimum = {column['minimum']!r}", f"maximum = {column['maximum']!r}"]
    if column["kind"] == "category":
        lines += [f"categories = {_listed(column['categories'])}"]
    return lines


def _listed(words: Sequence[str]) -> str:
    return json.dumps(list(words), ensure_ascii=False)
