"""Open secrets by the shares that holders told, and find out who lied about one.

A share that is not the one its dealer pledged was made up by its holder; it is left out. If the others do not open the
secret, the dealer dealt wrong ones; it is opened by those that fit together, if they are enough. A seal that did not
open, or a share of a holder that doubts what it was dealt, says that one of two lies, and not which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import ClassVar, NamedTuple, final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sottovoce.core.errors import SecAggError, WireError
from sottovoce.core.wire import Buffer, Words
from sottovoce.secagg import masks, messages, primitives, shamir
from sottovoce.secagg.dealing import as_pledged
from sottovoce.secagg.masks import Sum
from sottovoce.secagg.primitives import KEY
from sottovoce.secagg.rules import pair_mask, pair_sign, self_mask
from sottovoce.secagg.session import Session


class HolderShares(NamedTuple):
    """What one holder told, by owner; None for a seal that did not open."""

    shares: dict[int, bytes | None]
    doubts: bool


def read_told(raw: Buffer) -> bytes | None:
    """Return a share that a holder told, or None if it says that it has none."""
    told = bytes(raw)
    if told == shamir.NO_SHARE:
        return None
    shamir.read_share(told)
    return told


@final
class Opener:
    """The shares of one round, sorted by whether they are what their dealers pledged; all by place in the cohort."""

    def __init__(
        self,
        session: Session,
        told: Mapping[int, HolderShares],
        pledges: Mapping[int, Mapping[int, bytes]],
        dropped: Collection[int] = (),
    ) -> None:
        self._session = session
        self._held: dict[int, dict[int, int]] = {}  # owner -> point -> share
        self._odds: dict[int, set[int]] = {}  # owner -> holders that are at odds with it over a share
        self._liars: dict[int, list[int]] = {}  # holder -> owners of whose secrets it told a wrong share
        self._misdealt: set[int] = set()
        for holder, one in sorted(told.items()):
            for owner, share in one.shares.items():
                if share is not None and as_pledged(
                    session, owner, holder, int(owner in dropped), share, pledges[owner][holder]
                ):
                    self._held.setdefault(owner, {})[holder + 1] = shamir.read_share(share)
                elif holder != owner and (share is None or one.doubts):
                    self._odds.setdefault(owner, set()).add(holder)
                else:
                    self._liars.setdefault(holder, []).append(owner)

    @property
    def complaints(self) -> dict[int, tuple[int, ...]]:
        """Return, by client, who says that it did not get the share that it was to get from it."""
        clients = self._session.clients
        return {
            clients[owner]: tuple(clients[holder] for holder in sorted(holders))
            for owner, holders in sorted(self._odds.items())
        }

    @property
    def accused(self) -> dict[int, str]:
        """Return, by client, what it did wrong; two that are at odds are both named, unless one must be the liar.

        Of a client's holders no more than may be missing can lie, or the sum does not open; so who is at odds with more
        of them lies itself, and the others are cleared.
        """
        session, clients = self._session, self._session.clients
        most = session.degree.neighbours + 1 - session.degree.threshold
        around: dict[int, set[int]] = {}
        for owner, holders in self._odds.items():
            for holder in holders:
                around.setdefault(owner, set()).add(holder)
                around.setdefault(holder, set()).add(owner)
        guilty = {place for place, others in around.items() if len(others) > most}
        found = {}
        for place, others in sorted(around.items()):
            if place in guilty:
                found[place] = f"is at odds with {len(others)} clients over sealed shares, and not all of them can lie"
            elif open_ := sorted(others - guilty):
                other = clients[open_[0]]
                found[place] = f"is at odds with client {other} over a sealed share: one of the two is at fault"
        for place in self._misdealt:
            found[place] = "dealt shares that do not fit together"
        for place, owners in self._liars.items():
            others_ = f", and of {len(owners) - 1} more" if len(owners) > 1 else ""
            found[place] = f"told a wrong share of client {clients[owners[0]]}{others_}"
        return {clients[place]: words for place, words in sorted(found.items())}

    def seed(self, owner: int, commitment: bytes) -> bytes:
        """Return a survivor's self-mask seed, which must be the one it is committed to."""
        return self._open(owner, lambda seed: primitives.commit(seed) == commitment)

    def masking_key(self, owner: int, public: bytes) -> bytes:
        """Return the masking key of a client that dropped, which must be the one it advertised."""
        return self._open(owner, lambda key: primitives.exchange_key(key) == public)

    def forget(self) -> None:
        """Drop all shares; who lied stays known."""
        self._held = {}

    def _open(self, owner: int, fits: Callable[[bytes], bool]) -> bytes:
        session, held, needed = self._session, self._held.get(owner, {}), self._session.degree.threshold
        client = session.clients[owner]

        def opens(secret: int) -> bool:
            return not secret >> (8 * KEY) and fits(secret.to_bytes(KEY, "little"))

        if len(held) < needed:
            raise SecAggError(
                f"round {session.round}: {needed} shares of client {client}'s secret are needed, and {len(held)} are "
                f"left{self._why(owner)}; nothing was released"
            )
        if not shamir.fit_together(held, needed):
            self._misdealt.add(owner)
        secret: int | None = shamir.reconstruct(held, needed)
        if secret is None or not opens(secret):
            self._misdealt.add(owner)
            secret = shamir.correct(held, needed, opens)
        if secret is None:
            raise SecAggError(
                f"round {session.round}: the shares that client {client} dealt do not fit; nothing was released"
            )
        return secret.to_bytes(KEY, "little")

    def _why(self, owner: int) -> str:
        clients = self._session.clients
        odd = [clients[holder] for holder in sorted(self._odds.get(owner, ()))]
        wrong = [clients[holder] for holder, owners in sorted(self._liars.items()) if owner in owners]
        words = [f"clients {odd} say that theirs did not open"] if odd else []
        words += [f"clients {wrong} told wrong ones"] if wrong else []
        return f": {', and '.join(words)}" if words else ""


def open_by_shares(
    masked_sum: Sum,
    *,
    session: Session,
    masked: Collection[int],
    dropped: Collection[int],
    public: Mapping[int, bytes],
    commitments: Mapping[int, bytes],
    opener: Opener,
) -> Words:
    """Return the sum modulo 2^bits; `public` are the advertised masking keys, and `masked_sum` is used up."""
    seeds = {place: opener.seed(place, commitments[place]) for place in sorted(masked)}
    keys = {place: opener.masking_key(place, public[place]) for place in sorted(dropped)}
    for place, seed in seeds.items():
        masks.add_mask(masked_sum, self_mask(session, seed, place), -1)
    for place, key in keys.items():
        private = X25519PrivateKey.from_private_bytes(key)
        for peer in session.around(place).intersection(masked):
            secret = primitives.agree(private, public[peer])
            masks.add_mask(masked_sum, pair_mask(session, secret, peer, place), -pair_sign(peer, place))
    return masks.reduce(masked_sum, session.bits)


class PhasedServer(ABC):
    """The server of one session; call `collect` once a phase, or `accept` for each message and then `close`."""

    phases: ClassVar[tuple[str, ...]]

    def __init__(self, session: Session) -> None:
        self.session = session
        self._phase: str | None = self.phases[0]
        self._asked: frozenset[int] = frozenset(range(len(session.clients)))

    @property
    def phase(self) -> str | None:
        """Name the phase that is open; None after the last, or after an abort."""
        return self._phase

    def collect(self, phase: str, replies: Mapping[int, Buffer]) -> tuple[dict[int, bytes], dict[int, str]]:
        """Take a whole phase; return the next requests, and why messages were refused."""
        self._expect(phase)
        rejected = {}
        for client, message in replies.items():
            try:
                self.accept(phase, client, message)
            except (SecAggError, WireError) as error:
                rejected[client] = str(error)
        return self.close(phase), rejected

    def accept(self, phase: str, client: int, message: Buffer) -> None:
        """Take one message, or raise and change nothing."""
        self._expect(phase)
        place = self.session.position(client)
        if place not in self._asked:
            raise SecAggError(f"client {client}: was not asked in this phase, or has already answered")
        self._take(phase, place, client, message)
        self._asked -= {place}

    def close(self, phase: str) -> dict[int, bytes]:
        """End a phase: return the next requests, or abort the session when too few clients remain."""
        self._expect(phase)
        try:
            bodies = self._end(phase)
        except SecAggError:
            self._phase, self._asked = None, frozenset()
            self._forget()
            raise
        index = self.phases.index(phase) + 1
        self._phase = self.phases[index] if index < len(self.phases) else None
        self._asked = frozenset(bodies)
        name, clients = messages.PHASES[(messages.PHASES.index(phase) + 1) % len(messages.PHASES)], self.session.clients
        return {
            clients[place]: messages.seal_request(self.session, name, clients[place], body)
            for place, body in bodies.items()
        }

    @abstractmethod
    def _take(self, phase: str, place: int, client: int, message: Buffer) -> None:
        """Check a message whole, then keep it."""

    @abstractmethod
    def _end(self, phase: str) -> dict[int, bytes]:
        """Return the bodies of the next requests, by place; raise when too few clients remain."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what could open a single vector."""

    def _peers(self, place: int, among: Iterable[int]) -> list[int]:
        return sorted(self.session.around(place).intersection(among))

    def _ids(self, places: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.session.clients[place] for place in sorted(places))

    def _expect(self, phase: str) -> None:
        if self._phase != phase:
            raise SecAggError(f"{phase} is not the open phase, {self._phase or 'none'} is")
