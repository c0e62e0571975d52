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


def test_a_node_that_names_another_version_every_time_gets_a_handful_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with wired(few("fl-std", clients=4), nodes=False, min_nodes=0) as held:
        for number in range(200):
            facts = replace(held.engine.place.facts, version=f"9.{number}")
            say(held, Kind.HELLO, Hello(facts, "ab" * 8, 1).pack())

    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("node 1 is refused")]
    assert lines[0].startswith("node 1 is refused: another version of sottovoce")
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
