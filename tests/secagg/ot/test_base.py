"""The 128 base transfers."""

from __future__ import annotations

import pytest

from sottovoce.core.errors import SecAggError
from sottovoce.secagg import KeyedEntropy
from sottovoce.secagg.ot import base, group
from sottovoce.secagg.ot.base import BaseReceiver, BaseSender


def test_the_prime_is_ffdhe3072_and_safe() -> None:
    """RFC 7919, appendix A.2, prints these words; that p and (p - 1) / 2 are prime passes Fermat with two bases."""
    raw = group.pack(group.PRIME)[::-1].hex()
    assert raw.startswith("ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695")
    assert raw.endswith("66c62e37ffffffffffffffff")
    half = group.PRIME >> 1
    for number in (3, 5):
        assert pow(number, group.PRIME - 1, group.PRIME) == pow(number, half - 1, half) == 1
    assert pow(group.GENERATOR, half, group.PRIME) == 1


def test_the_receiver_gets_the_keys_of_its_choices_and_no_other_and_all_of_it_once() -> None:
    choices = [number * number // 3 & 1 for number in range(128)]
    sender = BaseSender(KeyedEntropy(bytes(32)))
    receiver = BaseReceiver(b"session", choices, KeyedEntropy(bytes([1]) * 32))
    offer, request = sender.offer(), receiver.request()

    with pytest.raises(SecAggError, match="no element"):
        sender.keys(b"session", bytes(384) + request[384:])
    with pytest.raises(SecAggError, match="take 98304 bytes"):
        sender.keys(b"session", request[:-1])
    pairs, got = sender.keys(b"session", request), receiver.keys(offer)

    for pair, choice, key in zip(pairs, choices, got, strict=True):
        assert key == pair[choice] != pair[1 - choice]
    assert len({key for pair in pairs for key in pair}) == 256
    with pytest.raises(SecAggError, match="made once"):
        sender.keys(b"session", request)
    with pytest.raises(SecAggError, match="made once"):
        receiver.keys(offer)


@pytest.mark.parametrize("value", [0, 1, group.PRIME - 1, group.PRIME])
def test_numbers_that_are_no_elements_are_refused(value: int) -> None:
    with pytest.raises(SecAggError, match="no element"):
        group.unpack(value.to_bytes(group.ELEMENT, "little"))


def test_half_of_the_numbers_are_squares_and_so_is_everything_that_is_sent() -> None:
    half = group.PRIME >> 1
    for index in range(2):
        assert pow(group.hash_to_square(bytes([index])), half, group.PRIME) == 1


def test_a_request_that_is_replayed_in_another_session_gives_the_receiver_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "TRANSFERS", 2)
    sender, receiver = BaseSender(KeyedEntropy(bytes(32))), BaseReceiver(b"one", [0, 1], KeyedEntropy(b"r" * 32))

    offer = sender.offer()

    pairs = sender.keys(b"another", receiver.request())

    assert not {key for pair in pairs for key in pair}.intersection(receiver.keys(offer))


def test_a_receiver_that_wants_both_keys_gets_one_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows a logarithm for both places, by masks of elements that it then does not send."""
    monkeypatch.setattr(base, "TRANSFERS", 1)
    sender, secrets, session = BaseSender(KeyedEntropy(bytes(32))), (5, 7), b"session"
    known = [group.power(group.GENERATOR, secret) for secret in secrets]
    zero, one = (
        element * pow(base._mask(session, 0, place, group.GENERATOR), -1, group.PRIME) % group.PRIME
        for place, element in enumerate(known)
    )
    offer = sender.offer()
    context = base._context(session, 0, offer, zero, one)
    wanted = {base._key(group.power(group.unpack(offer), secret), context) for secret in secrets}

    ((first, second),) = sender.keys(session, group.pack(zero) + group.pack(one))

    assert len(wanted.intersection((first, second))) < 2
