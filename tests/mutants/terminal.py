"""Mutants of what stderr tells of a private run, whose a test file is, and what a budget finds in its place."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TERMINAL = "tests/attacks/test_a3_what_a_terminal_shows.py"
OWNERS = "tests/attacks/test_a1_owners_on_both_sides.py"
BUDGET = "tests/attacks/test_a7_a_budget_keeps_what_it_finds.py"

MUTANTS = (
    of(
        "watchers-take-a-round-for-public",
        "progress of a private run without epsilon tells failures and bytes",
        ("runs/records.py", '{**self.operator, "private": True}', "{**self.operator}"),
        tests=TERMINAL,
    ),
    of(
        "logs-tell-of-clients",
        "what was found in the clients' records goes to a log",
        ("cli/output.py", "if secret and not _at_terminal():", "if secret and not _at_terminal() and False:"),
        tests=TERMINAL,
    ),
    of(
        "owners-of-a-test-file-unread",
        "a client's other records are called nobody's",
        ("assembly/parts.py", "if whose is None and dataset.owners & other.owners:", "if False:"),
        tests=OWNERS,
    ),
    of(
        "owners-of-a-public-file-unread",
        "a client's other records are called public",
        ("assembly/public.py", "len(clients.owners & public.owners)", "0"),
        tests=OWNERS,
    ),
    of(
        "budget-removes-what-it-cannot-read",
        "a damaged account is removed",
        ("privacy/budget.py", "if not os.fstat(self._file.fileno()).st_size:", "if not self._heads:"),
        tests=BUDGET,
    ),
)
