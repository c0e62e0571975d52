"""What `plan` says of both epsilons as targets."""

from __future__ import annotations

from sottovoce.planning.plan import plan
from tests.runs.played import ONE, Tables
from tests.runs.small import small


def test_a_plan_shows_both_targets_and_what_decided() -> None:
    privacy = {"epsilon": 8.0, "epsilon_server": 4.0, "delta": 1e-2, "clip_norm": 0.5}
    told = plan(small(privacy=privacy))["privacy"]

    assert (told["epsilon_target"], told["epsilon_server_target"]) == (8.0, 4.0)
    assert told["epsilon"] <= 8.0 and 3.9 < told["epsilon_server"] <= 4.0
    assert told["noise_decided_by"] == "epsilon_server"
    assert told["max_participations_is"] == "chosen" and 0 < told["draws_lost"] < 1


def test_everyone_of_six_thousand_can_be_planned_under_masks_on_a_sparse_graph() -> None:
    tables: Tables = {
        "experiment": {"rounds": 20},
        "data": {"clients": 6000, "partition": "virtual"},
        "cohort": {"sample_rate": 1},
        "privacy": {"epsilon": 1.0, "epsilon_server": 1.0, "clip_norm": 0.5},
        "aggregation": {"secure": "real"},
        "engine": ONE,
    }
    told = plan(small(**tables))

    assert told["privacy"]["bits_per_coordinate"] <= 17
    assert told["epsilon_server"] <= 1.0
    everyone = 6000 * 32  # a key of each other client, if all masked with all
    assert told["bytes_per_client_phase"]["share"]["up"] < everyone
