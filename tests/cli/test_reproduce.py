"""`sottovoce reproduce` as a shell calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.studies.published.tiny import shared, tiny

from sottovoce.cli import main

__all__ = ["shared", "tiny"]


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["reproduce", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_table_is_printed_with_its_notes(tiny: Path, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "1.1", "--rows", "FL-SIGN, FL-STD-DP refused", "--out", str(shared))

    assert code == 0
    assert "1.1: one, small scale" in out
    for word in ("FL-SIGN", "theirs  ours  difference", "0.2", "[1]", "refused: ", "unreadable", "order of the rows"):
        assert word in out, word
    assert "round 4 of 4" in err
    again = answer(capsys, "1.1", "--rows", "FL-SIGN", "--out", str(shared), "--quiet")
    assert "round" not in again[2].replace("runs", "")


def test_the_json_document_has_the_promised_keys(tiny: Path, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "Tab. 1.1", "--rows", "FL-SIGN", "--out", str(shared), "--json", "--quiet")
    document: dict[str, Any] = json.loads(out)

    assert code == 0
    assert (document["name"], document["scale"]) == ("1.1", "small")
    assert {line["column"] for line in document["cells"]} == {"accuracy", "round"}
    assert all({"row", "column", "printed", "ours", "difference", "note"} <= set(line) for line in document["cells"])


def test_the_list_and_a_figure(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "1.2", "--out", str(tiny), "--quiet", "--png", str(tiny / "figure.svg"))
    assert code == 0, err
    assert (tiny / "figure.svg").read_text().startswith("<?xml")
    assert "the same run under another name" in out

    assert answer(capsys, "1.3", "--out", str(tiny), "--quiet", "--png", str(tiny / "weights.png"))[0] == 0
    assert (tiny / "weights.png").read_bytes().startswith(b"\x89PNG")

    code, out, _ = answer(capsys, "--list", "--out", str(tiny))
    assert code == 0
    assert "1 of 1" in out and "0 of 5" not in out and "1 of 5" in out
    entries = json.loads(answer(capsys, "--list", "--json", "--out", str(tiny))[1])
    assert [entry["name"] for entry in entries][:4] == ["1.1", "1.2", "1.3", "3"], "then those of other studies"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["5.77"], 2, "there is no published table '5.77'; "),
        (["1.4"], 2, "did you mean '1."),
        (["--campaign", "evidense"], 2, "did you mean 'evidence'"),
        (["--campaign", "evidence", "--part", "4/3"], 2, "--part must be K/N with K from 1 to N, got '4/3'"),
        (["--evidence", "--cells", "nowhere"], 2, "nowhere is no folder"),
        (["--list", "--html", "x.html"], 2, "--html writes the page of --evidence"),
        ([], 2, "give the name of a table, or --list, or --campaign, or --evidence"),
        (["1.1", "--list"], 2, "give the name of a table, or --list, or --campaign, or --evidence"),
        (["1.1", "--scale", "medium"], 2, "--scale has no 'medium'; known: small, full"),
        (["1.1", "--seeds", "0"], 2, "seeds must be in [1, 1000], got 0"),
        (["1.1", "--rows", "FL-TOP"], 2, "table 1.1 has no row 'fl-top'"),
        (["1.1", "--rows", "FL-STD-DP refused", "--quiet"], 3, "delta"),
    ],
)
def test_bad_input_ends_with_a_sentence_and_its_code(
    tiny: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    found, out, err = answer(capsys, *words, "--out", str(tiny))

    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_table_is_no_picture(tiny: Path, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["1.1", "--rows", "FL-SIGN", "--quiet", "--out", str(shared), "--png", "x.png"]
    assert answer(capsys, *words)[0::2] == (
        2,
        "error: 1.1 is no figure, so there is nothing for --png to draw; remove it\n",
    )
    words = ["1.2", "--quiet", "--out", str(shared), "--png", "x.jpg"]
    assert "writes a .png or .svg file" in answer(capsys, *words)[2]
