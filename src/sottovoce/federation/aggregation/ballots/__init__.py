"""Secret ballots: one bit a coordinate from every client, counted by two aggregators (docs/ballots.md)."""
