"""Who takes part in a run, and how they are reached: all that differs between a simulation and machines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from sottovoce.core.errors import PrivacyError
from sottovoce.core.streams import Owners, Secrets, Seeds
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.ballots.coding import CountKeys
from sottovoce.federation.aggregation.ballots.count import HelperChannel
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.engine import Engine
from sottovoce.secagg import run_digest

if TYPE_CHECKING:
    from sottovoce.assembly.parts import Parts

Connect = Callable[["Parts", bytes], AbstractContextManager[Engine]]
"""A way to reach the nodes, given the parts of the run and its id of 16 bytes."""

_SIMULATION: Final = run_digest(b"a simulation", b"")


@dataclass(frozen=True)
class BackOff:
    """What a server of machines does when a round has too few answers: it pauses, and in the end gives up."""

    max_aborts: int = 10  # rounds without quorum after which the run ends; --resume goes on
    first: float = 1.0  # seconds of the first pause after a round that nobody answered; doubles from then on
    longest: float = 300.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)


@dataclass(frozen=True)
class Parties:
    """The parties of a run: whose randomness, which keys, and the ways between them.

    `simulated` makes those of a simulation, `of_machines` those of a server, a node or a helper.

    Guarantee: unless they are `seeded`, the randomness of server and clients comes from the operating system.
    """

    owners: Owners = field(repr=False)
    keys: Mapping[int, bytes]  # the Ed25519 key that each client has registered
    machines: bool = False  # clients are machines: their records are not here, and a round cannot be repeated
    seeded: bool = True  # all secrets follow from the experiment's seed: nothing is private
    run: bytes = _SIMULATION  # what secure sums are bound to; empty on a node before it is welcomed
    federation: bytes = b""  # the digest of the roster: no signature of this federation holds in another
    connect: Connect | None = field(default=None, repr=False)  # the server's way to the nodes
    new_run: bytes = field(default_factory=partial(os.urandom, 16))  # the id of a run that begins now
    lasting: bool = True  # False: keys are made anew whenever the run goes on, for a trial on one machine
    count: CountKeys | None = None  # the keys of the aggregators of ballots; None: a simulation's
    link: HelperChannel | None = field(default=None, repr=False)  # the server's way to the helper
    leader_signing: bytes | None = field(default=None, repr=False)  # the key by which the server signs its counts
    back_off: BackOff = field(default_factory=BackOff)
    initial: Vector | None = field(default=None, repr=False, compare=False)  # where training begins; None: at w_0
    unsigned: Callable[[], bool] = field(default=lambda: False, repr=False)  # a finished run lacks its signatures

    def __post_init__(self) -> None:
        if not self.seeded and not isinstance(self.owners, Secrets):
            raise PrivacyError("a deployed run takes its secrets from the operating system; give it Secrets, not seeds")

    @classmethod
    def simulated(cls, seed: int, clients: int) -> Self:
        """Return the parties of a simulation: everything follows from its seed."""
        return cls(Seeds(seed), SimulatedKeys(Seeds(seed), clients))

    @classmethod
    def of_machines(
        cls,
        owners: Owners,
        keys: Mapping[int, bytes],
        federation: bytes = b"",
        connect: Connect | None = None,
        *,
        seeded: bool = False,
        new_run: bytes | None = None,
        lasting: bool = True,
        count: CountKeys | None = None,
        link: HelperChannel | None = None,
        leader_signing: bytes | None = None,
        back_off: BackOff | None = None,
        initial: Vector | None = None,
        unsigned: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Return the parties of a federation of machines, before its run is known.

        `seeded` is for tests on one machine: the run equals a simulation bit for bit, and its summary says
        "simulated: not private".
        """
        return cls(
            owners,
            keys,
            machines=True,
            seeded=seeded,
            run=b"",
            federation=federation,
            connect=connect,
            new_run=os.urandom(16) if new_run is None else new_run,
            lasting=lasting,
            count=count,
            link=link,
            leader_signing=leader_signing,
            back_off=back_off or BackOff(),
            initial=initial,
            unsigned=unsigned,
        )

    @property
    def deployment(self) -> bool:
        """Tell whether the run is between machines, with secrets that nobody can repeat."""
        return self.machines and not self.seeded

    def in_run(self, run: bytes) -> Self:
        """Return these parties in one run of their federation, by its id of 16 bytes."""
        return replace(self, new_run=run, run=run_digest(self.federation, run))
