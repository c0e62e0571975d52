from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.report import facts, page, read_run, rows
from sottovoce.report.audits import accusations, audited
from sottovoce.report.bars import audit_bars
from sottovoce.report.tables import notes, warnings

from .conftest import Maker

CALM = {"epsilon": 1.0, "epsilon_lower": 0.4, "epsilon_server": 6.5, "epsilon_server_lower": 3.25}
CALM |= {"confidence": 0.95, "accused": False, "reasons": []}


def test_an_audit_is_two_columns_and_two_bars_against_each_adversary(make_run: Maker) -> None:
    plain = read_run(make_run("plain", name="plain", private=True))
    records = facts([read_run(make_run("seen", name="seen", private=True, audit=CALM)), plain])

    first, second = rows(records)
    figure = audit_bars(records, "epsilon")

    assert (first["epsilon_lower"], first["epsilon_server_lower"]) == ("0.4", "3.25")
    assert second["epsilon_lower"] == "—" and records[1]["audit"] is None
    assert "epsilon_lower" not in rows(facts([plain]))[0]
    assert figure is not None
    assert {trace.name: list(trace.x) for trace in figure.data} == {"measured: at least": [0.4], "proven: at most": [1]}
    assert audit_bars(facts([plain]), "epsilon") is None
    server = audit_bars(records, "epsilon_server")
    assert server is not None and [list(trace.x) for trace in server.data] == [[3.25], [6.5]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accused": True, "reasons": ["canaries were told apart"]}, ["canaries were told apart"]),
        ({"accused": True}, ["the audit gives no reason"]),
        ({"accused": True, "reasons": "odd"}, ["the audit gives no reason"]),
        (
            {"epsilon_lower": 1.23456},
            ["epsilon against outsiders is at least 1.234 by measurement, but at most 1 by proof"],
        ),
        (
            {"epsilon_server_lower": 7},
            ["epsilon against the server is at least 7 by measurement, but at most 6.5 by proof"],
        ),
        ({"epsilon": None, "epsilon_lower": 50}, []),
        ({"epsilon_lower": 1.0}, []),
        ({}, []),
    ],
)
def test_an_accusation_is_loud_everywhere_even_if_the_audit_missed_it(
    make_run: Maker, change: dict[str, object], words: list[str]
) -> None:
    run = read_run(make_run(private=True, audit=CALM | change))
    records = facts([run])

    text = page([run])

    assert accusations(records[0]) == words
    assert [note for note, _ in notes(records) if "ACCUSED" in note] == [f"ACCUSED by its audit: {w}" for w in words]
    assert warnings(records) == [f"small: ACCUSED by its audit: {w}" for w in words]
    assert ('role="alert"' in text) == bool(words) and all(word in text for word in words)


@pytest.mark.parametrize(
    ("change", "marked"),
    [
        ({}, (False, False)),
        ({"epsilon_lower": 2.0}, (True, False)),
        ({"epsilon_server_lower": 20.0}, (False, True)),
        ({"accused": True, "reasons": ["the noise was not fresh"]}, (True, True)),
    ],
)
def test_the_accused_bar_is_marked_for_the_adversary_it_is_about(
    make_run: Maker, change: dict[str, object], marked: tuple[bool, bool]
) -> None:
    records = facts([read_run(make_run(private=True, audit=CALM | change))])

    figures = [audit_bars(records, key) for key in ("epsilon", "epsilon_server")]

    assert tuple("⚠" in figure.layout.annotations[0].text for figure in figures if figure is not None) == marked


def test_what_was_not_proven_is_infinite_and_not_a_bar_of_nothing(make_run: Maker) -> None:
    figure = audit_bars(facts([read_run(make_run(audit=CALM | {"epsilon": None}))]), "epsilon")

    assert figure is not None and "∞" in figure.data[1].text[0]


@pytest.mark.parametrize("content", ["{", "[]", "\xff"])
def test_a_damaged_audit_is_named_and_does_not_hide_the_run(make_run: Maker, content: str) -> None:
    path = make_run(private=True)
    (path / "audit.json").write_bytes(content.encode("latin-1"))

    records = facts([read_run(path)])

    assert rows(records)[0]["accuracy_best"] == "0.8200 (8)"
    assert any("audit.json cannot be read" in note for note, _ in notes(records))
    assert "audit.json cannot be read" in warnings(records)[0]
    json.dumps(records)


def test_odd_values_of_an_audit_are_no_numbers(make_run: Maker) -> None:
    odd = {"epsilon": "1", "epsilon_lower": True, "epsilon_server_lower": [2], "confidence": "high", "problem": "x"}
    run = read_run(make_run(private=True, audit=odd))

    assert rows(facts([run]))[0]["epsilon_lower"] == "—"
    assert audit_bars(facts([run]), "epsilon") is None and warnings(facts([run])) == []
    assert "measured privacy" not in page([run])


@given(value=st.floats(1e-6, 1e6))
def test_a_printed_measurement_never_accuses_of_more_than_was_seen(value: float) -> None:
    shown = float(audited(value))

    assert value * 0.9989 <= shown <= value * (1 + 1e-12)


def test_names_of_audited_runs_cannot_be_read_as_links(make_run: Maker) -> None:
    figure = audit_bars(facts([read_run(make_run(name='<a href="x">y</a>', audit=CALM))]), "epsilon")

    assert figure is not None and "<" not in figure.layout.annotations[0].text
