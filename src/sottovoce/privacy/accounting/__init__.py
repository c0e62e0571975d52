"""Epsilon from what is released, and noise from a wanted epsilon."""
