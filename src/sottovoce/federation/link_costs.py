"""Say what a link really carries for a round's messages, and how long that takes, before anybody is asked.

A message is signed, and travels inside MQTT, TLS, TCP and IP; each is acknowledged twice, by TCP and by MQTT. The
constants were measured at both ends of emulated links with Mosquitto 2.0 and mutual TLS (`benchmarks/links.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from sottovoce.core.errors import InputError
from sottovoce.core.wire import Traffic
from sottovoce.federation.client import UPDATE_PHASES
from sottovoce.federation.engines.mqtt.carrier import DeclaredLink

log = logging.getLogger(__name__)

MESSAGE: Final = 320  # bytes of a message beyond its payload, with what acknowledges it
STREAM: Final = 0.06  # of a payload beyond itself: headers of segments and records, and acknowledgements
CONNECTION: Final = 9000  # bytes of a connection with mutual TLS and its greetings, without the set-up
BALLOTS_ADVICE: Final = (
    'links that break want [aggregation] secure = "ballot": a round is then one message of each node (docs/ballots.md)'
)
_HANDSHAKES: Final = 5  # round trips until a connection stands and its node has said hello


def carried(payload: int, messages: int) -> int:
    """Return the bytes on a link of so many messages that hold so many bytes.

    >>> carried(0, 1)
    320
    """
    return round(payload * (1 + STREAM)) + MESSAGE * messages


def carried_in_round(phases: Mapping[str, Traffic]) -> int:
    """Return the bytes on one node's link in a round: each phase is a request and an answer."""
    return sum(carried(phase.up + phase.down, 2) for phase in phases.values())


def check_link(
    phases: Mapping[str, Traffic], link: DeclaredLink, *, phase_timeout: float, train_timeout: float
) -> None:
    """Raise before a run whose bytes do not fit into its time-outs on the slowest link; say what would do better."""
    found = on_link(phases, link, phase_timeout=phase_timeout, train_timeout=train_timeout)
    if found.misfits:
        raise InputError(
            f"on [engine] slowest_link a round cannot end in time: {'; '.join(found.misfits)}; raise the time-outs, or "
            "send less (sottovoce plan)"
        )
    if link.outage and len(phases) > 1:
        log.warning("%s", BALLOTS_ADVICE)


class RoundOnLink(NamedTuple):
    """A round as the slowest link carries it."""

    seconds: float  # at least, without training
    misfits: tuple[str, ...]  # phases that do not fit into the time-outs, in words


def on_link(
    phases: Mapping[str, Traffic], link: DeclaredLink, *, phase_timeout: float, train_timeout: float
) -> RoundOnLink:
    """Return how long a round takes on a link, and which of its phases cannot end in time there."""
    seconds, misfits = 0.0, []
    for phase, sizes in phases.items():
        down, up = (carried(size, 1) / link.rate for size in (sizes.down, sizes.up))
        taken = down + up + link.round_trip
        seconds += taken
        # The model has time of its own before a short phase; an outage may begin at any moment of one.
        waits = taken if phase in UPDATE_PHASES else up + link.round_trip
        waits += link.outage + (_HANDSHAKES * link.round_trip if link.outage else 0.0)
        name, most = ("train", train_timeout) if phase in UPDATE_PHASES else ("phase", phase_timeout)
        if waits > most:
            misfits.append(f"{phase} takes {waits:.0f} s and {name}_timeout is {most:g} s")
        elif phase not in UPDATE_PHASES and down > train_timeout:
            misfits.append(f"the request of {phase} travels {down:.0f} s and train_timeout is {train_timeout:g} s")
    return RoundOnLink(seconds, tuple(misfits))
