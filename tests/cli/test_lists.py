from __future__ import annotations

from pathlib import Path

import pytest

from sottovoce.schemes import known

from .conftest import Shell


def test_schemes_lists_every_scheme(shell: Shell) -> None:
    outcome = shell("schemes")

    assert outcome.code == 0
    for name in known():
        assert name in outcome.out
    assert [scheme["name"] for scheme in shell("schemes", "--json").json()] == known()


def test_one_scheme_is_described_with_its_keys(shell: Shell) -> None:
    assert "keys.ratio" in shell("schemes", "fl-top").out
    assert shell("schemes", "fl-top", "--json").json()["keys"]["ratio"] == 0.05


def test_an_unknown_scheme_names_the_nearest(shell: Shell) -> None:
    outcome = shell("schemes", "fl-tpo")

    assert (outcome.code, outcome.out) == (2, "")
    assert "did you mean 'fl-top'?" in outcome.err


def test_data_lists_every_data_set_and_where_it_is(shell: Shell) -> None:
    listed = shell("data", "--json").json()

    digits = next(entry for entry in listed if entry["name"] == "digits")
    assert (digits["where"], digits["shape"], digits["classes"]) == ("embedded", [8, 8, 1], 10)
    assert all(entry["licence"] for entry in listed)
    table = shell("data").out
    assert all(entry["name"] in table for entry in listed)


def test_data_path_tells_the_order_and_the_cache(shell: Shell, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setenv("SOTTOVOCE_DATA", str(here))

    told = shell("data", "path", "--json").json()

    assert told["variable_value"] == str(here)
    assert len(told["order"]) == 4 and told["cache"] in told["order"][-1]
    assert shell("data", "--json", "path").json() == told
    assert str(here) in shell("data", "path").out


def test_data_path_of_one_set(shell: Shell) -> None:
    assert shell("data", "path", "digits").out == "embedded\n"
    assert shell("data", "path", "digits", "--json").json() == {"name": "digits", "path": None}
    assert "did you mean 'digits'?" in shell("data", "path", "digit").err


def test_fetching_what_cannot_be_fetched_is_refused(shell: Shell) -> None:
    outcome = shell("data", "fetch", "digits")

    assert (outcome.code, outcome.out) == (2, "")
    assert "embedded" in outcome.err


def test_fetch_prints_the_folder(shell: Shell, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    def fetch(name: str, *, progress: bool) -> Path:
        return here / name

    monkeypatch.setattr("sottovoce.data.fetch", fetch)

    assert shell("data", "fetch", "mnist").out == f"{here / 'mnist'}\n"
    assert shell("data", "fetch", "mnist", "--json").json() == {"name": "mnist", "path": str(here / "mnist")}


def test_data_split_writes_a_folder_for_each_machine(shell: Shell, here: Path) -> None:
    (here / "few.toml").write_text('[data]\nsource = "digits"\nclients = 9\n')

    told = shell("data", "split", "few.toml", "--parts", "2", "--out", "parts", "--set", "data.clients=10")

    assert told.code == 0, told.err
    assert sorted(path.name for path in (here / "parts").iterdir()) == ["common", "part-0", "part-1"]
    assert told.out.splitlines()[0].startswith("parts/part-0: 5 clients, 719 records, ")
    again = shell("data", "split", "few.toml", "--parts", "2", "--out", "parts")
    assert (again.code, again.out) == (2, "")
    assert "parts exists already; choose another --out" in again.err
    listed = shell("data", "split", "few.toml", "--parts", "3", "--out", "others", "--json").json()
    assert [part["clients"] for part in listed["parts"]] == [3, 3, 3]
