"""Attacks on training as pure functions of what malicious clients can compute; who plays them is `federation`."""
