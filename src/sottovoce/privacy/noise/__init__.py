"""Clipping, the integer grid, exact samplers, and why the Gaussian accountant is right for them."""
