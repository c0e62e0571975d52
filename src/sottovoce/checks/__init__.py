"""Checks for what you add: call the one that fits your scheme, engine or aggregator in a test of yours."""

from sottovoce.checks.engines import aggregator_checks, engine_checks
from sottovoce.checks.schemes import scheme_checks

__all__ = ["aggregator_checks", "engine_checks", "scheme_checks"]
