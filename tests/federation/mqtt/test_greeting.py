"""Greetings of a party that lies: signed, well-formed, and nothing that the reader may stumble over."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from sottovoce.core.errors import WireError
from sottovoce.federation.engines.mqtt.greeting import Facts, Hello, Refusal

FACTS = Facts(version="1", config="c", roster="r", start="s", probe=(0.5, -1.0))


def hello(**facts: Any) -> bytes:
    told = asdict(Hello(FACTS, "00" * 8, 1))
    return json.dumps(told | {"facts": told["facts"] | facts}).encode()


def test_a_greeting_comes_back_as_it_was() -> None:
    assert Hello.unpack(Hello(FACTS, "00" * 8, 1).pack()) == Hello(FACTS, "00" * 8, 1)


def test_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(WireError, match="scores"):
        Hello.unpack(hello(probe=[10**400, 1.0]))


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_differ(score: float) -> None:
    assert "other scores" in str(FACTS.difference(Hello.unpack(hello(probe=[score, -1.0])).facts))


def test_half_a_letter_is_shown_and_breaks_nothing() -> None:
    """JSON can hold a lone surrogate, which no text file and no terminal takes."""
    difference = FACTS.difference(Hello.unpack(hello(config="\ud800")).facts)

    assert difference is not None and difference.encode()
    assert Refusal.unpack(json.dumps({"life": "00", "reason": "no \udfff"}).encode()).reason.encode()
