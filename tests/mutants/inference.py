"""Mutants of inference attacks: they see more or less than they may, or are judged wrongly."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

ATTACK = "studies/property.py"
INSIDER = "tests/studies/test_insider.py"
PROPERTY = "tests/studies/test_property.py"
INVERSION = "tests/models/test_inversion.py"
REBUILD = "models/inversion.py"

MUTANTS = (
    of(
        "own-part-stays",
        "the insider takes its own update for that of the others",
        (ATTACK, "np.float32(public.cohort) * y - seen.own", "np.float32(public.cohort) * y"),
        tests=INSIDER,
    ),
    of(
        "momentum-stays",
        "earlier rounds are taken for this one",
        (ATTACK, "velocity - np.float32(momentum) * last[place], velocity", "velocity, velocity"),
        tests=INSIDER,
    ),
    of(
        "vote-taken-for-the-sum",
        "the insider forgets that its own vote is in it",
        (ATTACK, "norm.logpdf(z) - norm.logcdf(vote * z)", "0 * z"),
        tests=INSIDER,
    ),
    of(
        "own-noise-forgotten",
        "the insider does not know what it sent",
        (
            "studies/setting.py",
            "self.public.values(message if self.public.plan is None else words, terms)",
            "message.astype(np.float32)",
        ),
        tests=INSIDER,
    ),
    of(
        "model-of-another-round",
        "a step is told of the wrong round",
        ("studies/setting.py", "kept._replace(after=insider.seen.before)", "kept._replace(after=kept.before)"),
        tests=INSIDER,
    ),
    of(
        "emulated-noise-is-always-the-same",
        "the attacker learns one noise by heart",
        (ATTACK, "seen.terms, rng.bytes(32))", "seen.terms, bytes(32))"),
        tests=PROPERTY,
    ),
    of(
        "emulated-without-noise",
        "the attacker prepares for another federation",
        (
            "studies/setting.py",
            "        if self.plan is None:\n            return self.values(message",
            "        if True:\n            return self.values(message",
        ),
        tests=f"{INSIDER} {PROPERTY}",
    ),
    of(
        "learned-from-the-victim",
        "the attacker has the records that it asks about",
        (
            "studies/property.py",
            "public, trainer, records[INSIDER], size",
            "public, trainer, records[VICTIM], size",
        ),
        tests=PROPERTY,
    ),
    of(
        "victim-never-has-it",
        "the truth is not what was dealt",
        ("studies/property.py", "number == VICTIM and truth[round_ - 1]", "False"),
        tests=PROPERTY,
    ),
    of(
        "sizes-with-signs",
        "the published features are others",
        (ATTACK, "np.abs(values).max(axis)", "values.max(axis)"),
        tests=PROPERTY,
    ),
    of(
        "unknown-is-no",
        "a face whose race is not known counts as one without it",
        ("data/images.py", "np.where(known, HAS, HAS_NOT), UNKNOWN)", "np.where(known, HAS, HAS_NOT), HAS_NOT)"),
        tests="tests/data/test_faces.py",
    ),
    of(
        "cache-forgets-properties",
        "a second load knows no races",
        ("data/cache.py", '"properties": list(dataset.properties)', '"properties": []'),
        tests="tests/data/test_cache.py",
    ),
    of(
        "similarity-with-another-constant",
        "the similarity is not the paper's",
        ("threats/measures.py", "_K2: Final = 0.03", "_K2: Final = 0.01"),
        tests="tests/threats/test_ssim.py",
    ),
    of(
        "similarity-beyond-the-border",
        "windows reach outside of the image",
        ("threats/measures.py", "inside = slice(WINDOW // 2, -(WINDOW // 2))", "inside = slice(1, -1)"),
        tests="tests/threats/test_ssim.py",
    ),
    of(
        "interval-of-the-true-cases-alone",
        "the interval is too narrow",
        ("threats/measures.py", " + below.var(ddof=1) / len(below)", ""),
        tests="tests/threats/test_guesses.py",
    ),
    of(
        "transpose-of-another-shuffle",
        "the attack follows another encoding than the scheme's",
        (
            "schemes/compressive.py",
            "return self._unshuffle(np.stack([dct.inverse(row",
            "return self._unshuffle(np.stack([-dct.inverse(row",
        ),
        tests="tests/schemes/test_transpose.py",
    ),
    of(
        "one-step-retraced",
        "updates of several steps are matched by those of one",
        (REBUILD, "range(self.training.local_steps)", "range(1)"),
        tests=INVERSION,
    ),
    of(
        "frozen-weights-move",
        "the attacker trains weights that clients do not",
        (REBUILD, "(slope if moving is None else slope * moving)", "slope"),
        tests=INVERSION,
    ),
    of(
        "first-start-kept",
        "a better match is thrown away",
        (REBUILD, "return min(found, key=lambda rebuilt: rebuilt.distance)", "return found[0]"),
        tests=INVERSION,
    ),
    of(
        "labels-never-looked-for",
        "the attacker keeps to its first guess of the labels",
        (REBUILD, '{"params": [labels], "lr": _LABEL_STEP}', '{"params": [labels], "lr": 0.0}'),
        tests=INVERSION,
    ),
    of(
        "one-client-of-the-sum",
        "a sum is matched by one client's update",
        (REBUILD, "for client in range(self.clients))", "for client in range(1))"),
        tests=INVERSION,
    ),
    of(
        "property-weighs-as-the-task",
        "the active attacker's loss is another",
        ("models/multitask.py", "(1 - self.weight) * loss_of(", "loss_of("),
        tests="tests/models/test_multitask.py",
    ),
    of(
        "any-scheme-is-linear",
        "an encoding that the attack cannot follow is attacked",
        ("studies/inversion.py", "if abs(one - other) <= 1e-3 * abs(one):", "if True:"),
        tests="tests/studies/test_inversion_study.py",
    ),
)
