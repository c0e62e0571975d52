"""What a check found: true, false, not to be checked with what was given, or beyond what any file can show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

State = Literal["true", "false", "unchecked", "beyond"]
STATES: Final[tuple[State, ...]] = ("false", "true", "unchecked", "beyond")


class Finding(NamedTuple):
    """One claim, whether it holds, and why."""

    claim: str
    state: State
    detail: str


@dataclass
class Findings:
    """All that a check found, in the order in which it looked."""

    found: list[Finding] = field(default_factory=list)

    def true(self, claim: str, detail: str) -> None:
        """Add a claim that holds."""
        self.found.append(Finding(claim, "true", detail))

    def false(self, claim: str, detail: str) -> None:
        """Add a claim that does not hold."""
        self.found.append(Finding(claim, "false", detail))

    def unchecked(self, claim: str, detail: str) -> None:
        """Add a claim that could not be checked, and what would be needed."""
        self.found.append(Finding(claim, "unchecked", detail))

    def beyond(self, claim: str, detail: str) -> None:
        """Add a claim that no file can show, and who could; nothing that is given to a check changes that."""
        self.found.append(Finding(claim, "beyond", detail))

    def decide(self, claim: str, holds: bool, detail: str, wrong: str) -> bool:
        """Add a claim that holds or not, and return whether it does."""
        self.found.append(Finding(claim, "true" if holds else "false", detail if holds else wrong))
        return holds

    def of(self, state: State) -> list[Finding]:
        """Return the findings of one state."""
        return [finding for finding in self.found if finding.state == state]

    def exit_code(self, *, strict: bool = False) -> int:
        """Return 0 if nothing is false, else 3; with `strict` a claim that could not be checked is 3 too."""
        return 3 if self.of("false") or (strict and self.of("unchecked")) else 0

    def told(self, *, strict: bool = False) -> dict[str, Any]:
        """Return everything as one JSON object."""
        code = self.exit_code(strict=strict)
        return {
            "verdict": "false" if code else "true",
            "strict": strict,
            **{state: len(self.of(state)) for state in STATES},
            "findings": [finding._asdict() for finding in self.found],
        }
