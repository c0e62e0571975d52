"""What the real protocol of secure aggregation costs a client, whatever the file asks for, and what would change it.

A private run is planned as `secure = "ideal"` unless the file says otherwise; whoever deploys it pays for masks. Sizes
follow from the constants that write the messages (`secagg.sizes`); no key is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.protection import Protection
from sottovoce.experiment.ready import Ready
from sottovoce.federation.costs import downlink_size
from sottovoce.secagg.graph import Degree, choose
from sottovoce.secagg.sizes import Outline, Sizes, announcement_size, enrolment_sizes, round_sizes

__all__ = ["BALLOT_EXTRA", "ballot_bytes", "outline_of", "real_cost"]

BALLOT_EXTRA: Final = 144  # bytes of a ballot beside its bits: blind, sealed seed and signature


def real_cost(ready: Ready) -> dict[str, Any]:
    """Return bytes of each phase of a real round for one client, and of what session keys or ballots would make of it.

    All are null, with the reason, where integers cannot be masked: a lone client, a threshold that no session allows.
    """
    protection = replace(ready.protection, parts=_as_real(ready.protection))
    nothing = {
        "real_bytes_up_per_client_round": None,
        "real_bytes_down_per_client_round": None,
        "phases": None,
        "real_neighbours": None,
    }
    state = ready.server.init(protection.parts.start)
    down = downlink_size(ready.scheme, state, private=ready.plan is not None)
    try:
        if ready.plan is not None and ready.plan.bits is None:
            raise InputError('[privacy] mechanism = "gaussian" is not made of integers and cannot be masked')
        if ready.plan is not None and ready.plan.shares.by_aggregators:
            raise InputError("ballots are counted by two aggregators and not masked")
        length = ready.scheme.length if ready.plan is None else ready.plan.word_length
        bits = protection.coding(ready.scheme, ready.plan).bits
        outline = outline_of(protection.parts, protection.fewest(ready.plan), length, bits)
    except InputError as error:
        return {**nothing, "real_refused": str(error), "if_session_keys": None, "if_ballots": _ballots(ready, down)}
    clients = len(outline.clients)
    # With session keys the terms travel once, with the enrolment.
    phases = round_sizes(outline, down + (announcement_size(clients) if outline.key_life == "round" else 0))
    added = _added(phases)
    return {
        "real_bytes_up_per_client_round": added["up"],
        "real_bytes_down_per_client_round": added["down"],
        "phases": {name: sizes._asdict() for name, sizes in phases.items()},
        "real_neighbours": outline.degree.neighbours,
        "real_refused": None,
        "if_session_keys": _session_keys(outline, protection.fewest(ready.plan)(clients), down),
        "if_ballots": _ballots(ready, down),
    }


def ballot_bytes(length: int) -> int:
    """Return the bytes of a ballot, one message: a bit for each value, and what seals and signs it.

    >>> ballot_bytes(8_317), ballot_bytes(1_663_370)
    (1184, 208066)
    """
    return -(-length // 8) + BALLOT_EXTRA


def _as_real(protection: Protection) -> Parts:
    experiment = protection.parts.experiment
    aggregation = experiment.aggregation.model_copy(update={"secure": "real"})
    return replace(protection.parts, experiment=experiment.model_copy(update={"aggregation": aggregation}))


def outline_of(parts: Parts, fewest: Callable[[int], int], length: int, bits: int) -> Outline:
    """Return the session of the expected cohort for words of so many bits, or say why there is none."""
    table = parts.experiment.aggregation
    clients = max(1, round(parts.cohort.expected))
    if clients < 2:
        raise InputError("one client a round cannot be masked by anybody; raise [cohort] sample_rate")
    colluders = max(table.colluders, int(table.graph_colluders * clients))
    degree = choose(clients, fewest(clients), colluders, table.neighbours)
    return Outline(range(clients), degree, length, bits, table.key_life)


def _session_keys(outline: Outline, needed: int, down: int) -> dict[str, Any]:
    """Return a round with keys of a session, on the complete graph that they need."""
    clients = len(outline.clients)
    complete = replace(outline, degree=Degree(clients - 1, needed), key_life="session")
    phases, once = round_sizes(complete, down), enrolment_sizes(complete, announcement_size(clients))
    return {
        **_added(phases),
        "phases": {name: sizes._asdict() for name, sizes in phases.items()},
        "enrolment": _added(once),
        "needs": "every client in every round, and everyone masking with everyone",
    }


def _ballots(ready: Ready, down: int) -> dict[str, Any]:
    """Return a round of ballots: one bit a value to two servers that do not collude, in one message."""
    return {
        "up": ballot_bytes(ready.scheme.length),
        "down": down,
        "messages": 1,
        "built": True,
        "needs": 'a second server that does not collude with the first; [aggregation] secure = "ballot"',
    }


def _added(phases: Mapping[str, Sizes]) -> dict[str, int]:
    return {"up": sum(sizes.up for sizes in phases.values()), "down": sum(sizes.down for sizes in phases.values())}
