"""Long messages in parts: in order, from where they broke off, and no more than announced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import WireError
from sottovoce.federation.engines.mqtt.envelope import SERVER, Envelope, Kind
from sottovoce.federation.engines.mqtt.parts import Assembly, digest, parts


def ask(payload: bytes) -> Envelope:
    return Envelope(Kind.ASK, SERVER, 3, payload, bytes(16), 2, "advertise", 9)


@given(st.binary(max_size=500), st.integers(1, 600), st.integers(0, 600))
def test_parts_make_up_the_message_from_wherever_it_broke_off(payload: bytes, size: int, cut: int) -> None:
    whole, assembly = ask(payload), Assembly(1000)
    sent = list(parts(whole, size))

    for part in sent[:cut]:
        assert part.kind == Kind.PART and part.phase == "advertise"
        came = assembly.add(part, Kind.ASK)
    has, held = assembly.held
    for part in parts(whole, size, held if has == digest(payload).hex() else 0):
        came = assembly.add(part, Kind.ASK)

    assert came == whole


def test_a_part_that_comes_twice_changes_nothing_and_the_last_one_asks_again() -> None:
    whole, assembly = ask(b"abcdefgh"), Assembly(100)
    first, second = parts(whole, 4)

    assert assembly.add(first, Kind.ASK) is None and assembly.add(first, Kind.ASK) is None
    assert assembly.add(second, Kind.ASK) == whole == assembly.add(second, Kind.ASK)
    assert [assembly.add(again, Kind.ASK) for again in parts(whole, 4, 8)] == [whole]


def test_parts_that_do_not_fit_are_refused() -> None:
    whole = ask(b"abcdefgh")
    first, second = parts(whole, 4)

    with pytest.raises(WireError, match="begins at byte 4, and 0 have come"):
        Assembly(100).add(second, Kind.ASK)
    with pytest.raises(WireError, match="at most 7 are taken"):
        Assembly(7).add(first, Kind.ASK)
    with pytest.raises(WireError, match="its header alone takes 32"):
        Assembly(100).add(ask(b"short"), Kind.ASK)


def test_parts_of_another_message_are_not_mixed_in() -> None:
    assembly, other = Assembly(100), ask(b"ABCDEFGH")
    first, _ = parts(ask(b"abcdefgh"), 4)
    forged = list(parts(other, 4))[1]

    assembly.add(first, Kind.ASK)
    with pytest.raises(WireError, match="0 have come"):
        assembly.add(forged, Kind.ASK)
    assembly.add(first, Kind.ASK)
    tail = forged.payload[32:]
    mixed = Envelope(Kind.PART, SERVER, 3, first.payload[:24] + (4).to_bytes(8, "little") + tail)
    with pytest.raises(WireError, match="do not make up"):
        assembly.add(mixed, Kind.ASK)
    assert assembly.held == ("", 0)


def test_a_long_message_has_no_more_parts_than_a_broker_keeps() -> None:
    assert len(list(parts(ask(bytes(10_000)), 1))) == 200
