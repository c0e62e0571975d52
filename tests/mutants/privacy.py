"""Mutants of the privacy plan: a client weighs more, noise is less, or what is drawn is not what is charged."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

BLIND = "tests/privacy/test_blind_spots.py"

MUTANTS = (
    of(
        "count-bit-of-one",
        "the count weighs twice what is charged",
        (
            "privacy/plan/plan.py",
            "(0.5 if norm(message) <= clip_norm else -0.5)",
            "(1.0 if norm(message) <= clip_norm else -1.0)",
        ),
        tests=BLIND,
    ),
    of(
        "server-charged-once-less",
        "epsilon_server is that of m - 1 participations",
        ("privacy/plan/charges.py", "(own.left(part), most)", "(own.left(part), max(1, most - 1))"),
        tests=BLIND,
    ),
    of(
        "server-knows-no-noise",
        "epsilon_server counts the noise of those who may drop out",
        ("privacy/plan/solve.py", "events, most=most, part=shares.server_part", "events, most=most, part=1.0"),
        tests="tests/privacy/test_plan.py",
    ),
    of(
        "member-knows-no-noise",
        "epsilon_member counts the noise that the member made itself",
        ("privacy/plan/solve.py", "part=shares.member_part", "part=1.0"),
        tests="tests/privacy/test_plan.py",
    ),
    of(
        "server-target-unchecked",
        "a target against the server that no grid keeps is missed without a word",
        (
            "privacy/plan/solve.py",
            'if request.epsilon_server is not None and solved["epsilon_server"] > request.epsilon_server:',
            "if False:",
        ),
        tests="tests/privacy/test_server_target.py",
    ),
    of(
        "server-target-forgets-what-was-spent",
        "a release before round 1 is not taken from the target against the server",
        ("privacy/plan/server.py", "return whole - spent", "return whole"),
        tests="tests/privacy/test_targets.py",
    ),
    of(
        "warm-start-uncharged",
        "the message before round 1 is paid by nobody",
        (
            "assembly/protection.py",
            "(vote, warm, whiten) if apart else (vote, warm, whiten, evaluation)",
            "(vote, whiten) if apart else (vote, whiten, evaluation)",
        ),
        tests="tests/assembly/test_warm_start.py",
    ),
    of(
        "warm-start-charged-as-sampled",
        "everyone is asked before round 1, and an outsider's ignorance of who was is charged for",
        ("assembly/protection.py", "        sample_rate=1.0,\n", ""),
        tests="tests/assembly/test_warm_start.py",
    ),
    of(
        "warm-start-without-a-ledger",
        "the message before round 1 is opened before it is charged",
        (
            "runs/loop.py",
            "_charged(side.server, journal, ledger)",
            "_charged(side.server, journal, None)",
        ),
        tests="tests/assembly/test_warm_start.py",
    ),
    of(
        "nobody-left-for-the-rounds",
        "everyone sits out from some round on, and what is released is noise",
        ("privacy/plan/solve.py", "return rounds  # who sits out leaves nobody", "return 1"),
        tests="tests/privacy/test_targets.py::test_a_given_noise_makes_both_targets_budgets_for_rounds_and_participations",
    ),
    of(
        "floor-is-free",
        "small cohorts that are sent home tell who was drawn",
        (
            "privacy/plan/charges.py",
            "floor_slack=floor_slack(request, shares.cap, shares.floor, rounds)",
            "floor_slack=0.0",
        ),
        tests="tests/statistical/test_floor.py",
    ),
    of(
        "over-the-cap-before-the-cut",
        "others' chances depend on who reached the participation cap",
        (
            "privacy/plan/cohort.py",
            "    if drawn.size > cohort_cap:",
            "    drawn = drawn[after[drawn] <= max_participations]\n    if drawn.size > cohort_cap:",
        ),
        tests=BLIND,
    ),
    of(
        "cut-keeps-the-lowest",
        "sampling is not the one that is charged",
        (
            "privacy/plan/cohort.py",
            "np.sort(rng.choice(drawn, size=cohort_cap, replace=False))",
            "drawn[:cohort_cap]",
        ),
        tests=BLIND,
    ),
    of(
        "no-reserve-of-delta",
        "what the Gaussian does not describe is paid by nobody",
        ("privacy/plan/charges.py", "return request.delta * (1 - reserve(request))", "return request.delta"),
        tests=f"{BLIND}::test_a_part_of_delta_is_kept_for_what_the_gaussian_does_not_describe",
    ),
    of(
        "ledger-without-fsync",
        "a power cut forgets what was spent",
        (
            "privacy/ledger.py",
            'self._step("before the sync")\n            os.fsync(self._file.fileno())',
            'self._step("before the sync")',
        ),
        tests=BLIND,
    ),
    of(
        "ledger-folder-unsynced",
        "a power cut forgets that there was a ledger",
        ("privacy/ledger.py", "sync_folder(self.path.parent)", "pass"),
        tests=BLIND,
    ),
    of(
        "noise-of-the-system-is-constant",
        "everyone knows the noise of a deployment",
        (
            "privacy/noise/randomness.py",
            "cls(os.urandom(KEY_SIZE), repeatable=False)",
            "cls(bytes(KEY_SIZE), repeatable=False)",
        ),
        tests=BLIND,
    ),
    of(
        "noise-repeats-in-a-message",
        "differences of two stretches of a message are free of noise",
        (
            "privacy/noise/sampler.py",
            "        bits.fill(numbers)",
            "        if start == 0:\n            bits.fill(numbers)",
        ),
        tests=BLIND,
    ),
    of(
        "fixed-cohorts-charged-as-poisson",
        "a client that takes another's place moves the sum by two norms",
        ("privacy/adjacency.py", "return 2.0 if", "return 1.0 if"),
        tests="tests/privacy/test_events.py",
    ),
    of(
        "cutting-is-free",
        "cohorts above the cap are not sampled as is charged",
        ("privacy/accounting/accountant.py", "return float(event.rounds * binom.sf(", "return float(0 * binom.sf("),
        tests="tests/privacy/test_accountant.py::test_a_cut_that_hardly_ever_happens_costs_hardly_anything",
    ),
    of(
        "fixed-cap-within-reach",
        "under fixed-size sampling others' draws depend on who reached the participation cap",
        ("privacy/accounting/participation.py", 'tail = delta if sampling == "poisson"', "tail = delta if sampling"),
        tests=BLIND,
    ),
    of(
        "clipping-to-twice-the-norm",
        "a client weighs twice what is charged",
        ("privacy/noise/path.py", "int = math.floor(Fraction(radius)", "int = math.floor(Fraction(2 * radius)"),
        (
            "privacy/noise/path.py",
            "unit if length <= clip_norm else unit * (clip_norm / length)",
            "unit if length <= 2 * clip_norm else unit * (2 * clip_norm / length)",
        ),
        tests="tests/privacy/test_plan.py",
    ),
)
