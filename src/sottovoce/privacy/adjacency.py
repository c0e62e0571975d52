"""What two neighbouring runs differ in, said once: sampler, floor, quorum, audit and docs read it here.

A neighbour has one unit less, and nothing in its place. Where the unit is a client this is not the same as a client
that is drawn and sends zeros: with nothing in its place a cohort may miss its least size, and a round its quorum, for
the lack of one client. Where the unit is a record or a person, the site is there and answers without it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["client", "record", "person"]
UNITS: tuple[Unit, ...] = ("client", "record", "person")


@dataclass(frozen=True)
class Adjacency:
    """The unit that is protected, and what stands in its place in the neighbouring run."""

    unit: Unit = "client"
    replaced_by: Literal["nothing"] = "nothing"

    @property
    def sentence(self) -> str:
        """Return the definition, as docs and outputs print it."""
        if self.unit != "client":
            rows = "one record" if self.unit == "record" else "all rows of one person at one site"
            return (
                f"{rows} replaced by {self.replaced_by}: its site answers without it; which sites there are, when each "
                f"took part and how many {self.unit}s it holds are public"
            )
        return (
            f"one {self.unit} replaced by {self.replaced_by}: no cohort is drawn with it, and nobody hears from it; "
            "where cohorts have a fixed size, another one takes its place"
        )

    def distance(self, *, fixed_size: bool, sample_rate: float) -> float:
        """Return how far the unit can move a sum, in clip norms, against anyone.

        In a Poisson cohort it is there or not. In a cohort of fixed size another one takes its place, and the two can
        be opposite. Where everybody is asked there is nobody to take it.
        """
        return 2.0 if fixed_size and sample_rate < 1 else 1.0

    def without(self, cohort: Sequence[int], absent: Collection[int], floor: int) -> list[int]:
        """Return a cohort as it is in the run without some units; what is left below the floor is sent home."""
        left = [client for client in cohort if client not in absent]
        return left if len(left) >= floor else []


ADJACENCY = Adjacency()
