from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Shell


def test_init_writes_a_file_that_runs_as_it_is(shell: Shell, here: Path) -> None:
    outcome = shell("init")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "wrote experiment.toml; run it with: sottovoce run experiment.toml\n"
    assert "# " in (here / "experiment.toml").read_text(encoding="utf-8")
    summary = shell("run", "experiment.toml", "--quiet", "--json").json()
    assert (summary["name"], summary["private"]) == ("first", False)
    assert summary["accuracy_final"] > 0.9


def test_the_written_file_is_private_when_its_last_table_is_uncommented(shell: Shell, here: Path) -> None:
    shell("init", "mine.toml")
    text = (here / "mine.toml").read_text(encoding="utf-8")
    before, table, after = text.partition("# [privacy]")
    (here / "mine.toml").write_text(before + re.sub("^# ", "", table + after, flags=re.MULTILINE), encoding="utf-8")

    summary = shell("run", "mine.toml", "--quiet", "--json").json()

    assert summary["private"] is True
    assert summary["epsilon"] <= 8
    assert summary["accuracy_final"] > 0.8


def test_the_other_scheme_of_the_written_file_runs_too(shell: Shell, here: Path) -> None:
    shell("init", "mine.toml")
    text = (here / "mine.toml").read_text(encoding="utf-8")
    text = text.replace('name = "fl-std"', '# name = "fl-std"').replace('# name = "fl-rnd"', 'name = "fl-rnd"')
    (here / "mine.toml").write_text(text.replace("# ratio = ", "ratio = "), encoding="utf-8")

    summary = shell("run", "mine.toml", "--quiet", "--json", "--set", "experiment.rounds=2").json()

    assert summary["scheme"] == "fl-rnd"


def test_init_as_json_says_where_and_what_next(shell: Shell, here: Path) -> None:
    told = shell("init", "my file.toml", "--json").json()

    assert told == {"path": "my file.toml", "run": "sottovoce run 'my file.toml'"}


@pytest.mark.parametrize(
    ("name", "words"), [("small.toml", "already there"), (".", "already there"), ("no/x.toml", "cannot be written")]
)
def test_init_overwrites_nothing_and_exits_2(shell: Shell, here: Path, name: str, words: str) -> None:
    before = (here / "small.toml").read_bytes()

    outcome = shell("init", name)

    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err and outcome.err.count("\n") == 1
    assert (here / "small.toml").read_bytes() == before


@pytest.mark.parametrize("name", ["hospital", "images", "iot", "text"])
def test_every_template_is_an_experiment_file(shell: Shell, here: Path, name: str) -> None:
    from sottovoce.config.experiment import load

    assert shell("init", f"{name}.toml", "--template", name).code == 0

    assert load(here / f"{name}.toml").experiment.name == name


def test_the_template_of_sensors_runs_as_it_is(shell: Shell, here: Path) -> None:
    shell("init", "iot.toml", "--template", "iot")

    summary = shell("run", "iot.toml", "--set", "experiment.rounds=20", "--quiet", "--json").json()

    assert summary["accuracy_final"] > 0.7 and summary["joules_per_client"]


def test_the_template_of_hospitals_runs_on_five_tables(shell: Shell, here: Path) -> None:
    files = Path(__file__).parents[1] / "files"
    shell("init", "hospital.toml", "--template", "hospital")
    told = [
        f"data.source={files}/hospital_*.csv",
        f"data.schema={files / 'hospitals.toml'}",
        "privacy.delta=1e-3",
        "privacy.min_units=20",
        "experiment.rounds=2",
    ]

    outcome = shell("run", "hospital.toml", *(word for key in told for word in ("--set", key)), "--quiet", "--json")

    assert outcome.json()["unit"] == "person" and outcome.json()["quality"]["noise"]


def test_an_unknown_template_is_one_sentence(shell: Shell, here: Path) -> None:
    outcome = shell("init", "x.toml", "--template", "hospitals")

    assert outcome.code == 2 and "did you mean 'hospital'?" in outcome.err and not (here / "x.toml").exists()
