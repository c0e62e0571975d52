"""Play the federation's round on a Flower fleet: the only file that imports flwr.

Server and nodes speak as over MQTT, message for message; Flower carries the bytes. A node cannot speak first here, and
every message to it starts a process. So the carrier wakes each SuperNode once, packs what waits for a node into one
message, and sends the next when the last was answered; a node keeps its state between processes sealed (`sealed`).
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from sottovoce.config.experiment import load
from sottovoce.core.errors import RunError, SottovoceError, WireError
from sottovoce.core.packages import unusable
from sottovoce.core.remote import one_line, printable
from sottovoce.deployment.flower.node import answers, installed, switch
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.serve import serve
from sottovoce.federation.client import UPDATE_PHASES
from sottovoce.federation.engines.mqtt.carrier import LinkQuality, Listener
from sottovoce.federation.engines.mqtt.envelope import (
    SERVER,
    Kind,
    kind_of,
    open_message,
    phase_of,
    topic_from,
    topic_to,
)

try:
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError:  # pragma: no cover - tested in a process of its own
    raise unusable("a Flower fleet", "flwr", f"flwr of version 1.41 or newer, and {installed('flwr')}") from None


_RECORD: Final = "sottovoce"
_KIND: Final = "query"
_TICK: Final = 0.25  # seconds between two looks for answers
_ROLL_CALL: Final = 3.0  # seconds between two looks for nodes
_LONGEST_PAUSE: Final = 60.0  # seconds before a SuperNode that failed or does not fit is asked for its greeting again
_AHEAD: Final = 2  # largest messages that may wait for one client: a set-up, and the request after it
_COMPANY: Final = 5.0  # seconds that a welcome waits for a request to travel with
_SERVERS_WORDS: Final = {"--resume": "-c 'resume=true'", "--out": "-c 'out=\"FOLDER\"'"}
_NODES_WORDS: Final = {"--data": "data in --node-config", "--label": "label in --node-config"}

log = logging.getLogger(__name__)


class Times(NamedTuple):
    """Seconds that a message may be under way: one that asks for training, and any other.

    A SuperNode that was started again has lost what it was sent, and is sent nothing else before that has run out.
    """

    phase: float
    train: float

    def of(self, parts: Iterable[bytes]) -> float:
        """Return the seconds of messages that travel together."""
        return max(
            (self.train if phase_of(part) in UPDATE_PHASES else self.phase for part in parts), default=self.phase
        )


class GridCarrier:
    """What carries messages between our server and the SuperNodes of a fleet.

    A SuperNode is the client whose signed greeting came from it. Whoever runs the SuperLink can drop and misroute, as a
    broker can, and no more: signatures are checked at both ends.
    """

    def __init__(self, grid: Grid, times: Times, listener: Listener, roster: Roster, most: int) -> None:
        self._grid = grid
        self._times = times
        self._listener = listener
        self._roster = roster
        self._most = most
        self._lock = threading.Lock()
        self._places: dict[int, int] = {}  # SuperNode by client
        self._waiting: dict[int, list[bytes]] = defaultdict(list)  # by SuperNode
        self._since: dict[int, float] = {}  # by SuperNode: when the first of what waits for it came
        self._under_way: dict[str, int] = {}  # SuperNode by Flower's message id
        self._wake_at: dict[int, float] = defaultdict(float)  # by SuperNode; never while it is in conversation
        self._pause: dict[int, float] = {}  # by SuperNode that fails
        self._bytes = [0, 0]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="sottovoce grid", daemon=True)

    def connect(self) -> None:
        """Begin to look for SuperNodes."""
        self._thread.start()
        self._listener.connected(1)

    def publish(self, topic: str, message: bytes, *, patience: float = 0.0) -> bool:
        """Let a message wait for its turn; one to a client that never spoke is dropped, and sent again when it does.

        False if too much waits for that client already.
        """
        if len(message) > self._most:
            raise RunError(f"a message of {len(message)} bytes is too long, at most {self._most} are sent")
        with self._lock:
            for client, place in self._places.items():
                if topic == topic_to(self._roster.federation, client):
                    ahead = sum(map(len, self._waiting[place]))
                    if ahead and ahead + len(message) > _AHEAD * self._most:
                        return False
                    self._waiting[place].append(message)
                    self._since.setdefault(place, time.monotonic())
                    if kind_of(message) == Kind.REFUSAL:  # its operator may mend what differs
                        self._wake_at[place] = time.monotonic() + _LONGEST_PAUSE
        return True

    def flush(self, seconds: float) -> bool:
        """Wait until all messages are answered; tell whether they are."""
        until = time.monotonic() + max(seconds, 4 * _ROLL_CALL)  # a process starts for each
        while time.monotonic() < until:
            with self._lock:
                if not self._under_way and not any(self._waiting.values()):
                    return True
            time.sleep(_TICK)
        return False

    def link(self) -> LinkQuality:
        """Return nothing: Flower hides the links."""
        return LinkQuality()

    def attend(self, *, busy: bool) -> None:
        """Do nothing."""

    def wire(self) -> tuple[int, int]:
        """Return the bytes of messages, without what Flower adds."""
        return self._bytes[0], self._bytes[1]

    def close(self) -> None:
        """Carry no more."""
        self._ending.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    # What follows is called by the carrier's own thread, the only one that speaks to Flower.

    def _carry(self) -> None:
        looked = -_ROLL_CALL
        while not self._ending.wait(_TICK):
            try:
                if time.monotonic() - looked > _ROLL_CALL:
                    looked = time.monotonic()
                    self._call_the_roll()
                self._push()
                self._pull()
            except Exception as error:  # whatever Flower raises: its fleet may come back
                log.warning("Flower: %s; trying again", one_line(str(error)))
                self._ending.wait(_ROLL_CALL)

    def _call_the_roll(self) -> None:
        """Wake every SuperNode that is new, or failed a while ago: it answers with its greeting."""
        for place in self._grid.get_node_ids():
            if time.monotonic() < self._wake_at[place]:
                continue
            numbers = list(self._grid.push_messages([self._packed(place, [])]))
            with self._lock:
                self._wake_at[place] = math.inf
                self._under_way |= dict.fromkeys(numbers, place)

    def _push(self) -> None:
        with self._lock:
            busy = set(self._under_way.values())
            going = {place: parts for place, parts in self._waiting.items() if place not in busy and self._due(place)}
            for place in going:
                self._waiting[place] = []
                del self._since[place]
        if not going:
            return
        try:
            numbers = list(self._grid.push_messages([self._packed(place, parts) for place, parts in going.items()]))
        except BaseException:
            with self._lock:  # they wait for the fleet to come back, before what has come since
                for place, parts in going.items():
                    self._waiting[place] = parts + self._waiting[place]
                    self._since[place] = -math.inf
            raise
        with self._lock:
            self._under_way |= dict(zip(numbers, going, strict=True))
        self._bytes[1] += sum(len(part) for parts in going.values() for part in parts)

    def _due(self, place: int) -> bool:
        """Tell whether to send what waits: a welcome alone is kept for the first request, and saves a process."""
        parts = self._waiting[place]
        alone = all(kind_of(part) == Kind.WELCOME for part in parts)
        return bool(parts) and (not alone or time.monotonic() >= self._since[place] + _COMPANY)

    def _pull(self) -> None:
        if not self._under_way:
            return
        for reply in self._grid.pull_messages(list(self._under_way)):
            with self._lock:
                place = self._under_way.pop(reply.metadata.reply_to_message_id, None)
            if place is None:
                continue
            if reply.has_error():
                log.warning("SuperNode %d could not answer; its operator sees why", place)
                self._pause[place] = min(_LONGEST_PAUSE, 2 * self._pause.get(place, _ROLL_CALL / 2))
                self._wake_at[place] = time.monotonic() + self._pause[place]  # it is asked for its greeting again
                continue
            self._pause.pop(place, None)
            for message in _unpacked(reply, self._most):
                self._hear(place, message)

    def _hear(self, place: int, message: bytes) -> None:
        self._bytes[0] += len(message)
        try:
            came = open_message(message, receiver=SERVER, key_of=self._roster.keys.get, most=self._most)
        except WireError as error:
            log.warning("SuperNode %d is not heard: %s; has it the keys of this federation?", place, error)
            self._wake_at[place] = time.monotonic() + _LONGEST_PAUSE  # its operator may mend it
            return
        with self._lock:
            self._places[came.sender] = place
        self._listener.heard(topic_from(self._roster.federation, came.sender), message)

    def _packed(self, place: int, parts: list[bytes]) -> Message:
        return Message(_content(parts), place, _KIND, ttl=self._times.of(parts))


def server_app(file: Path) -> ServerApp:
    """Return the app that plays an experiment's server; keys and folder are in the run's configuration."""

    def main(grid: Grid, context: Context) -> None:
        told = context.run_config
        try:
            experiment = load(file, ["engine.name=flower"])
            table = experiment.engine
            serve(
                experiment,
                Path(str(told["out"])),
                keys=Path(str(told["keys"])),
                carrier=partial(GridCarrier, grid, Times(table.phase_timeout, table.train_timeout)),
                resume=switch(told, "resume"),
                simulated=switch(told, "simulate-randomness"),
                observe=lambda record: print(f"round {record['round']} is done", flush=True),
            )
        except SottovoceError as error:
            # Flower shows the words of an exception to whoever submitted the run; those of SystemExit it loses.
            raise RuntimeError(_in_words_of(_SERVERS_WORDS, error)) from None

    app = ServerApp()
    app.main()(main)
    return app


def client_app() -> ClientApp:
    """Return the app that plays one node; its experiment, keys and data are named by the SuperNode's operator."""

    def query(message: Message, context: Context) -> Message:
        try:
            parts = answers(context.node_config, _unpacked(message, 1 << 30))
        except SottovoceError as error:
            print(f"error: {printable(_in_words_of(_NODES_WORDS, error))}", flush=True)
        except OSError as error:
            print(f"error: {error.filename or 'a file'} cannot be used: {error.strerror or error}", flush=True)
        except Exception:  # Flower would send its words to the server, and they may depend on records
            traceback.print_exc()
        else:
            return Message(_content(parts), reply_to=message)
        raise RuntimeError("this node could not answer; its operator sees why") from None

    app = ClientApp()
    app.query()(query)
    return app


def _content(parts: list[bytes]) -> RecordDict:
    return RecordDict({_RECORD: ConfigRecord({"parts": parts})})


def _in_words_of(table: Mapping[str, str], error: SottovoceError) -> str:
    """Return an error's sentence with the options of our commands as a fleet gives them."""
    return re.sub("|".join(table), lambda found: table[found[0]], str(error))


def _unpacked(message: Message, most: int) -> list[bytes]:
    """Return the messages in a Flower message; what is not of our making is dropped."""
    record = message.content.config_records.get(_RECORD)
    parts = None if record is None else record.get("parts")
    if not isinstance(parts, list):
        return []
    return [part for part in parts if isinstance(part, bytes) and len(part) <= most]
