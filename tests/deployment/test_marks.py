"""An account of the helper that was deleted, cut, edited or restored from an older copy is noticed; so is a run's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sottovoce.core.errors import InputError, PrivacyError, RunError, SecAggError, SottovoceError
from sottovoce.deployment.helper.keys import add_helper
from sottovoce.deployment.helper.mark import MARK, Mark, MarkFile
from sottovoce.deployment.helper.service import Desk, open_desk
from sottovoce.deployment.keys import sign_roster
from sottovoce.deployment.node.build import config_digest
from sottovoce.deployment.party import Identity
from sottovoce.deployment.server.helper_link import HelperLink
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.privacy.ledger import hash_of
from sottovoce.secagg.primitives import verifying_key
from tests.deployment.test_count import ballots

RUN = b"r" * 16
KEY = b"k" * 32


class Near(HelperLink):
    """A link whose connection is a desk in this process."""

    desk: Desk

    def _connect(self) -> None:
        self.desk.connected()

    def _ask(self, kind: str, payload: bytes) -> bytes:
        return self.desk.answer(kind, payload)


class Both:
    """A server and a helper with accounts on disk, which can forget all that is in memory."""

    def __init__(self, fed: Path, state: Path) -> None:
        self.fed, self.state, self.experiment = fed, state, ballots(rounds=9)
        self.server = Identity.read(fed / "server")

    def call(self, opened: int = 9, run: bytes = RUN, state: Path | None = None) -> Near:
        """Start both anew, and let the server begin."""
        desk = open_desk(self.experiment, self.fed / "helper", state or self.state, simulated=False)[0]
        link = Near(None, self.server, self.server.read_roster(), config_digest(self.experiment), simulated=False)  # type: ignore[arg-type]
        link.desk, link.run, link.opened = desk, run, opened
        try:
            link.begin(b"a set-up")
        except BaseException:
            desk.account.close()
            raise
        return link

    def count(self, *rounds: int) -> None:
        """Let rounds be counted, as far as accounts know of it."""
        link = self.call()
        for round_ in rounds:
            link.desk.account.reserve(round_, [0, 1], counter=round_, session="s")
            link._marked(link.desk._mark(), grown=True)
            link.desk.account.charge(round_)
            link._marked(link.desk._mark(), grown=True)
        link.desk.account.close()


@pytest.fixture
def both(fed: Path, tmp_path: Path) -> Both:
    add_helper(fed, "notary")
    sign_roster(fed)
    return Both(fed, tmp_path / "state")


def cut(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def rewrite(path: Path) -> None:
    """Take a client out of a round, and mend the chain of hashes."""
    whole, last = [], "0" * 64
    for line in map(json.loads, path.read_bytes().splitlines()):
        del line["hash"]
        line |= {"previous": last} | ({"clients": [0]} if "clients" in line else {})
        last = hash_of(line)
        whole.append(json.dumps(line | {"hash": last}) + "\n")
    path.write_text("".join(whole))


@pytest.mark.parametrize("spoil", [cut, tear, rewrite], ids=["cut", "torn", "rewritten"])
def test_an_account_that_lacks_a_line_that_it_signed_for_is_refused(spoil: Callable[[Path], None], both: Both) -> None:
    both.count(1, 2)
    kept = (both.state / HELPER_LEDGER).read_bytes()
    spoil(both.state / HELPER_LEDGER)
    with pytest.raises(PrivacyError, match=r"does not hold line 5 of run 72727272.*--state"):
        both.call()
    (both.state / HELPER_LEDGER).write_bytes(kept)
    both.count(3)


def test_an_older_copy_or_a_new_account_is_refused_until_the_newest_is_given(both: Both, tmp_path: Path) -> None:
    both.count(1)
    shutil.copytree(both.state, tmp_path / "older")
    both.count(2)
    with pytest.raises(PrivacyError, match="restored from an older copy"):
        both.call(state=tmp_path / "older")
    with pytest.raises(PrivacyError, match="is new, and not the one that has line 5"):
        both.call(state=tmp_path / "new")
    assert not (tmp_path / "new" / "run").exists()
    both.call().desk.account.close()
    both.call(run=b"q" * 16, state=tmp_path / "new").desk.account.close()  # another run, by the operator's will


@pytest.mark.parametrize(
    ("gone", "words"), [(HELPER_LEDGER, "is gone, and it was the account"), ("run", "is gone, which says")]
)
def test_a_part_of_the_account_that_is_gone_is_noticed_at_the_start(gone: str, words: str, both: Both) -> None:
    both.count(1)
    (both.state / gone).unlink()
    before = sorted(both.state.iterdir())
    with pytest.raises(PrivacyError, match=words):
        both.call()
    assert sorted(both.state.iterdir()) == before


def test_a_damaged_name_of_the_run_is_refused(both: Both) -> None:
    both.count(1)
    (both.state / "run").write_text("another\n")
    with pytest.raises(InputError, match="32 hex digits of a run"):
        both.call()


def test_a_run_folder_that_is_behind_the_helper_is_refused(both: Both) -> None:
    both.count(1, 4)
    both.call(opened=4).desk.account.close()
    with pytest.raises(PrivacyError, match="has begun round 4 of this run, and the run folder knows of 3"):
        both.call(opened=3)


def test_a_server_that_has_lost_its_mark_or_has_another_helpers_is_refused(both: Both) -> None:
    both.count(1)
    (mark,) = (both.fed / "server" / "state").iterdir()
    kept = mark.read_bytes()
    for text, words in {
        b"{}": "is damaged",
        kept.replace(b'"lines": 3', b'"lines": 2'): "was not signed by the helper of the roster",
    }.items():
        mark.write_bytes(text)
        with pytest.raises(InputError, match=words):
            both.call()
    mark.unlink()
    with pytest.raises(PrivacyError, match="has no mark of its account"):
        both.call()
    assert oct(mark.stat().st_mode & 0o777) == "0o600"
    assert not any(secret in kept for secret in _secrets(both.fed))


def _secrets(fed: Path) -> list[bytes]:
    return [(fed / who / "signing.key").read_bytes().strip() for who in ("server", "helper")]


def test_rounds_only_rise_over_gaps_too(both: Both) -> None:
    both.count(1, 4)
    link = both.call()
    with pytest.raises(PrivacyError, match="rounds only rise"):
        link.desk.account.check_round(3)
    link.desk.account.check_round(5)
    link.desk.account.close()


def test_a_helper_that_lost_its_account_during_a_run_fails_rounds_and_does_not_end_the_run(both: Both) -> None:
    both.count(1)
    link = both.call()
    link.desk.account.close()
    cut(both.state / HELPER_LEDGER)
    link.desk = open_desk(both.experiment, both.fed / "helper", both.state, simulated=False)[0]
    with pytest.raises(SecAggError, match="does not hold line 3"):
        link.answer("hello", b"")
    link.desk.account.close()


def test_a_mark_holds_for_one_run_one_helper_and_what_it_says() -> None:
    mark, key = Mark.make(RUN, (3, "ab" * 32), KEY), verifying_key(KEY)

    assert Mark.unpack(mark.packed()) == mark and len(mark.packed()) == MARK and Mark.unpack(bytes(MARK)) is None
    assert mark.holds(RUN, key)
    assert not mark.holds(b"q" * 16, key) and not mark.holds(RUN, verifying_key(b"o" * 32))
    assert not replace(mark, lines=2).holds(RUN, key) and not replace(mark, head="cd" * 32).holds(RUN, key)


def test_a_mark_that_is_not_ahead_or_not_signed_is_not_kept(tmp_path: Path) -> None:
    file = MarkFile(tmp_path / "state", verifying_key(KEY))
    third, fourth = (Mark.make(RUN, (lines, f"{lines:064x}"), KEY) for lines in (3, 4))
    other = Mark.make(RUN, (4, "ab" * 32), KEY)
    file.keep(RUN, fourth, None, grown=False)
    refused: list[tuple[Mark | None, bool, type[SottovoceError]]] = [
        (third, False, PrivacyError),
        (fourth, True, PrivacyError),
        (other, False, PrivacyError),
        (replace(fourth, lines=5), True, SecAggError),
        (None, True, SecAggError),
    ]
    for mark, grown, error in refused:
        with pytest.raises(error):
            file.keep(RUN, mark, fourth, grown=grown)
    assert file.read(RUN) == file.keep(RUN, fourth, fourth, grown=False) == fourth
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        MarkFile(tmp_path / "file", verifying_key(KEY)).keep(RUN, fourth, None, grown=False)


def test_a_round_waits_for_a_helper_that_is_gone_and_not_for_ever(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    link, pauses = both.call(), list[float]()
    calls = iter([SecAggError("cannot be reached"), PrivacyError("does not hold line 3"), None, SecAggError("gone")])

    def connect() -> None:
        if (error := next(calls)) is not None:
            raise error
        link.desk.connected()

    monkeypatch.setattr(link, "_connect", connect)
    monkeypatch.setattr("time.sleep", pauses.append)
    assert link.ready() and len(pauses) == 2
    link.patience = 0.0
    assert link.ready() and len(pauses) == 2  # the round fails, like any other
    link.desk.account.close()
