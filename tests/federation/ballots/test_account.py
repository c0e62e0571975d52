"""The helper's own account."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sottovoce.core.errors import PrivacyError
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER, HelperAccount
from sottovoce.privacy import PrivacyPlan


def plan(**keys: object) -> PrivacyPlan:
    base = {"clients": 50, "sample_rate": 0.5, "rounds": 3, "delta": 1e-3, "length": 300, "clip_norm": 1.0}
    return PrivacyPlan.solve(**{**base, "noise_multiplier": 0.5, "noise_by": "aggregators", **keys})


def test_a_client_is_counted_as_often_as_the_plan_says_across_restarts(tmp_path: Path) -> None:
    capped = plan(max_participations=2)
    for round_ in (1, 2):
        with HelperAccount.open(tmp_path, capped) as account:
            account.reserve(round_, [4, 7], counter=0)

    with HelperAccount.open(tmp_path, capped) as account:
        assert not account.admits(4, 3) and account.admits(5, 3)
        with pytest.raises(PrivacyError, match="client 4 was counted in 2 rounds"):
            account.reserve(3, [4], counter=0)


def test_a_repeated_round_of_a_simulation_counts_once_and_of_a_deployment_is_refused(tmp_path: Path) -> None:
    with HelperAccount.open(tmp_path, plan(max_participations=1)) as account:
        account.reserve(1, [4], counter=0)
        account.reserve(1, [4], counter=0)
    (tmp_path / "deployed").mkdir()
    with HelperAccount.open(tmp_path / "deployed", plan(deployment=True)) as account:
        account.reserve(1, [4], counter=0)
        with pytest.raises(PrivacyError, match="was begun before"):
            account.check_round(1)


def test_transfers_of_a_session_do_not_rewind(tmp_path: Path) -> None:
    with HelperAccount.open(tmp_path, plan()) as account:
        account.reserve(1, [4], counter=900, session="a")
    with HelperAccount.open(tmp_path, plan()) as account:
        account.reserve(2, [4], counter=10, session="b")
        with pytest.raises(PrivacyError, match="cannot go back to 899"):
            account.reserve(2, [4], counter=899, session="a")


def test_whom_a_round_counts_is_on_disk_before_it_is_charged(tmp_path: Path) -> None:
    with HelperAccount.open(tmp_path, plan()) as account:
        account.reserve(1, [7, 4], counter=64, session="s")
        lines = [json.loads(line) for line in (tmp_path / HELPER_LEDGER).read_text().splitlines()]
        assert (lines[-1]["kind"], lines[-1]["clients"], lines[-1]["counter"]) == ("ballots", [4, 7], 64)
        account.charge(1)
        assert account.spent == 1
