"""Secret ballots: one bit a coordinate from every client, counted by two aggregators (docs/ballots.md)."""

from sottovoce.federation.ballots.counting import counting

__all__ = ["counting"]
