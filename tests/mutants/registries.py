"""Ways in which things of outside packages would be ignored, or run as something else."""

from __future__ import annotations

from tests.mutants.mutant import Body, of

__all__ = ["MUTANTS"]

OUTSIDE = "tests/registries/test_outside.py"

MUTANTS = (
    of(
        "training-option-ignored",
        "a run trains without an option that its file sets, and nobody is told",
        Body("models/trainer.py", "LocalTraining.unknown_to", "return None"),
        tests="tests/models/test_choose.py",
    ),
    of(
        "protocol-of-a-package-unused",
        "a sum is made by another protocol than the file names",
        (
            "assembly/aggregator.py",
            "find_protocol(parts.experiment.secure,",
            'find_protocol("ideal",',
        ),
        tests=OUTSIDE,
    ),
    of(
        "broken-thing-hidden",
        "a list leaves out a thing that cannot be used, so that nobody learns why",
        ("core/registry.py", 'described.append({"name": name, "error": str(error)})', "continue"),
        tests=OUTSIDE,
    ),
    of(
        "stage-with-the-keys-of-rounds",
        "a vote takes the keys of the session, of which not everyone is there",
        ("assembly/aggregator.py", "table.key_life if policy is None else policy.key_life", "table.key_life"),
        tests="tests/assembly/test_warm_start.py",
    ),
)
