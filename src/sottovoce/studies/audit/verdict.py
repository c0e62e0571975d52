"""What an audit found: two lower bounds beside two proven numbers, the tests, and whether somebody is accused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sottovoce.threats.audit.finding import AuditFinding

FALSE_ALARM: Final = 1e-4  # of a whole audit of a correct build; each test gets an equal part


def threshold_of(tests: Sequence[AuditFinding]) -> float:
    """Return the p value below which a test accuses: the false-alarm rate, shared by all tests with chance in them."""
    return FALSE_ALARM / max(1, sum(not test.certain for test in tests))


def caution() -> str:
    """Return what every audit says of itself."""
    return (
        "A lower bound is no proof: an attack that was not played may show more. A correct build is accused in "
        f"{FALSE_ALARM:g} of all audits at most."
    )


class AggregatorVerdict(NamedTuple):
    """What games against one of two aggregators show: the larger valid bound, and the one that assumes nothing."""

    name: str
    lower: float
    exact: float


@dataclass(frozen=True)
class Audit:
    """The result of an audit. Each lower bound holds with probability `confidence`.

    An epsilon is infinite where the plan proves none. Where two aggregators count ballots, `epsilon_server_lower` is
    the larger of their bounds.
    """

    epsilon: float
    epsilon_lower: float
    epsilon_server: float
    epsilon_server_lower: float
    confidence: float
    tests: tuple[AuditFinding, ...]
    canaries: int
    games: int
    note: str
    aggregators: tuple[AggregatorVerdict, ...] = ()
    epsilon_site: float | None = None  # where units are protected: against another site
    epsilon_site_lower: float | None = None

    @property
    def threshold(self) -> float:
        """Return the p value below which a test accuses."""
        return threshold_of(self.tests)

    @property
    def accused(self) -> bool:
        """Tell whether some test rejects; a correct build is accused in one of 10,000 audits at most."""
        return any(self.rejects(test) for test in self.tests)

    @property
    def reasons(self) -> list[str]:
        """Return a sentence for each test that rejects."""
        return [test.sentence for test in self.tests if self.rejects(test)]

    def rejects(self, test: AuditFinding) -> bool:
        """Tell whether a test rejects."""
        return test.p_value < self.threshold

    def document(self) -> dict[str, Any]:
        """Return the audit as JSON has it."""
        document: dict[str, Any] = {
            "epsilon": _finite(self.epsilon),
            "epsilon_lower": self.epsilon_lower,
            "epsilon_server": _finite(self.epsilon_server),
            "epsilon_server_lower": self.epsilon_server_lower,
            "confidence": self.confidence,
            "accused": self.accused,
            "reasons": self.reasons,
            "tests": [
                {
                    "name": test.name,
                    "statistic": test.statistic,
                    "p_value": test.p_value,
                    "threshold": None if test.certain else self.threshold,
                    "rejected": self.rejects(test),
                }
                for test in self.tests
            ],
            "canaries": self.canaries,
            "games": self.games,
            "note": self.note,
        }
        if self.epsilon_site is not None:
            document |= {"epsilon_site": _finite(self.epsilon_site), "epsilon_site_lower": self.epsilon_site_lower}
        if self.aggregators:
            document["aggregators"] = {
                each.name: {"epsilon_lower": each.lower, "epsilon_lower_exact": each.exact} for each in self.aggregators
            }
        return document


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
