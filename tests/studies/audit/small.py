"""A small federation to audit, and ways to break the build that it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sottovoce.assembly.parts import Parts
from sottovoce.checks.twin import Hosted, few
from sottovoce.config.experiment import Experiment
from sottovoce.federation.engine import Engine, Evaluator
from sottovoce.federation.wrappers.leaving import Leaving
from sottovoce.studies.audit import Audit, Options, audit
from sottovoce.studies.audit.canaries import Canaries

__all__ = ["federation", "in_this_process", "played", "quickly"]


def federation(scheme: str = "fl-std", **tables: dict[str, Any]) -> Experiment:
    """Return twelve clients, half of them asked in each of four rounds."""
    privacy = {"noise_multiplier": 1.0, "delta": 1e-2, "accountant": "rdp"}
    if scheme not in ("fl-sign", "sign-sgd"):
        privacy["clip_norm"] = 0.5
    tables["privacy"] = {**privacy, **tables.get("privacy", {})}
    tables["cohort"] = {"sample_rate": "1/2", **tables.get("cohort", {})}
    tables["experiment"] = {"rounds": 4, **tables.get("experiment", {})}
    return few(scheme, clients=12, **tables)


@contextmanager
def in_this_process(parts: Parts, canaries: Canaries | None) -> Iterator[tuple[Engine, Evaluator]]:
    """Start an engine that sees what a test has patched."""
    with Hosted(parts, behaviour=canaries) as engine:
        yield Leaving(engine, parts.experiment.make_dropout(), parts.seeds.world), engine


def quickly(**options: Any) -> Options:
    """Return an audit of seconds."""
    return Options(**{"games": 12, "seeds": 2, "quick": True, "start": in_this_process, **options})


def played(scheme: str = "fl-std", *, seed: int = 0, **tables: dict[str, Any]) -> Audit:
    """Audit the small federation."""
    return audit(federation(scheme, **tables), quickly(seed=seed))
