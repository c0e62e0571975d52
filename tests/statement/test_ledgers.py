from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.privacy import Ledger
from sottovoce.privacy.ledger import hash_of
from sottovoce.statement.findings import Findings
from sottovoce.statement.ledgers import check_ledger, find_ledgers, read_ledger

Copy = Callable[[Path], Path]


def states(path: Path) -> dict[str, str]:
    findings = Findings()
    check_ledger(read_ledger(path), findings)
    return {finding.claim.split(": ")[-1]: finding.state for finding in findings.found}


def site_ledger(folder: Path, rounds: tuple[int, ...] = (1, 3, 4), limit: int = 5) -> Path:
    folder.mkdir(exist_ok=True)
    with Ledger(folder / "ledger.jsonl", digest="d" * 64, limit=limit, deployment=True) as ledger:
        for round_ in rounds:
            ledger.charge(round_)
        lines, head = ledger.head
    (folder / "ledger.head").write_text(json.dumps({"lines": lines, "hash": head, "next": None}))
    return folder / "ledger.jsonl"


def rewritten(entries: list[dict[str, Any]]) -> bytes:
    """Return lines with a chain of hashes that is right, as somebody who forges a ledger would write them."""
    last, lines = "0" * 64, []
    for index, entry in enumerate(entries):
        bare = {**{key: value for key, value in entry.items() if key != "hash"}, "index": index, "previous": last}
        last = hash_of(bare)
        lines.append(json.dumps({**bare, "hash": last}).encode())
    return b"\n".join(lines) + b"\n"


def test_the_ledger_of_a_run_tells_its_charges_and_is_the_servers(private_run: Path) -> None:
    (path,) = find_ledgers(private_run)

    told = read_ledger(path).told()

    assert (told["keeper"], told["charges"], told["limit"], told["problem"]) == ("server", 6, 6, None)
    assert set(states(path).values()) == {"true"}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_every_flipped_bit_of_a_ledger_is_found(private_run: Path, tmp_path: Path, place: int, bit: int) -> None:
    content = bytearray((private_run / "ledger.jsonl").read_bytes())
    content[place % len(content)] ^= 1 << bit
    (tmp_path / "ledger.jsonl").write_bytes(content)

    assert read_ledger(tmp_path / "ledger.jsonl").problem is not None


def test_every_changed_field_of_every_line_is_found(private_run: Path, tmp_path: Path) -> None:
    lines = (private_run / "ledger.jsonl").read_text().splitlines()
    for number, line in enumerate(lines):
        for key, value in json.loads(line).items():
            other = {bool: lambda v: not v, int: lambda v: v + 1, str: lambda v: v + "0"}[type(value)](value)
            changed = [*lines[:number], json.dumps(json.loads(line) | {key: other}), *lines[number + 1 :]]
            (tmp_path / "ledger.jsonl").write_text("\n".join(changed) + "\n")
            assert read_ledger(tmp_path / "ledger.jsonl").problem, (number, key)


def test_a_line_that_was_taken_out_or_moved_is_found(private_run: Path, tmp_path: Path) -> None:
    lines = (private_run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    for changed in ([*lines[:3], *lines[4:]], [*lines[:3], lines[4], lines[3], *lines[5:]], [lines[0], *lines]):
        (tmp_path / "ledger.jsonl").write_bytes(b"".join(changed))
        assert read_ledger(tmp_path / "ledger.jsonl").problem is not None


def test_half_a_line_at_the_end_is_found(private_run: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_bytes((private_run / "ledger.jsonl").read_bytes()[:-10])

    assert "half a line" in str(read_ledger(tmp_path / "ledger.jsonl").problem)


def test_a_forged_chain_that_charges_too_much_or_twice_is_found(private_run: Path, tmp_path: Path) -> None:
    entries = [json.loads(line) for line in (private_run / "ledger.jsonl").read_text().splitlines()]
    (tmp_path / "ledger.jsonl").write_bytes(rewritten([*entries, *(e for e in entries if e["kind"] == "charge")]))

    assert states(tmp_path / "ledger.jsonl") | {"chain of hashes": ""} == {
        "chain of hashes": "",
        "limit": "false",
        "rounds": "false",
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "gift"}, "unknown kind"),
        ({"kind": "open"}, "is of kind 'open'"),
        ({"digest": "e" * 64}, "another plan"),
        ({"round": "1"}, "names no round"),
    ],
)
def test_a_forged_line_that_no_ledger_has_is_found(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = site_ledger(tmp_path)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_bytes(rewritten([*entries[:2], entries[2] | change, *entries[3:]]))

    assert problem in str(read_ledger(path).problem)


def test_a_ledger_of_a_later_version_is_not_read_as_if_it_were_known(tmp_path: Path) -> None:
    path = site_ledger(tmp_path)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_bytes(rewritten([entries[0] | {"version": 2}, *entries[1:]]))

    assert "version 2" in str(read_ledger(path).problem)


def test_the_end_of_a_sites_ledger_that_was_cut_off_is_found_by_its_head(tmp_path: Path) -> None:
    path = site_ledger(tmp_path)
    assert states(path)["whole"] == "true"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert states(path) == {"chain of hashes": "true", "limit": "true", "whole": "false"}
    (tmp_path / "ledger.head").write_text("{}")
    assert states(path)["whole"] == "false"
    (tmp_path / "ledger.head").unlink()
    assert states(path)["whole"] == "unchecked"


def test_a_nodes_folder_of_states_names_all_its_ledgers(tmp_path: Path) -> None:
    first, second = tmp_path / "state" / "aa", tmp_path / "state" / "bb"
    first.mkdir(parents=True)
    site_ledger(first)
    site_ledger(second)

    assert find_ledgers(tmp_path) == [first / "ledger.jsonl", second / "ledger.jsonl"]
    assert find_ledgers(tmp_path / "state") == find_ledgers(tmp_path)


def test_a_folder_without_a_ledger_is_refused_in_one_sentence(tmp_path: Path, plain_run: Path) -> None:
    with pytest.raises(InputError, match="nothing was charged"):
        find_ledgers(plain_run)
    with pytest.raises(InputError, match=r"holds no ledger\.jsonl"):
        find_ledgers(tmp_path)
    with pytest.raises(InputError, match="there is no"):
        find_ledgers(tmp_path / "gone")
