"""Be a node for years: wait for runs that the site's policy allows, play them, and wait again.

The agent decides nothing by itself: a roster counts if the pinned root key signed it, and an experiment is played if
the policy file allows it and the account of the data set affords it. What hinders a run is said once; the agent stays.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from sottovoce.core.errors import InputError, PolicyError, RunError, SottovoceError
from sottovoce.core.files import read_private, replace_file
from sottovoce.deployment.node.build import config_digest
from sottovoce.deployment.node.join import INTERRUPTED, KEEP_ALIVE, Outcome, Prepared, interrupted, join, prepare
from sottovoce.deployment.offer import MOST, RunOffer, Want, install
from sottovoce.deployment.party import HELPER, Identity
from sottovoce.deployment.policy import SitePolicy, signed_path
from sottovoce.deployment.request import Registration
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.status import Family, days_left
from sottovoce.deployment.watchdog import Watchdog
from sottovoce.federation.engines.mqtt.carrier import Address, TlsFiles
from sottovoce.federation.engines.mqtt.envelope import SERVER, Envelope, Kind, open_message, topic_from, topic_to

if TYPE_CHECKING:
    from sottovoce.federation.engines.mqtt.transport import Transport

SOON: Final = 30  # days before the end of a certificate at which a new one is asked for
AGAIN: Final = 1800.0  # seconds until an agent that refused, or was refused, asks anew: hours and files change
DAY: Final = 86400.0
_FIRST, _LONGEST = 1.0, 300.0  # seconds between two tries to reach a broker
_TICK: Final = 20.0  # seconds between two signs of life
_HEAVY: Final = 100 << 20  # bytes: who waits needs no more
_KEPT: Final = ("runs", "answers", "refused", "cloned", "payload")  # of the status
_QUEUED: Final = 64  # messages that wait; a broker that sends more is not heard
_SHORT, _CUTS = 5.0, 4  # so often a connection was cut within so many seconds: the broker keeps one for each name
_LOST: Final = 15.0  # seconds without a connection, after which all of it is made anew
_STOOD: Final = 60.0  # seconds after which a connection was a good one
CLONED: Final = (
    "its connection is cut again and again as soon as it stands, as it is when another process uses this node's key; "
    "if you did not start two, the key was copied: tell whoever signs rosters to revoke this node"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentPlace:
    """Where an agent stands: its broker, keys, records and policy file."""

    broker: str
    keys: Path
    data: str
    policy: Path
    label: str | None = None
    state: Path | None = None
    dataset: str | None = None
    keep_alive: int = KEEP_ALIVE

    def check(self) -> Identity:
        """Return who the agent is, after reading all that its operator gave it, before anybody is met."""
        Address.parse(self.broker)
        SitePolicy.read(self.policy)
        identity = Identity.read(self.keys)
        if identity.id is None or identity.id == HELPER:
            raise InputError(f"these are the keys of the {identity.user}; an agent needs those of a node")
        Roster.read(identity.roster, identity.pinned)
        path = Path(self.data).expanduser()
        if path.suffix in (".npz", ".csv") and not path.is_file():
            raise InputError(f"{self.data} does not exist; --data wants this site's records")
        return identity


@dataclass
class AgentStatus:
    """What the operator of an agent is shown; every thread may read it."""

    doing: str = "starting"
    up: bool = False
    reason: str = "it has not connected yet"
    expires: float | None = None
    runs: int = 0  # that were played to their end
    answers: int = 0
    refused: str = ""  # why the last offer is not played
    cloned: bool = False
    payload: list[int] = field(default_factory=lambda: [0, 0])
    watchdog: Watchdog = field(default_factory=Watchdog, repr=False)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    _since: float = 0.0  # when the connection was made last
    _lost: float = 0.0  # when it was lost
    _cuts: int = 0  # of connections that had just been made, one after the other
    _told: str = ""  # why it was lost, as it was said last

    def connection(self, *, up: bool, reason: str = "") -> None:
        """Take in that the connection stands, or why it was lost; the same reason is said once until one has stood."""
        before, self.up, self.reason = self.up, up, reason
        if up:
            self._since = self.now()
            return
        if before:
            self._lost = self.now()
            stood = self.now() - self._since
            self._cuts = self._cuts + 1 if stood < _SHORT else 0
            if stood > _STOOD:
                self.cloned, self._told = False, ""
        if reason != self._told:
            self._told = reason
            log.warning("broker: %s; trying again until it stands", reason)
        if self._cuts >= _CUTS and not self.cloned:
            self.cloned = True
            log.warning(CLONED)

    @property
    def down_for(self) -> float:
        """Return for how many seconds the connection has been lost."""
        return 0.0 if self.up else self.now() - self._lost

    def beat(self) -> None:
        """Take in that the node is at work."""
        self.watchdog.beat()

    @property
    def healthy(self) -> str | None:
        """Return what is wrong; None: nothing."""
        if self.cloned and not (self.up and self.now() - self._since > _STOOD):
            return CLONED
        if not self.up:
            return f"the broker cannot be reached: {self.reason}"
        return None if self.watchdog.alive else "the agent is stuck"

    def families(self) -> list[Family]:
        """Return the metrics of an agent."""
        none: dict[str, str] = {}
        days = days_left(self.expires, time.time())
        rows = [
            ("connected", "Whether the connection to the broker stands", "gauge", float(self.up)),
            ("playing", "Whether it takes part in a run", "gauge", float(self.doing == "playing")),
            ("runs", "Runs that it has played to their end", "counter", float(self.runs)),
            ("answers", "Answers that it gave in all ended runs", "counter", float(self.answers)),
            ("refuses", "Whether it does not play what is offered", "gauge", float(bool(self.refused))),
            ("cloned", "Whether another process uses its key", "gauge", float(self.cloned)),
            ("payload_up_bytes", "Bytes of messages to the server", "counter", float(self.payload[0])),
            ("payload_down_bytes", "Bytes of messages from the server", "counter", float(self.payload[1])),
        ]
        told: list[Family] = [(f"sottovoce_agent_{name}", words, kind, [(none, v)]) for name, words, kind, v in rows]
        words = "Days until its certificate expires"
        told.append(("sottovoce_agent_certificate_days", words, "gauge", [] if days is None else [(none, float(days))]))
        return told


@dataclass
class _Watch:
    """What a status is told by a node that plays."""

    status: AgentStatus

    def up(self, *, up: bool, reason: str = "") -> None:
        """Pass it on."""
        self.status.connection(up=up, reason=reason)

    def beat(self) -> None:
        """Pass it on."""
        self.status.beat()


@dataclass
class _WaitingEar:
    """What the connection of an agent that waits tells."""

    status: AgentStatus
    events: queue.SimpleQueue[bytes | int | None] = field(default_factory=queue.SimpleQueue)

    def heard(self, topic: str, message: bytes) -> None:
        """Pass a message on, if not too many wait."""
        if self.events.qsize() < _QUEUED:
            self.events.put(message)

    def connected(self, connection: int) -> None:
        """Pass on that the connection stands."""
        self.status.connection(up=True)
        self.events.put(connection)

    def lost(self, reason: str) -> None:
        """Pass on that the broker cannot be reached; the connection is being made anew."""
        self.status.connection(up=False, reason=reason)

    def last_will(self, connection: int) -> tuple[str, bytes] | None:
        """Return nothing: who waits owes nothing."""
        return None


class Agent:
    """A node that lives longer than a run; `run` ends when the process is told to stop."""

    def __init__(self, place: AgentPlace, status: AgentStatus | None = None) -> None:
        self.place = place
        self.status = status or AgentStatus()
        self._stop = threading.Event()
        self._ear: _WaitingEar | None = None
        self._life = ""
        self._warned = 0.0  # when the end of the certificate was told last
        self._ask_at = 0.0  # monotonic time before which nothing is asked
        self._said = ""  # of what hinders, so that it is said once

    def run(self) -> bool:
        """Wait and play, until the process is told to stop; what hinders a run ends nothing.

        Returns whether it should go on in a fresh process, with what `kept` returns: what accounting and training have
        loaded is more than a node needs that waits.
        """
        self.place.check()
        self.status.watchdog.start()
        heavy = False
        try:
            with interrupted() as calls:
                calls.append(self.stop)
                while not self._stop.is_set() and not heavy:
                    heavy = self._live() and resident() > _HEAVY
        finally:
            self.status.watchdog.stop(told=not heavy)
        return heavy and not self._stop.is_set()

    def kept(self) -> str:
        """Return what a fresh process is to know of this one."""
        rest = max(0.0, self._ask_at - time.monotonic())
        status = {name: getattr(self.status, name) for name in _KEPT}
        return json.dumps({"rest": rest, "said": self._said, "warned": bool(self._warned), "status": status})

    def recall(self, kept: str) -> None:
        """Go on as the process that kept this."""
        told = json.loads(kept)
        self._ask_at, self._said = time.monotonic() + told["rest"], told["said"]
        self._warned = time.monotonic() if told["warned"] else 0.0
        for name in _KEPT:
            setattr(self.status, name, told["status"][name])

    def stop(self) -> None:
        """End soon: a thread or a signal asks for it."""
        self._stop.set()
        if (ear := self._ear) is not None:
            ear.events.put(None)

    def _live(self) -> bool:
        """Wait for one offer, and play it if it is allowed; tell whether there was one."""
        self.status.doing = "waiting"
        self.status.watchdog.beat(busy=False)
        try:
            offer = self._wait()
        except SottovoceError as error:  # a certificate that has expired, a file that is being replaced
            self._hinder(str(error))
            self._rest(_LONGEST)
            return False
        if offer is None or self._stop.is_set():
            return False
        self.status.watchdog.beat(busy=True)
        self.status.doing = "preparing"
        folder = self.place.keys / "offered"
        folder.mkdir(exist_ok=True, mode=0o700)
        try:
            with chdir(folder):  # where the schema of the offer lies
                outcome = self._play(self._prepare(offer, folder))
        except RunError as error:  # the broker is gone, or a disk is full
            log.warning("%s; staying", error)
            self._rest(_FIRST)
        except SottovoceError as error:
            self._hinder(str(error), policy=isinstance(error, PolicyError))
        else:
            self._ended(outcome)
        finally:
            give_back()
        return True

    def _prepare(self, offer: RunOffer, folder: Path) -> Prepared:
        """Return a node that is ready to play what was offered, or raise what is in the way."""
        place = self.place
        policy = SitePolicy.read(place.policy)  # its operator may have changed it
        experiment = offer.experiment(folder)
        file = folder / "experiment.toml"
        replace_file(signed_path(file), json.dumps(dict(offer.vouchers)) + "\n")
        return prepare(
            experiment,
            place.broker,
            place.keys,
            place.data,
            label=place.label,
            state=None if place.state is None else place.state / config_digest(experiment)[:16],
            policy=policy,
            dataset=place.dataset,
            file=file,
        )

    def _play(self, ready: Prepared) -> Outcome:
        self.status.doing, self.status.refused, self._said = "playing", "", ""
        log.info("the policy allows what the server offers; joining")
        return join(ready, keep_alive=self.place.keep_alive, leaves=True, watch=_Watch(self.status))

    def _ended(self, outcome: Outcome) -> None:
        """Take in how a run ended; one that the server refused is not asked for again at once."""
        status, over = self.status, outcome.over
        status.answers += outcome.answers
        status.payload[0] += outcome.counts.payload_up
        status.payload[1] += outcome.counts.payload_down
        if over.words == INTERRUPTED:
            self._stop.set()
        elif outcome.offer:
            self._install(RunOffer.unpack(outcome.offer))
        elif over.code:
            self._hinder(over.words)
        else:
            status.runs += 1
            log.info("%s: %d answers; waiting for the next run", over.words, outcome.answers)

    def _hinder(self, words: str, *, policy: bool = False) -> None:
        """Say once what is in the way, and ask again later; a server hears no more than that it is so."""
        self.status.refused = "policy" if policy else "it cannot play it; its operator sees why"
        self._ask_at = time.monotonic() + AGAIN
        if words != self._said:
            self._said = words
            log.warning("%s; staying, and asking again in %d minutes", words, AGAIN // 60)

    # What follows is done while it waits.

    def _wait(self) -> RunOffer | None:
        """Return an experiment that is offered; None: the process is told to stop, or the keys were renewed."""
        identity = Identity.read(self.place.keys)
        roster = Roster.read(identity.roster, identity.pinned)
        self.status.expires = identity.expires.timestamp()
        ear = self._ear = _WaitingEar(self.status)
        self._life = os.urandom(8).hex()  # connections are counted anew
        transport = self._connected(identity, roster, ear)
        if transport is None:
            return None
        read = partial(open_message, receiver=identity.id or 0, key_of={SERVER: roster.server}.get, most=MOST)
        say = partial(self._ask, transport, identity, roster)
        give_back()
        try:
            connection = 0
            while not self._stop.is_set():
                self.status.watchdog.beat()
                event = None
                with suppress(queue.Empty):
                    event = ear.events.get(timeout=_TICK if self.status.up else 1.0)
                if isinstance(event, int):
                    connection = event
                    say(connection)
                elif isinstance(event, bytes):
                    with suppress(SottovoceError):
                        offer, changed = self._heard(read(event), identity, roster, partial(say, connection))
                        if changed or offer is not None:
                            return offer
                elif connection and self.status.refused and time.monotonic() >= self._ask_at:
                    self.status.refused = ""
                    say(connection)
                if self.status.down_for > _LOST:  # connecting from the start tells why it fails
                    return None
                if self._remind(identity) and connection:
                    say(connection)
            return None
        finally:
            self.status.payload[0] += transport.counts.payload_up
            self.status.payload[1] += transport.counts.payload_down
            transport.close()
            self._ear = None

    def _heard(
        self, came: Envelope, identity: Identity, roster: Roster, say: Callable[[], None]
    ) -> tuple[RunOffer | None, bool]:
        """Act on the server's words: return an offer to look at, and whether keys or roster are others than before."""
        if came.kind == Kind.HELLO:  # a server that was started, perhaps with another file
            self.status.refused = ""
            say()
        if came.kind != Kind.OFFER:
            return None, False
        offer = RunOffer.unpack(came.payload)
        if self.status.refused:  # until it is time to ask again
            return None, False
        if offer.roster or offer.certificate:
            return None, self._install(offer, identity, roster)
        return (offer if offer.tables else None), False

    def _install(self, offer: RunOffer, identity: Identity | None = None, roster: Roster | None = None) -> bool:
        """Take a newer roster and certificate if they are the root's; tell whether they were taken."""
        try:
            own = identity or Identity.read(self.place.keys)
            before = roster or Roster.read(own.roster, own.pinned)
            after = install(offer, own, before)
        except SottovoceError as error:
            self._hinder(str(error))
            return False
        log.info("took roster %d of %d nodes", after.revision, len(after.entries))
        self._said = ""
        return True

    def _ask(self, transport: Transport, identity: Identity, roster: Roster, connection: int) -> None:
        """Tell the server that the agent is there, and what it has."""
        number = identity.id or 0
        soon = (days_left(identity.expires.timestamp(), time.time()) or 0) <= SOON
        want = Want(
            self._life,
            connection,
            roster.digest.hex(),
            identity.fingerprint,
            int(identity.expires.timestamp()),
            version("sottovoce"),
            refused=self.status.refused,
            renewal=_renewal(identity) if soon else "",
        )
        message = Envelope(Kind.WANT, number, SERVER, want.pack()).sign(identity.signing_key)
        transport.publish(topic_from(roster.federation, number), message)

    def _remind(self, identity: Identity) -> bool:
        """Warn once a day of a certificate that ends soon; tell whether it was done now."""
        days = days_left(identity.expires.timestamp(), time.time()) or 0
        if days > SOON or (self._warned and time.monotonic() < self._warned + DAY):
            return False
        self._warned = time.monotonic()
        log.warning(
            "the certificate of %s expires in %d days, on %s; the server is asked for a new one, which whoever holds "
            "the root key makes: sottovoce keys node FED %s --renew",
            identity.name,
            days,
            identity.expires.astimezone(UTC).date(),
            identity.name,
        )
        return True

    def _connected(self, identity: Identity, roster: Roster, ear: _WaitingEar) -> Transport | None:
        """Return a connection, however long it takes; None: the process is told to stop."""
        from sottovoce.federation.engines.mqtt.transport import Transport

        pause, number = _FIRST, identity.id or 0
        while not self._stop.is_set():
            transport = Transport(
                Address.parse(self.place.broker),
                ear,
                name=f"sottovoce-{roster.federation}-{number}",
                topic=topic_to(roster.federation, number),
                credentials=TlsFiles(identity.certificate, identity.private_key, identity.ca),
                most=MOST,
                keep_alive=self.place.keep_alive,
            )
            try:
                transport.connect()
                return transport
            except RunError as error:
                self.status.connection(up=False, reason=str(error))
            self._rest(random.uniform(0.5, 1.5) * pause)
            pause = min(2 * pause, _LONGEST)
        return None

    def _rest(self, seconds: float) -> None:
        """Wait, unless the process is told to stop."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(min(left, _TICK)):
            self.status.watchdog.beat()


def _renewal(identity: Identity) -> str:
    """Return a request for a new certificate for the same keys."""
    key = load_pem_private_key(read_private(identity.private_key), password=None)
    if not isinstance(key, EllipticCurvePrivateKey):
        return ""
    return Registration.make(identity.name, identity.signing_key, key)[1].decode()


def resident() -> int:
    """Return the bytes of memory that this process has; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def give_back() -> None:
    """Let go of what a run has left in memory."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
