"""Mutants of the mechanisms study and of PrivacyFL's switches: too little noise, wrong sums, wrong bytes."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

MINIMISER = "studies/mechanisms/minimiser.py"
NOISE = "studies/mechanisms/noise.py"
PLAY = "studies/mechanisms/play.py"
WEIGHTS = "privacy/noise/mechanisms.py"
TOPOLOGY = "federation/aggregation/servers.py"
SWITCHES = "config/switches.py"
TEST_MINIMISER = "tests/studies/mechanisms/test_minimiser.py"
TEST_NOISE = "tests/studies/mechanisms/test_noise.py"
TEST_STUDY = "tests/studies/mechanisms/test_study.py"
TEST_WEIGHTS = "tests/privacy/test_weights.py"
TEST_TOPOLOGY = "tests/federation/test_topology.py"
REFUSED = "tests/config/test_switches.py::test_switches_that_would_void_epsilon_are_refused"

MUTANTS = (
    of(
        "sensitivity-of-two-classes",
        "the gradient of a softmax is taken for that of one logistic regression",
        (MINIMISER, "return (2 * math.sqrt(2) / records + 2 * tolerance)", "return (1 / records + 2 * tolerance)"),
        tests=TEST_MINIMISER,
    ),
    of(
        "tolerance-for-free",
        "the distance from the optimum is not part of the sensitivity",
        (MINIMISER, " / records + 2 * tolerance) / regulariser", " / records) / regulariser"),
        tests=TEST_MINIMISER,
    ),
    of(
        "long-records",
        "records longer than 1 are trained on",
        (MINIMISER, "if length > 1 + 1e-9:", "if length > 1e9:"),
        tests=TEST_MINIMISER,
    ),
    of(
        "unchecked-gradient",
        "what is released may be far from the minimiser",
        (MINIMISER, "x, y, regulariser) <= tolerance:", "x, y, regulariser) <= 1e9:"),
        tests=TEST_MINIMISER,
    ),
    of(
        "releases-for-free",
        "ten releases of a record are charged as one",
        (NOISE, "each, l1 = epsilon / releases,", "each, l1 = epsilon,"),
        tests=TEST_NOISE,
    ),
    of(
        "gaussian-releases-for-free",
        "ten Gaussian releases are charged as one",
        (NOISE, "sample_rate=1.0, rounds=releases)", "sample_rate=1.0, rounds=1)"),
        tests=TEST_NOISE,
    ),
    of(
        "l2-for-l1",
        "Laplace noise is made for the L2 sensitivity",
        (NOISE, "math.sqrt(dim) * l2", "l2"),
        tests=TEST_NOISE,
    ),
    of(
        "cumulative-data-charged-once",
        "records that are trained on in every iteration are charged for one",
        (PLAY, "releases = self.settings.iterations if cumulative else 1", "releases = 1"),
        tests=TEST_STUDY,
    ),
    of(
        "own-epsilon-of-a-share",
        "shares of Laplace noise have different scales, and their sum is no Laplace noise",
        (
            PLAY,
            'min(cell.epsilons) if cell.mechanism == "gamma-shares" else cell.epsilons[client]',
            "cell.epsilons[client]",
        ),
        tests=TEST_STUDY,
    ),
    of(
        "whole-epsilon-on-each-coordinate",
        "a staircase of the whole epsilon on each coordinate",
        (
            WEIGHTS,
            "Staircase(self.epsilon / (2 * self.dim), self.sensitivity / self.dim,",
            "Staircase(self.epsilon, self.sensitivity,",
        ),
        tests=TEST_WEIGHTS,
    ),
    of(
        "shares-too-small",
        "the shares sum to less than Laplace noise",
        (WEIGHTS, "shape, scale = 1 / self.shares,", "shape, scale = 1 / (self.shares + 1),"),
        tests=TEST_WEIGHTS,
    ),
    of(
        "radius-too-small",
        "radial noise of one dimension less",
        (WEIGHTS, "rng.gamma(self.dim, self.sensitivity", "rng.gamma(max(self.dim - 1, 1), self.sensitivity"),
        tests=TEST_WEIGHTS,
    ),
    of(
        "left-and-still-counted",
        "the mean is divided by clients that have left for good",
        (
            "federation/round.py",
            "self.cohort.expected * (1 - len(gone(state)) / self.cohort.clients)",
            "self.cohort.expected",
        ),
        tests=TEST_TOPOLOGY,
    ),
    of(
        "left-and-still-asked",
        "clients that have left for good are asked again",
        ("federation/round.py", "if client not in absent]", "if client not in absent or True]"),
        tests=TEST_TOPOLOGY,
    ),
    of(
        "one-message-for-all",
        "without a server a message is counted once, not once for each receiver",
        (TOPOLOGY, "parts.get(client, 0) * peers, everything", "parts.get(client, 0), everything"),
        tests=TEST_TOPOLOGY,
    ),
    of(
        "lost-server",
        "the sum of one server replaces those of the others",
        (TOPOLOGY, "else total.values + part.values", "else part.values"),
        tests=TEST_TOPOLOGY,
    ),
    of(
        "own-noise-subtracted",
        "a private run lets clients subtract their noise",
        (SWITCHES, "if table.subtract_own_noise:", "if table.subtract_own_noise and experiment.privacy is None:"),
        tests=REFUSED,
    ),
    of(
        "leaving-in-private",
        "who stays in a private run depends on the records",
        (
            SWITCHES,
            '    if experiment.privacy is not None:\n        raise PrivacyError(\n            "[switches] leave_within',
            '    if False:\n        raise PrivacyError(\n            "[switches] leave_within',
        ),
        tests=REFUSED,
    ),
    of(
        "part-of-the-noise",
        "a server of a private run opens the sum of its own clients",
        (SWITCHES, 'raise PrivacyError(f"{key} would void epsilon: {why}; set it to 1")', "return"),
        tests=REFUSED,
    ),
)
