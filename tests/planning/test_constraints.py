"""Limits of `plan --solve`: how they are read, and what is refused."""

from __future__ import annotations

import pytest

from sottovoce.core.errors import InputError
from sottovoce.planning.candidates import NAMES, Constraint, parse_constraints


def test_limits_are_read_in_their_units() -> None:
    found = parse_constraints(
        "epsilon<=1, epsilon_server <= 4,up<=200kB, bytes<=2MB, joules<=50 J, hours<=2d, rounds<=1e2"
    )

    assert {c.name: c.limit for c in found} == {
        "epsilon": 1.0,
        "epsilon_server": 4.0,
        "up": 200e3,
        "bytes": 2e6,
        "joules": 50.0,
        "hours": 48.0,
        "rounds": 100.0,
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_can_be_had_without_a_unit(name: str) -> None:
    assert parse_constraints(f"{name}<=7") == (Constraint(name, 7.0, f"{name}<=7"),)


def test_the_strictest_of_two_limits_counts() -> None:
    assert [c.limit for c in parse_constraints("up<=9kB, up<=2kB, up<=4kB")] == [2000.0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("accuracy<=0.9", "accuracy depends on data .* never promised"),
        ("accuracy>=0.9", "never promised"),
        ("epsilon<=1, ,up<=2kB", "empty part"),
        ("", "empty part"),
        ("epsilonn<=1", "no limit 'epsilonn' .* did you mean 'epsilon'"),
        ("epsilon<1", "upper limits only, got '<' in 'epsilon<1'"),
        ("epsilon>=1", "upper limits only"),
        ("up<=2J", "'J' in 'up<=2J' is no unit of up; it has B, kB"),
        ("epsilon<=1kB", "'kB' .* is no unit of epsilon; it has none"),
        ("up<=many", "cannot read 'up<=many'; write a limit such as up<=4kB"),
        ("up<=1.2.3kB", "'1.2.3' in .* is no number"),
        ("up<=0", "must be finite and above 0"),
        ("up<=1e400B", "must be finite and above 0"),
        ("<=3", "no limit"),
    ],
)
def test_bad_limits_are_refused_in_one_sentence_that_names_the_part(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        parse_constraints(text)
    assert "\n" not in str(caught.value)


def test_what_has_no_bound_keeps_no_limit() -> None:
    limit = Constraint("epsilon_server", 4.0, "epsilon_server<=4")

    assert limit.holds({"epsilon_server": 4.0})
    assert not limit.holds({"epsilon_server": None})
    assert not limit.holds({"epsilon_server": 4.01})
    assert not limit.holds({})
