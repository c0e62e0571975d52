"""What every engine and every aggregator promises; the author of a new one calls these checks in a test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from sottovoce.assembly.parts import Parts, gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Alter, Hand, Playable, TwinAccount, few, play, same
from sottovoce.core.errors import WireError
from sottovoce.federation.round import RoundResult, Server, downlink_size, server_round
from sottovoce.schemes import State


def require(holds: object, words: str) -> None:
    """Raise what a failing test shows, unless it holds; `assert` would vanish under -O."""
    if not holds:
        raise AssertionError(words)


def engine_checks(engine: Callable[[Parts], AbstractContextManager[Playable]]) -> None:
    """Check an engine against `Hand`: the same models and the same story, whoever leaves; refusals are failures."""
    leave = [[1, 3, "mask"], [2, 1, "unmask"], [2, 4, "share"]]
    for aggregation in ({"secure": "none"}, {"secure": "real"}, {"secure": "real", "key_life": "session"}):
        experiment = few(aggregation=aggregation, devices={"leave": leave})
        theirs, ours = play(experiment, rounds=2, engine=engine), play(experiment, rounds=2)
        if aggregation.get("key_life") == "session":  # a gap before masking and another before opening cannot be mended
            require(theirs.totals[1].reason is not None, "a sum that cannot be opened was released")
        require(same(theirs, ours), f"{aggregation}: the model is not that of the twin")
        require(theirs.story == ours.story, f"{aggregation}: the story is not that of the twin")
        require(np.any(theirs.models[0] != theirs.models[1]), "round 1 did not change the model")
    followed = few("sign-sgd", devices={"leave": [[1, 3, "mask"]]})  # its clients keep a replica of the model
    require(same(play(followed, rounds=3, engine=engine), play(followed, rounds=3)), "who leaves must still hear")
    _check_refusals(engine)
    for aggregation in ({"secure": "none"}, {"secure": "real"}):
        _check_unicast(engine, aggregation)


def _check_unicast(engine: Callable[[Parts], AbstractContextManager[Playable]], aggregation: dict[str, Any]) -> None:
    """Check that who was not asked cannot act on what the others heard."""
    parts = gather(few(aggregation=aggregation))
    with engine(parts) as started:
        ready = stages(protect(parts))[TRAINING].server_side(started)
        ready.enrol(started)
        whole = next(server_round(ready.server, ready.server.init(parts.start), 1))
        asked = {client: whole.payloads[client] for client in (1, 2, 3)}
        request = whole._replace(payloads=asked, take=lambda client, payload: None, sum=None)
        heard = started.send(request)
        stranger = started.send(request._replace(payloads={5: b"", 3: b""}, opening=False))
    require(sorted(heard.sizes) == [1, 2, 3], "clients that were asked did not all answer")
    require(
        stranger.failures == {5: "client 5 was not asked in this round"},
        "a client that was not asked was not refused",
    )
    require(list(stranger.sizes) == [3], "a client that was asked was refused")


def _check_refusals(engine: Callable[[Parts], AbstractContextManager[Playable]]) -> None:
    parts = gather(few(aggregation={"secure": "real"}))

    def refuse(client: int, payload: bytes) -> None:
        if client == 3:
            raise WireError("refused by the check")

    with engine(parts) as started:
        ready = stages(protect(parts))[TRAINING].server_side(started)
        ready.enrol(started)
        request = next(server_round(ready.server, ready.server.init(parts.start), 1))
        reply = started.send(request._replace(take=refuse))
    require(reply.failures == {3: "refused by the check"}, "an answer that is refused is its client's failure")
    require(sorted(reply.sizes) == [0, 1, 2, 4, 5, 6, 7, 8], "only answers that were taken are counted")


def aggregator_checks(aggregation: dict[str, Any]) -> None:
    """Check an aggregator: an exact sum, bytes that really travelled, a charge before the opening, nobody's garbage."""
    experiment = few(aggregation={"weighting": "equal", **aggregation})
    clear = play(few(aggregation={"weighting": "equal", "secure": "none"}))
    parts = gather(experiment)
    hand = Hand(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    ready.enrol(hand)
    server = ready.server.with_account(TwinAccount(lambda round_: hand.events.append("spend")))
    result = hand.run(server_round(server, server.init(parts.start), 1))

    require(result.total.values is not None, "nothing was released")
    require(
        np.allclose(np.asarray(result.total.values), np.asarray(clear.totals[0].values), atol=1e-6),
        "the sum is not that of the messages",
    )
    require(
        (result.total.bytes_up, result.total.bytes_down) == (hand.sent, hand.received),
        "the bytes are not those that travelled",
    )
    require(
        sum(up for up, _ in result.total.phases.values()) == hand.sent,
        "the phases do not add up to the bytes sent",
    )
    _check_costs(ready.server, server.init(parts.start), result)
    require(hand.events.count("spend") == 1, "the round was not charged once")
    require(
        "unmask" not in hand.events or hand.events.index("spend") < hand.events.index("unmask"),
        "the sum could be opened before it was charged",
    )

    nobody = play(experiment, alter=lambda phase, client, payload: None)
    require(nobody.totals[0].values is None, "a sum of nobody was released")
    require(
        "nothing was released" in str(nobody.totals[0].reason),
        "an aborted round does not say so",
    )
    require(not nobody.charged, "an aborted round was charged")
    require(np.array_equal(nobody.models[0], nobody.models[1]), "an aborted round changes nothing")

    vector = "mask" if "mask" in hand.events else "train"
    for garbage in (b"", b"\0", b"svsa" * 64, bytes(100_000)):
        foreign = play(experiment, alter=_instead(vector, garbage))
        missing = play(experiment, alter=_instead(vector, None))
        require(list(foreign.totals[0].failures) == [4], "garbage is not its sender's failure")
        require(same(foreign, missing), "what is refused must leave no trace")


def _check_costs(server: Server, state: State, result: RoundResult) -> None:
    """Check that what an aggregator says beforehand of its costs is what travelled in the first round."""
    down = downlink_size(server.scheme, state, private=server.plan is not None)
    costs = server.aggregator.costs(result.cohort, down)
    expected = {
        phase: (each.up * result.cohort, each.down * result.cohort)
        for phase, each in (costs.enrolment | costs.phases).items()
    }
    require(expected == result.total.phases, f"the costs say {expected}, but {result.total.phases} travelled")


def _instead(phase: str, payload: bytes | None) -> Alter:
    """Return what replaces client 4's answer in a phase."""
    return lambda p, client, answer: payload if (p, client) == (phase, 4) else answer
