"""Lives of a server and of its helper, each a process of its own over TCP and TLS, that end by SIGKILL where asked.

Both sides pass named places (`Reaper.here`): before and after every request, every write of a ledger, of a mark and of
the run folder. Processes are forked: the code between two machines is the real one, without the seconds of a start.
Broker and nodes are threads of the server's process, and die with it; base transfers cost nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import Experiment
from sottovoce.deployment.helper import count as count_module
from sottovoce.deployment.helper import mark as helper_mark
from sottovoce.deployment.helper import service as desk_module
from sottovoce.deployment.helper.count import count
from sottovoce.deployment.helper.frames import HelperAddress
from sottovoce.deployment.helper.service import Desk
from sottovoce.deployment.node.build import make_member
from sottovoce.deployment.node.join import Ear, talk
from sottovoce.deployment.node.node import Node
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.party import Identity
from sottovoce.deployment.server.helper_link import HelperLink
from sottovoce.deployment.server.serve import serve
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.federation.engines.mqtt.envelope import topic_from, topic_to
from sottovoce.privacy.ledger import Ledger, verify
from sottovoce.runs import journal
from sottovoce.runs.folder import RunFolder
from tests.deployment.wired import Carried, Loop, records_of

AT_ONCE = ("greet", "begin", "settle", "hello", "keys", "run file")
"""Places that a life passes before its first round; all others end a life in its second round."""

NOWHERE = "nowhere"


@dataclass
class Reaper:
    """What ends a process by SIGKILL at a place, and writes down the places that it passes."""

    place: str
    diary: Path
    rounds: int = 0  # whole ones, in this life
    last_words: Callable[[], None] = lambda: None

    def here(self, place: str) -> None:
        at_once = place.startswith(AT_ONCE)
        with self.diary.open("a") as file:
            file.write(place + "\n")
            if place == self.place and (at_once or self.rounds):
                self.last_words()
                file.write("dead\n")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class World:
    """A federation in a folder: keys, the run, the helper's and the nodes' accounts, and what was seen."""

    fed: Path
    folder: Path
    experiment: Experiment
    place: HelperAddress = field(init=False)

    def __post_init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.place = HelperAddress("127.0.0.1", free.getsockname()[1])

    @property
    def out(self) -> Path:
        return self.folder / "run"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def diary(self, side: str) -> list[str]:
        path = self.folder / f"{side}.diary"
        return path.read_text().splitlines() if path.exists() else []

    def note(self, what: str, *told: object) -> None:
        """Append to what the test reads at the end."""
        with (self.folder / "seen.jsonl").open("a") as file:
            file.write(json.dumps([what, *told]) + "\n")

    def seen(self, what: str) -> list[list[Any]]:
        path = self.folder / "seen.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [told for kind, *told in lines if kind == what]

    def operator(self) -> dict[int, dict[str, Any]]:
        lines = (self.out / "operator.jsonl").read_text().splitlines()
        return {line["round"]: line for line in map(json.loads, lines)}

    def errors(self) -> str:
        path = self.folder / "errors"
        return path.read_text() if path.exists() else ""

    def account(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.state / HELPER_LEDGER).read_text().splitlines()]


def forked(folder: Path, act: Callable[[], None], *, group: bool = False) -> int:
    """Fork a process that acts and ends, with `group` in one of its own; what it raises is in `errors`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if group:
            os.setpgid(0, 0)
        act()
        code = 0
    except BaseException:
        with (folder / "errors").open("a") as file:
            traceback.print_exc(file=file)
    finally:
        sys.stdout.flush()
        os._exit(code)


def helper_lives(world: World, places: Sequence[str]) -> int:
    """Fork a process that starts one helper after another: each dies at its place, the last one at none."""

    def lives() -> None:
        for place in (*places, NOWHERE):
            pid = forked(world.folder, lambda place=place: _helper_life(world, place))  # type: ignore[misc]
            _, status = os.waitpid(pid, 0)
            if not os.WIFSIGNALED(status):
                raise AssertionError(f"the helper that was to die at {place!r} ended by itself: {status}")

    return forked(world.folder, lives, group=True)


def _helper_life(world: World, place: str) -> None:
    reaper = Reaper(place, world.folder / "helper.diary")
    asked = {"round": 0, "kind": ""}
    reaper.last_words = lambda: world.note("helper died", place, asked["round"])
    answer, send, replace_file, written = Desk.answer, count_module.send, desk_module.replace_file, Ledger._append

    def answered(desk: Desk, kind: str, payload: bytes) -> bytes:
        asked["kind"] = kind
        if kind == "roll":
            asked["round"] = int.from_bytes(payload[:8], "little")
        reaper.here(f"{kind} asked")
        if kind == "transfer" and desk._helper is not None:
            world.note("helper transfers", desk._helper._session.hex(), int.from_bytes(payload[:8], "little"))
        reply = answer(desk, kind, payload)
        reaper.here(f"{kind} answered")
        return reply

    def sent(connection: Any, code: int, payload: bytes) -> None:
        kind, round_ = str(asked["kind"]), asked["round"]
        wanted = {"confirm": "ballots", "prove": "compare", "open": "charge"}.get(kind)
        if not code and wanted is not None:
            lines = [line for line in world.account() if line.get("round") == round_]
            world.note("helper left", kind, round_, any(line["kind"] == wanted for line in lines))
        send(connection, code, payload)
        reaper.here(f"{kind} sent")
        reaper.rounds += kind == "open" and not code

    def replaced(path: Path, data: bytes, mode: int = 0o644) -> None:
        reaper.here("run file before")
        replace_file(path, data, mode)
        reaper.here("run file after")

    def wrote(ledger: Ledger, fields: dict[str, Any]) -> None:
        if fields["kind"] != "open":  # the first line is the same in every account
            ledger._step = lambda step: reaper.here(f"{fields['kind']} {step}")
        written(ledger, fields)

    Desk.answer, count_module.send, Ledger._append = answered, sent, wrote  # type: ignore[method-assign, assignment]
    desk_module.replace_file = replaced  # type: ignore[assignment]
    ready = lambda place: reaper.here("listening")  # noqa: E731
    count(world.experiment, world.fed / "helper", str(world.place), world.state, ready=ready)


def await_helper(world: World) -> None:
    """Wait until the helper's next life listens: a server that starts does not wait for it."""
    until = time.monotonic() + 60
    while (lines := world.diary("helper")).count("listening") <= lines.count("dead"):
        if time.monotonic() > until:
            raise AssertionError(f"no helper came: {world.errors()}")
        time.sleep(0.005)


def server_life(world: World, place: str = NOWHERE) -> int:
    """Fork a server with its nodes, which dies at a place or ends its run; return how it ended."""
    await_helper(world)
    pid = forked(world.folder, lambda: play(world, Reaper(place, world.folder / "server.diary")))
    return os.waitpid(pid, 0)[1]


def play(world: World, reaper: Reaper) -> None:
    """Be the server and the nodes, from where the run was left to its end."""
    ask, keep, written = HelperLink._ask, helper_mark.replace_file, Ledger._append
    opened, append, save = journal.write_begun, RunFolder.append, RunFolder.save
    asked = {"session": "", "round": 0, "kind": ""}

    def asks(link: HelperLink, kind: str, payload: bytes) -> bytes:
        if kind == "roll":
            asked["round"] = int.from_bytes(payload[:8], "little")
        asked["kind"] = kind
        if kind == "transfer":
            world.note("server transfers", asked["session"], int.from_bytes(payload[:8], "little"))
        if kind == "open":
            world.note("server opens", asked["round"], asked["round"] in verify(world.out / "ledger.jsonl").charged)
        reaper.here(f"{kind} asks")
        reply = ask(link, kind, payload)
        if kind == "hello":
            asked["session"] = hashlib.sha256(payload + reply).hexdigest()
        reaper.here(f"{kind} heard")
        return reply

    def kept(path: Path, data: bytes, mode: int) -> None:
        reaper.here(f"{asked['kind']} mark before")
        keep(path, data, mode)
        reaper.here(f"{asked['kind']} mark after")

    def wrote(ledger: Ledger, fields: dict[str, Any]) -> None:
        if ledger.path.parent == world.out and fields["kind"] != "open":
            ledger._step = lambda step: reaper.here(f"{fields['kind']} {step}")
        written(ledger, fields)

    def writes(path: Path, round_: int, state: Any) -> None:
        reaper.here("opened before")
        opened(path, round_, state)
        reaper.here("opened after")

    def appended(folder: RunFolder, record: Any, operator: Any = None) -> None:
        reaper.here("record before")
        append(folder, record, operator)
        reaper.here("record after")

    def saved(folder: RunFolder, round_: int, state: Any) -> None:
        save(folder, round_, state)
        reaper.here("checkpoint after")
        reaper.rounds += "void" not in (world.out / "rounds.jsonl").read_text().splitlines()[-1]

    HelperLink._ask, helper_mark.replace_file, Ledger._append = asks, kept, wrote  # type: ignore[method-assign, assignment]
    journal.write_begun, RunFolder.append, RunFolder.save = writes, appended, saved  # type: ignore[method-assign, assignment]
    loop, server = Loop(), Identity.read(world.fed / "server")
    federation = server.read_roster().federation

    with ExitStack() as books:
        for identity in map(Identity.read, sorted((world.fed / "nodes").iterdir())):
            _start(world, identity, loop, books)
        serve(
            world.experiment,
            world.out,
            keys=world.fed / "server",
            helper=str(world.place),
            carrier=lambda listener, *_: Carried(loop, listener, topic_from(federation, "+")),
            resume=world.out.exists(),
        )


def _start(world: World, identity: Identity, loop: Loop, books: ExitStack) -> None:
    roster, number = identity.read_roster(), identity.id or 0
    records = records_of(gather(world.experiment), number)
    member, protection = make_member(world.experiment, identity, roster, records, simulated=False, apart=False)
    book = books.enter_context(Book(world.folder / f"node{number}", protection.plan))
    node = Node(member, book)
    ear = Ear(node, roster.federation, queue.SimpleQueue())
    carried = Carried(loop, ear, topic_to(roster.federation, number))
    threading.Thread(target=talk, args=(node, ear, carried), daemon=True).start()
