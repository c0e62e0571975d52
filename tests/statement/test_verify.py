"""Verify finds every change: flipped bits, changed fields, and lies whose hashes were made again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import parse
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.privacy.ledger import hash_of
from sottovoce.privacy.plan.plan import PrivacyPlan
from sottovoce.privacy.plan.request import read_request, request_record
from sottovoce.runs.digests import DIGESTS, FILES, describe_digests, summary_text
from sottovoce.runs.loop import run
from sottovoce.statement.evidence import gather_evidence
from sottovoce.statement.findings import Findings
from sottovoce.statement.page import statement_page, statement_text
from sottovoce.statement.statement import make_statement
from sottovoce.statement.twin import price_of_privacy, twin_record
from sottovoce.statement.verify import verify_run, verify_statement
from tests.runs.small import small
from tests.statement.test_ledgers import rewritten, site_ledger

Copy = Callable[[Path], Path]
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def false(findings: Findings) -> set[str]:
    return {finding.claim for finding in findings.of("false")}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def other(value: Any) -> Any:
    """Return a value that is not this one, of the same kind where there is a kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 2 + 1
    return f"{value}x" if isinstance(value, str) else "something"


def changed(document: Any, path: tuple[Any, ...]) -> Any:
    copied = json.loads(json.dumps(document))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = other(inner[path[-1]])
    return copied


def sealed(folder: Path, summary: dict[str, Any]) -> None:
    """Write a summary with digests that fit, as somebody who forges a run would."""
    text = summary_text(summary)
    (folder / DIGESTS).write_text(json.dumps(describe_digests(folder, text), indent=2) + "\n")
    (folder / "summary.json").write_text(text)


@pytest.mark.parametrize("kind", ["private", "plain"])
def test_an_honest_run_and_its_statement_are_true(
    kind: str, private_run: Path, plain_run: Path, tmp_path: Path
) -> None:
    run = private_run if kind == "private" else plain_run
    findings = verify_run(run)
    assert not findings.of("false") and findings.exit_code(strict=True) == 0
    document = make_statement(gather_evidence(run))
    (tmp_path / "s.json").write_text(statement_text(document))
    (tmp_path / "s.html").write_text(statement_page(document))
    for name in ("s.json", "s.html"):
        findings = verify_statement(tmp_path / name)
        assert not findings.of("false") and findings.exit_code() == 0
        assert findings.exit_code(strict=True) == 3  # the run folder was not given
        assert verify_statement(tmp_path / name, run=run).exit_code(strict=True) == 0


@pytest.mark.parametrize("name", [*FILES, "summary.json", DIGESTS])
@QUICK
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_every_flipped_bit_of_every_file_of_a_run_is_found(
    private_run: Path, tmp_path: Path, name: str, place: int, bit: int
) -> None:
    if not (private_run / name).exists():
        return
    folder = Path(shutil.copytree(private_run, tmp_path / "run", dirs_exist_ok=True))
    content = bytearray((folder / name).read_bytes())
    content[place % len(content)] ^= 1 << bit
    (folder / name).write_bytes(content)

    assert verify_run(folder).exit_code() == 3


@QUICK
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
@pytest.mark.parametrize("kind", ["json", "html"])
def test_every_flipped_bit_of_a_statement_is_found(
    private_run: Path, tmp_path: Path, kind: str, place: int, bit: int
) -> None:
    document = make_statement(gather_evidence(private_run))
    content = bytearray((statement_text(document) if kind == "json" else statement_page(document)).encode())
    content[place % len(content)] ^= 1 << bit
    (tmp_path / "s").write_bytes(content)

    assert verify_statement(tmp_path / "s").exit_code() == 3


def test_every_changed_field_of_a_statement_is_found_though_its_hash_was_made_again(
    private_run: Path, tmp_path: Path
) -> None:
    document = make_statement(gather_evidence(private_run))
    bare = {key: value for key, value in document.items() if key != "hash"}
    missed = []
    for path in leaves(bare):
        forged = changed(bare, path)
        (tmp_path / "s.json").write_text(statement_text(forged | {"hash": hash_of(forged)}))
        findings = verify_statement(tmp_path / "s.json")
        # Of another version nothing can be written again: that is said, and --strict refuses it.
        if findings.exit_code(strict=path[:2] == ("evidence", "software")) != 3:
            missed.append(path)
    assert not missed


def test_a_statement_that_says_another_version_wrote_it_cannot_lie_about_epsilon(
    private_run: Path, tmp_path: Path
) -> None:
    document = make_statement(gather_evidence(private_run))
    document["evidence"]["software"]["packages"]["sottovoce"] = document["software"]["packages"]["sottovoce"] = "9.9"
    for forge in (False, True):
        if forge:
            document["against"][0]["epsilon"] = 0.1
        bare = {key: value for key, value in document.items() if key != "hash"}
        (tmp_path / "s.json").write_text(statement_text(bare | {"hash": hash_of(bare)}))
        assert verify_statement(tmp_path / "s.json").exit_code() == (3 if forge else 0)


def test_every_number_of_a_plan_is_found_though_all_hashes_were_made_again(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    summary = json.loads((folder / "summary.json").read_text())
    for path in leaves(summary["privacy"], ("privacy",)):
        sealed(folder, changed(summary, path))
        assert false(verify_run(folder)), path
    for key in (
        "epsilon",
        "epsilon_server",
        "epsilon_spent",
        "epsilon_best_round",
        "delta",
        "noise_multiplier",
        "note",
    ):
        sealed(folder, changed(summary, (key,)))
        assert false(verify_run(folder)), key
    for key in ("rounds", "rounds_planned", "name", "secure", "private", "accuracy_best", "message_length", "clients"):
        sealed(folder, changed(summary, (key,)))
        assert false(verify_run(folder)), key


def test_a_plan_that_is_kinder_than_the_config_is_found(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    summary = json.loads((folder / "summary.json").read_text())
    request = read_request(summary["privacy"]["request"])
    kinder = PrivacyPlan.solve(**{**vars(request), "noise_multiplier": 5.0})
    told = summary["privacy"] | kinder.describe() | {"request": request_record(kinder.request)}
    summary |= {"privacy": told | {"digest": kinder.digest()}, "epsilon": kinder.epsilon}
    sealed(folder, summary)

    assert {"request against config", "ledger against plan"} <= false(verify_run(folder))


def test_a_changed_config_is_found_though_all_hashes_were_made_again(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    summary, text = json.loads((folder / "summary.json").read_text()), (folder / "config.toml").read_text()
    for before, after in (
        ("noise_multiplier = 1.0", "noise_multiplier = 2.0"),
        ("delta = 0.001", "delta = 0.0001"),
        ("rounds = 6", "rounds = 7"),
        ('name = "small"', 'name = "smell"'),
        ('sample_rate = "1/2"', 'sample_rate = "1/4"'),
        ("[privacy]", "[privcy]"),
    ):
        assert before in text, before
        (folder / "config.toml").write_text(text.replace(before, after, 1))
        sealed(folder, summary)
        assert false(verify_run(folder)), before


def test_a_round_that_was_released_and_not_charged_is_found(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    kept = [entry for entry in entries if (entry["kind"], entry.get("round")) != ("charge", 3)]
    (folder / "ledger.jsonl").write_bytes(rewritten(kept))
    sealed(folder, json.loads((folder / "summary.json").read_text()))

    assert {"rounds against ledger", "ledger against plan"} <= false(verify_run(folder))


def test_a_ledger_without_its_last_lines_is_found(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:-2]))
    sealed(folder, json.loads((folder / "summary.json").read_text()))

    assert "rounds against ledger" in false(verify_run(folder))


def test_a_private_run_whose_ledger_is_gone_is_found(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    (folder / "ledger.jsonl").unlink()

    assert {"file ledger.jsonl", "rounds against ledger"} <= false(verify_run(folder))


def test_a_run_without_privacy_that_claims_an_epsilon_is_found(plain_run: Path, copy: Copy) -> None:
    folder = copy(plain_run)
    sealed(folder, json.loads((folder / "summary.json").read_text()) | {"epsilon": 1.0})

    assert "no promise" in false(verify_run(folder))


def test_a_server_that_told_a_site_another_plan_or_round_is_found(private_run: Path, tmp_path: Path) -> None:
    plan = PrivacyPlan.solve(**vars(read_request(gather_evidence(private_run).plan["request"])))
    for name, digest, rounds, wrong in (
        ("honest", plan.digest(), (1, 3), set()),
        ("other plan", "e" * 64, (1, 3), {"agrees with the server"}),
        ("other round", plan.digest(), (1, 9), {"agrees with the server"}),
    ):
        ledger = site_ledger(tmp_path / name, rounds, plan.max_participations)
        entries = [json.loads(line) | {"digest": digest} for line in ledger.read_text().splitlines()]
        ledger.write_bytes(rewritten(entries))
        head = json.loads(ledger.read_text().splitlines()[-1])["hash"]
        (ledger.parent / "ledger.head").write_text(json.dumps({"lines": len(entries), "hash": head, "next": None}))
        findings = verify_run(private_run, [tmp_path / name])
        assert {claim.split(": ")[-1] for claim in false(findings)} == wrong, name


def test_a_statement_about_another_run_is_found(private_run: Path, plain_run: Path, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(statement_text(make_statement(gather_evidence(plain_run))))

    assert "run folder" in false(verify_statement(tmp_path / "s.json", run=private_run))


def test_a_model_that_was_exchanged_is_found(private_run: Path, copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(statement_text(make_statement(gather_evidence(private_run))))
    folder = copy(private_run)
    shutil.copyfile(folder / "preprocessing.json", folder / "model.npz")

    assert "file model.npz" in false(verify_statement(tmp_path / "s.json", run=folder))
    sealed(folder, json.loads((folder / "summary.json").read_text()))
    assert "run folder" in false(verify_statement(tmp_path / "s.json", run=folder))


def test_what_an_older_version_did_not_record_is_named_and_strict_refuses_it(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    summary = json.loads((folder / "summary.json").read_text())
    del summary["privacy"]["request"], summary["privacy"]["digest"]
    (folder / "summary.json").write_text(summary_text(summary))
    (folder / DIGESTS).unlink()

    findings = verify_run(folder)

    assert not findings.of("false") and {"plan", DIGESTS} <= {each.claim for each in findings.of("unchecked")}
    assert findings.exit_code() == 0 and findings.exit_code(strict=True) == 3


def test_a_run_that_is_not_finished_is_checked_as_far_as_it_goes(private_run: Path, copy: Copy) -> None:
    folder = copy(private_run)
    (folder / "summary.json").unlink()

    findings = verify_run(folder)

    assert not findings.of("false") and findings.of("true") and findings.exit_code(strict=True) == 3


@pytest.mark.parametrize("rest", ["3}", "NaN}", "{}}", "[]", "", "{" * 5000])
def test_a_damaged_statement_is_false_and_never_a_crash(tmp_path: Path, rest: str) -> None:
    (tmp_path / "s").write_text('{"evidence": ' + rest)

    assert verify_statement(tmp_path / "s").exit_code() == 3


@pytest.mark.parametrize("text", ["", "{}", "[]", "<html></html>", "age,died\n30,no\n", "{" * 5000])
def test_a_file_that_is_no_statement_is_a_mistake_and_not_a_lie(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)

    with pytest.raises(InputError, match="is no statement: name one that sottovoce statement wrote, or a run folder"):
        verify_statement(tmp_path / "s")


def test_no_folder_of_the_machine_is_in_a_statement_and_its_run_shows_that_nothing_else_is_missing(
    tmp_path: Path,
) -> None:
    rows = "".join(f"{n % 7},{n % 5},{n % 2}\n" for n in range(60))
    (tmp_path / "mine.csv").write_text("a,b,y\n" + rows)
    tables = {"data": {"source": str(tmp_path / "mine.csv"), "label": "y", "clients": 4}}
    run(parse({"experiment": {"rounds": 1}, "model": {"name": "logistic"}, **tables}), tmp_path / "run")
    document = make_statement(gather_evidence(tmp_path / "run"))
    (tmp_path / "s.html").write_text(statement_page(document))

    assert str(tmp_path) in (tmp_path / "run" / "config.toml").read_text()
    assert str(tmp_path) not in statement_text(document) + statement_page(document)
    alone, with_run = (verify_statement(tmp_path / "s.html", run=there) for there in (None, tmp_path / "run"))
    assert not alone.of("false") and "digest of config.toml" in {each.claim for each in alone.of("unchecked")}
    assert with_run.exit_code(strict=True) == 0
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('partition = "iid"', 'partition = "dirichlet"'))
    assert verify_statement(tmp_path / "s.html", run=tmp_path / "run").exit_code() == 3


def test_a_twin_tells_the_price_of_privacy_and_is_checked(private_run: Path, plain_run: Path, tmp_path: Path) -> None:
    evidence, plain = gather_evidence(private_run), gather_evidence(plain_run)
    twin = twin_record(evidence.config, plain.record(), None)
    document = make_statement(replace(evidence, twin=twin))
    price = document["quality"]["price_of_privacy"]
    (tmp_path / "s.json").write_text(statement_text(document))

    assert price["metrics"]["accuracy"]["without"] == plain.summary["accuracy_final"]
    assert price["records"] == "published data set digits"
    assert price["the twin also differs in"] == ["[aggregation] secure"]
    assert verify_statement(tmp_path / "s.json", run=private_run).exit_code(strict=True) == 0
    assert "unknown: digits is a published data set" in make_statement(evidence)["quality"]["price_of_privacy"]
    missed = []
    lies = [changed(twin, path) for name in ("summary", "digests") for path in leaves(twin[name], (name,))]
    for lie in [*lies, twin | {"config": twin["config"] + "# more\n"}]:
        forged = make_statement(replace(evidence, twin=lie))
        (tmp_path / "s.json").write_text(statement_text(forged))
        if verify_statement(tmp_path / "s.json").exit_code() != 3:
            missed.append(lie)
    assert not missed


def test_no_twin_is_shown_of_records_that_nobody_made_public(private_run: Path, plain_run: Path) -> None:
    here, there = (gather_evidence(folder) for folder in (private_run, plain_run))
    own = [text.config.replace('source = "digits"', 'source = "mine.csv"') for text in (here, there)]
    twin = {**there.record(), "config": own[1]}

    with pytest.raises(PrivacyError, match=r"mine\.csv is no published data set; say with --public"):
        twin_record(own[0], twin, None)
    assert twin_record(own[0], twin, "the hospital's board")["public"] == "the hospital's board"
    assert "nobody declared them public" in price_of_privacy(own[0], here.summary, None)
    with pytest.raises(InputError, match="the twin is private too"):
        twin_record(here.config, here.record(), None)
    with pytest.raises(InputError, match=r"the twin has another \[data\] source"):
        twin_record(here.config, twin, None)


def test_nothing_that_counts_a_cohort_has_a_digest(private_run: Path) -> None:
    document = json.loads((private_run / DIGESTS).read_text())

    assert not {"operator.jsonl", "helper-ledger.jsonl"} & set(document["files"])
    assert document["files"]["model.npz"] == hashlib.sha256((private_run / "model.npz").read_bytes()).hexdigest()


def test_a_run_that_protects_records_is_true_whether_or_not_its_file_counts_them(tmp_path: Path) -> None:
    privacy = {"noise_multiplier": 4.0, "delta": 1e-5, "clip_norm": 0.5, "unit": "record", "min_units": 1}
    run(small(privacy=privacy, cohort={"sample_rate": 1}, experiment={"rounds": 2}), tmp_path / "records")

    findings = verify_run(tmp_path / "records")

    assert not findings.of("false") and findings.exit_code(strict=True) == 0
    statement = make_statement(gather_evidence(tmp_path / "records"))
    assert (
        statement["unit_of_protection"]["is"] == "record" and "given record took part" in statement["in_one_sentence"]
    )


@pytest.mark.parametrize("listed", [False, True], ids=["in all", "of each site"])
def test_units_that_a_file_counts_are_compared_without_those_who_are_set_aside(listed: bool, tmp_path: Path) -> None:
    privacy = {"noise_multiplier": 4.0, "delta": 1e-5, "clip_norm": 0.5, "unit": "record", "min_units": 1}
    told: dict[str, Any] = {"cohort": {"sample_rate": 1}, "client": {"held_out": 0.2}}
    told["experiment"] = {"rounds": 2, "evaluation": "federated"}
    shares = gather(small(privacy=privacy, **told)).units_of_sites
    units = shares if listed else sum(shares)
    run(small(privacy=privacy | {"units": units}, **told), tmp_path / "run")

    assert not verify_run(tmp_path / "run").of("false")

    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    config.write_text(text.replace(f"\nunits = {units}", "\nunits = 9"))
    assert config.read_text() != text
    assert "request against config" in false(verify_run(tmp_path / "run"))


def test_epsilons_that_were_solved_again_are_rounded_up(private_run: Path) -> None:
    (found,) = [finding for finding in verify_run(private_run).found if finding.claim == "plan"]
    summary = json.loads((private_run / "summary.json").read_text())

    shown = dict(re.findall(r"(epsilon(?:_server)?) ([0-9.]+),", found.detail))
    assert set(shown) == {"epsilon", "epsilon_server"}
    for name, text in shown.items():
        assert summary[name] <= float(text) <= 1.001 * summary[name]
