"""Measure side by side, in one run; ratios, not absolute times, are what can be compared between machines."""
