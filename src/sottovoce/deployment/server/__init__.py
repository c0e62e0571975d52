"""The server of a federation between machines."""
