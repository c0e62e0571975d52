"""Mutants that the audit of ballots must accuse, found by a correct count that is suddenly accused; and its own."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TESTS = "tests/studies/audit/test_ballots.py"
RECORDS = "tests/studies/audit/test_ballot_records.py"
ACCUSED = f"{TESTS}::test_a_correct_count_is_not_accused[0]"
SECURE = f"{TESTS}::test_an_audit_repeats_itself_also_through_the_real_protocol"

MUTANTS = (
    of(
        "audited-leader-without-noise",
        "an opened sum lacks the leader's noise, and the helper sees every vote",
        (
            "federation/aggregation/ballots/coding.py",
            "total + self.leader_noise(round_) + self.helper_noise(round_)",
            "total + self.helper_noise(round_)",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-helper-without-noise",
        "an opened sum lacks the helper's noise, and the leader sees every vote",
        (
            "federation/aggregation/ballots/coding.py",
            "total + self.leader_noise(round_) + self.helper_noise(round_)",
            "total + self.leader_noise(round_)",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-one-noise-for-both",
        "the helper draws from the leader's stream, who takes its noise off",
        (
            "federation/aggregation/ballots/coding.py",
            "self._noise(self.seeds.helper, round_)",
            "self._noise(self.seeds.server, round_)",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-helper-noise-of-the-public-seed",
        "everybody can compute the helper's noise",
        (
            "federation/aggregation/ballots/coding.py",
            "self._noise(self.seeds.helper, round_)",
            "self._noise(self.seeds.public, round_)",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-half-the-variance",
        "each aggregator adds half the variance that the plan is charged for",
        ("privacy/plan/ballots.py", "Fraction(grid.variance) / 2", "Fraction(grid.variance) / 4"),
        tests=ACCUSED,
    ),
    of(
        "audited-plan-of-half-the-variance",
        "the plan's own grid has half the noise that its epsilons are proven for",
        (
            "privacy/plan/ballots.py",
            "half = (noise_multiplier * radius) ** 2 / 2 + ROUNDING**2",
            "half = (noise_multiplier * radius) ** 2 / 4 + ROUNDING**2",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-noise-of-every-round",
        "the noise of two rounds cancels",
        (
            "federation/aggregation/ballots/coding.py",
            "Randomness.simulated(owner.key(Purpose.NOISE, round_))",
            "Randomness.simulated(owner.key(Purpose.NOISE))",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-client-counted-twice",
        "a client moves the sum by two votes",
        (
            "federation/aggregation/ballots/coding.py",
            "        accumulator.add(signs)\n",
            "        accumulator.add(signs)\n        accumulator.add(signs)\n",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-helper-charged-never",
        "rounds are opened that the helper's account does not know",
        (
            "federation/aggregation/ballots/count.py",
            "                self._account.charge(round_)\n",
            "                pass\n",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-helper-cap",
        "the helper counts a client as often as the leader likes",
        (
            "federation/aggregation/ballots/account.py",
            "return self.participations(client, round_) < self._most",
            "return self.participations(client, round_) >= 0",
        ),
        tests=ACCUSED,
    ),
    of(
        "audited-real-leader-without-noise",
        "the leader of the real protocol opens without its noise",
        (
            "federation/aggregation/ballots/count.py",
            "leader.open(self.coding.leader_noise(round_))",
            "leader.open(0 * self.coding.leader_noise(round_))",
        ),
        tests=SECURE,
    ),
    of(
        "audited-real-leader-charged-late",
        "the leader has the helper's share before it has paid",
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
        tests=SECURE,
    ),
    of(
        "audited-real-helper-charged-never",
        "the helper's share leaves before its account knows",
        ("secagg/ballots/helper.py", "self._account.charge(self._count.round)", "str(self._count.round)"),
        tests=SECURE,
    ),
    of(
        "audited-pads-of-zeros",
        "the leader reads every ballot",
        ("secagg/ballots/message.py", "self._cipher.update(bytes(size))", "bytes(size)"),
        tests=SECURE,
    ),
    of(
        "auditor-forgets-its-own-noise",
        "games of an aggregator that does not use what it knows",
        (
            "studies/audit/ballots/play.py",
            "unknown = both - drawn[view.name]",
            "unknown = both - 0 * drawn[view.name]",
        ),
        tests=ACCUSED,
    ),
    of(
        "auditor-plays-one-aggregator",
        "the noise of one aggregator is tested twice and the other's never",
        (
            "studies/audit/ballots/play.py",
            'for name, other in (("leader", "helper"), ("helper", "leader"))',
            'for name, other in (("leader", "helper"), ("leader", "helper"))',
        ),
        tests=f"{TESTS}::test_both_aggregators_are_named_and_the_larger_bound_is_quoted",
    ),
    of(
        "auditor-scores-as-if-orthogonal",
        "a bound that holds too seldom, because scores of one round go together",
        (
            "studies/audit/ballots/views.py",
            "both, none, cross = self._products.tolist()",
            "both, none, cross = counted, left, 0",
        ),
        tests="tests/studies/audit/test_ballot_views.py",
    ),
    of(
        "auditor-trusts-the-helpers-account",
        "a run whose helper never charged passes",
        ("studies/audit/accounts.py", "set(released).difference(chain.charged)", "set(released) and set()"),
        tests=RECORDS,
    ),
    of(
        "auditor-lets-clients-be-counted",
        "a run in which a client was counted beyond the cap passes",
        (
            "studies/audit/ballots/records.py",
            "_most_counted(notes) <= plan.max_participations",
            "_most_counted(notes) >= 0",
        ),
        tests=RECORDS,
    ),
)
