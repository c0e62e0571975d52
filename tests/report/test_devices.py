from __future__ import annotations

from typing import Any

import pytest

from sottovoce.report.devices import device_section
from sottovoce.report.html import page
from sottovoce.report.runs import facts, read_run

from .conftest import Maker


def spent(byte: float, session: float, training: float) -> dict[str, Any]:
    parts = {"radio_bytes": byte, "radio_sessions": session, "training": training}
    whole = sum(parts.values())
    return {
        **{"low": whole / 2, "default": whole, "high": 2 * whole},
        **{name: {"low": value / 2, "default": value, "high": 2 * value} for name, value in parts.items()},
    }


def told(joules: dict[str, Any], *names: str, seconds: float = 10.0, **more: Any) -> dict[str, Any]:
    return {
        "devices": dict.fromkeys(names, 1 / len(names)),
        "joules_per_client": joules,
        "joules_per_client_run": joules,
        "seconds_simulated": seconds,
        **more,
    }


def test_a_run_without_a_profile_has_no_section(make_run: Maker) -> None:
    runs = [read_run(make_run())]

    assert device_section(facts(runs))["rows"] == []
    assert "Time and energy on the devices" not in page(runs)


def test_a_profile_shows_joules_by_part_with_two_digits_and_the_year(make_run: Maker) -> None:
    summary = told(spent(0.2567, 2.1, 1.8), "phone-lte", dropouts={"link": 2, "availability": 7})
    runs = [read_run(make_run(summary=summary))]

    (row,) = device_section(facts(runs))["rows"]

    assert row["devices"] == "phone-lte (2021)"
    assert (row["joules"], row["range"]) == ("4.2", "2.1 to 8.3")
    assert [value for _, value, _ in row["parts"]] == ["0.26", "2.1", "1.8"]
    assert sum(share for _, _, share in row["parts"]) == pytest.approx(100)
    assert row["lost"] == "link 2, availability 7"
    shown = page(runs)
    assert "Time and energy on the devices" in shown
    assert "not to size a battery" in shown
    assert "Counts the device only" in shown


def test_the_table_of_runs_shows_joules_with_two_digits(make_run: Maker) -> None:
    record = facts([read_run(make_run(summary=told(spent(0.2567, 2.1, 1.8), "phone-lte")))])[0]
    from sottovoce.report.tables import columns

    (column,) = (column for column in columns([record]) if column.key == "joules_per_client")
    assert column.show(record) == "4.2"


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        (told(spent(0.1, 2.1, 1.0), "phone-lte"), "is the session, not your bytes (95 %)"),
        (told(spent(0.05, 0.04, 1.8), "phone-wifi"), "training costs 20 times what communication costs"),
        (told(spent(0.05, 0.04, 1.8), "phone-wifi"), "Joules drawn while charging are not battery joules"),
        (told(spent(7, 0, 1), "sensor-lorawan", seconds=10 * 36_000), "needs 10 hours at the 1% duty cycle"),
        (told(spent(1, 0, 1), "pi-ethernet", seconds=600), "add 2.7 W x 60 s = 160 J a round"),
        (told(spent(1, 0, 1), "wearable-ble"), "A phone must pass these bytes on"),
    ],
)
def test_sentences_are_said_where_they_apply(make_run: Maker, summary: dict[str, Any], sentence: str) -> None:
    runs = [read_run(make_run(summary=summary))]

    said = [words for words, _ in device_section(facts(runs))["remarks"]]

    assert sum(sentence in words for words in said) == 1
    assert sentence in page(runs)


def test_sentences_are_not_said_where_they_do_not_apply(make_run: Maker) -> None:
    runs = [read_run(make_run(summary=told(spent(5, 0.1, 1), "sensor-nbiot")))]

    assert device_section(facts(runs))["remarks"] == []


def test_a_private_run_does_not_tell_who_was_lost(make_run: Maker) -> None:
    runs = [read_run(make_run(private=True, summary=told(spent(1, 1, 1), "phone-lte")))]

    assert device_section(facts(runs))["rows"][0]["lost"] == "not told"


def test_profiles_and_joules_of_another_version_are_no_error(make_run: Maker) -> None:
    unknown = read_run(make_run("unknown", summary=told(spent(1, 1, 1), "phone-9g")))
    older = read_run(make_run("older", summary=told({"default": 3}, "phone-lte")))

    (row,) = device_section(facts([unknown, older]))["rows"]
    assert row["devices"] == "phone-9g"


def test_nothing_is_called_green(make_run: Maker) -> None:
    runs = [read_run(make_run(summary=told(spent(1, 1, 1), "phone-lte")))]

    assert "greener" not in page(runs)
