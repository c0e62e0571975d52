"""Checks for what you add: call the one that fits your scheme, engine or aggregator in a test of yours."""

from sottovoce.testing.engines import aggregator_checks, engine_checks
from sottovoce.testing.schemes import scheme_checks

__all__ = ["aggregator_checks", "engine_checks", "scheme_checks"]
