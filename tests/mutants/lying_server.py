"""Mutants of what a client insists on when the server lies: its policy, its mark, the model that it was sent."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

LIES = "tests/secagg/test_lying_server.py"
ROUNDS = "tests/federation/test_lying_server.py"

MUTANTS = (
    of(
        "policy-unchecked",
        "a client takes part in whatever is announced",
        ("secagg/policy.py", "        self.check(session)\n", ""),
        tests=f"{LIES} {ROUNDS}",
    ),
    of(
        "policy-without-the-smallest-cohort",
        "a cohort of the victim and one helper is opened",
        ("secagg/policy.py", "if count < self.fewest:", "if count < 0:"),
        tests=LIES,
    ),
    of(
        "context-without-downlink",
        "the victim alone trains the true model",
        ("secagg/session.py", 'digest.update(self.downlink.ljust(DIGEST, b"\\0"))', "digest.update(bytes(DIGEST))"),
        tests=f"{LIES} {ROUNDS}",
    ),
    of(
        "round-constant-nonces",
        "a restored client shows the difference of two shares",
        ("secagg/client.py", "nonce = self._entropy(NONCE)", "nonce = bytes(NONCE)"),
        tests=LIES,
    ),
    of(
        "standing-constant-nonces",
        "a restored client shows the difference of two shares",
        ("secagg/standing.py", "nonce = self._entropy(NONCE)", "nonce = bytes(NONCE)"),
        tests="tests/secagg/test_secrets.py::test_every_nonce_is_drawn_by_its_client",
    ),
    of(
        "round-unmarked",
        "a round that is played again with one client fewer opens that client's words",
        ("secagg/client.py", "self._mark.before_mask(session.round)", "pass"),
        tests=f"{LIES} tests/secagg/test_mark.py {ROUNDS}",
    ),
    of(
        "standing-unmarked",
        "a restored standing client masks a round twice",
        ("secagg/standing.py", "self._mark.before_mask(round_)", "pass"),
        tests="tests/secagg/test_mark.py",
    ),
    of(
        "mark-without-fsync",
        "after a power cut a round is masked twice",
        ("core/files.py", "        _sync(draft)\n", ""),
        tests="tests/secagg/test_mark.py",
    ),
    of(
        "words-unmasked-on-request",
        "the server asks a secure run for phase train",
        ("federation/client.py", 'if phase == "train" and self.knowledge.policy is not None:', "if False:"),
        tests=ROUNDS,
    ),
    of(
        "noise-shared-as-the-server-says",
        "a cohort of ten that is told to be eighty-two adds an eighth of the noise",
        ("federation/client.py", "heard.terms._replace(cohort=self._session(state).cohort)", "heard.terms"),
        tests=ROUNDS,
    ),
    of(
        "participations-uncounted",
        "a server asks one client more often than epsilon_server counts",
        ("secagg/policy.py", "before >= self.participations", "before < 0"),
        tests=ROUNDS,
    ),
    of(
        "rounds-without-end",
        "one announced round of 2^40 is the last that a client masks",
        ("secagg/policy.py", "if round_ > self.last_round:", "if round_ < 0:"),
        tests=ROUNDS,
    ),
)
