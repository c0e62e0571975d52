"""The training server's way to the helper of its roster: one TLS connection, which is made anew when it was lost."""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import time
from importlib.metadata import version
from typing import Final

from sottovoce.core.errors import InputError, PrivacyError, RunError, SecAggError
from sottovoce.deployment.countersign import PHASE
from sottovoce.deployment.helper.frames import KINDS, HelperAddress, error_of, peer_print, receive, send, tls
from sottovoce.deployment.helper.mark import MARK, ComparisonFile, Mark, MarkFile
from sottovoce.deployment.party import Identity
from sottovoce.deployment.roster import Roster
from sottovoce.federation.aggregation.ballots.coding import CountKeys
from sottovoce.secagg.ballots import PROOF, CountsDifferError

_PROTOCOL: Final = 3  # of frames between server and helper: 2 has marks, 3 two counts and their comparison
_MOST: Final = 1 << 28  # bytes of an answer
_DIAL: Final = 10.0  # seconds to connect
_PATIENCE: Final = 600.0  # seconds for an answer: the helper computes
_FIRST_PAUSE: Final = 0.05  # seconds between two calls of a helper that is gone; doubles from then on
_LONGEST_PAUSE: Final = 5.0

log = logging.getLogger(__name__)


def count_keys(roster: Roster) -> CountKeys | None:
    """Return the keys of both aggregators, as the roster has them; None if it has no helper."""
    return None if roster.helper is None else CountKeys(roster.server, roster.helper.key, roster.helper.exchange)


def another_run(run: str) -> str:
    """Return what is said when a helper's account is of another run."""
    return (
        f"the helper has counted for run {run[:8]} of this experiment, and its account holds for that one; go on "
        "with --resume, or let the helper begin another account: sottovoce count --state"
    )


def check_unused(run: str) -> None:
    """Raise if a helper has counted for a run, and a new one is to begin."""
    if run:
        raise InputError(another_run(run))


def greeting(config: str, roster: Roster, *, simulated: bool) -> bytes:
    """Return what both sides compare before anything else."""
    told = {"version": version("sottovoce"), "protocol": _PROTOCOL, "config": config, "roster": roster.digest.hex()}
    return json.dumps(told | {"simulated": simulated}, sort_keys=True).encode()


class HelperLink:
    """A connection to the helper; after a loss only a new session of transfers ("hello") makes another.

    Guarantee: the newest mark of the helper's account (`helper_mark`) is on disk before an answer that brought it is
    used, and a helper whose account has gone back behind it is not counted with. After two counts of a round that
    differed, by either side's word, nothing is asked any more.
    """

    def __init__(
        self, place: HelperAddress, identity: Identity, roster: Roster, config: str, *, simulated: bool
    ) -> None:
        if roster.helper is None:
            raise InputError("the roster has no helper; let one in: sottovoce keys helper, then sottovoce keys roster")
        self.place, self._pinned = place, roster.helper.fingerprint
        self._context = tls(identity, listens=False)
        self._greeting = greeting(config, roster, simulated=simulated)
        self._connection: ssl.SSLSocket | None = None
        self._setup = b""
        self._marks = MarkFile(identity.roster.parent / "state", roster.helper.key)
        self._mark: Mark | None = None
        self.run = bytes(16)
        self.opened = 0  # the last round that this server has opened in the run
        self.patience = 300.0  # seconds that a round waits for a helper that is gone

    @property
    def record(self) -> ComparisonFile:
        """Return what this server keeps of the comparisons of its run."""
        return ComparisonFile(self._marks.folder, self.run)

    def reach(self) -> str:
        """Return the run that the helper has counted for, in hex, or raise why it cannot be asked."""
        try:
            self._connect()
            return _run_of(self._ask("greet", self._greeting))
        except SecAggError as error:
            raise RunError(str(error)) from None
        finally:
            self.close()

    def begin(self, setup: bytes) -> bytes:
        """Tell the helper the run and its set-up, and return the run's id; raise if either account has gone back."""
        self._setup, self._mark = setup, self._marks.read(self.run)
        self.record.check()
        known = self._mark is not None
        try:
            begun = self._open()
        except SecAggError as error:
            raise RunError(str(error)) from None
        if begun > self.opened:
            self.close()
            raise PrivacyError(
                f"the helper has begun round {begun} of this run, and the run folder knows of {self.opened}: it is an "
                "older copy; restore the newest, or choose another --out"
            )
        if begun and not known:
            self.close()
            raise PrivacyError(
                f"the helper has begun round {begun} of this run, and {self._marks.folder} has no mark of its account; "
                "restore that folder, or choose another --out"
            )
        return self.run

    def ready(self) -> bool:
        """Wait until the helper can be asked, but not for ever; tell whether the connection is a new one.

        Rounds without a helper would fail, and each is charged. Whether it is there depends on nobody's records and not
        on who was drawn, so that waiting for it tells outsiders nothing of either.
        """
        if self._connection is not None and _stands(self._connection):
            return False
        until, pause = time.monotonic() + self.patience, _FIRST_PAUSE
        while True:
            try:
                self._open()
                return True
            except CountsDifferError:
                raise
            except (SecAggError, InputError, PrivacyError) as error:
                if time.monotonic() + pause > until:
                    return True
                log.warning("%s; waiting for the helper", error)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def answer(self, kind: str, payload: bytes) -> bytes:
        """Return the helper's answer, or raise as it did; SecAggError too if it is gone."""
        if self._connection is None:
            if kind != "hello":
                raise SecAggError(f"the helper at {self.place} is gone; nothing was released")
            try:
                self._open()
            except CountsDifferError:
                raise
            except (InputError, PrivacyError) as error:  # the round fails like any other, and nobody sees it
                raise SecAggError(f"{error}; nothing was released") from None
        reply = self._ask(kind, payload)
        return self._marked(reply, grown=True) if kind in ("confirm", "prove", "open") else reply

    def countersign(self, claim: bytes) -> bytes:
        """Return the helper's countersignature of a claim, over a connection of its own."""
        try:
            self._open()
            return self._ask(PHASE, claim)
        finally:
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _open(self) -> int:
        """Connect, greet and begin; return the last round that the helper has begun."""
        self.close()
        self._connect()
        try:
            self._ask("greet", self._greeting)
            mark = bytes(MARK) if self._mark is None else self._mark.packed()
            begun = self._marked(self._ask("begin", self.run + mark + self._setup), grown=False)
            if len(begun) != 16 + PROOF:
                raise SecAggError(f"the helper at {self.place} begins with {len(begun)} bytes; nothing was released")
            self._settle(int.from_bytes(begun[8:16], "little"), begun[16:])
        except BaseException:
            self.close()
            raise
        return int.from_bytes(begun[:8], "little")

    def _settle(self, round_: int, proof: bytes) -> None:
        """End a comparison after which the connection was lost, if the helper has one: its proof first, then ours."""
        if round_:
            self._marked(self._ask("settle", self.record.settle(round_, proof)), grown=True)

    def _marked(self, reply: bytes, *, grown: bool) -> bytes:
        """Return an answer without the mark at its end, which is on disk by then."""
        try:
            mark = Mark.unpack(reply[max(0, len(reply) - MARK) :])
            self._mark = self._marks.keep(self.run, mark, self._mark, grown=grown)
        except BaseException:
            self.close()
            raise
        return reply[:-MARK]

    def _connect(self) -> None:
        try:
            plain = socket.create_connection(self.place, _DIAL)
        except OSError as error:
            raise SecAggError(
                f"the helper at {self.place} cannot be reached ({error.strerror or error}); nothing was released; "
                "start it there: sottovoce count"
            ) from None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._context.wrap_socket(plain)
        except OSError as error:
            plain.close()
            why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
            raise SecAggError(
                f"the helper at {self.place} has no certificate of this federation that holds ({why}); have it "
                "renewed: sottovoce keys node --renew helper"
            ) from None
        if peer_print(connection) != self._pinned:
            connection.close()
            raise SecAggError(f"who answers at {self.place} is not the helper of the roster; see [aggregation] helper")
        connection.settimeout(_PATIENCE)
        self._connection = connection

    def _ask(self, kind: str, payload: bytes) -> bytes:
        connection = self._connection
        try:
            if connection is None:
                raise EOFError
            send(connection, KINDS.index(kind), payload)
            code, reply = receive(connection, _MOST)
        except (EOFError, OSError, RunError):
            self.close()
            more = "; does it know this server's certificate?" if kind == "greet" else ""
            raise SecAggError(f"the helper at {self.place} is gone{more}; nothing was released") from None
        if code:
            raise error_of(code, reply)
        return reply


def _run_of(answer: bytes) -> str:
    """Return the run that a helper names, in hex; empty if it has counted for none."""
    if not re.fullmatch(rb"([0-9a-f]{32})?", answer):
        raise SecAggError("the helper answers the greeting with no run; install the same version on both sides")
    return answer.decode("ascii")


def _stands(connection: ssl.SSLSocket) -> bool:
    """Tell whether a connection on which nothing is due is still there."""
    connection.settimeout(0.0)
    try:
        connection.recv(1)
    except ssl.SSLWantReadError:
        connection.settimeout(_PATIENCE)
        return True
    except OSError:
        return False
    return False  # it has ended, or somebody speaks who was not asked
