"""kill -9 of a site in every phase of a secure sum over its records: what left was charged, and the run ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.core.streams import Seeds
from sottovoce.deployment.node.state import Book
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.engines.mqtt.envelope import Kind, kind_of, phase_of, topic_from
from sottovoce.privacy.ledger import verify
from sottovoce.privacy.plan.process import keeping
from sottovoce.runs.loop import run
from tests.deployment.test_units import hospitals
from tests.deployment.wired import RUN, Wired, member_of, parts_of, roster_of, until, wired

PHASES = ("advertise", "share", "mask", "consistency", "unmask")
VICTIM = 1
GIVEN = hospitals(experiment={"rounds": 12}, aggregation={"threshold": 4})


def test_a_site_that_is_killed_in_every_phase_has_charged_what_it_sent(tmp_path: Path) -> None:
    dealt, plan = gather(GIVEN), protect(parts_of(GIVEN)).plan
    federation = roster_of(5).federation
    solved: dict[Any, Any] = {}  # every node would solve the same plan

    def kept(request: Any, solve: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if request not in solved:
            solved[request] = solve()
        return dict(solved[request])

    with keeping(kept):
        members = [member_of(GIVEN, number, dealt) for number in range(5)]
    books: dict[int, Book] = {}
    left, to_kill, started = dict.fromkeys(range(5), 0), list(PHASES), threading.Event()
    held: Wired

    def start(number: int) -> None:
        if number in books:
            books[number].close()
        books[number] = Book(tmp_path / str(number), plan)
        held.start(members[number], books[number])

    def meddle(topic: str, message: bytes) -> list[tuple[str, bytes]]:
        """Kill the site when it is about to send, or has just sent, an answer of the next phase."""
        sender = next((number for number in range(5) if topic == topic_from(federation, number)), None)
        if sender is None or not started.is_set() or kind_of(message) != Kind.ANSWER:
            return [(topic, message)]
        if phase_of(message) == "mask":
            left[sender] += 1
            assert len(set(verify(tmp_path / str(sender) / "ledger.jsonl").charged)) >= left[sender]  # charged before
        if sender == VICTIM and to_kill and phase_of(message) == to_kill[0]:
            to_kill.pop(0)
            held.kill(VICTIM)
            threading.Timer(0.05, start, [VICTIM]).start()
        return [(topic, message)]

    with wired(GIVEN, nodes=False, meddle=meddle, phase_timeout=2.0, train_timeout=4.0) as held:
        for number in range(5):
            start(number)
        started.set()
        seeds = Seeds(GIVEN.experiment.seed)
        keys, digest = SimulatedKeys(seeds, 5), roster_of(5).digest
        parties = Parties.of_machines(
            seeds, keys, digest, lambda parts, run_id: nullcontext(held.engine), new_run=RUN, seeded=True
        )
        summary = run(GIVEN, tmp_path / "run", parties=parties)
        until(lambda: not to_kill)

    assert summary["rounds"] == 12 and not to_kill
    server = verify(tmp_path / "run" / "ledger.jsonl")
    assert server.problem is None
    for number, sent in left.items():
        charged = verify(tmp_path / str(number) / "ledger.jsonl")
        assert charged.problem is None and len(set(charged.charged)) == len(charged.charged)
        assert set(charged.charged) <= set(server.charged) and len(charged.charged) >= sent > 0
    assert left[0] == 12
