"""Tell what a round takes on the wire before anybody is asked: every size follows from public numbers.

This is what a private run may publish. The bytes that really travelled are a multiple of the cohort's size, which is a
secret: whoever knows it knows that sampling was of that size, and the amplification that epsilon counts on is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sottovoce.federation.aggregate import Aggregator, Direct
from sottovoce.federation.ballots.ideal import IdealCount
from sottovoce.federation.ballots.real import RealCount
from sottovoce.federation.coding import Terms
from sottovoce.federation.robust import Robust
from sottovoce.federation.round import Server
from sottovoce.federation.secure import Secure, Standing, announce
from sottovoce.federation.topology import Serverless, Servers, peer_sizes
from sottovoce.schemes.base import Scheme, State
from sottovoce.secagg.sizes import Sizes, enrolment_sizes, round_sizes

__all__ = ["Costs", "costs_of", "downlink_size"]


@dataclass(frozen=True)
class Costs:
    """Bytes of one client of the expected cohort when nobody drops out, and what they come to for all of them."""

    cohort: float  # the expected one
    phases: dict[str, Sizes]  # of a round
    enrolment: dict[str, Sizes] = field(default_factory=dict)  # once, if keys live for the session

    @property
    def client(self) -> Sizes:
        """Return what a client sends and receives in a round."""
        return _added(self.phases)

    @property
    def once(self) -> Sizes:
        """Return what a client sends and receives once, to enrol."""
        return _added(self.enrolment)

    @property
    def round(self) -> Sizes:
        """Return the bytes of a round, for the expected cohort."""
        return self._all(self.client)

    def total(self, rounds: int) -> Sizes:
        """Return the bytes of some rounds and of the enrolment before them."""
        once, each = self._all(self.once), self.round
        return Sizes(once.up + rounds * each.up, once.down + rounds * each.down)

    def _all(self, client: Sizes) -> Sizes:
        return Sizes(round(client.up * self.cohort), round(client.down * self.cohort))


def costs_of(server: Server, state: State) -> Costs:
    """Return the costs of a server's rounds from this state on; sizes that depend on the cohort take the expected one.

    Guarantee: the result depends on the configuration alone, not on a draw or on anybody's data.
    """
    down = downlink_size(server.scheme, state, private=server.plan is not None)
    expected = server.cohort.expected
    return _costs(server.aggregator, expected, max(1, round(expected)), down)


def _costs(aggregator: Aggregator, expected: float, size: int, down: int) -> Costs:
    cohort = list(range(size))
    if isinstance(aggregator, Servers):
        return _costs(aggregator.inner, expected, max(1, round(size / aggregator.servers)), down)
    if isinstance(aggregator, Serverless):
        phases = _costs(aggregator.inner, expected, size, down).phases
        between = {phase: peer_sizes(phase, cohort, dict.fromkeys(cohort, own.up))[0] for phase, own in phases.items()}
        return Costs(expected, between)
    if isinstance(aggregator, Standing):
        session = aggregator.secure.session(1, cohort)
        enrolment = enrolment_sizes(session, len(announce(session, b"")))
        return Costs(expected, round_sizes(session, down), enrolment)
    if isinstance(aggregator, Secure):
        session = aggregator.session(1, cohort)
        return Costs(expected, round_sizes(session, down + len(announce(session, b""))))
    if isinstance(aggregator, Direct | Robust | IdealCount | RealCount):
        return Costs(expected, {"train": Sizes(aggregator.coding.fold.payload_size, down)})
    raise TypeError(f"the costs of a {type(aggregator).__name__} are not known")


def downlink_size(scheme: Scheme, state: State, *, private: bool) -> int:
    """Return the bytes of one downlink: the model or what stands for it, and in a private run the round's terms."""
    if scheme.replica(state):  # its clients are sent what the last round decided: take a round after the first
        rng = np.random.default_rng(0)
        state = scheme.decode(np.zeros(scheme.length, np.float32), state, scheme.round_seed(1), rng)
    down = len(scheme.downlink(state, scheme.round_seed(1)))
    return down + len(Terms(0, 0.0).pack()) if private else down


def _added(phases: dict[str, Sizes]) -> Sizes:
    return Sizes(sum(sizes.up for sizes in phases.values()), sum(sizes.down for sizes in phases.values()))
