"""What a mutant is: an edit of a text that occurs once, or of a whole function."""

from __future__ import annotations

import ast
import textwrap
from typing import NamedTuple


class Edit(NamedTuple):
    """One text of a file under src/sottovoce, and what takes its place."""

    file: str
    old: str
    new: str

    def problem(self, text: str) -> str | None:
        """Say why the edit cannot be made in a file's text."""
        count = text.count(self.old)
        return None if count == 1 else f"{self.file} has {self.old!r} {count} times"

    def made(self, text: str) -> str:
        """Return the text with the edit."""
        return text.replace(self.old, self.new)


class Body(NamedTuple):
    """A function `name` or method `Class.name` of a file under src/sottovoce, and the statements that it has instead.

    It follows its function through every edit that keeps the name, so it needs less care than a text.
    """

    file: str
    function: str
    new: str

    def problem(self, text: str) -> str | None:
        """Say why the edit cannot be made in a file's text."""
        return None if self._find(text) else f"{self.file} has no function {self.function}"

    def made(self, text: str) -> str:
        """Return the text with the edit."""
        node = self._find(text)
        if node is None or node.end_lineno is None:
            return text
        lines = text.splitlines(keepends=True)
        body = textwrap.indent(textwrap.dedent(self.new).strip("\n") + "\n", " " * node.body[0].col_offset)
        return "".join([*lines[: node.body[0].lineno - 1], body, *lines[node.end_lineno :]])

    def _find(self, text: str) -> ast.FunctionDef | None:
        place: ast.AST = ast.parse(text)
        for name in self.function.split("."):
            inside = ast.iter_child_nodes(place)
            place = next(
                (n for n in inside if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name), ast.Pass()
            )
        return place if isinstance(place, ast.FunctionDef) else None


class Mutant(NamedTuple):
    """A way to break the guarantee, and the tests that must see it."""

    name: str
    breaks: str
    edits: tuple[Edit | Body, ...]
    tests: tuple[str, ...]


def of(name: str, breaks: str, *edits: tuple[str, str, str] | Body, tests: str) -> Mutant:
    """Return a mutant; `tests` is a pytest selection."""
    return Mutant(name, breaks, tuple(e if isinstance(e, Body) else Edit(*e) for e in edits), tuple(tests.split()))
