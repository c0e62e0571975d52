"""Put the count of ballots of a deployed run together: the leader's keys, and its way to the helper."""

from __future__ import annotations

from collections.abc import Mapping

from sottovoce.core.errors import PrivacyError
from sottovoce.core.streams import Seeds
from sottovoce.experiment.parts import Parts
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.federation.ballots.real import leader_signing
from sottovoce.federation.ballots.remote import Link, RemoteCount
from sottovoce.secagg.ballots import BallotTerms

__all__ = ["remote_count"]


def remote_count(
    parts: Parts, coding: Ballots, terms: BallotTerms, keys: Mapping[int, bytes], setup: bytes, link: Link
) -> RemoteCount:
    """Return the count with a helper elsewhere; under simulated randomness the leader's key is the seed's."""
    simulated = Seeds(parts.seeds.seed)
    signing = parts.leader_signing if parts.deployment else leader_signing(simulated)
    if signing is None:
        raise PrivacyError("a deployed count of ballots needs the signing key of the training server")
    return RemoteCount(
        coding,
        terms,
        keys,
        simulated,
        link=link,
        setup=setup,
        signing_key=signing,
        covers=parts.deployment,
    )
