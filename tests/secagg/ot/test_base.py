"""The 128 base transfers."""

from __future__ import annotations

import pytest

from sottovoce.core.errors import SecAggError
from sottovoce.secagg import KeyedEntropy
from sottovoce.secagg.ot import base, group
from sottovoce.secagg.ot.base import BaseReceiver, BaseSender

ORDER = 2**252 + 27742317777372353535851937790883648493  # RFC 8032, section 5.1
BASE = bytes.fromhex("58" + "66" * 31)
SMALL = [  # all points whose order divides the cofactor 8, and forms of them that are not canonical
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def scalar(number: int) -> bytes:
    return (number % ORDER).to_bytes(32, "little")


def test_the_group_is_that_of_ed25519_and_its_map_gives_the_same_elements_everywhere() -> None:
    """Two versions of libsodium that map differently would make every comparison of counts fail."""
    assert group.public(scalar(1)) == BASE
    assert (
        group.hash_to_element(b"a", b"bc").hex() == "5c0f7c58582fa3868c57bec537a90887caccbf2a5be9836f94e88da7a3716e85"
    )
    assert group.hash_to_element(b"ab", b"c") != group.hash_to_element(b"a", b"bc")


@pytest.mark.parametrize("number", range(20))
def test_what_is_hashed_is_in_the_subgroup_of_prime_order(number: int) -> None:
    element = group.hash_to_element(bytes([number]))

    group.check(element)
    assert group.add(group.times(scalar(-1), element), element) == bytes.fromhex(SMALL[0])


def test_the_receiver_gets_the_keys_of_its_choices_and_no_other_and_all_of_it_once() -> None:
    choices = [number * number // 3 & 1 for number in range(128)]
    sender = BaseSender(KeyedEntropy(bytes(32)))
    receiver = BaseReceiver(b"session", choices, KeyedEntropy(bytes([1]) * 32))
    offer, request = sender.offer(), receiver.request()

    with pytest.raises(SecAggError, match="no element"):
        sender.keys(b"session", bytes(32) + request[32:])
    with pytest.raises(SecAggError, match="take 8192 bytes"):
        sender.keys(b"session", request[:-1])
    pairs, got = sender.keys(b"session", request), receiver.keys(offer)

    for pair, choice, key in zip(pairs, choices, got, strict=True):
        assert key == pair[choice] != pair[1 - choice]
    assert len({key for pair in pairs for key in pair}) == 256
    with pytest.raises(SecAggError, match="made once"):
        sender.keys(b"session", request)
    with pytest.raises(SecAggError, match="made once"):
        receiver.keys(offer)


@pytest.mark.parametrize("point", SMALL)
def test_points_of_small_order_are_no_elements_and_neither_are_their_sums_with_elements(point: str) -> None:
    with pytest.raises(SecAggError, match="no element"):
        group.check(bytes.fromhex(point))
    if point in SMALL[1:6]:
        with pytest.raises(SecAggError, match="no element"):
            group.times(scalar(7), group.add(BASE, bytes.fromhex(point)))


def test_bytes_of_another_length_or_off_the_curve_are_no_elements() -> None:
    for wrong in (BASE[:-1], BASE + b"\0", b"\x02" + bytes(31)):
        with pytest.raises(SecAggError, match="no element"):
            group.check(wrong)


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
    sender, secrets, session = BaseSender(KeyedEntropy(bytes(32))), (scalar(5), scalar(7)), b"session"
    zero, one = (
        group.subtract(group.public(secret), base._mask(session, 0, place, BASE))
        for place, secret in enumerate(secrets)
    )
    offer = sender.offer()
    context = base._context(session, 0, offer, zero, one)
    wanted = {base._key(group.times(secret, offer), context) for secret in secrets}

    ((first, second),) = sender.keys(session, zero + one)

    assert len(wanted.intersection((first, second))) < 2
