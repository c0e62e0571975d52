"""Mount what a lying server can do to a client that believes it, and see the client refuse.

Each attack is first played against machines without the defence and gives the victim's words; then against the defence.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.secagg.conftest import ask, key

from sottovoce.core import wire
from sottovoce.core.errors import InputError, SecAggError
from sottovoce.secagg import (
    PHASES,
    KeyedEntropy,
    Policy,
    Registrar,
    RoundClient,
    RoundMark,
    RoundServer,
    Session,
    StandingClient,
    StandingServer,
    check_threshold,
    default_threshold,
    masks,
    messages,
    rules,
    shamir,
    verifying_key,
)

Factory = Any
Words = NDArray[np.uint32]
HONEST, OTHER = key("the model"), key("another model")


def policy_of(session: Session, **changes: Any) -> Policy:
    """Return the policy under which a cohort's own session is the one that was agreed on."""
    terms_ = {
        "run": session.run,
        "config_digest": session.config_digest,
        "bits": session.bits,
        "length": session.length,
        "threshold": default_threshold,
        "fewest": len(session.clients),
        "key_life": session.key_life,
    }
    return Policy(**{**terms_, **changes})


def subset(session: Session, clients: tuple[int, ...], **changes: Any) -> Session:
    changes = {"threshold": default_threshold(len(clients)), "graph_colluders": None, **changes}
    return replace(session, clients=clients, **changes)


def play(cohort: Any, session: Session, marks: dict[int, RoundMark] | None = None) -> Words:
    """Play a session with the cohort's own clients and words."""
    machines = {
        client: RoundClient(
            session,
            client,
            cohort.signing[client],
            KeyedEntropy(key(client, session.session_id)),
            (marks or {}).get(client),
        )
        for client in session.clients
    }
    server = RoundServer(session)
    requests = dict.fromkeys(session.clients, b"")
    for phase in PHASES:
        replies = {c: ask(machines[c], phase, r, cohort.words[c]) for c, r in requests.items()}
        requests, rejected = server.collect(phase, replies)
        assert not rejected
    return server.total()


def minus(one: Words, other: Words, bits: int) -> Words:
    return (one - other) & np.uint32((1 << bits) - 1)


def test_a_cohort_of_the_victim_and_a_helper_is_refused(cohort: Factory) -> None:
    round_ = cohort(9)
    victim, helper = round_.session.clients[:2]
    small = subset(round_.session, (victim, helper))
    opened = minus(play(round_, small), round_.words[helper], 13)
    assert np.array_equal(opened, round_.words[victim]), "the attack works on a client that believes the server"

    with pytest.raises(SecAggError, match="is refused: a cohort of 2 clients, at least 9 are needed"):
        policy_of(round_.session).accept(small.pack(), round_.session.keys)


def test_a_round_that_is_played_again_with_one_client_fewer_is_refused(cohort: Factory) -> None:
    round_ = cohort(9)
    victim, *rest = round_.session.clients
    again = subset(round_.session, tuple(rest), session_id=b"another session.")
    opened = minus(play(round_, round_.session), play(round_, again), 13)
    assert np.array_equal(opened, round_.words[victim]), "the attack works on clients that forget"

    marks = {client: RoundMark() for client in round_.session.clients}
    play(round_, round_.session, marks)
    for same_or_earlier in (again, again.for_round(3)):
        with pytest.raises(SecAggError, match="is refused: round 7 was masked, and rounds only rise"):
            play(round_, same_or_earlier, marks)
    assert np.array_equal(play(round_, again.for_round(8), marks), round_.expected(rest))


def test_a_session_id_ground_for_two_neighbours_that_collude_is_refused(cohort: Factory) -> None:
    """With neighbours = 2 about one session id in 28 puts the victim between two helpers."""
    round_ = cohort(9, 4096, 6)
    victim, *helpers = round_.session.clients[:3]
    ground = next(session for session in sparse_sessions(round_.session) if between(session, victim, helpers))
    assert np.array_equal(open_between(round_, ground, victim, helpers), round_.words[victim]), "the attack works"

    with pytest.raises(SecAggError, match="is refused: threshold must be 7, got 9"):
        policy_of(round_.session).accept(ground.pack(), ground.keys)
    with pytest.raises(SecAggError, match="is refused: graph_colluders must be 3, got 0"):
        policy_of(round_.session, threshold=lambda clients: clients).accept(ground.pack(), ground.keys)
    with pytest.raises(InputError, match="neighbours must be at least 8 for 9 clients"):
        replace(ground, graph_colluders=3)


def sparse_sessions(session: Session) -> Any:
    for attempt in range(10_000):
        name = attempt.to_bytes(16, "little")
        yield replace(session, session_id=name, threshold=9, neighbours=2, graph_colluders=0)


def between(session: Session, victim: int, helpers: list[int]) -> bool:
    return session.around(session.position(victim)) == {session.position(helper) for helper in helpers}


def open_between(round_: Any, session: Session, victim: int, helpers: list[int]) -> Words:
    """Take both pair masks off the victim's vector, from the helpers' memories, and the seed, from their shares."""
    forged = copy.copy(round_)
    forged.session, forged.sent, forged.received, forged.rejected = session, {}, {}, {}
    forged.clients = {c: forged.client(c) for c in session.clients}
    forged.server, forged.requests = RoundServer(session), dict.fromkeys(session.clients, b"")
    forged.until("mask")
    place = session.position(victim)
    pairs = {session.position(h): forged.clients[h]._secrets.pairs[place] for h in helpers}
    for phase in ("mask", "consistency", "unmask"):
        forged.step(phase)
    assert np.array_equal(forged.server.total(), round_.expected())
    shares = {}
    for holder in (victim, *helpers):
        owners = sorted([*session.around(session.position(holder)), session.position(holder)])
        at = messages.HEADER + 33 * owners.index(place)
        shares[session.position(holder) + 1] = shamir.read_share(forged.received["unmask"][holder][at : at + 33])
    seed = shamir.reconstruct(shares, session.degree.threshold).to_bytes(32, "little")
    words = wire.unpack(
        forged.received["mask"][victim][messages.HEADER : -64], length=session.length, bits=session.bits
    )
    total = masks.new_sum(session.length, session.bits, words)  # type: ignore[arg-type]
    masks.add_mask(total, rules.self_mask(session, seed, place), -1)
    for peer, pair in pairs.items():
        masks.add_mask(total, pair, -rules.pair_sign(place, peer))
    return masks.reduce(total, session.bits)


def test_a_cohort_picked_around_the_victim_is_shuffled_anew(cohort: Factory) -> None:
    """The server knows the order of 2,000 clients, a third of them helpers, and picks a thousand to suit it.

    Were the order kept when clients are left out, helpers alone would open the victim. False alarm: 2^-121.
    """
    keys = {client: verifying_key(key("signing", client)) for client in range(2000)}
    everyone = replace(cohort(4).session, clients=tuple(keys), keys=keys, threshold=0, graph_colluders=None)
    order, rank = everyone._ring
    helpers, victim = set(range(1, 667)), 0
    by_distance = sorted(range(1, 2000), key=lambda place: min(turn := (rank[place] - rank[0]) % 2000, 2000 - turn))
    near = [place for place in by_distance if place in helpers][:333]
    far = [place for place in reversed(by_distance) if place not in helpers][:666]
    chosen = subset(everyone, tuple(sorted([victim, *near, *far])))
    degree, needed = chosen.degree
    kept = [place for place in order if place in chosen.clients]
    at = kept.index(victim)
    around_before = {kept[(at + step) % 1000] for step in range(-degree // 2, degree // 2 + 1) if step}
    assert len(around_before & helpers) >= needed, "by the old order the attack works"

    around = {chosen.clients[place] for place in chosen.around(chosen.position(victim))}

    assert len(around & helpers) < needed


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"bits": 12}, "bits must be 13, got 12"),
        ({"length": 15}, "length must be 16, got 15"),
        ({"config_digest": b"x" * 32}, "config_digest must be [0-9a-f]{8}, got 78787878"),
        ({"threshold": 6}, "threshold must be 7, got 6"),
        ({"threshold": 9}, "threshold must be 7, got 9"),
        ({"colluders": 1}, "colluders must be 0, got 1"),
        ({"graph_colluders": 0}, "graph_colluders must be 3, got 0"),
        ({"neighbours": 8}, "neighbours must be 0, got 8"),
        ({"key_life": "session"}, "key_life must be round, got session"),
    ],
)
def test_every_term_that_is_not_the_policys_is_refused(cohort: Factory, changes: dict[str, Any], name: str) -> None:
    session = cohort(9).session
    policy = policy_of(session)
    assert policy.accept(session.pack(), session.keys).context == session.context

    with pytest.raises(SecAggError, match=f"^the announced session is refused: {name}$"):
        policy.accept(replace(session, **changes).pack(), session.keys)


def test_a_policy_makes_the_session_that_it_accepts(cohort: Factory) -> None:
    base = cohort(9).session
    policy = policy_of(base, colluders=1, fewest=5)
    made = policy.session(session_id=bytes(16), round_=3, clients=base.clients, keys=base.keys, downlink=HONEST)

    assert policy.accept(made.pack(), base.keys, HONEST).context == made.context
    with pytest.raises(SecAggError, match="round 3: 4 clients from the start, but at least 5 are needed; nothing was"):
        policy.session(session_id=bytes(16), round_=3, clients=base.clients[:4], keys=base.keys)


@pytest.mark.parametrize(("threshold", "clients", "most"), [(67, 100, 33), (7, 9, 4), (100, 100, 99), (51, 100, 1)])
def test_two_thresholds_of_signers_share_more_than_the_colluders(threshold: int, clients: int, most: int) -> None:
    check_threshold(threshold, clients, most)
    with pytest.raises(InputError, match="colluders must be at least 0 and below 2"):
        check_threshold(threshold, clients, most + 1)


def test_fresh_keys_of_a_client_with_another_model_are_refused_by_its_peers(cohort: Factory) -> None:
    round_ = cohort(5, downlink=HONEST)
    victim = round_.session.clients[0]
    deceived = RoundClient(replace(round_.session, downlink=OTHER), victim, round_.signing[victim])
    message = deceived.advertise()
    with pytest.raises(SecAggError, match="signature of its advertise message does not verify"):
        round_.server.accept("advertise", victim, message)

    replies = {c: round_.answer("advertise", c, b"") for c in round_.session.clients}
    requests, _ = round_.server.collect("advertise", replies)
    peer = round_.session.clients[1]
    body = bytearray(requests[peer][messages.HEADER : -16])
    start = messages.set_size(round_.session)
    body[start : start + 128] = message[messages.HEADER :]  # the server forwards what the victim really sent
    with pytest.raises(SecAggError, match=f"the keys of client {victim} are not signed"):
        round_.clients[peer].share(messages.seal_request(round_.session, "share", peer, bytes(body)))


class Noted:
    """Remember every secret that a client draws: a gift to the attacker."""

    def __init__(self, client: int) -> None:
        self.entropy, self.drawn = KeyedEntropy(bytes([client]) * 32), []

    def __call__(self, size: int) -> bytes:
        self.drawn.append(self.entropy(size))
        return self.drawn[-1]


@pytest.mark.parametrize("told", [HONEST, OTHER], ids=["same", "other"])
def test_standing_clients_with_different_models_do_not_sum(cohort: Factory, told: bytes) -> None:
    """The server even has every seed; what is left of the victim's masks is uniform. False alarm: one in a million."""
    base = cohort(9, 4096, 6)
    session = replace(base.session, round=0, key_life="session")
    drawn = {client: Noted(client) for client in session.clients}
    clients = {c: StandingClient(session, c, base.signing[c], drawn[c]) for c in session.clients}
    registrar = Registrar(session)
    requests, _ = registrar.collect("advertise", {c: client.advertise() for c, client in clients.items()})
    for client, request in requests.items():
        clients[client].introduce(request)
        drawn[client].drawn.clear()
    victim = session.clients[4]
    downlinks = {c: told if c == victim else HONEST for c in session.clients}
    sent = {c: client.mask(1, base.words[c], downlinks[c]) for c, client in clients.items()}

    total = masks.new_sum(4096, 6)
    for place, client in enumerate(session.clients):
        frame = sent[client][-64 - wire.frame_size(4096, 6) : -64]
        masks.add_packed(total, wire.open_frame(frame, length=4096, bits=6), 6)
        seed = rules.self_mask(registrar.round(1, downlinks[client]), drawn[client].drawn[0], place)
        masks.add_mask(total, seed, -1)
    left = minus(masks.reduce(total, 6), base.expected(), 6)

    _, rejected = StandingServer(registrar.round(1, HONEST)).collect("mask", sent)
    if told == HONEST:
        assert not left.any() and not rejected, "the same model sums, so the attack would have worked"
    else:
        assert stats.chisquare(np.bincount(left, minlength=64)).pvalue > 1e-6
        assert list(rejected) == [victim]


def test_nonces_are_drawn_and_never_repeat(cohort: Factory) -> None:
    round_ = cohort(7)
    round_.until("mask")
    start = messages.HEADER + 32  # one for all that a client seals: no two of its keys are alike
    nonces = [message[start : start + 12] for message in round_.received["share"].values()]
    assert len(nonces) == 7 == len(set(nonces))


def test_registered_keys_decide_the_order_of_the_ring_too(cohort: Factory) -> None:
    one = cohort(60, threshold=55, neighbours=24, graph_colluders=0).session
    keys = {**one.keys, one.clients[0]: verifying_key(key("changed"))}

    assert replace(one, keys=keys).around(3) != one.around(3)
    assert replace(one, downlink=OTHER).around(3) != one.around(3)
