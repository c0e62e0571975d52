from __future__ import annotations

from pathlib import Path

import pytest

from sottovoce.devices import MARKS, known, profile

from .conftest import Shell


def test_devices_lists_every_profile(shell: Shell) -> None:
    outcome = shell("devices")

    assert outcome.code == 0
    assert all(name in outcome.out for name in known())
    assert "not to size a battery" in outcome.out
    listed = shell("devices", "--json").json()
    assert [device["name"] for device in listed] == list(known())
    assert all(device["year"] and device["sources"] for device in listed)


def test_one_profile_shows_value_mark_year_and_source_of_every_number(shell: Shell) -> None:
    outcome, device = shell("devices", "sensor-lorawan"), profile("sensor-lorawan")

    for key, origin in device.sources.items():
        (line,) = (line for line in outcome.out.splitlines() if line.split()[:1] == [key])
        assert f" {origin.mark} " in line
        assert f" {origin.year} " in line
        assert origin.text[:60] in line
    assert all(words in outcome.out for words in MARKS.values())
    told = shell("devices", "sensor-lorawan", "--json").json()
    assert told["frame"]["max_payload"] == 242
    assert told["sources"]["frame.max_payload"]["mark"] == "M"


def test_a_watch_says_that_a_phone_passes_its_bytes_on(shell: Shell) -> None:
    assert shell("devices", "wearable-ble", "--json").json()["relay"] == "phone-wifi"
    assert "passes the bytes on" in shell("devices", "wearable-ble").out


def test_an_unknown_profile_is_one_sentence_and_exit_two(shell: Shell) -> None:
    outcome = shell("devices", "phone-lt")

    assert outcome.code == 2
    assert outcome.err.strip() == "error: profile has no 'phone-lt'; did you mean 'phone-lte'?"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("devices.profile=phone-wify", "[devices] profile has no 'phone-wify'; did you mean 'phone-wifi'?"),
        ("devices.profile={phone-lte=0.5,phone-wifi=0.4}", "must sum to 1, got 0.9"),
        ("devices.profile=sensor-nbiot", "the model does not fit sensor-nbiot"),
    ],
)
def test_a_run_on_impossible_devices_is_one_sentence_and_exit_two(
    shell: Shell, tmp_path: Path, change: str, words: str
) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[data]\nsource = "digits"\n[model]\nname = "cnn"\n', encoding="utf-8")

    outcome = shell("run", str(file), "--out", str(tmp_path / "out"), "--set", change)

    assert outcome.code == 2
    assert words in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
