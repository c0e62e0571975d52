from __future__ import annotations

import json
from itertools import combinations

import pytest

from sottovoce.report import facts, read_run
from sottovoce.report.classes import by_class
from sottovoce.report.curves import LINES, curve, curves, line_legend

from .conftest import Maker

BACKDOOR = {"attack": "in-backdoor", "fraction": 0.1, "source": 1, "target": 2}
CLASSES = [0.9, 0.25, 0.75]


def test_a_targeted_run_has_its_accuracy_the_attacked_class_and_the_success_by_round(make_run: Maker) -> None:
    figure = curve(read_run(make_run(threat=BACKDOOR, by_class=CLASSES, success=0.5)))

    drawn = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    rounds = [2, 4, 6, 8, 10]
    assert drawn["accuracy"] == (rounds, pytest.approx([0.58, 0.66, 0.74, 0.82, 0.8]))
    assert drawn["accuracy on the attacked class"] == (rounds, [0.25] * 5)
    assert drawn["attack success"] == (rounds, [0.5] * 5)
    assert figure.layout.yaxis.range == (-0.04, 1.04)


def test_runs_without_an_attacked_class_have_no_panel_and_a_line_without_values_is_not_drawn(make_run: Maker) -> None:
    plain = read_run(make_run("plain", name="plain"))
    noisy = read_run(make_run("noisy", name="noisy", threat={"attack": "random", "fraction": 0.1}))
    hidden = read_run(make_run("hidden", name="hidden", threat=BACKDOOR, success=0.5, diverged=True))

    drawn = curves([plain, noisy, hidden], facts([plain, noisy, hidden]))

    ((caption, figure),) = drawn
    assert caption == "hidden: fl-std, in-backdoor 10 %, diverged"
    assert [trace.name for trace in figure.data] == ["accuracy", "attack success"]
    assert [name for name, *_ in line_legend(drawn)] == ["accuracy", "attack success"]


def test_lines_are_told_apart_without_their_colours() -> None:
    for (_, one, *first), (_, other, *second) in combinations(LINES.values(), 2):
        assert one != other
        assert all(left != right for left, right in zip(first, second, strict=True))


def test_classes_stand_at_the_best_round_with_the_attacked_one_and_the_target_marked(make_run: Maker) -> None:
    path = make_run(threat=BACKDOOR, by_class=CLASSES, success=0.5)
    records = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    records[7]["accuracy_by_class"] = [1.0, 0.125, None]
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    run = read_run(path)

    (found,) = by_class([run], facts([run]))

    assert found.classes == ("0", "1", "2")
    assert found.rows == (("small", "in-backdoor 10 %", (("1.0000", ""), ("0.1250", "attacked"), ("—", "target"))),)


@pytest.mark.parametrize(("source", "target"), [(1, 2), ("cat", "dog"), ("1", "2")])
def test_classes_have_the_names_of_the_data_and_an_attack_may_use_them(
    make_run: Maker, source: object, target: object
) -> None:
    path = make_run(threat=BACKDOOR, by_class=CLASSES)
    config = (path / "config.toml").read_text()
    config = config.replace("source = 1", f"source = {json.dumps(source)}")
    (path / "config.toml").write_text(config.replace("target = 2", f"target = {json.dumps(target)}"))
    names = ["ape", "cat", "dog"] if source != "1" else ["0", "1", "2"]
    (path / "preprocessing.json").write_text(json.dumps({"class_names": names}))
    run = read_run(path)

    (found,) = by_class([run], facts([run]))

    assert found.classes == tuple(names)
    assert [part for _, part in found.rows[0][2]] == ["", "attacked", "target"]


def test_a_class_that_was_withheld_has_the_accuracy_that_is_measured_apart(make_run: Maker) -> None:
    path = make_run(threat=BACKDOOR, by_class=[0.9, None, 0.75], summary={"attack_source": 1, "attack_target": 0})
    records = [json.loads(line) | {"class_accuracy": 0.375} for line in (path / "rounds.jsonl").open()]
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    run = read_run(path)

    (found,) = by_class([run], facts([run]))

    assert found.rows[0][2] == (("0.9000", "target"), ("0.3750", "attacked"), ("0.7500", ""))


def test_a_run_that_diverged_has_dashes_for_its_classes(make_run: Maker) -> None:
    run = read_run(make_run(threat=BACKDOOR, by_class=CLASSES, diverged=True, summary={"best_round": None}))

    (found,) = by_class([run], facts([run]))

    assert [value for value, _ in found.rows[0][2]] == ["-", "-", "-"]


def test_runs_with_other_classes_have_a_table_of_their_own(make_run: Maker) -> None:
    three = read_run(make_run("three", name="three", threat=BACKDOOR, by_class=CLASSES))
    four = read_run(make_run("four", name="four", threat=BACKDOOR, by_class=[0.5] * 4))
    none = read_run(make_run("none", name="none"))

    found = by_class([three, four, none], facts([three, four, none]))

    assert [(len(table.classes), len(table.rows)) for table in found] == [(3, 1), (4, 1)]


@pytest.mark.parametrize("content", ["{", "[]", '{"class_names": ["a"]}', '{"class_names": 3}'])
def test_without_names_classes_are_numbered(make_run: Maker, content: str) -> None:
    path = make_run(threat=BACKDOOR, by_class=CLASSES)
    (path / "preprocessing.json").write_text(content)
    run = read_run(path)

    assert by_class([run], facts([run]))[0].classes == ("0", "1", "2")
