"""Mutants of the comparison of two counts: an aggregator that deviates would read ballots, or try again and again."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

DEVIATING = "tests/attacks/test_b5_deviating_aggregators.py"
COUNT = "tests/secagg/ballots/test_count.py"
LYING = "tests/secagg/ballots/test_lying_leader.py"
PHANTOMS = "tests/secagg/ballots/test_phantoms.py"
JOINT = "tests/federation/ballots/test_joint.py"
COINS = "tests/privacy/test_coins.py"

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
            "self._difference.update(compared(chunk, first - second, kind))",
            'self._difference.update(b"")',
        ),
        (
            "secagg/ballots/helper.py",
            "self._count.difference.update(compared(chunk, second - products, kind))",
            'self._count.difference.update(b"")',
        ),
        tests=DEVIATING,
    ),
    of(
        "deviating-low-bits-compared",
        "the highest bits of the difference are not compared: errors of 2^13 and more pass, and move the released sum",
        (
            "secagg/ballots/leader.py",
            "compared(chunk, first - second, kind)",
            "compared(chunk, (first - second) * kind(8), kind)",
        ),
        (
            "secagg/ballots/helper.py",
            "compared(chunk, second - products, kind)",
            "compared(chunk, (second - products) * kind(8), kind)",
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
    of(
        "joint-coins-are-not-compared",
        "errors on coins pass: one of weight 1 becomes one of 2,047, and a vote shows",
        ("secagg/ballots/chunks.py", " + rows[chunk.ballots :].tobytes())", ")"),
        tests=PHANTOMS,
    ),
    of(
        "joint-coins-are-compared-as-a-sum",
        "errors on two coins that cancel out pass the comparison, and weigh what their coins weigh",
        (
            "secagg/ballots/chunks.py",
            "+ rows[chunk.ballots :].tobytes())",
            "+ rows[chunk.ballots :].sum(axis=0, dtype=kind).tobytes())",
        ),
        tests=PHANTOMS,
    ),
    of(
        "joint-all-coins-weigh-one-vote",
        "the noise is as small as if all coins were light",
        ("secagg/ballots/chunks.py", "kind(1 << power)", "kind(1)"),
        tests=PHANTOMS,
    ),
    of(
        "joint-coins-of-the-leader-alone",
        "the leader knows all noise",
        (
            "federation/aggregation/ballots/coding.py",
            "self.plan.coin_votes(self.leader_coins(round_) ^ self.helper_coins(round_))",
            "self.plan.coin_votes(self.leader_coins(round_))",
        ),
        tests=JOINT,
    ),
    of(
        "joint-terms-without-coins",
        "both sides sign terms that do not say how many coins there are",
        ("secagg/ballots/terms.py", "(self.first_round, *self.coins)", "(self.first_round,)"),
        tests=PHANTOMS,
    ),
    of(
        "joint-any-coins-will-do",
        "nobody compares the coins with the Gaussian that they are charged as",
        (
            "privacy/noise/coins.py",
            "return bool(np.all(np.asarray(delta, np.float64) + chord <=",
            "return bool(np.any(np.asarray(delta, np.float64) + chord <=",
        ),
        tests=COINS,
    ),
    of(
        "joint-noise-with-its-mean",
        "coins are not centred, and the mean of all votes is off by thousands",
        ("privacy/plan/ballots.py", "np.full(length, -coins.mean, np.int64)", "np.zeros(length, np.int64)"),
        tests=COINS,
    ),
    of(
        "joint-helper-counts-round-zero-as-a-participation",
        "the last round of a run that whitened by ballots is refused to everybody",
        ("federation/aggregation/ballots/account.py", "if other > 0 and other != repeated", "if other != repeated"),
        tests=JOINT,
    ),
)
