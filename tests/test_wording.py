from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sottovoce"
ROOMS = tuple(sorted(room.name for room in SOURCE.iterdir() if (room / "__init__.py").exists()))
ORDERS = {"Answer", "Be", "Describe", "Hold", "Keep", "Let", "Name", "Refuse", "Run", "Say", "Show", "Stand", "Tell"}


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_of_classes_say_what_a_thing_is_and_give_no_orders(room: str) -> None:
    for path in sorted((SOURCE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and (text := ast.get_docstring(node)):
                assert text.split()[0] not in ORDERS, f"{path.name}: class {node.name}: {text.splitlines()[0]}"
