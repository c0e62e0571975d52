"""A node: its state machine, its state on disk, and its connection."""
