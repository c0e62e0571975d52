"""A session that could not keep its promise is not built."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError, SecAggError, WireError
from sottovoce.secagg import RoundClient, Session, check_modulus, check_threshold, default_threshold

Factory = Any


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"threshold": 3}, "threshold must be above half of the 6 clients, got 3"),
        ({"colluders": 5}, r"colluders must be at least 0 and below 2 \* threshold - clients = 4, .*; got 5 with a"),
        ({"bits": 0}, r"bits must be in \[1, 32\], got 0"),
        ({"bits": 33}, r"bits must be in \[1, 32\], got 33"),
        ({"largest_sum": 1 << 13}, "bits must be at least 14 for sums up to 8192, or they wrap; got 13"),
        ({"length": 0}, "length must be in"),
        ({"session_id": b"short"}, "session_id must have 16 bytes, got 5"),
        ({"config_digest": b"short"}, "config_digest must have 32 bytes, got 5"),
        ({"keys": {}}, "client 5 has no registered key"),
        ({"neighbours": 2}, "neighbours must be at least 5 for 6 clients, threshold 5 and 2 colluders, got 2"),
        ({"downlink": b"short"}, "downlink must be a hash of 32 bytes or none, got 5"),
        ({"colluders": 2, "graph_colluders": 1}, r"graph_colluders must be in \[2, 6\], got 1"),
        ({"neighbours": 3}, "neighbours must be even"),
    ],
)
def test_bad_terms_are_refused_in_one_sentence(cohort: Factory, terms: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        cohort(6, **terms)


@pytest.mark.parametrize(
    ("clients", "problem"),
    [((5, 8, 8, 11), "clients must be distinct"), ((-1, 5, 8), "integers of 64"), ((5, 1 << 64), "integers of 64")],
)
def test_bad_client_numbers_are_refused(cohort: Factory, clients: tuple[int, ...], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Session(**{**vars_of(cohort(6).session), "clients": clients})


def test_a_cohort_below_the_threshold_ends_the_round_before_it_starts(cohort: Factory) -> None:
    with pytest.raises(SecAggError, match="round 7: 6 clients from the start, but at least 7 are needed; nothing was"):
        cohort(6, threshold=7)
    with pytest.raises(SecAggError, match="1 clients from the start, but at least 2 are needed"):
        cohort(1)


@pytest.mark.parametrize(("threshold", "clients"), [(7, 6), (3, 6), (1, 2)])
def test_a_configured_threshold_is_checked_against_the_cohort(threshold: int, clients: int) -> None:
    with pytest.raises(InputError, match="threshold must be"):
        check_threshold(threshold, clients)


def test_the_default_threshold_is_two_thirds_and_one() -> None:
    assert [default_threshold(n) for n in (2, 3, 4, 100, 200)] == [2, 3, 3, 67, 134]


def test_the_modulus_holds_the_largest_sum_and_no_more_is_asked() -> None:
    check_modulus(13, (1 << 13) - 1)
    with pytest.raises(InputError, match="bits must be at least 14"):
        check_modulus(13, 1 << 13)


def test_a_key_that_is_not_registered_is_refused(cohort: Factory) -> None:
    round_ = cohort(3)

    with pytest.raises(InputError, match="client 5: the signing key is not the one registered"):
        RoundClient(round_.session, 5, bytes(32))
    with pytest.raises(SecAggError, match="client 6 is not in this session"):
        RoundClient(round_.session, 6, round_.signing[5])
    with pytest.raises(InputError, match="a signing key has 32 bytes"):
        RoundClient(round_.session, 5, b"short")


@settings(deadline=None, max_examples=25)
@given(clients=st.integers(2, 12), bits=st.integers(1, 32), length=st.integers(1, 1 << 32))
def test_a_session_survives_the_wire(cohort: Factory, clients: int, bits: int, length: int) -> None:
    terms = cohort(clients).session
    session = Session(**{**vars_of(terms), "bits": bits, "length": length})

    again = Session.unpack(session.pack(), session.run, session.keys)

    assert again.context == session.context


def test_an_announced_session_is_refused_when_damaged_or_unknown(cohort: Factory) -> None:
    session = cohort(4).session
    payload = session.pack()

    for cut in range(len(payload)):
        with pytest.raises(WireError):
            Session.unpack(payload[:cut], session.run, session.keys)
    with pytest.raises(WireError, match="foreign"):
        Session.unpack(b"x" + payload[1:], session.run, session.keys)
    with pytest.raises(SecAggError, match="client 14 has no registered key"):
        Session.unpack(payload, session.run, {client: session.keys[client] for client in (5, 8, 11)})
    for place in range(len(payload)):
        damaged = bytearray(payload)
        damaged[place] ^= 0x80
        try:
            other = Session.unpack(damaged, session.run, session.keys)
        except (SecAggError, WireError):
            continue
        assert other.context != session.context


@pytest.mark.parametrize("name", ["threshold", "bits", "length", "config_digest", "colluders", "round"])
def test_parties_that_disagree_on_a_term_refuse_each_other(cohort: Factory, name: str) -> None:
    mine = cohort(6)
    other_terms: dict[str, Any] = {
        "threshold": 6,
        "bits": 12,
        "length": 17,
        "config_digest": b"x" * 32,
        "colluders": 1,
        "round": 8,
    }
    theirs = Session(**{**vars_of(mine.session), name: other_terms[name]})
    stranger = RoundClient(theirs, 5, mine.signing[5])

    with pytest.raises(SecAggError):
        mine.server.accept("advertise", 5, stranger.advertise())


def vars_of(session: Session) -> dict[str, Any]:
    return {name: getattr(session, name) for name in Session.__dataclass_fields__}
