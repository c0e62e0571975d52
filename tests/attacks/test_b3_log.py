"""B3: one registered node filled the operator's log, a line for each greeting with another fact or last will."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from sottovoce.checks.twin import few
from sottovoce.federation.engines.mqtt import engine as engine_module
from sottovoce.federation.engines.mqtt.envelope import SERVER, Envelope, Kind, topic_from
from sottovoce.federation.engines.mqtt.greeting import Gone, Hello
from tests.deployment.wired import Wired, signing_key, wired


def say(held: Wired, kind: Kind, payload: bytes) -> None:
    held.engine.heard(topic_from(held.federation, 1), Envelope(kind, 1, SERVER, payload).sign(signing_key(1)))


def test_a_node_that_names_another_file_every_time_gets_a_handful_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with wired(few("fl-std", clients=4), nodes=False, min_nodes=0) as held:
        for number in range(200):
            facts = replace(held.engine.place.facts, config=f"9.{number}")
            say(held, Kind.HELLO, Hello(facts, "ab" * 8, 1).pack())

    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("node 1 is refused")]
    assert lines[0].startswith("node 1 is refused: another experiment")
    assert len(lines) <= 2 * engine_module._AT_ONCE


def test_a_node_that_comes_and_goes_without_end_gets_a_handful_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with wired(few("fl-std", clients=4), nodes=False, min_nodes=0) as held:
        for number in range(1, 200):
            say(held, Kind.HELLO, Hello(held.engine.place.facts, "ab" * 8, number).pack())
            say(held, Kind.GONE, Gone("ab" * 8, number).pack())
        assert held.engine.status.there == 0

    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("node 1 is")]
    assert lines[:2] == ["node 1 is there", "node 1 is gone"]
    assert len(lines) <= 2 * engine_module._AT_ONCE


def test_the_last_word_on_a_node_that_came_back_is_not_that_it_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for flaps in range(1, 12):
        caplog.clear()
        with wired(few("fl-std", clients=4), nodes=False, min_nodes=0) as held:
            for number in range(1, flaps + 1):
                say(held, Kind.HELLO, Hello(held.engine.place.facts, "ab" * 8, number).pack())
                say(held, Kind.GONE, Gone("ab" * 8, number).pack())
            say(held, Kind.HELLO, Hello(held.engine.place.facts, "ab" * 8, flaps + 1).pack())
        lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("node 1 is")]
        assert lines[-1] == "node 1 is there"


def test_a_key_that_two_processes_use_shows_when_the_first_one_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    first, second = "ab" * 8, "cd" * 8
    with wired(few("fl-std", clients=4), nodes=False, min_nodes=0) as held:
        facts, presence = held.engine.place.facts, held.engine.status.presence
        for life, connection in ((first, 1), (second, 1), (first, 1)):  # the last one came late: nobody is back
            say(held, Kind.HELLO, Hello(facts, life, connection).pack())
        restarted = presence()[1].cloned
        say(held, Kind.HELLO, Hello(facts, second, 2).pack())
        say(held, Kind.HELLO, Hello(facts, first, 2).pack())
        cloned = [each.cloned for each in presence()]

    lines = [record.getMessage() for record in caplog.records if "two processes" in record.getMessage()]
    assert not restarted and cloned == [False, True, False, False]
    assert len(lines) == 1 and lines[0].startswith("node 1: two processes use its key")


def test_another_version_of_the_package_plays_with_us_and_another_protocol_does_not() -> None:
    with wired(few("fl-std", clients=4), nodes=False, min_nodes=0) as held:
        facts = held.engine.place.facts
        assert facts.difference(replace(facts, version="9.9")) is None
        assert "another version of the protocol" in str(facts.difference(replace(facts, protocol=facts.protocol + 1)))
