from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import InputError, WireError
from sottovoce.federation.engines.mqtt.envelope import (
    NO_RUN,
    OVERHEAD,
    PHASES,
    SERVER,
    Envelope,
    Kind,
    open_message,
    topic_from,
    topic_to,
)
from sottovoce.secagg import verifying_key

KEY, OTHER = b"k" * 32, b"o" * 32
KEYS = {3: verifying_key(KEY), 4: verifying_key(OTHER)}
MOST = 1000
ASKED = Envelope(Kind.ANSWER, 3, SERVER, b"words", b"r" * 16, 7, "mask", 2)

envelopes = st.builds(
    Envelope,
    kind=st.sampled_from(Kind),
    sender=st.just(3),
    receiver=st.integers(0, SERVER),
    payload=st.binary(max_size=MOST),
    run=st.binary(min_size=16, max_size=16),
    round=st.integers(0, (1 << 64) - 1),
    phase=st.sampled_from(PHASES),
    attempt=st.integers(0, (1 << 32) - 1),
)


def opened(message: bytes, receiver: int = SERVER, most: int = MOST) -> Envelope:
    return open_message(message, receiver=receiver, key_of=KEYS.get, most=most)


@given(envelopes)
def test_a_message_comes_back_whole_and_takes_106_bytes_more(envelope: Envelope) -> None:
    message = envelope.sign(KEY)

    assert opened(message, envelope.receiver) == envelope
    assert len(message) - len(envelope.payload) == OVERHEAD == 106


@given(envelopes, st.data())
def test_no_bit_can_be_changed(envelope: Envelope, data: st.DataObject) -> None:
    message = bytearray(envelope.sign(KEY))
    message[data.draw(st.integers(0, len(message) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(WireError):
        opened(bytes(message), envelope.receiver)


@given(st.binary(max_size=400))
def test_garbage_is_refused_in_one_sentence(garbage: bytes) -> None:
    with pytest.raises(WireError) as refused:
        opened(garbage)

    assert "\n" not in str(refused.value)


@given(envelopes, st.integers(0, 1200))
def test_a_message_that_was_cut_is_refused(envelope: Envelope, cut: int) -> None:
    message = envelope.sign(KEY)

    with pytest.raises(WireError):
        opened(message[: max(0, len(message) - 1 - cut)], envelope.receiver)


def test_the_payload_is_never_longer_than_the_reader_takes() -> None:
    message = replace(ASKED, payload=bytes(MOST)).sign(KEY)

    assert len(opened(message).payload) == MOST
    with pytest.raises(WireError, match="oversized"):
        opened(message, most=MOST - 1)


def test_nobody_signs_for_another() -> None:
    with pytest.raises(WireError, match="not signed by node 3"):
        opened(ASKED.sign(OTHER))
    with pytest.raises(WireError, match="node 9, which is not in the roster"):
        opened(replace(ASKED, sender=9).sign(KEY))


def test_a_message_for_another_is_refused() -> None:
    with pytest.raises(WireError, match="for node 4, not for the server"):
        opened(replace(ASKED, receiver=4).sign(KEY))


@pytest.mark.parametrize(
    "other", [{"kind": Kind.ASK}, {"run": NO_RUN}, {"round": 8}, {"phase": "unmask"}, {"attempt": 3}]
)
def test_a_message_fits_one_place_only(other: dict[str, object]) -> None:
    place = (Kind.ANSWER, b"r" * 16, 7, "mask", 2)

    assert ASKED.fits(*place)
    assert not replace(ASKED, **other).fits(*place)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"phase": "lunch"}, {"run": b"short"}, {"round": -1}, {"sender": 1 << 32}])
def test_what_does_not_fit_the_header_is_not_signed(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(ASKED, **wrong).sign(KEY)  # type: ignore[arg-type]


def test_topics_are_of_one_node_each() -> None:
    assert topic_to("ab12", 3) == "sottovoce/ab12/to/3"
    assert topic_from("ab12", "+") == "sottovoce/ab12/from/+"
