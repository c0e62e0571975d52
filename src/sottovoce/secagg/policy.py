"""Say what a client insists on: the server's announcement is compared with it, never believed.

A policy follows from the run's configuration as the client itself was given it. Without one, a server could announce a
cohort of the victim and a helper, fewer bits, another graph or another threshold, and every later check would pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.core.validate import in_range
from sottovoce.core.wire import Buffer
from sottovoce.secagg.session import KeyLife, Session, run_digest
from sottovoce.secagg.sizes import Outline


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The terms of every session of a run; server and clients each derive their own from the configuration.

    `threshold` gives the threshold of a cohort of n, and `fewest` is the smallest cohort that may be announced.
    `graph_share` of a cohort may collude without a sparse graph breaking; noise is shared for `colluders` only.
    `run` says which run of which federation it is for; before a client knows that, no session is accepted.
    A client masks in no round after `last_round` (one announced round of 2^62 would otherwise be its last: rounds only
    rise), and in no more rounds than `participations`, which is what epsilon_server counts.
    """

    config_digest: bytes
    bits: int
    length: int
    threshold: Callable[[int], int]
    run: bytes = b""  # `run_digest`; empty: not known yet
    fewest: int = 2
    colluders: int = 0
    graph_share: Fraction = Fraction(1, 3)
    neighbours: int = 0
    key_life: KeyLife = "round"
    last_round: int = (1 << 63) - 1
    participations: int | None = None  # None: as often as there are rounds

    def __post_init__(self) -> None:
        in_range("fewest", self.fewest, low=2)
        in_range("graph_share", float(self.graph_share), low=0, high=1)

    def bind(self, setup: bytes) -> Policy:
        """Return the policy of those who were sent this set-up: with another one they refuse each other's sessions."""
        digest = hashlib.sha256(b"sottovoce set-up" + self.config_digest + setup).digest()
        return replace(self, config_digest=digest)

    def in_run(self, federation: bytes, run: bytes) -> Policy:
        """Return the policy of one run of a federation: what is signed under it is nothing under any other."""
        return replace(self, run=run_digest(federation, run))

    def session(
        self,
        *,
        session_id: bytes,
        round_: int,
        clients: Iterable[int],
        keys: Mapping[int, bytes],
        downlink: bytes = b"",
    ) -> Session:
        """Return the session that this policy allows for a cohort; one that is too small ends the round."""
        cohort = tuple(clients)
        if len(cohort) < self.fewest:
            raise SecAggError(
                f"round {round_}: {len(cohort)} clients from the start, but at least {self.fewest} are needed; "
                "nothing was released"
            )
        return Session(
            run=self.run,
            session_id=session_id,
            round=round_,
            config_digest=self.config_digest,
            clients=cohort,
            keys=keys,
            bits=self.bits,
            length=self.length,
            threshold=self.threshold(len(cohort)),
            colluders=self.colluders,
            graph_colluders=self._graph_colluders(len(cohort)),
            neighbours=self.neighbours,
            key_life=self.key_life,
            downlink=downlink,
        )

    def outline(self, cohort: int) -> Outline:
        """Return a session of so many clients as far as its bytes go."""
        return Outline(
            cohort,
            self.length,
            self.bits,
            needed=self.threshold(cohort),
            colluders=self._graph_colluders(cohort),
            neighbours=self.neighbours,
            key_life=self.key_life,
        )

    def accept(self, announced: Buffer, keys: Mapping[int, bytes], downlink: bytes = b"") -> Session:
        """Return the session that a server announces, or refuse it if any of its terms is not this policy's.

        `keys` are the registered keys and `downlink` the hash of what this client was sent to train from; neither
        comes from the announcement, nor does the run.
        """
        session = Session.unpack(announced, self.run, keys, downlink)
        self.check(session)
        return session

    def check_round(self, round_: int) -> None:
        """Raise if a round is after the last of the run."""
        if round_ > self.last_round:
            raise SecAggError(f"round {round_} is refused: the run ends with round {self.last_round}")

    def check_participation(self, before: int) -> None:
        """Raise if a client has taken part as often as it may."""
        if self.participations is not None and before >= self.participations:
            raise SecAggError(
                f"the client has taken part {before} times and may not again: its privacy plan allows no more"
            )

    def check(self, session: Session) -> None:
        """Raise unless the session's terms are those of this policy."""
        count = len(session.clients)
        if count < self.fewest:
            raise SecAggError(
                f"the announced session is refused: a cohort of {count} clients, at least {self.fewest} are needed"
            )
        try:
            threshold = self.threshold(count)
        except InputError as error:
            raise SecAggError(f"the announced session is refused: {error}") from error
        wanted: dict[str, object] = {
            "config_digest": self.config_digest,
            "bits": self.bits,
            "length": self.length,
            "threshold": threshold,
            "colluders": self.colluders,
            "graph_colluders": self._graph_colluders(count),
            "neighbours": self.neighbours,
            "key_life": self.key_life,
        }
        for name, value in wanted.items():
            if (said := getattr(session, name)) != value:
                said, value = (part.hex()[:8] if isinstance(part, bytes) else part for part in (said, value))
                raise SecAggError(f"the announced session is refused: {name} must be {value}, got {said}")

    def _graph_colluders(self, clients: int) -> int:
        return max(self.colluders, int(self.graph_share * clients))
