"""Nodes come in and go out; whatever interrupts it, the folder is what it was or what it was to be."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from sottovoce.cli import main
from sottovoce.core.errors import InputError
from sottovoce.deployment import keys
from sottovoce.deployment import roster_ledger as register
from sottovoce.deployment.certificates import covers
from sottovoce.deployment.keys import accept_node, add_nodes, init_federation, renew, request_node, sign_roster
from sottovoce.deployment.party import Identity
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.roster_ledger import read_register


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def revoked(fed: Path) -> set[int]:
    return {each.serial_number for each in x509.load_pem_x509_crl((fed / "public" / "crl.pem").read_bytes())}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_secrets_are_private_and_stand_in_no_other_file(fed: Path) -> None:
    secrets = {path for name in ("*.key", "key.pem") for path in fed.rglob(name)}
    words = {path.read_bytes().strip() for path in secrets}
    others = b"\n".join(path.read_bytes() for path in fed.rglob("*") if path.is_file() and path not in secrets)

    assert len(secrets) == 2 + 1 + 2 + 3 * 2
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in secrets)
    assert stat.S_IMODE(fed.stat().st_mode) == 0o700
    assert not any(word in others for word in words)


def test_certificates_name_their_owners(fed: Path) -> None:
    names = [
        certificate(fed / "nodes" / name / "cert.pem").subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        for name in ("lyon", "oslo", "turin")
    ]
    broker = certificate(fed / "broker" / "cert.pem")

    assert names == ["node-0", "node-1", "node-2"]
    assert covers(broker, "localhost") and covers(broker, "127.0.0.1") and not covers(broker, "example.org")


def test_the_acl_gives_each_node_its_own_topics_and_nothing_else(fed: Path) -> None:
    topic = f"sottovoce/{Identity.read(fed / 'server').pinned[:16]}"
    lines = (fed / "public" / "acl").read_text().splitlines()

    assert lines[lines.index("user node-1") + 1 :][:2] == [f"topic read {topic}/to/1", f"topic write {topic}/from/1"]
    assert sum(line.startswith("user") for line in lines) == 4
    assert sum(line.startswith("topic") for line in lines) == 8 and "#" not in "".join(lines[1:])
    assert (fed / "public" / "emqx-acl.conf").read_text().splitlines()[-1] == "{deny, all}."


def test_nothing_is_overwritten(fed: Path) -> None:
    before = everything(fed)
    for refused in (
        lambda: init_federation(fed),
        lambda: add_nodes(fed, ["OSLO"]),
        lambda: add_nodes(fed, ["a", "A"]),
        lambda: request_node(fed / "nodes" / "oslo"),
    ):
        with pytest.raises(InputError, match="already"):
            refused()

    assert everything(fed) == before


def test_a_node_that_made_its_keys_itself_sends_no_secret(fed: Path, tmp_path: Path) -> None:
    own = tmp_path / "porto"
    asked = request_node(own)
    node, heard = accept_node(fed, own / "request.json")
    sign_roster(fed)
    sent = fed / "nodes" / "porto"
    for path in sent.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    identity = Identity.read(own)

    assert asked == heard and node.id == 3 == identity.id
    assert identity.read_roster().by_name("porto").key == asked.key
    assert {path.name for path in sent.iterdir()} == {"cert.pem", "ca.pem", "root.fingerprint", "roster.json"}
    assert identity.signing_key.hex().encode() not in b"".join(everything(fed).values())


def test_a_request_that_was_changed_is_refused_and_one_that_is_repeated_lets_nobody_in_anew(
    fed: Path, tmp_path: Path
) -> None:
    request_node(tmp_path / "porto")
    path = tmp_path / "porto" / "request.json"
    raw, before = path.read_text(), everything(fed)
    document = json.loads(raw)
    for changes in ({"name": "lisbon"}, {"key": "00" * 32}, {"certificate_request": "x"}, {"more": 1}):
        path.write_text(json.dumps(document | changes))
        with pytest.raises(InputError, match=r"request\.json: the request was changed"):
            accept_node(fed, path)
    for garbage in ("", "[]", "{}", '{"kind": "sottovoce request", "version": 1}'):
        path.write_text(garbage)
        with pytest.raises(InputError, match=r"request\.json: "):
            accept_node(fed, path)
    assert everything(fed) == before
    path.write_text(raw)
    node, _ = accept_node(fed, path)
    again, _ = accept_node(fed, path)

    assert (again.id, again.key) == (node.id, node.key), "it is a new certificate for the same keys"
    assert again.certificate != node.certificate and len(sign_roster(fed).roster.entries) == 4
    (tmp_path / "other").mkdir()
    request_node(tmp_path / "other" / "porto")
    with pytest.raises(InputError, match="already has a node porto"):
        accept_node(fed, tmp_path / "other" / "porto" / "request.json")


def test_a_key_is_registered_once(fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request_node(tmp_path / "porto")
    accept_node(fed, tmp_path / "porto" / "request.json")
    again = bytes.fromhex((tmp_path / "porto" / "signing.key").read_text())
    with monkeypatch.context() as patch:
        patch.setattr(keys.os, "urandom", lambda _: again)
        request_node(tmp_path / "lisbon")

    with pytest.raises(InputError, match=r"the key [0-9a-f]+ twice"):
        accept_node(fed, tmp_path / "lisbon" / "request.json")


def test_ids_stay_without_gaps_when_a_node_leaves(fed: Path) -> None:
    old = {name: certificate(fed / "nodes" / name / "cert.pem") for name in ("lyon", "oslo", "turin")}
    before = Roster.read(fed / "public" / "roster.json", Identity.read(fed / "server").pinned)
    signed = sign_roster(fed, ["lyon", "LYON"])
    turin = Identity.read(fed / "nodes" / "turin")

    assert [(entry.id, entry.name) for entry in signed.roster.entries] == [(0, "turin"), (1, "oslo")]
    assert signed.moved == {"turin": 0} and signed.revoked == ("lyon",) and signed.roster.revision == 2
    assert turin.id == 0 and turin.read_roster() == signed.roster
    assert signed.roster.entries[0].key == before.entries[2].key, "it keeps its keys"
    assert signed.roster.entries[1] == before.entries[1], "nobody else is touched"
    assert revoked(fed) == {old["lyon"].serial_number, old["turin"].serial_number}
    assert "node-2" not in (fed / "public" / "acl").read_text() and not (fed / "nodes" / "lyon").exists()


def test_the_certificates_before_a_renewal_are_revoked_with_their_node(fed: Path) -> None:
    first = certificate(fed / "nodes" / "oslo" / "cert.pem").serial_number
    renew(fed, "oslo")
    second = certificate(fed / "nodes" / "oslo" / "cert.pem").serial_number
    assert revoked(fed) == set(), "until the node has the new one, the old one works"
    sign_roster(fed, ["oslo"])

    assert {first, second} <= revoked(fed)


def test_commands_at_the_same_time_give_everybody_an_id_of_its_own(fed: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda name: add_nodes(fed, [name])[0], ["a", "b", "c", "d"]))

    assert sorted(node.id for node in added) == [3, 4, 5, 6]
    assert [entry.name for entry in sign_roster(fed).roster.entries[:3]] == ["lyon", "oslo", "turin"]
    assert all(Identity.read(fed / "nodes" / node.name).read_roster() for node in added)


def test_a_name_and_an_id_are_free_after_revocation(fed: Path) -> None:
    sign_roster(fed, ["turin"])
    (node,) = add_nodes(fed, ["turin"])

    assert node.id == 2 and sign_roster(fed).roster.by_name("turin").id == 2
    assert Identity.read(fed / "nodes" / "turin").read_roster().revision == 3
    assert [path.name for path in (fed / "revoked").iterdir()] == ["0-turin"]


def test_signing_the_same_again_changes_nothing(fed: Path) -> None:
    before = everything(fed)
    signed = sign_roster(fed)

    after = everything(fed)
    assert signed.roster.revision == 1 and before["public/roster.json"] == after["public/roster.json"]


def test_somebody_who_took_its_folder_away_gets_only_public_files(fed: Path, tmp_path: Path) -> None:
    (fed / "nodes" / "oslo").rename(tmp_path / "laptop")
    (fed / "server").rename(tmp_path / "tower")
    add_nodes(fed, ["porto"])
    sign_roster(fed)
    renew(fed, "server")

    public = {"cert.pem", "ca.pem", "root.fingerprint", "roster.json"}
    assert {path.name for path in (fed / "nodes" / "oslo").iterdir()} == public
    assert {path.name for path in (fed / "server").iterdir()} == public | {"certificates.json"}


def test_the_last_node_cannot_be_revoked_into_an_empty_roster(fed: Path) -> None:
    before = everything(fed)
    with pytest.raises(InputError, match="at least one node"):
        sign_roster(fed, ["lyon", "oslo", "turin"])
    with pytest.raises(InputError, match='no node "paris"; its nodes: lyon, oslo, turin'):
        sign_roster(fed, ["lyon", "paris"])

    assert everything(fed) == before


def test_another_federations_root_key_signs_nothing_here(fed: Path, tmp_path: Path) -> None:
    init_federation(tmp_path / "other")
    (tmp_path / "other" / "root.key").replace(fed / "root.key")

    with pytest.raises(InputError, match="another federation's"):
        sign_roster(fed)


@pytest.mark.parametrize("last", ["publish", "write_register"])
def test_an_init_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(keys, last, interrupted)
    with pytest.raises(KeyboardInterrupt):
        init_federation(tmp_path / "fed")

    assert list(tmp_path.iterdir()) == []


def test_an_init_that_is_killed_leaves_no_folder_of_that_name_or_a_whole_one(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from sottovoce.cli import main; main(['keys', 'init', 'fed'])"]
    for patience in (0.35, 0.5, 0.65):
        child = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(patience)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        if (tmp_path / "fed").exists():
            break
    if not (tmp_path / "fed").exists():
        init_federation(tmp_path / "fed")  # what a killed command left is in nobody's way
    add_nodes(tmp_path / "fed", ["lyon"])

    assert sign_roster(tmp_path / "fed").roster.by_name("lyon").id == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_node_is_in_whole_or_not_at_all_when_interrupted(
    fed: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def interrupted(*given: object) -> None:
        if moment == "after":
            register.write_register(*given)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keys, "write_register", interrupted)
        with pytest.raises(KeyboardInterrupt):
            add_nodes(fed, ["porto"])
    known = read_register(fed).has("porto")
    signed = sign_roster(fed)

    assert known == (moment == "after") == (fed / "nodes" / "porto").exists()
    assert len(signed.roster.entries) == (4 if known else 3)
    assert not known or Identity.read(fed / "nodes" / "porto").read_roster() == signed.roster


def test_a_revocation_that_was_interrupted_is_finished_by_the_next_roster(
    fed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keys, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sign_roster(fed, ["lyon"])
    signed = sign_roster(fed)

    assert [entry.name for entry in signed.roster.entries] == ["turin", "oslo"] and len(revoked(fed)) == 2
    assert Identity.read(fed / "nodes" / "turin").read_roster() == signed.roster


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["init", "fed2", "--broker", "mqtts://a:8883"], "--broker must be a host's name or address"),
        (["init", "fed2", "--broker", "300.1.1.1"], "--broker must be"),
        (["init", "fed2", "--days", "0"], "--days must be in [1, 3650], got 0"),
        (["init", "none/fed"], "is no folder; make it first"),
        (["node", "none", "lyon"], "none is no federation's folder; make one with: sottovoce keys init none"),
        (["node", "fed"], "give the names of the nodes"),
        (["node", "fed", "../x"], "a node's name has 1 to 32 letters"),
        (["node", "fed", "server"], '"server" is no node of a federation'),
        (["node", "fed", "Broker"], '"Broker" is no node of a federation'),
        (["node", "fed", "x", "--request"], "--request takes the node's folder alone"),
        (["node", "fed", "--request", "--renew"], "exclude each other"),
        (["node", "fed", "--accept", "none.json"], "none.json cannot be read"),
        (["node", "fed", "paris", "--renew"], 'has no node "paris"'),
        (["roster", "fed", "--revoke", "paris"], 'has no node "paris"'),
        (["roster", "none"], "is no federation's folder"),
    ],
)
def test_wrong_input_is_one_sentence(
    fed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(fed.parent)
    before = everything(fed)

    assert main(["keys", *words]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and shown.count("\n") == 1 and said in shown
    assert everything(fed) == before and sorted(path.name for path in fed.parent.iterdir()) == ["fed"]


def test_every_command_speaks_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def told(*words: str) -> dict:
        assert main(["keys", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    made = told("init", "fed", "--broker", "broker.example")
    asked = told("node", "porto", "--request")
    told("node", "fed", "lyon", "oslo")
    heard = told("node", "fed", "--accept", asked["request"])
    signed = told("roster", "fed")
    renewed = told("node", "fed", "broker", "--renew")
    out = told("roster", "fed", "--revoke", "lyon")

    assert made["root_fingerprint"] == signed["root_fingerprint"] and asked["digest"] == heard["digest"]
    assert [node["name"] for node in signed["nodes"]] == ["lyon", "oslo", "porto"]
    assert out["moved"] == {"porto": 0} and out["revision"] == 2 and "broker" in renewed["valid_until"]
    assert covers(certificate(Path("fed/broker/cert.pem")), "broker.example")
