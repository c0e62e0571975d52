"""A machine's folder is read only if its parts belong together and its secrets are its own."""

from __future__ import annotations

import pickle
import shutil
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest

from sottovoce.core.errors import InputError
from sottovoce.deployment import party as identity
from sottovoce.deployment.certificates import certificate_pem
from sottovoce.deployment.keys import _key, init_federation, read_authority, renew, sign_roster
from sottovoce.deployment.party import Identity, user_id
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.roster_ledger import read_register
from sottovoce.secagg.primitives import verifying_key


def test_a_node_and_the_server_know_who_they_are(fed: Path) -> None:
    node, server = Identity.read(fed / "nodes" / "oslo"), Identity.read(fed / "server")
    roster = node.read_roster()

    assert (node.id, node.name, node.user) == (1, "oslo", "node-1")
    assert (server.id, server.name, server.user) == (None, "server", "server")
    assert roster == server.read_roster() == Roster.read(fed / "public" / "roster.json", node.pinned)
    assert roster.keys[1] == verifying_key(node.signing_key) and roster.server == verifying_key(server.signing_key)
    assert all(path.is_file() for path in (node.certificate, node.private_key, node.ca))


def test_no_secret_is_in_the_words_of_an_identity(fed: Path) -> None:
    node = Identity.read(fed / "nodes" / "oslo")

    assert node.signing_key.hex() not in repr(node) and repr(node.signing_key) not in repr(node)


@pytest.mark.parametrize("file", ["key.pem", "signing.key"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_secret_that_others_may_read_is_refused(fed: Path, file: str, mode: int) -> None:
    path = fed / "nodes" / "oslo" / file
    path.chmod(mode)

    with pytest.raises(InputError, match=f"has mode {mode:o}, must be 600; type: chmod 600 .*{file}"):
        Identity.read(path.parent)


@pytest.mark.parametrize("file", ["key.pem", "signing.key", "cert.pem", "ca.pem", "root.fingerprint"])
def test_a_missing_or_damaged_file_is_named_and_never_shown(fed: Path, file: str) -> None:
    home = fed / "nodes" / "oslo"
    (home / file).write_text("5ecre7")
    with pytest.raises(InputError, match=file) as damaged:
        Identity.read(home)
    (home / file).unlink()
    with pytest.raises(InputError, match=f"{file} cannot be read"):
        Identity.read(home)

    assert "5ecre7" not in str(damaged.value)


def test_another_nodes_certificate_or_key_is_refused(fed: Path) -> None:
    home = fed / "nodes" / "oslo"
    shutil.copy(fed / "nodes" / "lyon" / "cert.pem", home)
    with pytest.raises(InputError, match="made for another key"):
        Identity.read(home)
    shutil.copy(fed / "nodes" / "lyon" / "key.pem", home)
    with pytest.raises(InputError, match=r"another key for node 0 \(lyon\)"):
        Identity.read(home).read_roster()


def test_another_authority_is_refused(fed: Path, tmp_path: Path) -> None:
    init_federation(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "public" / "ca.pem", fed / "nodes" / "oslo")

    with pytest.raises(InputError, match="was not signed by"):
        Identity.read(fed / "nodes" / "oslo")


def test_an_expired_certificate_is_refused_and_says_since_when(fed: Path) -> None:
    node = read_register(fed).named("oslo")
    ended = datetime.now(UTC) - timedelta(days=1)
    stale = read_authority(fed).client("node-1", "oslo", _key(node.certificate), ended)
    (fed / "nodes" / "oslo" / "cert.pem").write_bytes(certificate_pem(stale))

    with pytest.raises(InputError, match=f"expired on {ended:%Y-%m-%d}; ask for a new one"):
        Identity.read(fed / "nodes" / "oslo")


def test_a_certificate_that_ends_soon_is_told(fed: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = read_register(fed).named("oslo")
    soon = read_authority(fed).client("node-1", "oslo", _key(node.certificate), datetime.now(UTC) + timedelta(days=5.5))
    (fed / "nodes" / "oslo" / "cert.pem").write_bytes(certificate_pem(soon))

    Identity.read(fed / "nodes" / "oslo")
    Identity.read(fed / "server")

    assert [record.getMessage().partition(" expires in ")[2][:6] for record in caplog.records] == ["5 days"]


def test_a_machine_whose_clock_is_behind_is_told_to_set_it(fed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Early(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(1970, 1, 1, tzinfo=tz)

    monkeypatch.setattr(identity, "datetime", Early)

    with pytest.raises(InputError, match="this machine's clock says 1970-01-01 00:00; set it"):
        Identity.read(fed / "server")


def test_a_roster_that_is_older_than_the_certificate_is_refused(fed: Path) -> None:
    renew(fed, "oslo")
    with pytest.raises(InputError, match="another certificate for node 1"):
        Identity.read(fed / "nodes" / "oslo").read_roster()
    sign_roster(fed)

    assert Identity.read(fed / "nodes" / "oslo").read_roster().revision == 2


def test_a_node_that_is_not_in_the_roster_says_so(fed: Path) -> None:
    turin = fed / "nodes" / "turin"
    shutil.copytree(turin, turin.parents[2] / "kept")
    sign_roster(fed, ["turin"])
    shutil.copy(fed / "public" / "roster.json", turin.parents[2] / "kept")

    with pytest.raises(InputError, match="has no node 2"):
        Identity.read(turin.parents[2] / "kept").read_roster()


@pytest.mark.parametrize("user", ["", "node-", "node-01", "node--1", "node-1x", "Server", "node-99999999999"])
def test_only_two_kinds_of_common_names_are_known(user: str) -> None:
    with pytest.raises(InputError, match="common name must be"):
        user_id(user)


def test_a_folder_that_is_none_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sottovoce keys node"):
        Identity.read(tmp_path / "none")


def test_an_identity_is_not_pickled(fed: Path) -> None:
    node = Identity.read(fed / "nodes" / "oslo")

    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(node)
