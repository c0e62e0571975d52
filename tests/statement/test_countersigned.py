"""A run between real processes is signed by those who took part, and a server that lies to anybody is found."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.config.experiment import parse, to_toml
from sottovoce.deployment.countersign import Claim, Countersignature
from sottovoce.deployment.party import read_signing_key
from sottovoce.deployment.server import serve as serving
from sottovoce.deployment.server.serve import serve
from sottovoce.deployment.server.signatures import SIGNATURES, signatures_document, signatures_text
from sottovoce.deployment.trial.broker import mosquitto
from sottovoce.deployment.trial.trial import trial
from sottovoce.privacy.ledger import hash_of
from sottovoce.statement.evidence import gather_evidence
from sottovoce.statement.page import statement_page, statement_text
from sottovoce.statement.statement import make_statement
from sottovoce.statement.verify import verify_run, verify_statement
from tests.deployment.test_trial import tables
from tests.statement.test_ledgers import rewritten as chained
from tests.statement.test_verify import changed, false, leaves, sealed

pytestmark = pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Copy = Callable[[Path], Path]


class Signed(NamedTuple):
    """A run that was signed, the sites' own folders, and the federation's keys."""

    run: Path
    nodes: Path
    fed: Path


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signed]:
    folder = tmp_path_factory.mktemp("signed")
    told = tables(
        clients=4,
        experiment={"rounds": 2},
        aggregation={"secure": "real"},
        privacy={"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 0.5},
    )
    with trial(parse(told), 4, folder / "run", simulated=False, kind="mosquitto") as made:

        def kill_one_at_the_end(record: dict[str, Any]) -> None:
            if record["round"] == 2:
                made.nodes[3].kill()
                made.nodes[3].wait()

        serve(
            made.experiment,
            folder / "run",
            keys=made.keys,
            broker=made.broker.url,
            lasting=False,
            min_nodes=4,
            observe=kill_one_at_the_end,
        )
        made.stop()
        shutil.copytree(made.folder / "fed", folder / "fed")
    yield Signed(folder / "run", folder / "fed" / "nodes", folder / "fed")


def test_a_server_that_died_before_its_nodes_signed_asks_them_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tables(clients=3, experiment={"rounds": 1}, aggregation={"secure": "real"})
    with trial(parse(told), 3, tmp_path / "run", simulated=False, kind="mosquitto") as made:
        where: dict[str, Any] = {"keys": made.keys, "broker": made.broker.url, "min_nodes": 3}

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(serving, "_countersigned", die)
            with pytest.raises(KeyboardInterrupt):
                serve(made.experiment, tmp_path / "run", **where)
        before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir() if file.is_file()}
        assert "summary.json" in before and SIGNATURES not in before

        serve(made.experiment, tmp_path / "run", resume=True, **where)
        made.stop()

    document = make_statement(gather_evidence(tmp_path / "run"))
    assert document["signed"]["agree"] == ["server", "node0", "node1", "node2"]
    assert not verify_run(tmp_path / "run").of("false")
    assert all((tmp_path / "run" / name).read_bytes() == text for name, text in before.items())


def test_every_field_of_config_and_ledger_is_bound_by_signatures_though_all_hashes_were_made_again(
    signed: Signed, copy: Copy
) -> None:
    folder = copy(signed.run)
    summary = json.loads((folder / "summary.json").read_text())
    config, ledger = (folder / "config.toml").read_text(), (folder / "ledger.jsonl").read_bytes()
    tables_, entries = tomllib.loads(config), [json.loads(line) for line in ledger.splitlines()]
    missed = []
    for path in leaves(tables_):
        (folder / "config.toml").write_text(to_toml(changed(tables_, path)))
        sealed(folder, summary)
        if not verify_run(folder).of("false"):
            missed.append(path)
    (folder / "config.toml").write_text(config)
    for path in leaves(entries):
        if path[-1] not in ("hash", "previous", "index"):  # they are made again
            (folder / "ledger.jsonl").write_bytes(chained(changed(entries, path)))
            sealed(folder, summary)
            if not verify_run(folder).of("false"):
                missed.append(path)
    assert not missed and len(leaves(tables_)) > 40 and len(leaves(entries)) > 20


def claims(findings: Any, state: str) -> set[str]:
    return {finding.claim for finding in findings.of(state)}


def rewritten(signed: Signed, folder: Path, **changes: Any) -> None:
    """Sign other numbers than the nodes did, as the server can; nodes' signatures stay what they are."""
    document = json.loads((folder / SIGNATURES).read_text())
    claim = replace(Claim.read(document["claim"]), **changes)
    key = read_signing_key(signed.fed / "server" / "signing.key")
    own = Countersignature.make(claim, "server", key, agrees=True, commitment="0" * 64)
    others = [Countersignature.read(each) for each in document["signatures"] if each["signer"] != "server"]
    roster = (signed.fed / "server" / "roster.json").read_bytes()
    (folder / SIGNATURES).write_text(signatures_text(signatures_document(roster, claim, [own, *others])))


def test_nodes_sign_over_a_real_broker_and_who_was_gone_is_named(signed: Signed, tmp_path: Path) -> None:
    document = make_statement(gather_evidence(signed.run))
    (tmp_path / "s.html").write_text(statement_page(document))
    root = (signed.fed / "public" / "root.fingerprint").read_text()
    ledgers = [signed.nodes / f"node{number}" for number in (0, 1)]

    findings = verify_statement(tmp_path / "s.html", ledgers, run=signed.run, root=root)

    assert document["signed"]["agree"] == ["server", "node0", "node1", "node2"]
    assert document["signed"]["did_not_sign"] == ["node3"]
    assert document["trial"] and document["in_one_sentence"].startswith(
        "This was a trial: one machine held all records"
    )
    assert "whoever ran this trial" in {each["who"] for each in document["against"] if each["epsilon"] is None}
    assert not findings.of("false") and claims(findings, "unchecked") == {"who did not sign"}
    assert findings.exit_code() == 0 and findings.exit_code(strict=True) == 3
    assert {"signatures", "author", "countersigned", "what was signed", "root key"} <= claims(findings, "true")
    assert sum(claim.endswith("its signature") for claim in claims(findings, "true")) == 2


def test_nothing_that_is_published_tells_how_often_a_site_took_part(signed: Signed) -> None:
    first, second = (next((signed.nodes / f"node{n}").glob("state/*/signed-*")).read_text() for n in (0, 1))
    published = (signed.run / SIGNATURES).read_text()

    salts = [json.loads(text)["opening"]["salt"] for text in (first, second)]
    heads = [json.loads(text)["opening"]["hash"] for text in (first, second)]
    assert salts[0] != salts[1]
    assert not any(secret in published for secret in (*salts, *heads))


@pytest.mark.parametrize(
    "lie", [{"rounds": 1}, {"epsilon_server": 0.5}, {"delta": 1e-9}, {"charges": 1}, {"files": "e" * 64}]
)
def test_a_server_that_shows_nodes_and_public_different_claims_is_found(
    signed: Signed, copy: Copy, lie: dict[str, Any]
) -> None:
    folder = copy(signed.run)
    rewritten(signed, folder, **lie)

    assert {"signatures", "what was signed"} <= false(verify_run(folder))


def test_a_server_that_publishes_another_epsilon_than_it_let_nodes_sign_is_found(signed: Signed, copy: Copy) -> None:
    folder = copy(signed.run)
    summary = json.loads((folder / "summary.json").read_text())
    sealed(folder, summary | {"rounds": 1, "accuracy_final": 0.99})

    assert "what was signed" in false(verify_run(folder))
    rewritten(signed, folder, rounds=1, files=json.loads((folder / "digests.json").read_text())["hash"])
    assert "signatures" in false(verify_run(folder))  # nodes signed the other one


def test_a_server_that_leaves_out_who_disagrees_is_told_by_that_sites_ledger(signed: Signed, copy: Copy) -> None:
    folder = copy(signed.run)
    document = json.loads((folder / SIGNATURES).read_text())
    kept = [Countersignature.read(each) for each in document["signatures"] if each["signer"] != 1]
    roster = (signed.fed / "server" / "roster.json").read_bytes()
    text = signatures_text(signatures_document(roster, Claim.read(document["claim"]), kept))
    (folder / SIGNATURES).write_text(text)

    assert "who did not sign" in claims(verify_run(folder), "unchecked")
    findings = verify_run(folder, [signed.nodes / "node1"])
    assert any(claim.endswith("its signature") for claim in false(findings))


def test_a_site_that_says_its_account_disagrees_makes_the_statement_false(signed: Signed, copy: Copy) -> None:
    folder = copy(signed.run)
    document = json.loads((folder / SIGNATURES).read_text())
    claim = Claim.read(document["claim"])
    key = read_signing_key(signed.nodes / "node1" / "signing.key")
    differs = Countersignature.make(claim, 1, key, agrees=False, commitment="a" * 64)
    kept = [Countersignature.read(each) for each in document["signatures"] if each["signer"] != 1]
    roster = (signed.fed / "server" / "roster.json").read_bytes()
    (folder / SIGNATURES).write_text(signatures_text(signatures_document(roster, claim, [*kept, differs])))

    assert "countersigned" in false(verify_run(folder))
    assert make_statement(gather_evidence(folder))["signed"]["disagree"] == ["node1"]


def test_a_site_that_changes_its_ledger_after_signing_is_found(signed: Signed, tmp_path: Path) -> None:
    node = Path(shutil.copytree(signed.nodes / "node0", tmp_path / "node0"))
    (path,) = node.glob("state/*/signed-*")
    told = json.loads(path.read_text())
    told["opening"]["lines"] -= 1
    path.write_text(json.dumps(told))

    assert any(claim.endswith("its signature") for claim in false(verify_run(signed.run, [node])))


def test_a_roster_of_another_root_is_found_when_the_root_is_named(signed: Signed) -> None:
    assert "root key" in false(verify_run(signed.run, root="0" * 64))


def test_every_changed_field_of_signatures_claim_and_roster_is_found_though_hashes_were_made_again(
    signed: Signed, copy: Copy
) -> None:
    folder = copy(signed.run)
    whole = json.loads((folder / SIGNATURES).read_text())
    bare = {key: value for key, value in whole.items() if key != "hash"}
    missed = []
    for path in leaves(bare):
        forged = changed(bare, path)
        (folder / SIGNATURES).write_text(signatures_text(forged | {"hash": hash_of(forged)}))
        if verify_run(folder).exit_code() != 3:
            missed.append(path)
    assert not missed


@QUICK
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_every_flipped_bit_of_the_signatures_is_found(signed: Signed, tmp_path: Path, place: int, bit: int) -> None:
    folder = Path(shutil.copytree(signed.run, tmp_path / "run", dirs_exist_ok=True))
    content = bytearray((folder / SIGNATURES).read_bytes())
    content[place % len(content)] ^= 1 << bit
    (folder / SIGNATURES).write_bytes(content)

    assert verify_run(folder).exit_code() == 3


def test_every_changed_word_about_signatures_in_a_statement_is_found_though_its_hash_was_made_again(
    signed: Signed, tmp_path: Path
) -> None:
    document = make_statement(gather_evidence(signed.run))
    bare = {key: value for key, value in document.items() if key != "hash"}
    missed = []
    for path in leaves(bare):
        if path[0] in ("signed", "simulated", "keys"):
            forged = changed(bare, path)
            (tmp_path / "s.json").write_text(statement_text(forged | {"hash": hash_of(forged)}))
            missed += [path] if verify_statement(tmp_path / "s.json").exit_code() != 3 else []
    assert not missed


def test_the_claim_holds_the_numbers_of_the_run(signed: Signed) -> None:
    summary = json.loads((signed.run / "summary.json").read_text())
    claim = asdict(Claim.read(json.loads((signed.run / SIGNATURES).read_text())["claim"]))

    assert {key: claim[key] for key in ("epsilon_server", "delta", "rounds")} == {
        key: summary[key] for key in ("epsilon_server", "delta", "rounds")
    }
