"""The clients of a round believe nothing that they can check: the server lies, and is refused or gains nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, Hosted, TwinAccount, few
from sottovoce.core import wire
from sottovoce.core.errors import RunError, SecAggError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.secure import Secure, announce, downlink_hash, signing_key
from sottovoce.federation.aggregation.standing import Standing
from sottovoce.federation.client import setup_message
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Enrolment, Reply, Request
from sottovoce.federation.engines.worker import Worker
from sottovoce.federation.round import server_round
from sottovoce.secagg import messages

REAL: dict[str, dict[str, Any]] = {
    "round": {"secure": "real"},
    "session": {"secure": "real", "key_life": "session"},
}
PRIVATE = {"noise_multiplier": 4.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.1}


@pytest.fixture(params=[Hand, Hosted], ids=["by itself", "in a host"])
def kind(request: pytest.FixtureRequest) -> type[Hand]:
    """Return how clients are played: each from its own state, or many by a host."""
    chosen: type[Hand] = request.param
    return chosen


def begun(hand_of: Callable[[Any], Hand] = Hand, **tables: Any) -> tuple[Hand, Any, Any]:
    """Return the hand, what is ready to play, and the first state."""
    parts = gather(few(**tables))
    hand = hand_of(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    ready.enrol(hand)
    return hand, ready, ready.server.init(parts.start)


def nothing(client: int, payload: bytes) -> None:
    raise AssertionError(f"client {client} answered with {len(payload)} bytes")


@pytest.mark.parametrize("life", REAL)
def test_a_secure_run_has_no_phase_that_sends_words_unmasked(kind: type[Hand], life: str) -> None:
    hand, ready, state = begun(kind, aggregation=REAL[life], privacy=PRIVATE)
    down = ready.scheme.downlink(state, ready.scheme.round_seed(1)) + Terms(9, 0.1).pack()

    reply = hand.send(Request(1, "train", dict.fromkeys(range(9), down), take=nothing, opening=True))

    assert reply.failures == {
        client: f"client {client}: this run sums securely, and phase train would send the words unmasked"
        for client in range(9)
    }


def test_a_session_in_a_run_that_does_not_sum_securely_is_refused(kind: type[Hand]) -> None:
    _, ready, _ = begun(kind, aggregation=REAL["round"])
    payload = announce(ready.server.aggregator.session(1, list(range(9))), b"")
    hand, _, _ = begun(kind, aggregation={"secure": "none"})

    reply = hand.send(Request(1, "advertise", dict.fromkeys(range(9), payload), take=nothing, opening=True))

    assert set(reply.failures.values()) == {"a session was announced, but this run does not sum securely"}


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (
            {"fewest": 2, "threshold": lambda clients: clients, "cohort": [0, 4]},
            "a cohort of 2 clients, at least 9 are needed",
        ),
        ({"threshold": lambda clients: 5}, "threshold must be 7, got 5"),
        ({"bits": 31}, "bits must be 32, got 31"),
        ({"config_digest": bytes(32)}, "config_digest must be "),
        ({"colluders": 4}, "colluders must be 0, got 4"),
        ({"graph_share": 0}, "graph_colluders must be 3, got 0"),
    ],
)
@pytest.mark.parametrize("life", REAL)
def test_terms_that_are_not_the_configurations_are_refused_before_a_key_is_made(
    kind: type[Hand], life: str, lie: dict[str, Any], reason: str
) -> None:
    hand, ready, _ = begun(kind, aggregation=REAL[life])
    aggregator = ready.server.aggregator
    secure = aggregator.secure if isinstance(aggregator, Standing) else aggregator
    cohort = lie.get("cohort", list(range(9)))
    policy = replace(secure.policy, **{name: value for name, value in lie.items() if name != "cohort"})
    liar = Secure(secure.coding, policy, secure.keys, secure.streams)
    down = b"" if life == "session" else b"down"
    payload = announce(liar.session(1, cohort, downlink_hash(down) if down else b""), down)
    phase = "enrol" if life == "session" else "advertise"

    reply = hand.send(Request(1, phase, dict.fromkeys(cohort, payload), take=nothing, opening=True))

    assert sorted(reply.failures) == cohort
    assert all(f"the announced session is refused: {reason}" in why for why in reply.failures.values())
    assert not any(hand.state(client).masking for client in cohort)


def test_a_round_is_masked_once_however_often_it_is_announced(kind: type[Hand]) -> None:
    hand, ready, state = begun(kind, aggregation=REAL["round"])
    hand.run(server_round(ready.server.with_account(TwinAccount()), state, 1))

    again = hand.run(server_round(ready.server.with_account(TwinAccount()), state, 2))
    for old in (1, 2):
        request = next(server_round(ready.server, state, old))
        reply = hand.send(request._replace(take=nothing))
        assert set(reply.failures.values()) == {f"round {old} is refused: round 2 was masked, and rounds only rise"}
    assert again.total.senders == 9


@dataclass
class TwoFaced(Hand):
    """Send client 4, the victim, another downlink than the others."""

    other: Callable[[bytes], bytes] = field(default=lambda down: down)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._victim = self.make_worker()

    def worker(self, client: int) -> Worker:
        return self._victim if client == 4 else self._worker

    def enrol(self, enrolment: Enrolment) -> None:
        super().enrol(enrolment)
        self._victim.enrol(enrolment)

    def send(self, request: Request) -> Reply:
        if request.opening and request.phase != "enrol":
            told = {c: self.other(p) if c == 4 else p for c, p in request.payloads.items()}
            request = request._replace(payloads=told)
        return super().send(request)


def flip(down: bytes) -> bytes:
    """Send the model with its signs changed, as a proper frame."""
    start = len(down) - wire.frame_size(650)
    return down[:start] + wire.pack(-wire.unpack_floats(down[start:], length=650))


@pytest.mark.parametrize("life", REAL)
def test_a_client_that_was_sent_another_model_is_not_in_the_sum(life: str) -> None:
    for other, senders in ((lambda down: down, 9), (flip, 8)):
        hand, ready, state = begun(lambda parts: TwoFaced(parts, other=other), aggregation=REAL[life])  # noqa: B023
        result = hand.run(server_round(ready.server.with_account(TwinAccount()), state, 1))
        assert result.total.senders == senders
        assert list(result.total.failures) == ([] if senders == 9 else [4])


def test_a_model_that_comes_after_the_keys_is_not_trained_from(kind: type[Hand]) -> None:
    """The session's context has the hash of the first model; a second one would be the victim's own."""
    totals = []
    for lie in (False, True):
        hand, ready, state = begun(kind, aggregation=REAL["round"])
        conversation = server_round(ready.server.with_account(TwinAccount()), state, 1)
        request = next(conversation)
        down = next(iter(request.payloads.values()))[-wire.frame_size(650) :]
        while True:
            reply = hand.send(request)
            if lie and request.phase == "share":
                models = dict.fromkeys(request.payloads, flip(down))
                assert len(hand.send(Request(1, "train", models, take=nothing, opening=True)).failures) == 9
            try:
                request = conversation.send(reply)
            except StopIteration as stop:
                totals.append(stop.value.total)
                break

    assert totals[0].senders == totals[1].senders == 9
    assert np.array_equal(totals[0].values, totals[1].values)


def test_a_session_of_another_round_than_the_request_is_refused(kind: type[Hand]) -> None:
    hand, ready, state = begun(kind, aggregation=REAL["round"])
    request = next(server_round(ready.server, state, 1))

    reply = hand.send(request._replace(round=5, take=nothing))

    why = "the announced session is refused: it begins with round 1, this is round 5"
    assert set(reply.failures.values()) == {why}


def test_a_client_that_was_sent_another_set_up_refuses_the_session() -> None:
    """Another seed is another w_0: a model of one's own, although every downlink is the same."""
    parts = gather(few("fl-top", aggregation=REAL["round"]))
    hand = TwoFaced(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    ready.enrol(hand)
    other = setup_message(ready.scheme, Seeds(2).public)
    hand._victim.enrol(Enrolment(parts.scheme, other, ready.coding, policy=ready.policy))

    result = hand.run(server_round(ready.server, ready.server.init(parts.start), 1))

    assert list(result.total.failures) == [4]
    assert "the announced session is refused: config_digest must be" in result.total.failures[4]
    assert result.total.senders == 8


def test_a_bad_sealed_share_is_between_two_clients_and_costs_nobody_the_sum() -> None:
    hand, ready, state = begun(aggregation=REAL["round"])

    def alter(phase: str, client: int, payload: bytes) -> bytes:
        if (phase, client) != ("share", 4):
            return payload
        body = bytearray(payload[messages.HEADER : -64])
        body[44 + 50] ^= 1  # in what it sealed for client 0
        session = hand.state(4).heard.session  # type: ignore[union-attr]
        key = signing_key(hand.parts.seeds.client(4))
        return messages.seal_reply(session, "share", 4, bytes(body), key)  # type: ignore[arg-type]

    hand.alter = alter
    result = hand.run(server_round(ready.server.with_account(TwinAccount()), state, 1))

    assert result.total.failures == {
        0: "is at odds with client 4 over a sealed share: one of the two is at fault",
        4: "is at odds with client 0 over a sealed share: one of the two is at fault",
    }
    assert result.total.senders == 9 and result.total.reason is None


@pytest.mark.parametrize("told", [10, 38])
def test_the_noise_is_shared_among_the_clients_of_the_session_whatever_the_server_says(told: int) -> None:
    """Ten clients that are told they are thirty-eight would add a quarter of the variance.

    False alarm: the sample variance of 650 values is within 30 % but for one in 10^7; the updates weigh nothing at
    a noise of four clip norms.
    """
    tables = {"data": {"clients": 60}, "cohort": {"sample_rate": "1/4"}, "privacy": PRIVATE}
    hand, ready, state = begun(aggregation=REAL["round"], **tables)
    plan, cohort = ready.plan, list(range(10))
    down = ready.scheme.downlink(state, ready.scheme.round_seed(1)) + Terms(told, 0.1).pack()
    assert plan.shares.floor <= 10 and plan.shares.cap >= told

    total = hand.run(ready.server.aggregator.collect(1, cohort, down, Terms(10, 0.1), lambda: None))

    assert total.values.size >= 650
    assert np.var(total.values) == pytest.approx(plan.stddev(0.1) ** 2, rel=0.3)


def machine(hand: Hand, client: int) -> Any:
    masking: Any = hand.state(client).masking
    return masking.machine


def test_a_session_keeps_secrets_of_the_running_round_only() -> None:
    """A round that was given up by the server leaves no pair key behind once the next one is heard."""
    hand, ready, state = begun(aggregation=REAL["session"])
    conversation = server_round(ready.server, state, 1)
    request = next(conversation)
    while request.phase != "consistency":
        request = conversation.send(hand.send(request))
    clients = list(request.payloads)
    assert all(machine(hand, client)._round is not None for client in clients)

    down = ready.scheme.downlink(state, ready.scheme.round_seed(2))
    everyone = frozenset(clients)
    hand.send(Request(2, "mask", dict.fromkeys(clients, down), take=nothing, opening=True, silent=everyone))

    assert all(machine(hand, client)._round is None for client in clients)
    with pytest.raises(SecAggError, match="consistency is not next"):
        machine(hand, 0).consistency(b"")


@pytest.mark.parametrize("life", REAL)
def test_a_client_takes_part_no_more_often_than_its_plan_allows(kind: type[Hand], life: str) -> None:
    """The server that ignores the cap of participations is refused, and so `epsilon_server` holds."""
    tables = {"aggregation": REAL[life], "privacy": PRIVATE, "experiment": {"rounds": 4}}
    hand, ready, state = begun(kind, **tables)
    assert ready.plan.max_participations == 4
    for client in range(9):
        hand.change(client, participations=4 if client == 5 else 0)

    result = hand.run(server_round(ready.server.with_account(TwinAccount()), state, 1))

    assert result.total.failures[5].startswith("the client has taken part 4 times and may not again")
    assert len(result.total.failures) == 1


def test_a_round_after_the_last_of_the_run_is_refused_and_marks_nothing(kind: type[Hand]) -> None:
    """Rounds only rise, so one vector masked in round 2^40 would be the client's last."""
    hand, ready, state = begun(kind, aggregation=REAL["round"], experiment={"rounds": 4})
    server = ready.server.with_account(TwinAccount())

    with pytest.raises(RunError, match=f"round {1 << 40} is refused: the run ends with round 4"):
        hand.run(server_round(server, state, 1 << 40))

    assert hand.run(server_round(server, state, 1)).total.values is not None


@pytest.mark.parametrize("terms", [(float("nan"), 0.1), (9.0, float("inf")), (-1.0, 0.1), (2.5, 0.1)])
def test_terms_that_are_no_numbers_are_refused_by_each_client(kind: type[Hand], terms: tuple[float, float]) -> None:
    hand, ready, state = begun(kind, aggregation=REAL["round"], privacy=PRIVATE)
    down = ready.scheme.downlink(state, 0) + wire.pack(np.array(terms, np.float32))
    session = ready.server.aggregator.session(1, list(range(9)), downlink=downlink_hash(down))

    reply = hand.send(
        Request(1, "advertise", dict.fromkeys(range(9), announce(session, down)), take=nothing, opening=True)
    )

    assert len(reply.failures) == 9
    assert all("no numbers of clients and norm" in reason for reason in reply.failures.values())
