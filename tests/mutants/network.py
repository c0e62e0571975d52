"""Mutants of what others may send us: memory, rounds and terminals would be at the disposal of one liar."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

MEMORY = "tests/attacks/test_b3_memory.py"

MUTANTS = (
    of(
        "every-greeting-is-welcomed",
        "one node that repeats a greeting of 600 bytes fills the server's memory and the broker's",
        ("federation/mqtt/engine.py", "!= node.answered:\n            return True", "!= ():\n            return True"),
        ("federation/mqtt/engine.py", "self.allowance -= 1.0", "self.allowance -= 0.0"),
        tests=MEMORY,
    ),
    of(
        "made-up-lives-are-welcomed",
        "a node that makes up a new life in each greeting is sent the set-up as often as it likes",
        ("federation/mqtt/engine.py", "self.allowance -= 1.0", "self.allowance -= 0.0"),
        tests=MEMORY,
    ),
    of(
        "queue-without-end-for-one-node",
        "what waits for one receiver grows until the server's memory is full",
        ("federation/mqtt/transport.py", "if ahead and ahead +", "if False and ahead +"),
        tests=MEMORY,
    ),
    of(
        "window-without-end",
        "a broker that acknowledges nothing fills the server's memory",
        ("federation/mqtt/transport.py", "<= 0:\n                    return False", "<= 0:\n                    break"),
        tests=MEMORY,
    ),
    of(
        "replayed-requests-are-answered",
        "a broker that replays one signed request makes a node send its vector without end",
        ("deployment/node.py", "elif stored.sent >= REPEATS:", "elif False:"),
        tests=MEMORY,
    ),
    of(
        "inbox-without-end",
        "whoever sends to a node while it trains fills its memory",
        ("deployment/join.py", "if self.waiting and self.waiting +", "if False and self.waiting +"),
        tests=MEMORY,
    ),
)
