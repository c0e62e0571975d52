"""B6, ballots: every party gets its whole view of a round, and tries to make every secret of the others out of it.

A view is all that a party has drawn, has kept, was sent and knows of the terms. From each of its parts, and from pairs
of short ones, come candidates: the part itself, cut or filled up, its hashes, keys derived under every context of the
protocol, sums by xor. A secret is found if a candidate is it, or does what it does: gives the pad, the public key, the
element. Secrets must not come from a small space either: of 2,000 that are drawn no two are the same. With 16 bits two
would be but for one case in 10^13; with 128 bits two are the same in one case of 10^32.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl import bindings as sodium

from sottovoce.core.cipher import derive
from sottovoce.core.errors import SecAggError
from sottovoce.federation.aggregation.ballots import count, process
from sottovoce.secagg import KeyedEntropy
from sottovoce.secagg.ballots import helper as helper_module
from sottovoce.secagg.ballots import leader as leader_module
from sottovoce.secagg.ballots import message as messages
from sottovoce.secagg.ballots.leader import second_session
from sottovoce.secagg.ot import group
from sottovoce.secagg.ot.base import BaseSender
from sottovoce.secagg.ot.extension import ExtensionReceiver, ExtensionSender
from sottovoce.secagg.primitives import exchange_key
from tests.secagg.ballots.stage import DOWNLINK, FakeReceiver, Stage, key, without_base_transfers

LENGTH = 256
DRAWN = 2000
Found = Callable[[bytes], bool]


@dataclass
class Tap:
    """A source of randomness that writes down what it gave."""

    name: str
    drawn: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._inner = KeyedEntropy(key(self.name))

    def __call__(self, size: int) -> bytes:
        self.drawn.append(self._inner(size))
        return self.drawn[-1]


class Played:
    """A round with real base transfers in which everything that was drawn and sent is known."""

    def __init__(self) -> None:
        self.stage = stage = Stage(LENGTH, clients=3)
        self.taps = {name: Tap(name) for name in ("leader", "helper", "client 0", "client 1", "client 2")}
        stage.leader._entropy, stage.helper._entropy = self.taps["leader"], self.taps["helper"]
        self.votes = {client: stage.votes(client + 50) for client in range(3)}
        self.messages = {
            client: stage.message(1, client, votes, entropy=self.taps[f"client {client}"])
            for client, votes in self.votes.items()
        }
        self.base: list[list[tuple[bytes, bytes]]] = []
        keys = BaseSender.keys

        def noted(sender: BaseSender, session: bytes, request: bytes) -> list[tuple[bytes, bytes]]:
            self.base.append(keys(sender, session, request))
            return self.base[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BaseSender, "keys", noted)
            stage.count(1, self.messages)
        self.context = stage.terms.context(1, 0, DOWNLINK)
        self.session = stage.leader._session

    def parts(self, client: int) -> list[bytes]:
        """The fields of a client's message."""
        payload, size = self.messages[client], LENGTH // 8
        places = (0, size, size + 16, size + 48, size + 80, size + 144)
        return [payload[first:last] for first, last in pairwise(places)]

    def view(self, party: str) -> tuple[list[bytes], list[bytes]]:
        """All short parts of what a party has, and those of them that come in pairs with others."""
        requests = [payload for _, payload, _ in self.stage.wire]
        replies = [reply for _, _, reply in self.stage.wire]
        mail = [part for client in range(3) for part in self.parts(client)]
        drawn = self.taps[party].drawn if party in self.taps else []
        wires = {"leader": replies, "helper": requests}.get(party, [])
        own = {"leader": [key("leader")], "helper": [key("helper"), key("exchange")]}.get(party, [])
        near = mail if party in ("leader", "broker") else []
        if party == "helper":
            near = [part for client in range(3) for part in self.parts(client)[2:]]
            near += [messages.commit(self.messages[client][:32], self.parts(client)[1]) for client in range(3)]
        if party.startswith("client"):
            near = self.parts(int(party[-1]))
        known = [self.stage.terms.session, self.stage.terms.digest(), DOWNLINK, self.context, self.session]
        cut = [blob[at : at + size] for blob in wires for size in (16, 32) for at in range(0, min(len(blob), 9000), 16)]
        long = [draw[at : at + 32] for draw in drawn for at in range(0, len(draw), 16)]
        return [*near, *own, *drawn, *long, *known, *cut], [*near, *own, *drawn[:12], *known]


def made(part: bytes, played: Played) -> Iterator[bytes]:
    """What a party can make of one part."""
    yield part
    yield part.ljust(32, b"\0")
    yield part * (32 // len(part)) if len(part) and not 32 % len(part) else part
    for hashed in (hashlib.sha256, hashlib.sha512, hashlib.blake2b, hashlib.sha3_256, hashlib.md5):
        yield hashed(part).digest()


def keyed(part: bytes, played: Played) -> Iterator[bytes]:
    """What a party can derive from a part under the contexts that it knows."""
    ephemeral, exchange = played.parts(0)[2], played.stage.terms.helper_exchange
    for salt in (played.stage.terms.session, b"sottovoce base ot", b""):
        for info in (b"pad" + played.context, b"seal" + played.context + ephemeral + exchange, played.context, b""):
            yield derive(part, salt=salt, info=info)


def candidates(played: Played, party: str) -> Iterator[bytes]:
    parts, near = played.view(party)
    for part in set(parts):
        yield from made(part, played)
    for part in set(near):
        if part:
            yield from keyed(part, played)
    for first, second in permutations(set(near), 2):
        yield hashlib.sha256(first + second).digest()
        if len(first) >= 16 and len(second) >= 16:
            yield bytes(a ^ b for a, b in zip(first, second, strict=False))


def same(secret: bytes) -> Found:
    """Found by twelve bytes at either end: by chance in one case of 2^96 for each candidate."""
    return lambda found: found[:12] == secret[:12] or found[-12:] == secret[-12:]


def secrets(played: Played) -> dict[str, tuple[set[str], Found]]:
    """By name: who may know it, and what finds it."""
    stage, told = played.stage, {}
    ballot = stage.ballot(played.votes[0])
    envelope = messages.read(stage.terms, 0, played.messages[0])[1]
    seed = messages.open_seed(stage.terms, envelope, played.context, key("exchange"))
    pad = messages.pad_of(stage.terms, played.context, seed).take(32).tobytes()
    told["seed of the pad"] = ({"helper", "client 0"}, seed)
    told["blind"] = ({"leader", "broker", "client 0"}, played.parts(0)[1])
    told["pad"] = ({"helper", "client 0"}, pad)
    told["masked ballot"] = ({"leader", "broker", "client 0"}, played.messages[0][:32])
    told["ballot"] = ({"client 0"}, ballot)
    for number, (mine, other) in enumerate((("leader", "helper"), ("helper", "leader"))):
        secret = stage_transfers(stage, other).sender._secret
        told[f"string of the {other}"] = ({other}, np.packbits(secret, bitorder="little").tobytes())
        told[f"string of the {other}, as bytes"] = ({other}, bytes(secret))
        for index in (0, 63, 127):
            both = played.base[number][index]
            told[f"key {index} that the {other} did not choose"] = ({mine}, both[1 - secret[index]])
            told[f"key {index} that the {other} chose"] = ({mine, other}, both[secret[index]])
        for place, draw in enumerate(played.taps[mine].drawn):
            if len(draw) >= 48:
                told[f"draw {place} of the {mine}"] = ({mine}, draw)
    known = {name: (who, same(secret)) for name, (who, secret) in told.items()}
    return {**known, "ephemeral key": ({"client 0"}, lambda found: False)}  # found by what it does: `works`


def stage_transfers(stage: Stage, side: str) -> Any:
    return stage.leader._transfers if side == "leader" else stage.helper._transfers


def works(played: Played, found: bytes) -> Iterator[str]:
    """What a candidate of 16 or 32 bytes opens, whatever it was drawn as."""
    stage, parts = played.stage, played.parts(0)
    if len(found) >= 16:
        pad = messages.pad_of(stage.terms, played.context, found[:16]).take(32)
        if (np.frombuffer(played.messages[0][:32], np.uint8) ^ pad).tobytes() == stage.ballot(played.votes[0]):
            yield "seed of the pad"
    if len(found) >= 32 and exchange_key(found[:32]) == parts[2]:
        yield "ephemeral key"


def caught(played: Played, party: str) -> set[str]:
    """Return the secrets of others that a party finds in its view."""
    known = secrets(played)
    hidden = {name: found for name, (who, found) in known.items() if party not in who}
    seen: set[str] = set()
    for candidate in set(candidates(played, party)):
        seen |= {name for name, found in hidden.items() if found(candidate)}
        seen |= {name for name in works(played, candidate) if name in hidden}
    return seen


PARTIES = ["leader", "helper", "broker", "client 1", "outsider"]


@pytest.fixture(scope="module")
def played() -> Played:
    return Played()


@pytest.mark.parametrize("party", PARTIES)
def test_no_party_makes_a_secret_of_another_out_of_its_whole_view(party: str, played: Played) -> None:
    assert caught(played, party) == set()


def test_a_party_finds_its_own_secrets_so_the_search_works(played: Played) -> None:
    found = {party: set[str]() for party in ("leader", "helper", "client 0")}
    for party in found:
        parts = set(candidates(played, party))
        for name, (who, finds) in secrets(played).items():
            if party in who and any(map(finds, parts)):
                found[party].add(name)
        found[party] |= {name for part in parts for name in works(played, part)}

    assert {"seed of the pad", "ephemeral key", "blind", "masked ballot"} <= found["client 0"]
    assert {"blind", "masked ballot", "draw 0 of the leader"} <= found["leader"]
    assert any(name.startswith("draw") for name in found["helper"])
    assert "seed of the pad" not in found["leader"] and "ephemeral key" not in found["helper"]


@pytest.mark.parametrize("planted", ["blind is the seed", "key is a hash of the blind", "seed is a hash of the blind"])
def test_a_secret_that_follows_from_another_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def poor(self: Tap, size: int) -> bytes:
        drawn = self._inner(size)
        if self.name == "client 0" and planted == "blind is the seed" and len(self.drawn) == 1:
            drawn = self.drawn[0]
        if self.name == "client 0" and planted == "key is a hash of the blind" and len(self.drawn) == 2:
            drawn = hashlib.sha256(self.drawn[1]).digest()
        if self.name == "client 0" and planted == "seed is a hash of the blind":
            self.given = getattr(self, "given", b"b" * 16)
            drawn = {0: hashlib.sha256(self.given).digest()[:16], 1: self.given}.get(len(self.drawn), drawn)
        self.drawn.append(drawn)
        return drawn

    monkeypatch.setattr(Tap, "__call__", poor)
    assert {"leader", "broker"} <= {party for party in ("leader", "broker") if caught(Played(), party)}


# --- spaces that can be searched


def distinct(values: list[bytes]) -> bool:
    return len(set(values)) == len(values) == DRAWN


def test_seeds_blinds_and_keys_of_clients_do_not_come_from_a_small_space() -> None:
    stage = Stage(LENGTH, clients=1)
    blank = np.full(LENGTH, -1)
    cast = [stage.message(1, 0, blank, entropy=os.urandom) for _ in range(DRAWN)]

    assert distinct([payload[:16] for payload in cast])  # the pad
    assert distinct([payload[32:48] for payload in cast])  # the blind
    assert distinct([payload[48:80] for payload in cast])  # the ephemeral key


def test_scalars_of_base_transfers_and_comparisons_do_not_come_from_a_small_space() -> None:
    scalars = [group.scalar(os.urandom) for _ in range(DRAWN)]

    assert distinct([scalar[:15] for scalar in scalars])
    assert distinct([scalar[16:31] for scalar in scalars])
    for place in (0, 15, 30):  # of 256 values of a byte 0.1 are missing on average, 16 never
        assert len({scalar[place] for scalar in scalars}) > 240


def test_no_exponent_of_a_session_is_one_of_the_first_65536(played: Played) -> None:
    wanted = {played.stage.wire[0][1][48:80], played.stage.wire[0][2][16:48]}
    one = (1).to_bytes(32, "little")
    base = sodium.crypto_scalarmult_ed25519_base_noclamp(one)
    element = base
    for _ in range(1 << 16):
        assert element not in wanted
        element = sodium.crypto_core_ed25519_add(element, base)


def test_the_strings_of_both_aggregators_do_not_come_from_a_small_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bit is one in 1000 of 2000 on average; less than 850 or more than 1150 have 1e-11 a bit."""
    without_base_transfers(monkeypatch)
    drawn: dict[Any, list[bytes]] = {}
    for module in (helper_module, leader_module):
        strings = drawn.setdefault(module, [])

        def noted(session: bytes, choices: list[int], entropy: Any, strings: list[bytes] = strings) -> FakeReceiver:
            strings.append(bytes(choices))
            return FakeReceiver(session, choices, entropy)

        monkeypatch.setattr(module, "BaseReceiver", noted)
        for name in ("ExtensionSender", "ExtensionReceiver"):  # which would take most of the time
            monkeypatch.setattr(module, name, lambda *_: None)
        monkeypatch.setattr(module, "sign", lambda *_: bytes(64))
        monkeypatch.setattr(module, "verify", lambda *_: True)
    stage = Stage(LENGTH, clients=1)
    stage.leader._entropy = stage.helper._entropy = os.urandom
    for _ in range(DRAWN):
        stage.leader._begin_session()
        stage.wire.clear()

    for strings in drawn.values():
        for part in (slice(0, 128), slice(0, 64), slice(64, 128), slice(32, 96)):
            assert distinct([string[part] for string in strings])
        ones = np.frombuffer(b"".join(strings), np.uint8).reshape(DRAWN, 128).sum(axis=0)
        assert ones.min() > 850 and ones.max() < 1150


def test_every_process_takes_its_secrets_from_the_operating_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entropy of leader and helper, wherever they are made: 2,000 draws of 16 bytes, no two the same."""
    from sottovoce.deployment.helper import service as desk

    taken: dict[str, Any] = {}

    class Seen(Exception):  # noqa: N818
        pass

    def seen(name: str) -> Callable[..., Any]:
        def make(*given: Any, **named: Any) -> Any:
            taken[name] = named.get(
                "entropy", next((each for each in given if each is os.urandom or _draws(each)), None)
            )
            raise Seen

        return make

    class Anything:
        def __getattr__(self, name: str) -> Any:
            return Anything()

        def __call__(self, *_: Any, **__: Any) -> Any:
            return Anything()

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(process, "Helper", seen("process"))
    monkeypatch.setattr(process, "HelperAccount", Anything())
    monkeypatch.setattr(process.pickle, "loads", lambda _: Anything())
    monkeypatch.setattr(desk, "Helper", seen("desk"))
    monkeypatch.setattr(count, "HelperAccount", Anything())
    monkeypatch.setattr(count, "HelperProcess", Anything())
    monkeypatch.setattr(count, "helper_signing", Anything())
    monkeypatch.setattr(count, "helper_private", Anything())
    monkeypatch.setattr(count, "leader_signing", Anything())
    monkeypatch.setattr(count, "replace", Anything())
    acts: dict[str, Callable[[], Any]] = {
        "process": lambda: process.serve(Anything()),  # type: ignore[arg-type]
        "desk": lambda: desk.Desk._made(Anything(), Anything()),  # type: ignore[arg-type]
        "real": lambda: count.RealCount.counting(Anything(), tmp_path).__enter__(),  # type: ignore[arg-type]
        "remote": lambda: count.RemoteCount.counting(Anything(), tmp_path).__enter__(),  # type: ignore[arg-type]
    }
    for name, act in acts.items():
        monkeypatch.setattr(count, "Leader", seen(name))
        with pytest.raises(Seen):
            act()

    assert sorted(taken) == ["desk", "process", "real", "remote"]
    for name, entropy in taken.items():
        assert entropy is not None, name
        assert distinct([entropy(16) for _ in range(DRAWN)]), name


def _draws(source: Any) -> bool:
    try:
        return isinstance(source(16), bytes)
    except Exception:
        return False


# --- the check of the transfers, and transfers that end with their connection


def pair(string: list[int]) -> tuple[ExtensionSender, ExtensionReceiver]:
    keys = [(key(f"zero {i}"), key(f"one {i}")) for i in range(128)]
    sender = ExtensionSender(string, [both[bit] for both, bit in zip(keys, string, strict=True)], os.urandom)
    return sender, ExtensionReceiver(keys, os.urandom)


@pytest.mark.parametrize("row", [0, 127, 128, 327])
def test_a_receiver_that_cheats_in_any_one_column_is_caught(row: int) -> None:
    for column in range(128):
        sender, receiver = pair([1] * 128)
        sent = bytearray(receiver.choose(np.zeros(25, np.uint8), 200))
        size = len(sent) // 128
        sent[column * size + row // 8] ^= 1 << row % 8
        check = receiver.check(sender.challenge(bytes(sent), 200))
        with pytest.raises(SecAggError, match="not the same in all columns"):
            sender.answer(check, np.zeros(200, np.uint8))


def test_a_new_connection_begins_with_new_transfers_of_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    without_base_transfers(monkeypatch)
    stage = Stage(LENGTH, clients=2)
    stage.leader._begin_session()
    old, session = stage.leader._transfers, stage.leader._session
    assert old is not None

    class Link:
        def ready(self) -> bool:
            return True

    remote = count.RemoteCount.__new__(count.RemoteCount)
    remote.link, remote._leader, remote.covers = Link(), stage.leader, False  # type: ignore[assignment]
    monkeypatch.setattr(count.RealCount, "collect", lambda *_: iter(()))
    with pytest.raises((StopIteration, AttributeError)):
        next(remote.collect(1, [], b"", None, lambda: None))  # type: ignore[arg-type]

    assert stage.leader._transfers is None
    stage.leader._begin_session()
    new = stage.leader._transfers
    assert new is not None and new.sender is not old.sender and new.receiver is not old.receiver
    assert stage.leader._session != session and second_session(session) != session


def test_the_transfers_of_the_two_directions_have_nothing_in_common(played: Played) -> None:
    first, second = ({each for both in keys for each in both} for keys in played.base)
    assert len(first) == len(second) == 256 and not first & second
    assert not np.array_equal(
        stage_transfers(played.stage, "leader").sender._secret, stage_transfers(played.stage, "helper").sender._secret
    )
