"""Tables end to end, on tiny data: ours beside theirs, resumed, shared, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.runs.folder import read_summary
from sottovoce.search.runner import RunOutcome
from sottovoce.studies.published import listing, reproduce
from sottovoce.studies.published.compare import compare, ordering
from sottovoce.studies.published.setup import resolve
from sottovoce.studies.published.table import read_table
from tests.studies.published.tiny import shared, tiny

__all__ = ["shared", "tiny"]


def cells(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["row"], line["column"]): line for line in document["cells"]}


class Log:
    """What an observer was told."""

    def __init__(self, stop_at: tuple[str, int] | None = None) -> None:
        self.seen: list[tuple[str, int]] = []
        self._stop_at = stop_at

    def __call__(self, cell: str, rounds: int, record: dict[str, Any]) -> None:
        self.seen.append((cell, record["round"]))
        if self.seen[-1] == self._stop_at:
            raise KeyboardInterrupt


def test_a_table_has_theirs_ours_the_difference_and_the_reasons(tiny: Path, shared: Path) -> None:
    document = reproduce("1.1", out=shared)
    found = cells(document)
    folders = {run["row"]: Path(run["folder"]) for run in document["runs"]}
    std, private = read_summary(folders["FL-STD"]), read_summary(folders["FL-STD-DP"])
    assert std is not None and private is not None

    accuracy = found["FL-STD", "accuracy"]
    assert (accuracy["printed"], accuracy["ours"]) == (0.9, std["accuracy_best"])
    assert accuracy["difference"] == pytest.approx(std["accuracy_best"] - 0.9)
    assert accuracy["notes"] == ["other data"]
    assert found["FL-STD", "round"]["ours"] == std["best_round"]
    cost = found["FL-STD", "cost_up"]
    assert cost["ours"] == pytest.approx(650 * 4 * std["best_round"] / 2 / 1e3)
    assert cost["measured"] == pytest.approx((650 * 4 + 24) * std["best_round"] / 2 / 1e3)
    assert cost["difference"] is None, "another number of weights"
    assert found["FL-SIGN", "round"]["printed"] is None
    assert "unreadable" in found["FL-SIGN", "round"]["note"]
    assert 'printed "-"' in found["FL-STD-DP", "accuracy"]["note"]
    epsilon = found["FL-STD-DP", "epsilon"]
    assert (epsilon["ours"], epsilon["epsilon_server"]) == (private["epsilon"], private["epsilon_server"])
    assert epsilon["moments_round"] == 3
    assert private["epsilon"] > 0 and epsilon["moments"] > 0
    assert document["ordering"]["pairs"] == 3
    assert not (folders["FL-STD"] / "checkpoint").exists()
    assert (folders["FL-STD"] / "model-best.npz").exists()


def test_a_row_that_the_papers_do_not_have_is_measured_and_not_compared(tiny: Path, shared: Path) -> None:
    document = reproduce("1.1", rows=["FL-SIGN-DP by ballots", "FL-STD"], out=shared)
    accuracy = cells(document)["FL-SIGN-DP by ballots", "accuracy"]
    folder = next(Path(run["folder"]) for run in document["runs"] if run["row"] == "FL-SIGN-DP by ballots")
    summary = read_summary(folder)
    assert summary is not None

    assert (accuracy["printed"], accuracy["sign"], accuracy["difference"]) == (None, "new", None)
    assert accuracy["ours"] == summary["accuracy_best"]
    assert "the papers do not have" in accuracy["note"]
    assert document["ordering"]["pairs"] == 0
    assert summary["votes"] == 1


def test_a_cell_that_the_accountant_refuses_says_so_and_the_others_are_run(tiny: Path, shared: Path) -> None:
    document = reproduce("1.1", rows=["FL-STD-DP refused", "FL-SIGN"], out=shared)
    found = cells(document)

    assert found["FL-STD-DP refused", "accuracy"]["ours"] is None
    assert found["FL-STD-DP refused", "epsilon"]["note"].startswith("refused: ")
    assert "delta" in found["FL-STD-DP refused", "epsilon"]["note"]
    assert found["FL-SIGN", "accuracy"]["ours"] > 0.1
    with pytest.raises(PrivacyError, match="delta"):
        reproduce("1.1", rows=["FL-STD-DP refused"], out=shared)


def test_a_table_that_was_interrupted_goes_on_and_ends_the_same(tiny: Path, shared: Path) -> None:
    whole = reproduce("1.1", rows=["FL-STD", "FL-SIGN"], out=shared)
    first, again = Log(stop_at=("FL-SIGN", 3)), Log()
    with pytest.raises(KeyboardInterrupt):
        reproduce("1.1", rows=["FL-STD", "FL-SIGN"], out=tiny, observe=first)

    document = reproduce("1.1", rows=["FL-STD", "FL-SIGN"], out=tiny, observe=again)

    assert {cell for cell, _ in again.seen} == {"FL-SIGN"}, "the finished cell is read"
    assert document["cells"] == whole["cells"]
    models = [[Path(run["folder"]) / "model-best.npz" for run in told["runs"]] for told in (whole, document)]
    assert [path.read_bytes() for path in models[0]] == [path.read_bytes() for path in models[1]]


def test_a_cell_is_run_once_for_all_tables(tiny: Path, shared: Path) -> None:
    told = Log()
    one = reproduce("1.1", rows=["FL-STD"], out=shared)
    two = reproduce("1.2", out=shared, observe=told)

    assert told.seen == []
    assert one["runs"][0]["folder"] == two["runs"][0]["folder"]
    assert two["series"][0]["round"] == [2, 4]
    assert max(two["series"][0]["value"]) == cells(one)["FL-STD", "accuracy"]["ours"]


def test_seeds_give_the_mean_and_the_spread(tiny: Path, shared: Path) -> None:
    document = reproduce("1.1", rows=["FL-STD"], seeds=2, out=shared)
    values = [summary["accuracy_best"] for run in document["runs"] if (summary := read_summary(Path(run["folder"])))]
    line = cells(document)["FL-STD", "accuracy"]

    assert len(set(values)) == 2
    assert line["ours"] == pytest.approx(sum(values) / 2)
    assert line["spread"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert line["seeds"] == 2
    assert cells(reproduce("1.1", rows=["FL-STD"], out=shared))["FL-STD", "accuracy"]["spread"] is None


def test_the_list_tells_what_was_run_and_how_long_it_took(tiny: Path) -> None:
    assert [(entry["name"], entry["small"]["run"], entry["small"]["cells"]) for entry in listing(tiny)] == [
        ("1.1", 0, 5),
        ("1.2", 0, 1),
        ("1.3", 0, 2),
    ]
    reproduce("1.2", out=tiny)
    entries = {entry["name"]: entry for entry in listing(tiny)}

    assert entries["1.2"]["small"]["seconds"] > 0
    assert entries["1.1"]["small"] == {
        "cells": 5,
        "run": 1,
        "seconds": None,
        "expected_seconds": pytest.approx(5 * entries["1.2"]["small"]["seconds"]),
    }
    assert entries["1.1"]["full"]["run"] == 0
    assert entries["1.1"]["full"]["expected_seconds"] is None


def test_weights_are_compared_at_the_coordinates_that_the_first_row_trains(tiny: Path, shared: Path) -> None:
    document = reproduce("1.3", out=shared)
    top, std = document["series"]

    assert top["coordinates"] == std["coordinates"] <= 130, "a fifth of 650"
    assert sum(top["count"]) == top["coordinates"]
    assert top["norm"] > 0 and std["norm"] > 0
    assert top["edges"] == std["edges"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"scale": "tiny"}, "scale has no 'tiny'; known: small, full"),
        ({"seeds": 0}, r"seeds must be in \[1, 1000\], got 0"),
        ({"rows": ["FL-SING"]}, "has no row 'fl-sing'; did you mean 'fl-sign'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(tiny: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reproduce("1.1", out=tiny, **keys)


def test_data_that_is_not_here_is_said_in_the_cell(tiny: Path, shared: Path) -> None:
    folder = tiny.parent / "published" / "tables" / "1.1.toml"
    folder.write_text(
        folder.read_text()
        + '\n[[rows]]\nname = "own"\nuses = ["std"]\nset.data.source = "gone.npz"\nprinted = { accuracy = 1 }\n'
    )

    document = reproduce("1.1", rows=["own", "FL-SIGN"], out=shared)

    assert cells(document)["own", "accuracy"]["note"].startswith("not run: ")
    assert cells(document)["FL-SIGN", "accuracy"]["ours"] is not None


def test_a_damaged_table_is_named(tiny: Path) -> None:
    path = tiny.parent / "published" / "tables" / "1.1.toml"
    path.write_text(path.read_text().replace('"accuracy", ', '"acuracy", ', 1))

    with pytest.raises(InputError, match=r"the data of table 1\.1 is damaged: columns: .*'acuracy' is not known"):
        reproduce("1.1", out=tiny)


def test_epsilon_is_for_all_rounds_and_costs_are_at_the_best_one(tiny: Path) -> None:
    table = read_table("1.1")
    row = next(row for row in table.rows if row.name == "FL-STD-DP")
    summary = {"epsilon": 2.0, "epsilon_best_round": 1.0, "epsilon_server": 9.0, "best_round": 3, "accuracy_best": 0.5}
    private = RunOutcome(resolve(table, row, "full"), tiny, {**summary, "noise_multiplier": 2.0})
    found = {told["column"]: told for told in compare(table, row, "full", [private], ["other data"])}

    assert (found["epsilon"]["ours"], found["epsilon"]["epsilon_server"]) == (2.0, 9.0)
    assert found["epsilon"]["difference"] == 1.0
    assert "all rounds" in found["epsilon"]["note"]
    plain = table.rows[0]
    sizes = {"paper_cost_up_bytes": 3000.0, "bytes_up_per_client_round": 1100, "expected_cohort": 5, "clients": 10}
    full = RunOutcome(resolve(table, plain, "full"), tiny, {**summary, **sizes, "best_round": 4})
    cost = next(told for told in compare(table, plain, "full", [full], []) if told["column"] == "cost_up")
    assert (cost["ours"], cost["measured"], cost["difference"]) == (3.0, 2.2, 2.0)


def line(row: str, printed: float | None, ours: float | None, *, diverged: bool = False) -> dict[str, Any]:
    return {"row": row, "column": "accuracy", "printed": printed, "ours": ours, "diverged": diverged}


def test_the_order_of_rows_counts_pairs_that_differ_in_print(tiny: Path) -> None:
    table = read_table("1.1")

    kept = ordering(table, [line("FL-STD", 0.9, 0.6), line("FL-SIGN", 0.2, 0.5), line("FL-STD-DP", None, 0.1)])
    assert (kept["pairs"], kept["agree"], kept["reversed"]) == (3, 3, [])
    turned = ordering(table, [line("FL-STD", 0.9, 0.4), line("FL-SIGN", 0.2, 0.5)])
    assert turned["reversed"] == [{"metric": "accuracy", "printed_better": "FL-STD", "printed_worse": "FL-SIGN"}]
    tied = ordering(table, [line("FL-STD", 0.9, 0.505), line("FL-SIGN", 0.2, 0.5)])
    assert (tied["pairs"], tied["tied"], tied["agree"]) == (1, 1, 0)
    close = ordering(table, [line("FL-STD", 0.9, 0.1), line("FL-SIGN", 0.88, 0.5)])
    assert close["pairs"] == 0
    lost = ordering(table, [line("FL-SIGN", 0.2, 0.5), line("FL-STD-DP", None, 0.9, diverged=True)])
    assert lost["agree"] == 1, "a run that does not converge is the last, whatever its best round was"


def test_a_folder_that_cannot_be_made_is_bad_input(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match=r"cannot be written: .*; choose another --out"):
        reproduce("1.1", rows=["FL-SIGN"], out=tmp_path / "file")
