"""Secrets are fresh, shared to the full degree, sealed once each, gone when used: what a sum that is right cannot show.

A client that masks with nothing and a server that takes nothing off give the right sum too. These tests look at the
messages instead, in both modes.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.secagg.transcripts import LIVES, Transcript, take_off, uniform

from sottovoce.core.errors import SecAggError
from sottovoce.secagg import messages, primitives, rules, shamir

Factory = Any
both = pytest.mark.parametrize("life", LIVES)
BITS, LENGTH = 4, 2048


class Spy:
    """The arguments and results of every call of a primitive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.results: list[Any] = []
        self._original = getattr(primitives, name)
        monkeypatch.setattr(primitives, name, self)

    def __call__(self, *args: Any, **keys: Any) -> Any:
        self.calls.append(args)
        self.results.append(self._original(*args, **keys))
        return self.results[-1]


def biased(cohort: Factory, clients: int = 5) -> Any:
    """Return a cohort whose words nobody could take for uniform."""
    made = cohort(clients, LENGTH, BITS)
    made.words = {client: np.full(LENGTH, 3, np.uint32) for client in made.session.clients}
    return made


# Shares.


@both
def test_one_share_fewer_than_the_threshold_opens_no_secret(cohort: Factory, life: str) -> None:
    """Nor do any fewer. In round 1 nobody drops; in round 2 one does, which with round keys opens its masking key."""
    played = Transcript(cohort(7), life)
    dropped = played.ids[-1]
    played.run(1)
    played.run(2, {"mask": [dropped]})
    checked = 0
    for round_ in (1, 2):
        for owner in played.ids:
            shares = played.told(owner, round_)
            if not shares:  # with session keys nobody has a share of a secret of a client that dropped
                continue
            secret = shamir.reconstruct(shares, 5)
            for held in range(1, 5):
                points = sorted(shares)[:held]
                assert shamir.reconstruct({point: shares[point] for point in points}, held) != secret
            checked += 1
    assert checked == (14 if life == "round" else 13)


@both
def test_every_coefficient_of_every_sharing_is_drawn_anew(cohort: Factory, life: str) -> None:
    """One that comes twice is an equation for whoever holds few shares: with all alike, two of them open a secret."""
    played = Transcript(cohort(5), life)
    played.run(1)
    played.run(2, {"mask": played.ids[-1:]})
    found = [c for round_ in (1, 2) for owner in played.ids for c in coefficients(played.told(owner, round_), 4)]

    assert len(found) == (30 if life == "round" else 27)
    assert len(set(found)) == len(found) and 0 not in found


def coefficients(shares: dict[int, int], threshold: int) -> list[int]:
    """Return the coefficients, but for the secret, of the polynomial through `threshold` shares (none: of nothing)."""
    points = sorted(shares)[:threshold]
    total = [0] * threshold
    for point in points:
        basis, below = [1], 1
        for other in points:
            if other != point:
                basis = [high - other * low for low, high in zip([*basis, 0], [0, *basis], strict=True)]
                below = below * (point - other) % shamir.PRIME
        factor = shares[point] * pow(below, -1, shamir.PRIME)
        total = [(sum_ + factor * value) % shamir.PRIME for sum_, value in zip(total, basis, strict=True)]
    return total[1:] if shares else []


# Seeds and keys.


@both
def test_every_seed_is_drawn_for_one_client_and_one_round(cohort: Factory, life: str) -> None:
    played = Transcript(cohort(5), life)
    seeds = []
    for round_ in (1, 2, 3):
        before = {client: len(entropy.draws) for client, entropy in played.entropy.items()}
        played.run(round_)
        for client in played.ids:
            seeds.append(played.opened(client, round_))
            assert seeds[-1] in played.entropy[client].draws[before[client] :]

    assert len(set(seeds)) == 15


@both
def test_no_seed_that_a_round_opens_is_a_private_key(cohort: Factory, life: str) -> None:
    played = Transcript(cohort(5), life)
    played.run(1)
    public = [reply[messages.HEADER :][at : at + 32] for reply in played.advertised.values() for at in (0, 32)]
    assert len(set(public)) == 10
    for client in played.ids:
        assert primitives.exchange_key(played.opened(client, 1)) not in public


@both
def test_nothing_that_a_client_draws_or_derives_travels(
    cohort: Factory, life: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commitment that is the seed, or a share that is not sealed, would open single vectors."""
    derive, encrypt = Spy(monkeypatch, "derive"), Spy(monkeypatch, "encrypt")
    played = Transcript(cohort(4), life)
    played.run(1)
    sent = [reply for (_, phase), replies in played.sent.items() for reply in replies.values() if phase != "unmask"]
    sent += played.advertised.values()
    shares = [plain[at : at + 33] for _, plain, *_ in encrypt.calls for at in range(0, len(plain), 33)]
    secrets = [*shares, *derive.results, *(draw for entropy in played.entropy.values() for draw in entropy.draws)]
    secrets = [secret for secret in secrets if len(secret) > 12]  # nonces travel

    assert len(shares) == (24 if life == "round" else 12)
    assert not any(secret in message for message in sent for secret in secrets)


# Seals.


@both
def test_a_key_seals_one_message_and_its_use_is_authenticated(
    cohort: Factory, life: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key for both directions of a pair is one keystream for two messages: their difference is then open."""
    spy = Spy(monkeypatch, "encrypt")
    played = Transcript(cohort(4), life)
    played.run(1)
    played.run(2)
    keys, uses = [call[0] for call in spy.calls], [call[2] for call in spy.calls]

    assert len(spy.calls) == 2 * 4 * 3
    assert len(set(keys)) == len(keys)
    assert len(set(uses)) == len(uses) and all(uses)


@both
def test_every_nonce_is_drawn_by_its_client(cohort: Factory, life: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is restored and seals again under the same key shows nothing only if its nonce is new."""
    spy = Spy(monkeypatch, "encrypt")
    played = Transcript(cohort(4), life)
    played.run(1)
    played.run(2)
    nonces = [call[3] for call in spy.calls]
    drawn = b"".join(draw for entropy in played.entropy.values() for draw in entropy.draws)

    assert len(nonces) == 24 and len(set(nonces)) == 8  # one for all that a client seals in a round
    assert len({call[0] for call in spy.calls}) == 24  # under keys that are all different
    assert all(nonce in drawn for nonce in nonces)


@both
def test_what_is_sealed_opens_for_its_own_use_only(cohort: Factory, life: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch, "encrypt")
    Transcript(cohort(3), life).run(1)
    key, plain, use, *_ = spy.calls[0]
    sealed = spy.results[0]

    assert primitives.decrypt(key, sealed, use) == plain
    for other in (spy.calls[1][2], use[:-1], b""):
        with pytest.raises(SecAggError, match="does not open"):
            primitives.decrypt(key, sealed, other)
    with pytest.raises(SecAggError, match="does not open"):
        primitives.decrypt(spy.calls[1][0], sealed, use)


# Memory.


@both
def test_keys_that_open_shares_are_gone_once_they_are_open(
    cohort: Factory, life: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch, "decrypt")
    played = Transcript(cohort(4), life).start(1)
    played.step("mask")
    if life == "session":
        played.step("consistency")
    kept = b"".join(pickle.dumps(client) for client in played.clients.values())

    assert len(spy.calls) == 4 * 3
    assert not any(call[0] in kept for call in spy.calls)


@both
def test_a_client_that_has_masked_keeps_nothing_that_it_drew(cohort: Factory, life: str) -> None:
    played = Transcript(cohort(4), life).start(1)
    played.step("mask")
    for client, machine in played.clients.items():
        kept = pickle.dumps(machine)
        assert len(played.entropy[client].secrets) == 3  # two keys and a seed
        assert not any(secret in kept for secret in played.entropy[client].secrets)


@both
def test_the_server_keeps_no_share_once_the_sum_is_open(cohort: Factory, life: str) -> None:
    played = Transcript(cohort(5), life)
    played.run(1, {"mask": played.ids[-1:]})
    told = [reply[messages.HEADER : -64] for reply in played.sent[1, "unmask"].values()]
    pieces = {body[at : at + 24] for body in told for at in range(0, len(body) - 33, 33)}  # 24 bytes say which
    kept = pickle.dumps(played.server)

    assert len(pieces) >= 16
    assert not any(piece in kept for piece in pieces)


# Masks.


def test_a_vector_that_comes_late_is_hidden_though_all_its_pair_masks_are_open(cohort: Factory) -> None:
    """Keys of a session: survivors tell the masks that they share with a client that dropped. False alarms: 1e-6."""
    played = Transcript(biased(cohort, 7), "session").start(1)
    late = played.ids[-1]
    vector = played.answer("mask", late)
    for phase in ("mask", "consistency", "unmask"):
        played.step(phase, gone=[late])
    assert np.array_equal(played.server.total(), played.cohort.expected(played.ids[:-1]))
    # The last things that a survivor tells, before its signature: the key of the pair, and a byte of doubts.
    keys = {
        reply[-97:-65]: rules.pair_sign(6, played.session.position(peer))
        for peer, reply in played.sent[1, "unmask"].items()
    }
    assert len(keys) == 6

    left = take_off(played.masked(late, 1, vector), BITS, keys)
    assert uniform(left, BITS)


@both
def test_pair_masks_are_new_in_every_round_and_follow_from_secrets_alone(cohort: Factory, life: str) -> None:
    """The same words three times: in two rounds, and again from other secrets. False alarms: 30 tests at 1e-6."""
    one, other = Transcript(biased(cohort), life), Transcript(biased(cohort), life, entropy="another")
    one.run(1), one.run(2), other.run(1)
    for client in one.ids:
        left = one.without_seed(client, 1), one.without_seed(client, 2), other.without_seed(client, 1)
        assert all(uniform(words, BITS) for words in left)
        for first, second in ((0, 1), (0, 2), (1, 2)):
            assert uniform((left[first] - left[second]) & np.uint32((1 << BITS) - 1), BITS)


def test_neighbours_are_others_in_every_session_and_every_round(cohort: Factory) -> None:
    """Else a server could let a victim stand among its helpers in each of them."""
    session = cohort(60, threshold=55, neighbours=50).session
    elsewhere = cohort(60, threshold=55, neighbours=50, session_id=b"another session!").session

    for place in range(60):
        assert len({session.around(place), session.for_round(8).around(place), elsewhere.around(place)}) == 3


# Primitives, against the numbers of their standards.


def test_agreement_is_x25519() -> None:
    """RFC 7748, section 6.1."""
    private = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    )
    public = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")

    assert primitives.agree(private, public).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_derivation_is_hkdf_sha256() -> None:
    """RFC 5869, test case 1, of which a key takes the first 32 bytes."""
    derived = primitives.derive(b"\x0b" * 22, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)))

    assert derived.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
