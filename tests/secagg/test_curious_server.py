"""Play a server that keeps everything, and clients that help it: below the threshold no vector can be had.

The attack knows the protocol. From the transcript and the helpers' memories it opens whatever it can: the seeds that
the round itself opened, the masks that a helper shares with the victim, and any secret of which it has enough shares.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray
from scipy import stats

from sottovoce.core import wire
from sottovoce.core.errors import SecAggError
from sottovoce.secagg import PHASES, masks, messages, rules, shamir
from sottovoce.secagg.primitives import agree

Factory = Any
Words = NDArray[np.uint32]
FALSE_ALARM = 1e-6
BITS, LENGTH = 6, 4096


class Eavesdropper:
    """Hold a round's transcript and what the helpers remember right after the mask phase's request was opened."""

    def __init__(self, round_: Any, helpers: Collection[int]) -> None:
        self.session = round_.session
        self.received: dict[str, dict[int, bytes]] = {}
        self.helpers = helpers
        self.pairs: dict[int, dict[int, bytes]] = {}
        self.shares: dict[int, dict[int, tuple[bytes, bytes]]] = {}
        for phase in PHASES:
            if phase == "mask":
                self.pairs = {c: copy.deepcopy(round_.clients[c]._secrets.pairs) for c in helpers}
            if phase == "consistency":
                self.shares = {c: copy.deepcopy(round_.clients[c]._secrets.shares) for c in helpers}
            round_.step(phase)
        self.received = round_.received

    def residue(self, victim: int) -> Words:
        """Return the victim's masked words with every mask off that the server and its helpers can take off."""
        session, place = self.session, self.session.position(victim)
        frame = self.received["mask"][victim][messages.HEADER : -64]
        total = masks.new_sum(
            session.length,
            session.bits,
            wire.unpack(frame, length=session.length, bits=session.bits),  # type: ignore[arg-type]
        )
        masks.add_mask(total, rules.self_mask(session, self._opened_seed(place), place), -1)
        masking_key = self._pooled_key(place)
        for peer in session.around(place):
            key = self._pair_key(place, peer, masking_key)
            if key is not None:
                masks.add_mask(total, key, -rules.pair_sign(place, peer))
        return masks.reduce(total, session.bits)

    def _opened_seed(self, place: int) -> bytes:
        """Open the victim's seed as the server legitimately does in the last phase."""
        shares = {}
        for holder, message in self.received["unmask"].items():
            body = message[messages.HEADER : -64]
            shares[self.session.position(holder) + 1] = shamir.read_share(body[33 * place : 33 * place + 33])
        return shamir.reconstruct(shares, self.session.threshold).to_bytes(32, "little")

    def _pooled_key(self, place: int) -> bytes | None:
        pool = {self.session.position(c) + 1: shamir.read_share(held[place][1]) for c, held in self.shares.items()}
        try:
            return shamir.reconstruct(pool, self.session.threshold).to_bytes(32, "little")
        except SecAggError:
            return None

    def _pair_key(self, place: int, peer: int, masking_key: bytes | None) -> bytes | None:
        if (helper := self.session.clients[peer]) in self.helpers:
            return self.pairs[helper][place]
        if masking_key is None:
            return None
        public = self.received["advertise"][helper][messages.HEADER + 32 : messages.HEADER + 64]
        secret = agree(X25519PrivateKey.from_private_bytes(masking_key), public)
        return rules.pair_mask(self.session, secret, place, peer)


def uniform(words: Words, bits: int) -> bool:
    """Pass uniform words with probability 1 - FALSE_ALARM (chi-square over all 2^b values)."""
    return float(stats.chisquare(np.bincount(words, minlength=1 << bits)).pvalue) > FALSE_ALARM


def biased_cohort(cohort: Factory) -> Any:
    """Make vectors that no one could take for uniform: small counts, as real updates are."""
    round_ = cohort(7, LENGTH, BITS)
    rng = np.random.default_rng(1)
    round_.words = {c: rng.binomial(8, 0.5, LENGTH).astype(np.uint32) for c in round_.session.clients}
    return round_


def learns_nothing(round_: Any, helpers: Collection[int]) -> bool:
    """Say whether all that is left of every victim's vector, after the attack, is uniform."""
    spy = Eavesdropper(round_, helpers)
    victims = [client for client in round_.session.clients if client not in helpers]
    residues = {victim: spy.residue(victim) for victim in victims}
    assert np.array_equal(round_.server.total(), round_.expected())
    return all(
        uniform(residue, BITS)
        and uniform((residue - round_.words[victim]) & np.uint32((1 << BITS) - 1), BITS)
        and not np.array_equal(residue, round_.words[victim])
        for victim, residue in residues.items()
    )


@pytest.mark.parametrize("helpers", [0, 1, 3, 4])
def test_below_the_threshold_the_server_learns_no_vector(cohort: Factory, helpers: int) -> None:
    """Seven clients, threshold five: with four helpers three honest vectors stay hidden among themselves."""
    round_ = biased_cohort(cohort)

    assert learns_nothing(round_, round_.session.clients[:helpers])


def test_with_the_threshold_of_helpers_the_attack_works_so_the_test_can_fail(cohort: Factory) -> None:
    round_ = biased_cohort(cohort)
    spy = Eavesdropper(round_, round_.session.clients[:5])

    for victim in round_.session.clients[5:]:
        assert np.array_equal(spy.residue(victim), round_.words[victim])


def test_a_build_that_leaves_the_masks_out_is_caught(cohort: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "add_mask", lambda total, key, sign: None)
    round_ = biased_cohort(cohort)

    assert not learns_nothing(round_, ())


def test_a_build_that_leaves_the_pair_masks_out_is_caught(cohort: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masked words alone would still look uniform: the seed hides them until the round opens it."""
    monkeypatch.setattr("sottovoce.secagg.client.pair_sign", lambda me, peer: 0)
    original = masks.add_mask
    monkeypatch.setattr(masks, "add_mask", lambda total, key, sign: original(total, key, sign) if sign else None)
    round_ = biased_cohort(cohort)

    assert not learns_nothing(round_, ())


def masked_words(round_: Any) -> list[Words]:
    round_.until("consistency")
    frames = [message[messages.HEADER : -64] for message in round_.received["mask"].values()]
    return [wire.unpack(frame, length=LENGTH, bits=BITS) for frame in frames]  # type: ignore[misc]


def test_masked_words_are_uniform_and_without_masks_they_are_not(
    cohort: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarms: 7 tests at one in a million."""
    assert all(uniform(words, BITS) for words in masked_words(biased_cohort(cohort)))

    monkeypatch.setattr(masks, "add_mask", lambda total, key, sign: None)
    assert not any(uniform(words, BITS) for words in masked_words(biased_cohort(cohort)))


def test_the_masked_words_of_a_dropped_client_stay_hidden(cohort: Factory) -> None:
    """Its vector comes late: the server has it, and the masking key, but no one ever told a share of its seed."""
    round_ = biased_cohort(cohort)
    late = round_.session.clients[6]
    round_.until("mask")
    vector = round_.answer("mask", late, round_.requests[late])
    round_.step("mask", gone=[late])
    round_.step("consistency")
    told = {client: round_.answer("unmask", client, request) for client, request in round_.requests.items()}

    shares = {
        round_.session.position(c) + 1: shamir.read_share(m[messages.HEADER + 33 * 6 : messages.HEADER + 33 * 7])
        for c, m in told.items()
    }
    private = X25519PrivateKey.from_private_bytes(shamir.reconstruct(shares, 5).to_bytes(32, "little"))
    words = wire.unpack(vector[messages.HEADER : -64], length=LENGTH, bits=BITS)
    total = masks.new_sum(LENGTH, BITS, words)  # type: ignore[arg-type]
    for peer, client in enumerate(round_.session.clients[:6]):
        public = round_.received["advertise"][client][messages.HEADER + 32 : messages.HEADER + 64]
        masks.add_mask(
            total, rules.pair_mask(round_.session, agree(private, public), 6, peer), -rules.pair_sign(6, peer)
        )

    left = masks.reduce(total, BITS)
    assert uniform(left, BITS) and not np.array_equal(left, round_.words[late])
