from __future__ import annotations

from pathlib import Path

from sottovoce.config.reference import markdown, reference

from .conftest import Shell


def test_explain_prints_every_key_within_eighty_columns(shell: Shell) -> None:
    outcome = shell("explain")

    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 80
    starts = [line.split()[0] for line in lines if line.split()]
    for table in reference():
        assert f"The [{table.table}] table" in outcome.out
        assert {key.key for key in table.keys} <= set(starts)


def test_explain_of_one_key_gives_type_range_default_and_description(shell: Shell) -> None:
    printed = " ".join(shell("explain", "experiment.rounds").out.split())

    for part in ("a whole number, at", "default: 100", "Number of training"):
        assert part in printed
    (table,) = shell("explain", "experiment.rounds", "--json").json()
    assert table["table"] == "experiment"
    (key,) = table["keys"]
    assert (key["key"], key["type"], key["default"], key["range"]) == ("rounds", "a whole number", 100, "at least 1")
    assert key["description"].startswith("Number of training rounds.")


def test_explain_as_json_holds_every_table(shell: Shell) -> None:
    told = shell("explain", "--json").json()

    assert [table["table"] for table in told] == [table.table for table in reference()]
    assert all(key["description"] for table in told for key in table["keys"])


def test_a_wrong_name_is_one_sentence_and_bad_input(shell: Shell) -> None:
    outcome = shell("explain", "privacy.epsilom")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: [privacy] has no key 'epsilom'; did you mean 'privacy.epsilon'?\n"


def test_markdown_is_the_reference_and_stands_alone(shell: Shell) -> None:
    assert shell("explain", "--markdown").out == markdown()
    refused = shell("explain", "data", "--markdown")
    assert (refused.code, refused.out) == (2, "")


def test_a_sweep_of_nonsense_is_bad_input_and_writes_nothing(shell: Shell, here: Path) -> None:
    for change in ("sweep.scheme.name=[3]", "sweep.scheme=3"):
        outcome = shell("sweep", "small.toml", "--set", change)

        assert outcome.code == 2
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert [path.name for path in here.iterdir()] == ["small.toml"]
