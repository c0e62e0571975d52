"""Decide whether a value may leave a run: the second half of the privacy boundary (`core.provenance` is the first).

Every number of a run that is computed from records, and is not a sum that the plan charges, passes here: accuracy and
loss on test and held-out records, the success of an attack, the accuracy of single clients, counts of records. With the
numbers goes whatever follows from them: which round is best, when patience ends, what callbacks hear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from sottovoce.core.errors import PrivacyError
from sottovoce.core.provenance import Provenance, Public

Value = TypeVar("Value")


@dataclass(frozen=True)
class Boundary:
    """What may leave one run: anything without privacy, else what is nobody's; `unsafe_test` also lets tests pass."""

    private: bool
    unsafe_test: bool = False

    def passes(self, records: Provenance) -> bool:
        """Tell whether a value computed from these records may leave as it is."""
        return not self.private or isinstance(records, Public)

    def passes_test(self, records: Provenance) -> bool:
        """Tell whether a measurement of the model on these records may leave."""
        return self.unsafe_test or self.passes(records)

    def release(self, value: Value, records: Provenance, what: str) -> Value:
        """Return a measurement of the model on records of a provenance; raise if it may not leave.

        Guarantee: a private run gives back nothing that was measured on the clients' records without `unsafe_test`.
        """
        self.check(records, what)
        return value

    def check(self, records: Provenance, what: str) -> None:
        """Raise unless a measurement on these records may leave; before a run, so that nothing is half done."""
        if not self.passes_test(records):
            raise PrivacyError(
                f"{what} are the clients' own{_why(records)}, and what is measured on them tells of clients what "
                "epsilon does not cover; name a file of others' records in [data] test, let clients measure "
                '([experiment] evaluation = "federated"), measure nothing ("none"), or set [privacy] unsafe_test = true'
            )


def _why(records: Provenance) -> str:
    reason = "" if isinstance(records, Public) else records.by.partition(": ")[2]
    return f" ({reason})" if reason else ""
