"""Mutants of secret ballots: more than one vote, less than the promised noise, secrets that are used twice."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

COUNT = "tests/secagg/ballots/test_count.py"
FUZZ = "tests/secagg/ballots/test_fuzz.py"
SECRETS = "tests/secagg/ballots/test_secrets.py"
REAL = "tests/federation/ballots/test_real.py"
ACCOUNT = "tests/federation/ballots/test_account.py"
PLAN = "tests/privacy/test_ballot_plan.py"
OT = "tests/secagg/ot/test_extension.py"

MUTANTS = (
    of(
        "ballot-arithmetic-words",
        "the helper multiplies words instead of bits, and a vote counts three times",
        (
            "secagg/ballots/helper.py",
            "sender.answer(payload[:CHECK_SIZE], bits)",
            "sender.answer(payload[:CHECK_SIZE], 3 * bits)",
        ),
        tests=FUZZ,
    ),
    of(
        "ballot-scaled-correlation",
        "the products are scaled, and so is a vote",
        ("secagg/ot/extension.py", "reply += bits.astype(self._type)", "reply += 2 * bits.astype(self._type)"),
        tests=OT,
    ),
    of(
        "ballot-leader-without-noise",
        "outsiders face half of the noise, and the helper none",
        (
            "federation/aggregation/ballots/count.py",
            "leader.open(self.coding.leader_noise(round_))",
            "leader.open(0 * self.coding.leader_noise(round_))",
        ),
        tests=REAL,
    ),
    of(
        "ballot-helper-without-noise",
        "the leader faces no noise at all",
        (
            "secagg/ballots/helper.py",
            "self._noise(self._count.round).astype(kind)",
            "0 * self._noise(self._count.round).astype(kind)",
        ),
        tests=COUNT,
    ),
    of(
        "ballot-one-noise-twice",
        "both aggregators add the same noise, which each of them knows",
        (
            "federation/aggregation/ballots/coding.py",
            "self._noise(self.seeds.helper, round_)",
            "self._noise(self.seeds.server, round_)",
        ),
        tests="tests/federation/ballots/test_coding.py",
    ),
    of(
        "ballot-pad-of-the-seed-alone",
        "one seed gives one pad in all rounds",
        ("secagg/ballots/message.py", 'info=b"pad" + context', 'info=b"pad"'),
        tests=SECRETS,
    ),
    of(
        "ballot-seed-twice",
        "a seed that was used may be used again",
        ("secagg/ballots/helper.py", "if mark in self._seen", "if False"),
        tests=COUNT,
    ),
    of(
        "ballot-counter-rewound",
        "the same rows of the transfers serve two choices",
        ("secagg/ballots/helper.py", "if counter != sender.counter", "if False"),
        tests=COUNT,
    ),
    of(
        "ballot-account-rewound",
        "a session's transfers go back after a restart",
        ("federation/aggregation/ballots/account.py", "if counter < self._counters.get(session, 0)", "if False"),
        tests=ACCOUNT,
    ),
    of(
        "ballot-two-of-one-client",
        "a client has as many votes as it sends messages",
        ("secagg/ballots/leader.py", "if client in self._envelopes", "if False"),
        tests=COUNT,
    ),
    of(
        "ballot-counted-too-often",
        "the participations that epsilon_server counts are not enforced by the helper",
        ("secagg/ballots/helper.py", " or not self._account.admits(client, round_)", ""),
        tests=COUNT,
    ),
    of(
        "ballot-helper-charged-never",
        "the helper's share leaves before its account knows",
        ("secagg/ballots/helper.py", "self._account.charge(self._count.round)", "str(self._count.round)"),
        tests=COUNT,
    ),
    of(
        "ballot-leader-charged-late",
        "the leader may see the votes of a round that it never pays for",
        (
            "federation/aggregation/ballots/count.py",
            "            spend()\n            votes = leader.open(",
            "            votes = leader.open(",
        ),
        (
            "federation/aggregation/ballots/count.py",
            "return total\n        total.values, total.clip_norm = self.coding.decode(votes, round_)",
            "return total\n        spend()\n        total.values, total.clip_norm = self.coding.decode(votes, round_)",
        ),
        tests=REAL,
    ),
    of(
        "ballot-check-missing",
        "a leader that chooses differently in single columns learns the helper's string, and with it every pad",
        ("secagg/ot/extension.py", "if not np.array_equal(", "if False and not np.array_equal("),
        tests=OT,
    ),
    of(
        "ballot-check-twice",
        "a leader may try until its guesses of the helper's string hold",
        (
            "secagg/ot/extension.py",
            '            self._dead = True\n            raise SecAggError("the choices',
            '            raise SecAggError("the choices',
        ),
        tests=OT,
    ),
    of(
        "ballot-check-unmasked",
        "the check tells the helper linear functions of the masked ballots",
        ("secagg/ot/extension.py", "np.frombuffer(self._entropy(_MASK_ROWS // 8), np.uint8)", "0"),
        tests=OT,
    ),
    of(
        "ballot-aggregator-knows-no-noise",
        "epsilon_server is that of somebody who does not know its own noise",
        (
            "privacy/plan/cohort.py",
            "return 0.5 if self.by_aggregators else self._least(self._survivors - self.colluders)",
            "return 1.0 if self.by_aggregators else self._least(self._survivors - self.colluders)",
        ),
        tests=PLAN,
    ),
    of(
        "ballot-cohort-told",
        "who votes hears how many do, and with that the amplification is gone",
        (
            "federation/round.py",
            "told = 0 if server.plan is not None and server.plan.shares.by_aggregators else len(cohort)",
            "told = len(cohort)",
        ),
        tests=REAL,
    ),
    of(
        "ballot-rotation-for-ever",
        "attackers aim at one coordinate in every round",
        (
            "federation/aggregation/ballots/coding.py",
            "public.get(Purpose.BALLOT, _ROTATION, round_)",
            "public.get(Purpose.BALLOT, _ROTATION)",
        ),
        tests="tests/federation/ballots/test_coding.py",
    ),
    of(
        "ballot-of-another-model",
        "clients that were sent different models are counted together",
        ("secagg/ballots/terms.py", 'client.to_bytes(8, "little") + downlink', 'client.to_bytes(8, "little")'),
        tests=COUNT,
    ),
)
