"""Mutants of the whitening: a message that nobody pays for, other records than those charged, parties that differ."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TESTS = "tests/assembly/test_whitening.py"
MACHINES = "tests/assembly/test_opening.py"

MUTANTS = (
    of(
        "whitening-is-free",
        "the rounds get the whole budget, and the message before round 1 is one more release",
        (
            "assembly/protection.py",
            "before = (vote, warm, whiten) if apart else (vote, warm, whiten, evaluation)",
            "before = (vote, warm) if apart else (vote, warm, evaluation)",
        ),
        tests=TESTS,
    ),
    of(
        "whitening-is-not-clipped",
        "messages before round 1 are as long as they like, and the noise is for the clip norm of the plan",
        ("privacy/noise/path.py", "/ np.maximum(lengths, clip_norm)", "/ clip_norm"),
        tests=TESTS,
    ),
    of(
        "whitening-from-set-aside",
        "records that are set aside to be measured on are in the whitening, and their account does not know",
        (
            "assembly/stages.py",
            'gives="whitening", ask=find_whitening)',
            'gives="whitening", ask=find_whitening, records="held_out")',
        ),
        tests=TESTS,
    ),
    of(
        "another-whitening-is-believed",
        "features were made with other numbers than those of the set-up, and nobody notices",
        ("models/fronted.py", "if payload[: len(mine)] != mine:", "if False:"),
        tests=TESTS,
    ),
    of(
        "test-records-whitened-twice",
        "between machines the server measures another model than it publishes",
        ("federation/engines/worker.py", "whitening.numbers is not None and before.numbers is None", "True"),
        tests=MACHINES,
    ),
    of(
        "whitening-not-in-the-set-up",
        "nodes train on features that are not whitened",
        (
            "models/fronted.py",
            'return self.front.payload() + (b"" if self.whitening is None else self.whitening.payload())',
            "return self.front.payload()",
        ),
        tests=TESTS,
    ),
    of(
        "whitening-of-drawn-units",
        "the message of units is charged for coins that the plan of the rounds draws",
        ("assembly/protection.py", "clip_norm=scheme.public_norm, unit_rate=1.0)", "clip_norm=scheme.public_norm)"),
        tests=TESTS,
    ),
)
