"""Attacks on training and defences against them, as pure functions; who plays them is `federation`."""
