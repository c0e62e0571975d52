"""The terms of a real count of ballots, as its plan and the keys of its aggregators make them."""

from __future__ import annotations

from typing import NamedTuple

from sottovoce.core.errors import RunError
from sottovoce.privacy import PrivacyPlan
from sottovoce.secagg.ballots import BallotTerms

__all__ = ["CountKeys", "terms_of"]


class CountKeys(NamedTuple):
    """The public keys of the two aggregators; between machines those of the roster."""

    leader: bytes  # Ed25519
    helper: bytes  # Ed25519
    exchange: bytes  # X25519, to which clients seal their seeds


def terms_of(plan: PrivacyPlan, keys: CountKeys, session: bytes, config_digest: bytes) -> BallotTerms:
    """Return what every signature and key of a count is bound to."""
    if plan.bits is None:
        raise RunError("the continuous Gaussian does not count votes")
    return BallotTerms(
        config_digest=config_digest,
        session=session,
        length=plan.request.length,
        bits=plan.bits,
        floor=min(2, plan.shares.floor),
        cap=plan.cohort_cap,
        last_round=plan.rounds,
        participations=plan.max_participations,
        leader_key=keys.leader,
        helper_key=keys.helper,
        helper_exchange=keys.exchange,
    )
