"""Be the helper of a federation: count ballots with its training server, and keep an account of one's own.

state/<16 digits of the experiment's digest>/
    helper-ledger.jsonl   every round that was counted and charged (`federation.ballots.account`)
    run                   the run that it counts for: an account holds for one run and no other
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from sottovoce.core.errors import InputError, RunError, SecAggError, SottovoceError
from sottovoce.core.streams import Seeds
from sottovoce.deployment.durable import replace_file
from sottovoce.deployment.frames import KINDS, Place, peer_print, receive, refusal_of, send, tls
from sottovoce.deployment.helper_link import count_keys, greeting
from sottovoce.deployment.identity import HELPER, Identity, read_signing_key
from sottovoce.deployment.member import config_digest, owners_of, state_folder
from sottovoce.deployment.roster import Roster
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.deployed import gather_without_records
from sottovoce.experiment.protection import protect
from sottovoce.federation.ballots.account import HelperAccount
from sottovoce.federation.ballots.coding import Ballots
from sottovoce.federation.ballots.real import helper_private, helper_signing
from sottovoce.federation.secure import Registry
from sottovoce.secagg.ballots import BallotTerms, Helper
from sottovoce.secagg.primitives import exchange_key

__all__ = ["Desk", "count", "open_desk"]

_SETUP: Final = 1 << 26  # bytes of a request before the terms are known
_HANDSHAKE: Final = 10.0
_FRAME: Final = 120.0  # seconds that a frame may take

log = logging.getLogger(__name__)


class Desk:
    """The helper without a network: requests of the training server in, answers out.

    Guarantee: its plan, terms and keys come from its own file and roster; every connection begins with new transfers.
    """

    def __init__(
        self, experiment: Experiment, roster: Roster, keys: tuple[bytes, bytes], state: Path, *, simulated: bool
    ):
        if experiment.secure != "ballot":
            raise InputError(f'[aggregation] secure = "{experiment.secure}" needs no helper; only "ballot" does')
        if experiment.data.clients != len(roster.entries):
            raise InputError(
                f"[data] clients = {experiment.data.clients}, but the roster has {len(roster.entries)} nodes; they "
                "must be the same"
            )
        seeds = Seeds(experiment.experiment.seed)
        self._keys = Registry(seeds, experiment.data.clients) if simulated else roster.keys
        self._signing, self._exchange = (helper_signing(seeds), helper_private(seeds)) if simulated else keys
        parts = replace(
            gather_without_records(experiment),
            seeds=owners_of(experiment, simulated=simulated),
            keys=self._keys,
            deployment=not simulated,
            count=count_keys(roster),
        )
        self._protection = protect(parts)
        plan, coding = self._protection.plan, self._protection.coding(parts.scheme, self._protection.plan)
        if plan is None or not isinstance(coding, Ballots):
            raise InputError("a count of ballots needs [privacy]")
        self._coding = coding
        self._greeting = greeting(config_digest(experiment), roster, simulated=simulated)
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._state = state
        self.account = HelperAccount.open(state, plan)
        self._helper: Helper | None = None
        self._step = 0  # of this connection: 0 nothing, 1 greeted, 2 begun, 3 a session of transfers
        self.most = _SETUP

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.account.close()

    @property
    def run(self) -> str:
        """Return the run that this account is of, in hex; nothing before the first."""
        path = self._state / "run"
        return path.read_text(encoding="ascii").strip() if path.exists() else ""

    def connected(self) -> None:
        """Take note of a new connection: it greets, begins, and makes new transfers, whatever was before."""
        self._step, self.most = 0, _SETUP

    def answer(self, kind: str, payload: bytes) -> bytes:
        """Return the answer to a request, or raise why it is refused."""
        if kind == "greet":
            return self._greet(payload)
        if kind == "begin":
            return self._begin(payload)
        if self._helper is None or self._step < (2 if kind == "hello" else 3):
            raise SecAggError(f"{kind} is out of order: a connection begins with greet, begin and hello")
        reply = self._helper.answer(kind, payload)
        self._step = 3
        return reply

    def _greet(self, payload: bytes) -> bytes:
        if payload != self._greeting:
            raise InputError(f"the server plays another run than the helper: {_difference(payload, self._greeting)}")
        self._step = 1
        return self.run.encode()

    def _begin(self, payload: bytes) -> bytes:
        if self._step < 1 or len(payload) < 16:
            raise SecAggError("begin is out of order: a connection begins with greet")
        run, setup = payload[:16], payload[16:]
        if self.run not in ("", run.hex()):
            raise InputError(
                f"the helper has counted for run {self.run[:8]} of this experiment, and its account holds for that "
                "one; go on with --resume, or let the helper begin another account: sottovoce count --state"
            )
        terms = self._protection.ballot_terms(self._protection.plan, setup)
        if terms is None:
            raise SecAggError("this run counts no ballots")
        terms = replace(terms, session=run)
        if self._helper is None or self._helper.terms != terms:
            self._helper = self._made(terms)
        if not self.run:
            replace_file(self._state / "run", run.hex().encode() + b"\n")
        self._step, self.most = 2, _largest(terms)
        return b""

    def _made(self, terms: BallotTerms) -> Helper:
        return Helper(
            terms,
            self._signing,
            self._exchange,
            self._keys,
            account=self.account,
            noise=self._coding.helper_noise,
            entropy=os.urandom,
        )


def open_desk(
    experiment: Experiment, keys: Path, state: Path | None, *, simulated: bool
) -> tuple[Desk, Identity, Roster]:
    """Return the helper of a folder of keys, after solving its plan."""
    identity = Identity.read(keys)
    if identity.id != HELPER:
        raise InputError(f"{keys} holds the keys of {identity.user}; the helper needs its own, in FED/helper")
    roster, exchange = identity.read_roster(), read_signing_key(keys / "exchange.key")
    if roster.helper is None or exchange_key(exchange) != roster.helper.exchange:
        raise InputError(f"{keys / 'exchange.key'} is not the key of the roster's helper; take the folder anew")
    home = state or state_folder(keys, experiment)
    desk = Desk(experiment, roster, (identity.signing_key, exchange), home, simulated=simulated)
    return desk, identity, roster


def count(
    experiment: Experiment,
    keys: Path,
    listen: str,
    state: Path | None = None,
    *,
    simulated: bool = False,
    ready: Callable[[Place], None] = lambda place: None,
) -> tuple[str, int]:
    """Answer the training server of the roster until Ctrl-C; `ready` hears where it listens.

    Returns the run that the account is of, in hex, and the rounds that it was charged.
    """
    place = Place.parse(listen)
    if simulated and not place.loopback:
        raise InputError(
            f"--simulate-randomness gives everybody the same secrets and is for tests on one machine; {place} is open "
            "to others"
        )
    desk, identity, roster = open_desk(experiment, keys, state, simulated=simulated)
    context, leader = tls(identity, listens=True), "" if roster.helper is None else roster.helper.leader
    with desk:
        try:
            listener = socket.create_server(place, family=socket.AF_INET6 if ":" in place.host else socket.AF_INET)
        except OSError as error:
            raise InputError(f"--listen {place} cannot be listened to: {error.strerror}") from None
        with listener:
            ready(Place(place.host, listener.getsockname()[1]))
            with suppress(KeyboardInterrupt):
                _answer_all(desk, listener, context, leader)
            return desk.run, desk.account.spent


def _answer_all(desk: Desk, listener: socket.socket, context: ssl.SSLContext, leader: str) -> None:
    """Serve one connection at a time; a new one of the server's takes the place of the one before, which it lost."""
    connection: ssl.SSLSocket | None = None
    while True:
        waiting = [listener] if connection is None else [connection, listener]
        if connection is not None and connection.pending():
            heard: list[socket.socket] = [connection]
        else:
            heard = select.select(waiting, [], [])[0]
        if listener in heard:
            fresh = _accept(listener, context, leader)
            if fresh is not None:
                if connection is not None:
                    connection.close()
                connection = fresh
                desk.connected()
        elif connection is not None and not _answer(desk, connection):
            connection.close()
            connection = None


def _accept(listener: socket.socket, context: ssl.SSLContext, leader: str) -> ssl.SSLSocket | None:
    plain, address = listener.accept()
    plain.settimeout(_HANDSHAKE)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = context.wrap_socket(plain, server_side=True)
    except OSError as error:
        log.warning("%s was turned away: %s", address[0], error)
        plain.close()
        return None
    if peer_print(connection) != leader:
        log.warning("%s was turned away: it is not the training server of the roster", address[0])
        connection.close()
        return None
    connection.settimeout(_FRAME)
    return connection


def _answer(desk: Desk, connection: ssl.SSLSocket) -> bool:
    """Answer one request; False if the connection is over."""
    try:
        code, payload = receive(connection, desk.most)
        if code >= len(KINDS):
            return False
        try:
            reply: tuple[int, bytes] = (0, desk.answer(KINDS[code], payload))
        except SottovoceError as error:
            log.warning("%s: refused: %s", KINDS[code], error)
            reply = refusal_of(error)
        send(connection, *reply)
    except (EOFError, OSError):
        return False
    except RunError as error:
        log.warning("the connection was ended: %s", error)
        return False
    return True


def _largest(terms: BallotTerms) -> int:
    """Return the bytes of the largest request of a count: the envelopes of a cohort, or the choices of a chunk."""
    return (1 << 20) + 256 * terms.cap + 17 * max(1 << 20, 128 * terms.cap)


def _difference(theirs: bytes, ours: bytes) -> str:
    with suppress(ValueError):
        their, own = json.loads(theirs), json.loads(ours)
        words = {
            "version": "another version of sottovoce",
            "config": "another experiment file",
            "roster": "another roster",
            "simulated": "simulated randomness on one side alone",
        }
        if isinstance(their, dict):
            return next((said for key, said in words.items() if their.get(key) != own[key]), "another greeting")
    return "another greeting"
