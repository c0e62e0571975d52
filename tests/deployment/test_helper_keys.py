"""The helper in keys and roster: it is somebody else, and a federation without one has the files that it had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sottovoce.cli import main
from sottovoce.core.errors import InputError
from sottovoce.deployment.helper_keys import add_helper
from sottovoce.deployment.identity import HELPER, Identity
from sottovoce.deployment.keys import renew, sign_roster
from sottovoce.deployment.register import read_register
from sottovoce.deployment.roster import Roster


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
