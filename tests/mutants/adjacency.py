"""Mutants of the adjacency: rounds that one client decides are free, cohorts hide nobody, two distances."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

QUORUM = "tests/attacks/test_a3_quorum_is_charged.py"
LEAST = "tests/attacks/test_b2_a_cohort_has_a_least_size.py"
FIXED = "tests/attacks/test_a9_fixed_sampling_has_one_adjacency.py"
DELTA = "tests/attacks/test_a9_delta_is_below_one_of_the_clients.py"

MUTANTS = (
    of(
        "quorum-is-free",
        "whether a round has enough answers tells of one client, and nobody pays",
        ("privacy/plan/charges.py", "quorum_slack=quorum_slack(request, shares, rounds)", "quorum_slack=0.0"),
        tests=QUORUM,
    ),
    of(
        "quorum-of-one-answer-less",
        "the rounds that are charged are not those that one answer decides",
        ("privacy/accounting/others.py", "np.minimum(needed - 1.0, counts)", "np.minimum(needed - 2.0, counts)"),
        tests=QUORUM,
    ),
    of(
        "tipped-rounds-of-a-drawn-client-once",
        "the charge of all rounds is that of one",
        ("privacy/accounting/others.py", "total += rounds * self._chance(", "total += self._chance("),
        tests=QUORUM,
    ),
    of(
        "machines-always-answer",
        "a run between machines prints an epsilon that counts on answers nobody vouches for",
        (
            "config/devices.py",
            "if deployment or table.leave or _loses(table):",
            "if table.leave or _loses(table):",
        ),
        tests=QUORUM,
    ),
    of(
        "devices-always-answer",
        "devices that lose messages count as clients that always answer",
        (
            "config/devices.py",
            "if deployment or table.leave or _loses(table):",
            "if deployment or table.leave:",
        ),
        tests=QUORUM,
    ),
    of(
        "epsilon-without-a-charge",
        "an epsilon is printed although too few answers are too likely to be charged for",
        ("privacy/plan/solve.py", '"epsilon": epsilon if true else math.inf', '"epsilon": epsilon'),
        tests=QUORUM,
    ),
    of(
        "refuted-rate-is-kept",
        "a round without quorum shows that the declared rate is wrong, and epsilon is claimed all the same",
        ("runs/exposure.py", "if plan is not None and entry.total.reason is not None:", "if False:"),
        tests=QUORUM,
    ),
    of(
        "graph-always-opens",
        "one client that leaves keeps a neighbour's secret closed, and nobody pays",
        (
            "assembly/protection.py",
            "return neighbours < cap - 1 if neighbours else cap > COMPLETE_UP_TO",
            "return False",
        ),
        tests=QUORUM,
    ),
    of(
        "population-forgets-the-quorum",
        "the sum over several runs leaves out the rounds that one answer decides",
        ("privacy/accounting/population.py", "event.floor_slack + event.quorum_slack for", "event.floor_slack for"),
        tests=QUORUM,
    ),
    of(
        "two-are-enough",
        "one client of a cohort of two reads the other's message off the sum",
        ("privacy/plan/cohort.py", "LEAST_COHORT: Final = 3", "LEAST_COHORT: Final = 2"),
        tests=LEAST,
    ),
    of(
        "clients-take-two",
        "clients take part in any cohort of two that a server announces",
        (
            "assembly/protection.py",
            "fewest=max(2, self._smallest_session if plan is None else plan.shares.floor)",
            "fewest=2",
        ),
        tests=LEAST,
    ),
    of(
        "small-cohorts-are-deployed",
        "a deployed run sums cohorts in which one client reads another",
        ("assembly/protection.py", "if parts.parties.deployment and (note", "if False and (note"),
        tests=LEAST,
    ),
    of(
        "server-at-distance-one",
        "epsilon_server of a fixed cohort is below epsilon",
        (
            "privacy/accounting/events.py",
            "self.noise_multiplier / self.distance * math",
            "self.noise_multiplier * math",
        ),
        tests=FIXED,
    ),
    of(
        "delta-of-one-client",
        "one client, chosen at random, may be published outright",
        (
            "privacy/plan/request.py",
            "if (self.delta * number >= 1 or self.delta >= 1 / number)",
            "if self.delta > 1 / number",
        ),
        tests=DELTA,
    ),
    of(
        "audit-trusts-the-edges",
        "an audit does not see that floor and quorum are free",
        ("studies/audit/presence.py", "_ROUNDED = 0.99", "_ROUNDED = 0.0"),
        tests=QUORUM,
    ),
)
