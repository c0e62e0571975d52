"""The helper in keys and roster: it is somebody else, and a federation without one has the files that it had."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from sottovoce.cli import main
from sottovoce.core.errors import InputError
from sottovoce.deployment.certificates import new_key
from sottovoce.deployment.helper.keys import accept_helper, add_helper, request_helper
from sottovoce.deployment.keys import accept_node, add_nodes, renew, request_node, sign_roster
from sottovoce.deployment.party import HELPER, Identity, read_signing_key
from sottovoce.deployment.request import Registration
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.roster_ledger import read_register
from sottovoce.secagg.primitives import exchange_key

SECRETS = ("key.pem", "signing.key", "exchange.key")


def test_a_helper_is_in_the_next_roster_with_keys_of_its_own(fed: Path) -> None:
    before = json.loads((fed / "public" / "roster.json").read_bytes())
    add_helper(fed, "notary")
    assert json.loads((fed / "public" / "roster.json").read_bytes()) == before
    sign_roster(fed)
    identity = Identity.read(fed / "helper")
    roster = identity.read_roster()
    after = json.loads((fed / "public" / "roster.json").read_bytes())

    assert identity.id == HELPER and identity.user == "helper"
    assert roster.helper is not None and roster.helper.name == "notary"
    assert roster.helper.leader == Identity.read(fed / "server").fingerprint
    assert set(after) - set(before) == {"helper"} and after["revision"] == before["revision"] + 1
    assert Identity.read(fed / "nodes" / "lyon").read_roster() == roster
    assert read_register(fed).helper is not None
    secrets = [fed / "helper" / name for name in ("key.pem", "signing.key", "exchange.key")]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secrets)


def test_without_a_helper_no_file_says_a_word_of_it(fed: Path) -> None:
    assert b"helper" not in (fed / "register.json").read_bytes()
    assert b"helper" not in (fed / "public" / "roster.json").read_bytes()
    assert not (fed / "helper").exists()


def test_a_renewed_helper_is_in_the_roster_once_it_is_signed(fed: Path) -> None:
    add_helper(fed, "notary")
    sign_roster(fed)
    renew(fed, "helper")
    with pytest.raises(InputError, match="other keys for the helper"):
        Identity.read(fed / "helper").read_roster()
    sign_roster(fed)
    Identity.read(fed / "helper").read_roster()


@pytest.mark.parametrize("whose", ["server", "root", "node"])
def test_a_helper_whose_key_is_anothers_is_refused(whose: str, fed: Path) -> None:
    add_helper(fed, "notary")
    roster = sign_roster(fed).roster
    assert roster.helper is not None
    key = {"server": roster.server, "root": roster.root, "node": roster.entries[1].key}[whose]
    with pytest.raises(InputError, match=r"the helper's key is .* too"):
        replace(roster, helper=replace(roster.helper, key=key))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "LYON"},
        {"exchange": bytes(32)},
        {"key": bytes(31)},
        {"leader": "0"},
        {"fingerprint": "g" * 64},
    ],
)
def test_a_helper_that_cannot_be_is_refused(change: dict[str, object], fed: Path) -> None:
    add_helper(fed, "notary")
    roster = sign_roster(fed).roster
    assert roster.helper is not None
    with pytest.raises(InputError):
        replace(roster, helper=replace(roster.helper, **change))  # type: ignore[arg-type]


def test_a_second_helper_and_a_node_as_helper_change_nothing(fed: Path) -> None:
    add_helper(fed, "notary")
    before = (fed / "register.json").read_bytes()
    for name in ("other", "lyon", "server", "helper"):
        with pytest.raises(InputError):
            add_helper(fed, name)
    assert (fed / "register.json").read_bytes() == before


def test_keys_helper_is_a_command(fed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "helper", str(fed), "notary", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "notary"
    assert main(["keys", "roster", str(fed)]) == 0
    assert "helper notary" in capsys.readouterr().out
    assert Roster.read(fed / "public" / "roster.json", (fed / "public" / "root.fingerprint").read_text()).helper


def test_a_helper_makes_its_own_keys_and_no_secret_of_it_gets_into_the_folder(fed: Path, tmp_path: Path) -> None:
    asked = request_helper(tmp_path / "notary")
    made, accepted = accept_helper(fed, tmp_path / "notary" / "request.json")
    roster = sign_roster(fed).roster
    sent = {path.name for path in (fed / "helper").iterdir()}
    for path in (fed / "helper").iterdir():
        shutil.copy2(path, tmp_path / "notary")
    identity = Identity.read(tmp_path / "notary")
    secrets = [(tmp_path / "notary" / name).read_bytes().strip() for name in SECRETS]

    assert accepted.digest == asked.digest and made.name == "notary"
    assert sent == {"cert.pem", "ca.pem", "root.fingerprint", "roster.json"}
    assert identity.read_roster() == roster and identity.id == HELPER
    assert roster.helper is not None and (roster.helper.key, roster.helper.exchange) == (made.key, made.exchange)
    assert exchange_key(read_signing_key(tmp_path / "notary" / "exchange.key")) == roster.helper.exchange
    everything = [path.read_bytes() for path in fed.rglob("*") if path.is_file()]
    everything.append((tmp_path / "notary" / "request.json").read_bytes())
    assert not any(secret in content for secret in secrets for content in everything)


def test_a_request_of_another_kind_forged_or_of_somebody_who_is_in_changes_nothing(fed: Path, tmp_path: Path) -> None:
    before = (fed / "register.json").read_bytes()
    request_node(tmp_path / "porto")
    request_helper(tmp_path / "notary")
    path = tmp_path / "notary" / "request.json"
    told = json.loads(path.read_bytes())
    (tmp_path / "forged.json").write_text(json.dumps(told | {"exchange": "ab" * 32}))
    signing = read_signing_key(fed / "nodes" / "lyon" / "signing.key")
    weak = {"lyon": exchange_key(bytes(range(32))), "weak": bytes(32)}
    for name, exchange in weak.items():  # lyon as helper under another name; a key that everybody knows
        key = signing if name == "lyon" else bytes(range(32))
        (tmp_path / f"{name}.json").write_bytes(Registration.make("other", key, new_key(), exchange)[1])
    refused = {
        "a node's request": lambda: accept_helper(fed, tmp_path / "porto" / "request.json"),
        "a helper's request": lambda: accept_node(fed, path),
        "changed after it was signed": lambda: accept_helper(fed, tmp_path / "forged.json"),
        "node lyon's too": lambda: accept_helper(fed, tmp_path / "lyon.json"),
        "small order": lambda: accept_helper(fed, tmp_path / "weak.json"),
        "already there": lambda: request_helper(tmp_path / "notary"),
    }
    for words, act in refused.items():
        with pytest.raises(InputError, match=words):
            act()
    assert (fed / "register.json").read_bytes() == before and not (fed / "helper").exists()


def test_a_helper_that_was_revoked_is_in_no_newer_roster_and_can_be_replaced(fed: Path, tmp_path: Path) -> None:
    add_helper(fed, "notary")
    old = sign_roster(fed).roster
    renew(fed, "helper")
    was = read_register(fed).helper
    assert was is not None
    kept = shutil.copytree(fed / "helper", tmp_path / "kept")
    signed = sign_roster(fed, ["notary"])
    revoked = x509.load_pem_x509_crl((fed / "public" / "crl.pem").read_bytes())

    assert signed.revoked == ("notary",) and signed.roster.helper is None
    assert signed.roster.revision == old.revision + 1
    assert len(was.serials) == 2 and all(revoked.get_revoked_certificate_by_serial_number(n) for n in was.serials)
    assert not (fed / "helper").exists() and read_register(fed).helper is None
    shutil.copy2(fed / "public" / "roster.json", kept / "roster.json")
    with pytest.raises(InputError, match="the roster has no helper"):
        Identity.read(kept).read_roster()
    request_helper(tmp_path / "other")
    accept_helper(fed, tmp_path / "other" / "request.json")
    after = sign_roster(fed).roster
    assert after.helper is not None and after.helper.name == "other" and after.revision == old.revision + 2
    shutil.copy2(fed / "public" / "roster.json", kept / "roster.json")
    with pytest.raises(InputError, match="other keys for the helper"):
        Identity.read(kept).read_roster()


@pytest.mark.parametrize("whose", ["nodes/lyon", "server"])
def test_a_machine_takes_no_roster_that_is_older_than_one_it_has_used(whose: str, fed: Path) -> None:
    add_helper(fed, "notary")
    old = (sign_roster(fed).roster, (fed / "public" / "roster.json").read_bytes())[1]
    sign_roster(fed, ["helper"])
    home = fed / whose
    newest = Identity.read(home).read_roster()
    kept = (home / "roster.json").read_bytes()
    (home / "roster.json").write_bytes(old)
    with pytest.raises(InputError, match="take the newest"):
        Identity.read(home).read_roster()
    (home / "roster.json").write_bytes(kept)
    assert Identity.read(home).read_roster() == newest


def test_a_node_does_not_take_the_helpers_name_or_key(fed: Path) -> None:
    add_helper(fed, "notary")
    with pytest.raises(InputError, match="has a helper"):
        add_nodes(fed, ["Notary"])


def test_keys_helper_by_request_is_a_command(fed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "notary"
    assert main(["keys", "helper", str(own), "--request", "--json"]) == 0
    digest = json.loads(capsys.readouterr().out)["digest"]
    assert main(["keys", "helper", str(fed), "--accept", str(own / "request.json")]) == 0
    assert digest in capsys.readouterr().out
    assert main(["keys", "roster", str(fed), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["helper"] == "notary"
    assert main(["keys", "roster", str(fed), "--revoke", "notary"]) == 0
    assert "revoked notary" in capsys.readouterr().out
    for wrong in ([str(fed)], [str(fed), "notary", "--request"], [str(fed), "--accept", "nowhere.json"]):
        assert main(["keys", "helper", *wrong]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3
