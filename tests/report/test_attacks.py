"""What attacked runs tell in the table."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from sottovoce.report import facts, read_run, rows, table
from sottovoce.report.attacks import attack_of
from sottovoce.report.tables import card, notes

from .conftest import Maker

BACKDOOR = {"attack": "in-backdoor", "fraction": 0.1, "of": "cohort", "source": 5, "target": 7, "boost": 7.0}
NOISE = {"attack": "random", "fraction": 0.2}
CLASSES = [0.9, 0.9, 0.9, 0.9, 0.9, 0.25, 0.9, 0.9, 0.9, None]


def test_attack_columns_come_only_with_attacked_runs(make_run: Maker) -> None:
    plain = read_run(make_run("plain", name="plain"))
    hit = read_run(make_run("hit", name="hit", threat=BACKDOOR, by_class=CLASSES, success=0.7, rejected=(3, 4)))
    new = {"attack", "rejected_rounds"} | {
        f"{key}_{when}" for key in ("attack_success", "class_accuracy") for when in ("best", "final")
    }

    assert not new & set(rows(facts([plain]))[0])
    first, second = rows(facts([plain, hit]))
    assert {key: first[key] for key in new} == dict.fromkeys(new, "—") | {"attack": "none"}
    assert second["attack"] == "in-backdoor 10 %"
    assert (second["attack_success_best"], second["attack_success_final"]) == ("0.7000", "0.7000")
    assert (second["class_accuracy_best"], second["rejected_rounds"]) == ("0.2500", "2")
    assert notes(facts([plain, hit])) == [("the guard rejected 2 of 10 rounds", "hit")]


def test_an_untargeted_attack_has_no_success_and_no_column_for_it(make_run: Maker) -> None:
    (row,) = rows(facts([read_run(make_run(threat=NOISE))]))

    assert row["attack"] == "random 20 %"
    assert not {"attack_success_best", "class_accuracy_best", "rejected_rounds"} & set(row)


def test_success_stands_at_the_round_that_is_best_for_the_model(make_run: Maker) -> None:
    path = make_run(threat=BACKDOOR, finished=False)
    told = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for record in told:
        record |= {"attack_success": record["round"] / 100, "class_accuracy": record["round"] / 50}
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in told))

    (found,) = facts([read_run(path)])

    assert (found["best_round"], found["attack_success_best"], found["class_accuracy_best"]) == (8, 0.08, 0.16)
    assert (found["attack_success_final"], found["class_accuracy_final"]) == (0.1, 0.2)
    assert (found["attack"], found["attack_fraction"]) == ("in-backdoor", 0.1)


def test_an_unfinished_run_counts_what_was_rejected_and_knows_that_it_diverged(make_run: Maker) -> None:
    path = make_run(threat=NOISE, finished=False, diverged=True, rejected=(1, 3, 5))

    (told,) = facts([read_run(path)])

    assert (told["diverged"], told["rejected_rounds"]) == (True, 3)
    calm = facts([read_run(make_run("calm", finished=False))])[0]
    assert not {"attack", "diverged", "rejected_rounds", "attack_success_best"} & set(calm)


def test_a_run_that_diverged_has_a_dash_for_every_accuracy_and_a_note(make_run: Maker) -> None:
    told = {"balanced_accuracy_best": 0.5, "balanced_accuracy_final": 0.5}
    broken = make_run("broken", name="broken", threat=BACKDOOR, by_class=CLASSES, success=1.0, diverged=True)
    sound = make_run("sound", name="sound", threat=BACKDOOR, by_class=CLASSES, success=0.1, summary=told)
    records = facts([read_run(broken), read_run(sound)])

    first, second = rows(records)

    outcomes = [key for key in first if key.endswith(("_best", "_final"))]
    assert len(outcomes) == 8
    untargeted = rows(facts([read_run(make_run("other", threat=NOISE, diverged=True)), read_run(sound)]))[0]
    assert (untargeted["accuracy_best"], untargeted["attack_success_best"]) == ("-", "—")
    assert {first[key] for key in outcomes} == {"-"} and "-" not in {second[key] for key in outcomes}
    assert [whose for note, whose in notes(records) if note.startswith("diverged: ")] == ["broken"]
    assert "diverged: " in _drawn(*table(records, 240)) and "diverged: " in _drawn(card(records[0]))
    assert records[0]["accuracy_best"] == 0.82  # what was recorded stays in the document


def test_the_table_explains_its_attack_columns(make_run: Maker) -> None:
    records = facts([read_run(make_run(threat=BACKDOOR, by_class=CLASSES, success=0.7))])

    assert "success: attacked test records" in _drawn(*table(records, 90), width=90)
    assert "success: " not in _drawn(*table(facts([read_run(make_run("plain"))]), 240))


@pytest.mark.parametrize(
    ("measured", "lost"),
    [
        ([(0.1, True), (0.9, False)], False),
        ([(0.9, False), (0.1, True)], True),
        ([(0.9, False), (None, True)], True),
        ([(0.1, True)], True),
        ([], False),
    ],
)
def test_an_unfinished_run_diverged_if_its_last_measurement_says_so(
    make_run: Maker, measured: list[tuple[float | None, bool]], lost: bool
) -> None:
    path = make_run(threat=NOISE, finished=False, done=0)
    records = [
        {"round": round_, "bytes_up": 1, "bytes_down": 1, "accuracy": accuracy} | ({"diverged": True} if told else {})
        for round_, (accuracy, told) in enumerate(measured, start=1)
    ]
    records.append({"round": 9, "bytes_up": 1, "bytes_down": 1})  # not measured
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    (told,) = facts([read_run(path)])

    assert told.get("diverged", False) is lost


@pytest.mark.parametrize(
    ("threat", "told"),
    [
        ({}, (None, None)),
        ({"attack": "none", "fraction": 0.1}, (None, None)),
        ({"attack": "random", "fraction": "1/3"}, ("random", 1 / 3)),
        ({"attack": "random", "fraction": "often"}, ("random", None)),
        ({"attack": "random"}, ("random", None)),
    ],
)
def test_the_attack_is_read_from_the_config(threat: dict[str, object], told: tuple[str | None, float | None]) -> None:
    assert attack_of(threat) == told


def _drawn(*renderables: object, width: int = 240) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width)
    for renderable in renderables:
        console.print(renderable)
    return text.getvalue()
