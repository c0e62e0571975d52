"""Play a round between machines: who takes part, by which keys they are known, and the broker between them."""
