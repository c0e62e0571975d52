from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sottovoce.cli.commands import examples
from sottovoce.config.experiment import EXAMPLES

from .conftest import Shell

ROOT = Path(__file__).parents[2]


def test_the_folder_of_the_checkout_is_the_one_of_the_package() -> None:
    assert (ROOT / "experiments").resolve() == examples.FOLDER.resolve() == EXAMPLES.resolve()


def test_every_file_is_listed_with_a_sentence(shell: Shell) -> None:
    listed = shell("examples", "--json").json()

    files = {file.relative_to(ROOT / "experiments").as_posix() for file in (ROOT / "experiments").rglob("*.toml")}
    assert {f"{each['name']}.toml" for each in listed} == files
    assert [each["name"] for each in listed if len(each["about"]) < 20] == []
    assert [each["name"] for each in listed if each["command"] is None] == [
        "schemas/hospitals",
        "schemas/support2",
    ]


def test_the_list_names_the_way_to_a_file(shell: Shell) -> None:
    told = shell("examples").out

    assert "quickstart" in told and "sottovoce examples get NAME" in told


@pytest.mark.parametrize("name", examples.names())
def test_a_copied_example_is_the_same_experiment_and_its_comments_name_the_copy(
    shell: Shell, here: Path, name: str
) -> None:
    outcome = shell("examples", "get", name, "--out", "copy.toml")

    copied = (here / "copy.toml").read_text(encoding="utf-8")
    original = (ROOT / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("wrote copy.toml") and outcome.out.endswith("\n")
    assert tomllib.loads(copied) == tomllib.loads(original)
    assert f"experiments/{name}.toml" not in copied + outcome.out


def test_the_quickstart_runs_where_there_is_no_checkout(shell: Shell) -> None:
    assert shell("examples", "get", "quickstart", "--json").json() == {
        "path": "quickstart.toml",
        "beside": [],
        "run": "sottovoce run quickstart.toml",
    }
    assert shell("run", "quickstart.toml", "--quiet", "--set", "experiment.rounds=2").code == 0


def test_tables_and_schema_of_an_example_come_with_it_and_are_never_overwritten(shell: Shell, here: Path) -> None:
    assert shell("examples", "get", "hospitals").code == 0

    copied = sorted(path.relative_to(here).as_posix() for path in (here / "hospitals").iterdir())
    assert copied == [f"hospitals/hospital_{number}.csv" for number in range(1, 6)]
    assert shell("run", "hospitals.toml", "--quiet", "--set", "experiment.rounds=2").code == 0
    (here / "hospitals.toml").unlink()
    (here / "hospitals" / "hospital_1.csv").write_text("mine")
    outcome = shell("examples", "get", "hospitals")
    assert outcome.code == 2 and "hospital_1.csv is already there" in outcome.err
    assert (here / "hospitals" / "hospital_1.csv").read_text() == "mine" and not (here / "hospitals.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quikstart"], "did you mean 'quickstart'?"),
        (["../../pyproject"], "there is no example"),
        (["quickstart", "--out", "small.toml"], "already there and was not changed"),
        (["quickstart", "--out", "no/x.toml"], "cannot be written"),
    ],
)
def test_wrong_requests_write_nothing_and_exit_2(shell: Shell, here: Path, arguments: list[str], words: str) -> None:
    before = (here / "small.toml").read_bytes()

    outcome = shell("examples", "get", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err and outcome.err.count("\n") == 1
    assert (here / "small.toml").read_bytes() == before


@pytest.mark.parametrize("asked", ["experiments/quickstart.toml", "quickstart.toml"])
def test_an_example_that_is_not_here_is_an_error_with_the_way_to_it(shell: Shell, asked: str) -> None:
    outcome = shell("run", asked)

    assert outcome.code == 2
    assert outcome.err == (
        f"error: there is no experiment file {asked}; `sottovoce examples get quickstart` writes quickstart.toml\n"
    )
