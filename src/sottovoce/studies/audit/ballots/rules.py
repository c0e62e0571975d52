"""Play the rounds that no game needs: cohorts of every size, one ballot alone, and a client that was counted enough."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.ballots.account import HelperAccount
from sottovoce.studies.audit.ballots.federation import BallotFederation
from sottovoce.studies.audit.ballots.observation import Mixed, Voters
from sottovoce.studies.audit.ballots.views import released_variance
from sottovoce.studies.audit.canaries import Canary
from sottovoce.threats.audit.finding import AuditFinding, checked
from sottovoce.threats.audit.noise import NoiseSample

_VALUES = 30_000  # noise values of a cohort size, if the rounds for them are not too many


def noise_of_cohorts(ballot_federation: BallotFederation, *, rounds: int, seed: int) -> list[AuditFinding]:
    """Test that a released sum carries both noises whatever the size of the cohort is, also when nobody came.

    Clients train on nothing and vote as their coding makes them: through rotation and coins.
    """
    plan = ballot_federation.plan
    floor, cap = plan.shares.floor, plan.shares.cap
    expected = min(cap, max(floor, round(plan.expected_cohort)))
    chance = plan.request.sampling == "poisson" and plan.request.sample_rate < 1
    most = max(1, min(rounds, plan.rounds, 1 + _VALUES // ballot_federation.length))
    found: list[AuditFinding] = []
    for size in sorted({0, floor, expected, cap}) if chance else [cap]:
        sample = NoiseSample(released_variance(plan))
        seeds = Seeds(seed + size)
        unpaid: list[str] = []
        with TemporaryDirectory() as folder, ballot_federation.session(Mixed.of(seeds), Path(folder)) as session:
            for round_ in range(1, min(most, plan.max_participations) + 1):
                sight = session.play(round_, range(size))
                if sight.opened is None:
                    found.append(checked(f"cohort of {size}", False, f"a cohort of {size} released nothing"))
                    break
                sample.add(sight.noise(ballot_federation.length))
                unpaid += sight.unpaid
        late = " and ".join(sorted(set(unpaid)))
        found.append(
            checked(
                f"cohort of {size} charged",
                not unpaid,
                f"the votes of a cohort of {size} clients were opened before {late} charged them",
            )
        )
        found += sample.findings(f"cohort of {size}", f"the noise of a released cohort of {size} clients")
    return found


def one_ballot(ballot_federation: BallotFederation, seed: int) -> AuditFinding:
    """Check that fewer ballots than may be opened are not."""
    cohort = list(range(min(ballot_federation.federation.clients, 4)))
    needed = min(
        2, ballot_federation.plan.shares.floor, len(cohort)
    )  # by docs/ballots.md, and not by the code that asks for it
    voters = Voters({client: Canary(client, "plus") for client in cohort}, frozenset(cohort[: needed - 1]))
    seeds = Seeds(seed)
    with TemporaryDirectory() as folder, ballot_federation.session(Mixed.of(seeds), Path(folder)) as session:
        sight = session.play(1, cohort, voters)
    return checked(
        "too few ballots",
        sight.opened is None,
        f"{needed - 1} ballots of {len(cohort)} clients were opened, and {needed} are needed",
    )


def counted_enough(ballot_federation: BallotFederation, seed: int) -> AuditFinding:
    """Check that the helper counts nobody once more whom its account has in as many rounds as a client may be in."""
    most, cohort = ballot_federation.plan.max_participations, list(range(min(ballot_federation.federation.clients, 4)))
    voters = Voters({client: Canary(client, "plus") for client in cohort}, frozenset(cohort))
    seeds = Seeds(seed)
    with TemporaryDirectory() as folder:
        with HelperAccount.open(Path(folder), ballot_federation.plan) as account:
            for round_ in range(1, most + 1):
                account.reserve(round_, cohort, counter=0)
        with ballot_federation.session(Mixed.of(seeds), Path(folder)) as session:
            sight = session.play(most + 1, cohort, voters)
    return checked(
        "participation cap of the helper",
        sight.opened is None or sight.total.senders == 0,
        f"clients that the helper has counted {most} times, which is the cap, are counted once more",
    )
