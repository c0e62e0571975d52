"""Size each client's share of the noise for the fewest honest survivors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.core.validate import in_range

__all__ = ["Shares"]


@dataclass(frozen=True)
class Shares:
    """Say how many of a cohort's shares are sure to be there.

    Of a cohort of n at least t(n) messages must arrive (n itself when `threshold` is 1, else floor(threshold n) + 1, as
    secure aggregation has it), and up to `colluders` of their senders may tell the adversary their noise. Cohorts have
    `floor` to `cap` clients.
    """

    threshold: float
    colluders: int
    floor: int
    cap: int

    def __post_init__(self) -> None:
        in_range("threshold", self.threshold, low=0.5, high=1)
        in_range("colluders", self.colluders, low=0)
        in_range("cohort_floor", self.floor, low=1)
        in_range("cohort_cap", self.cap, low=self.floor)
        if self.honest(self.floor) < 1:
            raise PrivacyError(
                f"cohort_floor must leave an honest survivor, got {self.floor}: of its {self.survivors(self.floor)} "
                f"survivors {self.colluders} may collude; raise cohort_floor or sample_rate"
            )

    def survivors(self, cohort: int) -> int:
        """Return t(n), the fewest messages with which a sum may be opened."""
        return cohort if self.threshold == 1 else min(cohort, int(self.threshold * cohort + 1e-9) + 1)

    def honest(self, cohort: int) -> int:
        """Return t(n) - c, the fewest shares that the adversary does not know."""
        return self.survivors(cohort) - self.colluders

    @cached_property
    def excess(self) -> float:
        """Return the noise variance of a full cohort over that which is sure; the same for every cohort.

        Guarantee: a share of variance V * excess / n leaves at least V among the honest survivors of any cohort, and
        the full cohort's noise does not tell how large the cohort was. (Shares of V / (t(n) - c) would: in a million
        coordinates the variance is measured to a thousandth, which tells n, which tells who was sampled.)
        """
        return max(cohort / self.honest(cohort) for cohort in range(self.floor, self.cap + 1))

    def check(self, cohort: int, survivors: int, *, round_: int | None = None) -> None:
        """Raise unless enough messages arrived for the noise to be complete."""
        where = "" if round_ is None else f"round {round_}: "
        if not 0 <= survivors <= cohort:
            raise RunError(f"{where}{survivors} messages of a cohort of {cohort}")
        if cohort > self.cap:
            raise RunError(f"{where}a cohort of {cohort} is above the cohort cap {self.cap}; nothing was released")
        if 0 < cohort < self.floor:
            raise RunError(f"{where}a cohort of {cohort} is below the floor {self.floor}; nothing was released")
        if survivors < self.survivors(cohort):
            raise RunError(
                f"{where}{survivors} messages, but the noise was shared among at least {self.survivors(cohort)}; "
                "nothing was released"
            )
