"""Mutants of the comparison of two counts: an aggregator that deviates would read ballots, or try again and again."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

DEVIATING = "tests/attacks/test_b5_deviating_aggregators.py"
COUNT = "tests/secagg/ballots/test_count.py"
LYING = "tests/secagg/ballots/test_lying_leader.py"

MUTANTS = (
    of(
        "deviating-leader-checks-no-proof",
        "a helper that adds errors to a victim's products reads its ballot",
        (
            "secagg/ballots/leader.py",
            'if not hmac.compare_digest(self._ask("prove", b""), expected):',
            'if not self._ask("prove", b""):',
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-helper-checks-no-proof",
        "a leader that deviates as sender goes on, whatever the comparison says",
        (
            "secagg/ballots/helper.py",
            "if not hmac.compare_digest(payload, self._count.proofs[1]):",
            "if not payload:",
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-nothing-compared",
        "both sides compare the digests of nothing",
        (
            "secagg/ballots/leader.py",
            "self._difference.update((products - sums_of(chunk, second, kind)).tobytes())",
            'self._difference.update(b"")',
        ),
        (
            "secagg/ballots/helper.py",
            "self._count.difference.update((second - products).tobytes())",
            'self._count.difference.update(b"")',
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-low-bits-compared",
        "the highest bits of the difference are not compared: errors of 2^13 and more pass, and move the released sum",
        (
            "secagg/ballots/leader.py",
            "(products - sums_of(chunk, second, kind)).tobytes()",
            "((products - sums_of(chunk, second, kind)) * kind(8)).tobytes()",
        ),
        (
            "secagg/ballots/helper.py",
            "(second - products).tobytes()",
            "((second - products) * kind(8)).tobytes()",
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-hash-shown",
        "the offer is a hash of the difference: all cases are tried offline",
        (
            "secagg/ballots/comparison.py",
            "self._secret = group.scalar(entropy)",
            "self._secret = group.scalar(lambda size: bytes([1]) + bytes(size - 1))",
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-proof-shown-back",
        "a helper shows the leader's proof back, and needs no guess",
        ("secagg/ballots/comparison.py", '(b"leader", b"helper")', '(b"leader", b"leader")'),
        tests=DEVIATING,
    ),
    of(
        "deviating-context-free",
        "a comparison of one round or session serves in another",
        (
            "secagg/ballots/comparison.py",
            'group.hash_to_element(b"compare", context, digest)',
            'group.hash_to_element(b"compare", digest)',
        ),
        ("secagg/ballots/comparison.py", "info=self._context + both", "info=both"),
        tests=DEVIATING,
    ),
    of(
        "deviating-leader-goes-on",
        "after counts that differ the leader plays the next round, and a helper guesses once more",
        (
            "secagg/ballots/leader.py",
            "        if self._over is not None:\n            raise self._over\n        self.terms",
            "        self.terms",
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-failure-is-a-lost-connection",
        "a leader that sees a failed comparison hangs up, and guesses once more",
        (
            "federation/aggregation/ballots/account.py",
            "        if self.pending is not None:\n            raise",
            "        if False:\n            raise",
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-proof-leaves-unwritten",
        "the helper forgets in a crash that the leader has seen how a comparison ends",
        (
            "secagg/ballots/helper.py",
            "self._account.compare(self._count.round, *self._count.proofs)",
            "str(self._count.round)",
        ),
        tests=COUNT,
    ),
    of(
        "deviating-leader-forgets",
        "a server that was killed has forgotten that counts differed, and the helper guesses once more",
        ("secagg/ballots/leader.py", "                self._record.differ(self._round)\n", "                pass\n"),
        tests=DEVIATING,
    ),
    of(
        "deviating-record-late",
        "a server that was killed cannot show how a comparison ended, and its run is lost",
        (
            "secagg/ballots/leader.py",
            "            self._record.begin(self._round, own, expected)\n",
            "            pass\n",
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-server-shows-first",
        "a helper hears whether its guess is right without having shown it",
        (
            "deployment/helper/mark.py",
            'if not hmac.compare_digest(proof, bytes.fromhex(last["expected"])):',
            "if not proof:",
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-run-resumed",
        "a run whose counts differed goes on with --resume",
        ("deployment/helper/mark.py", 'if last is not None and "differ" in last:', "if last is not None and not last:"),
        tests=DEVIATING,
    ),
    of(
        "deviating-keys-of-anybody",
        "whoever sits between the aggregators knows the leader's string of the second count",
        (
            "secagg/ballots/helper.py",
            "if self._base is None or not verify(self.terms.leader_key, signature, keys_digest(second, request)):",
            "if self._base is None:",
        ),
        tests=LYING,
    ),
)
