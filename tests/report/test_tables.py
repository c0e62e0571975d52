from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

from sottovoce.report import facts, read_run, read_runs, rows, table
from sottovoce.report.runs import DAMAGED
from sottovoce.report.tables import card, columns, grouped, notes

from .conftest import Maker


def _drawn(*renderables: object, width: int = 240) -> str:
    console = Console(file=io.StringIO(), width=width)
    for renderable in renderables:
        console.print(renderable)
    text = console.file
    if not isinstance(text, io.StringIO):
        raise TypeError
    return text.getvalue()


def _facts(*paths: Path) -> list[dict[str, object]]:
    return facts([read_run(path) for path in paths])


def test_a_row_has_quality_privacy_bytes_the_papers_cost_and_time(make_run: Maker) -> None:
    (row,) = rows(_facts(make_run(name="top", scheme="fl-top", private=True)))

    assert row == {
        "label": "top",
        "scheme": "fl-top",
        "private": "on paper",
        "rounds": "10",
        "accuracy_best": "0.8200 (8)",
        "accuracy_final": "0.8000",
        "epsilon": "0.75",
        "epsilon_server": "6.5",
        "delta": "1e-05",
        "bytes_up_per_client_round": "1.00 kB",
        "bytes_down_per_client_round": "4.00 kB",
        "bytes_setup_per_client": "32 B",
        "bytes_up_total": "100 kB",
        "bytes_down_total": "400 kB",
        "paper_cost_up_bytes": "3.20 kB",
        "paper_cost_down_bytes": "3.30 kB",
        "seconds": "—",
    }


def test_a_run_that_is_not_private_has_infinite_epsilons(make_run: Maker) -> None:
    (row,) = rows(_facts(make_run()))

    assert (row["private"], row["epsilon"], row["epsilon_server"]) == ("no", "∞", "∞")


def test_what_a_private_run_does_not_know_is_a_dash_and_not_infinite(make_run: Maker) -> None:
    (row,) = rows(_facts(make_run(private=True, summary={"epsilon_server": None})))

    assert row["epsilon_server"] == "—"


def test_for_how_many_honest_clients_one_counts_stands_beside_epsilon(make_run: Maker) -> None:
    told = _facts(make_run("ballots", private=True, summary={"votes": 1.0}), make_run("masks", private=True))
    ballots, masks = rows(told)
    keys = list(ballots)

    assert (ballots["votes"], masks["votes"]) == ("1", "—")
    assert keys[keys.index("votes") - 3 :][:3] == ["epsilon", "epsilon_server", "delta"]
    assert "one client counts for A honest ones" in " ".join(_drawn(*table(told, 300), width=300).split())
    assert "one client counts for: honest ones (A)" in _drawn(card(told[0]))
    assert "votes" not in rows(_facts(make_run("open")))[0]


def test_an_unfinished_run_is_marked(make_run: Maker) -> None:
    (row,) = rows(_facts(make_run(rounds=50, done=9, finished=False)))

    assert row["rounds"] == "9 of 50, unfinished"
    assert row["paper_cost_up_bytes"] == "—"


def test_medical_columns_come_only_with_medical_runs(make_run: Maker) -> None:
    plain = make_run("plain", name="plain")
    medical = make_run("medical", name="medical", summary={"balanced_accuracy_best": 0.61, "auroc_final": 0.6})

    assert "balanced_accuracy_best" not in rows(_facts(plain))[0]
    first, second = rows(_facts(plain, medical))
    assert (first["balanced_accuracy_best"], second["balanced_accuracy_best"]) == ("—", "0.6100 (8)")


def test_the_overhead_of_a_secure_sum_stands_beside_the_payload_only_where_a_run_has_it(make_run: Maker) -> None:
    cost = {"secure_overhead_up_bytes_per_client_round": 12_090.0, "secure_expansion": 1.8945}
    none = {"secure_overhead_up_bytes_per_client_round": None, "secure_expansion": None}
    plain, real = make_run("plain", name="plain", summary=none), make_run("real", name="real", summary=cost)

    assert not set(cost) & set(rows(_facts(plain))[0])
    assert "secure up" not in _drawn(*table(_facts(plain), 240))
    first, second = rows(_facts(plain, real))
    assert [first[key] for key in cost] == ["—", "—"]
    assert [second[key] for key in cost] == ["12.1 kB", "1.895"]
    assert "secure up: the part of up / round" in _drawn(*table(_facts(plain, real), 90), width=90)
    assert "12.1 kB" in _drawn(grouped(cost))


@pytest.mark.parametrize(("width", "tables"), [(240, 1), (90, 2)])
def test_a_narrow_terminal_gets_two_tables_with_every_value_whole(make_run: Maker, width: int, tables: int) -> None:
    records = _facts(make_run("a", name="std"), make_run("b", name="top", scheme="fl-top", private=True))

    drawn = table(records, width)

    assert len(drawn) == tables
    text = _drawn(*drawn, width=width)
    for row in rows(records):
        for value in row.values():
            assert value in text


def test_names_are_never_read_as_markup(make_run: Maker) -> None:
    records = _facts(make_run(name="[red]x[/red]", scheme="[bold]"))

    assert "[red]x[/red]" in _drawn(*table(records, 240))
    assert "[red]x[/red]" in _drawn(card(records[0]))


def test_any_record_is_grouped_and_flattened() -> None:
    class Sizes(NamedTuple):
        smallest: int
        largest: int

    record = {"seconds_total": 75.0, "bytes_up_total": 2000, "scheme": "fl-top", "private": False, "epsilon": None}

    lines = _drawn(grouped({**record, "sizes": Sizes(1, 2), "deep": {"er": {"x": None}}})).splitlines()
    pairs = [line.split(maxsplit=1) for line in lines]

    assert [line.split("  ")[0].strip() for line in lines if line.strip()] == [
        *("scheme", "sizes.smallest", "sizes.largest", "deep.er.x", "bytes_up_total", "private", "epsilon"),
        "seconds_total",
    ]
    assert ["epsilon", "∞"] in [[word.strip() for word in pair] for pair in pairs]


def test_what_a_reader_must_not_miss_is_said_once_with_whose_it_is(make_run: Maker) -> None:
    told = {"note": "simulated: not private", "failures": 0, "privacy": {"unsafe": ["delta above 1/N"]}}
    records = _facts(
        make_run("a", name="a", private=True, summary=told),
        make_run("b", name="b", private=True, summary={"note": "simulated: not private", "aborted_rounds": 2}),
        make_run("c", name="c"),
    )

    expected = "bytes are expected values, not measured ones, which would tell how many clients were drawn"
    together, *others = notes(records)
    assert "2 private runs on the same records add up: together ε 1.5 against outsiders and 13 against" in together[0]
    assert others == [
        ("simulated: not private", "a, b"),
        ("unsafe: delta above 1/N", "a"),
        (expected, "a, b"),
        ("2 rounds were aborted", "b"),
    ]
    for width in (90, 240):
        assert "simulated: not private (a, b)" in _drawn(*table(records, width), width=width)
    assert "simulated: not private" in _drawn(card(records[0]))
    assert notes(records[2:]) == []


def test_epsilon_of_ballots_is_said_to_hold_against_either_aggregator_and_not_against_both(make_run: Maker) -> None:
    counted = make_run("counted", name="counted", private=True, summary={"ballot": "rotated"})
    summed = make_run("summed", name="summed", private=True)

    told = [names for note, names in notes(_facts(counted, summed)) if "either aggregator, not against both" in note]

    assert told == ["counted"]


def test_the_best_round_stands_beside_the_metric_that_chose_it(make_run: Maker) -> None:
    told = {"balanced_accuracy_best": 0.61, "balanced_accuracy_final": 0.6}
    older = make_run("older", name="older", summary=told)
    chosen = make_run("chosen", name="chosen", summary=told | {"selected_by": "accuracy"})

    first, second = rows(_facts(older, chosen))

    assert (first["accuracy_best"], first["balanced_accuracy_best"]) == ("0.8200", "0.6100 (8)")
    assert (second["accuracy_best"], second["balanced_accuracy_best"]) == ("0.8200 (8)", "0.6100")


def test_a_damaged_run_has_a_row_without_numbers_and_a_reason(make_run: Maker) -> None:
    broken = make_run("broken", private=True)
    (broken / "rounds.jsonl").write_text("{]\n")
    runs, damaged = read_runs([make_run("sound", name="sound"), broken])

    records = [*facts(runs), *damaged]

    row = rows(records)[1]
    assert (row["label"], row["rounds"]) == (str(broken), "damaged")
    assert {value for key, value in row.items() if key not in ("label", "rounds")} == {"—"}
    ((note, whose),) = notes(records)
    assert note.startswith("damaged: ") and "rounds.jsonl" in note and whose == str(broken)
    for width in (90, 240):
        assert "damaged: " in _drawn(*table(records, width), width=width)


def test_a_broken_ledger_is_in_the_table_and_below_it(make_run: Maker) -> None:
    path = make_run(private=True)
    ledger = path / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"round": 3', '"round": 4'))

    text = _drawn(*table(_facts(path), 240))

    assert "on paper, broken" in text
    assert "the ledger does not prove epsilon: ledger.jsonl line 4 is damaged" in text


def test_bytes_of_a_private_run_are_called_expected_and_those_of_an_older_one_are_warned_about(make_run: Maker) -> None:
    new, old = make_run("new", name="new", private=True), make_run("old", name="old", private=True, older=True)

    told = dict(notes(_facts(new, old, make_run("open", name="open"))))

    assert [names for note, names in told.items() if "expected values" in note] == ["new"]
    assert [names for note, names in told.items() if "older version" in note] == ["old"]


def test_a_table_is_sorted_by_numbers_in_full_and_by_nothing_where_there_is_none(make_run: Maker) -> None:
    plain, private = make_run("plain", name="plain"), make_run("private", name="private", private=True)
    records = [*_facts(plain, private), {"label": "x", "status": DAMAGED, "reason": "torn"}]

    ranks = {column.key: [column.rank(record) for record in records] for column in columns(records)}

    assert ranks["epsilon"] == ["Infinity", "0.75", ""] and ranks["accuracy_best"] == ["0.82", "0.82", ""]
    assert ranks["bytes_up_total"] == ["100000", "100000", ""] and ranks["label"] == ["plain", "private", "x"]


def test_a_run_of_numbers_shows_no_accuracy_and_what_the_constant_answer_reaches() -> None:
    baseline = {"answer": "120.9", "mae": 10.7, "rmse": 13.2}
    told = {"label": "numbers", "status": "finished", "mae_final": 6.8, "mae_best": 6.8, "selected_by": "mae"}
    shown = _drawn(card({**told, "accuracy_final": None, "accuracy_best": None, "quality": {"baseline": baseline}}))

    assert "accuracy" not in shown
    assert "MAE 10.7000, RMSE 13.2000, always answering '120.9'" in shown
