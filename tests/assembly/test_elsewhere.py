"""Parts of a run whose records only the nodes hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.elsewhere import gather_for_server, gather_without_records
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import few
from sottovoce.core.errors import ConfigError, InputError, SottovoceError
from sottovoce.core.streams import Secrets, Seeds
from sottovoce.data.placeholder import Elsewhere
from sottovoce.planning.plan import plan
from sottovoce.runs.loop import run

PRIVATE = {"privacy": {"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}}
REAL = {"aggregation": {"secure": "real"}}
SHAPED = {"data": {"shape": [8, 8, 1], "classes": 10, "scale": 0.0625, "mean_records": 150, "source": "mnist"}}


def nobody(*_: object) -> Any:
    raise AssertionError("nobody is to be reached")


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "virtual", "shards"])
def test_shapes_alone_give_the_network_and_the_mean_that_the_records_give(partition: str) -> None:
    experiment = few(data={"partition": partition})
    whole, bare = gather(experiment), gather_without_records(experiment)

    assert np.array_equal(whole.start, bare.start)
    assert whole.mean_size == bare.mean_size
    assert whole.network.input_shape == bare.network.input_shape


def test_node_and_server_solve_the_same_plan_and_policy() -> None:
    experiment = few(**PRIVATE, **REAL)
    keys = dict.fromkeys(range(9), bytes(32))
    own, other = (Parties.of_machines(Secrets(1), keys, bytes(32), nobody).in_run(b"r" * 16) for _ in range(2))
    server = protect(gather_for_server(experiment, own))
    node = protect(gather_without_records(experiment, other))
    ready = stages(server)[TRAINING].server_side()
    known = stages(node)[TRAINING].client_side(ready.setup)

    assert server.plan is not None
    assert server.plan.request.deployment
    assert node.plan is not None
    assert server.plan.digest() == node.plan.digest() != protect(gather(experiment)).plan.digest()
    assert ready.policy is not None
    assert known.policy is not None
    assert known.policy.run == ready.policy.run
    assert known.policy.config_digest == ready.policy.bind(ready.setup).config_digest
    assert known.private


def test_the_server_has_its_own_test_records_and_nobodys_training_records() -> None:
    experiment = few()
    whole = gather(experiment)
    server, node = gather_without_records(experiment, server=True), gather_without_records(experiment)

    assert np.array_equal(server.dataset.x_test, whole.dataset.x_test)
    assert not server.dataset.x_train.any()
    assert not node.dataset.x_test.any()
    with pytest.raises(InputError, match="the records of client 3 are on its own machine alone"):
        server.partition.records(3)


def test_records_of_any_shape_can_be_described() -> None:
    parts = gather_without_records(few(**SHAPED), server=False)

    assert isinstance(parts.partition, Elsewhere)
    assert parts.network.input_shape == (8, 8, 1)
    assert parts.dataset.input_scale == 0.0625
    assert parts.mean_size == 150
    assert np.array_equal(parts.start, gather(few()).start)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"devices": {"dropout": 0.1}}, r"\[devices\] profile, dropout and leave cannot be played in a deployed run"),
        ({"data": {"held_out": 0.1}}, r"\[data\] held_out sets training records aside"),
        ({"client": {"held_out": 0.1}}, r"\[client\] held_out of nodes is measured by"),
        ({"switches": {"servers": 2}}, r"\[switches\] cannot be played"),
        ({"scheme": {"name": "fl-top", "ratio": 0.1}}, "name a data set in .scheme. public"),
        (PRIVATE, 'secure = "ideal" is not played between machines, where somebody would see single messages'),
        ({"aggregation": {"secure": "ideal"}}, 'secure = "ideal" is not played between machines'),
        (
            {"privacy": {**PRIVATE["privacy"], "clipping": "public", "clip_norm": None, "unsafe_public": True}, **REAL},
            'clipping = "public" measures clip_norm before the plan is solved',
        ),
        ({"data": {**SHAPED["data"], "mean_records": None}}, r"\[data\] mean_records is missing"),
        ({"data": {"source": "adult"}}, "the shape of the records of 'adult' is not known without reading them"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused_in_one_sentence(tables: dict[str, Any], message: str) -> None:
    tables = {name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()}
    with pytest.raises(SottovoceError, match=message):
        gather_without_records(small(**tables))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"shape": [8, 8, 1]}, "shape is given without classes"),
        ({"scale": 0.5}, "scale is of records that only nodes hold"),
        ({"shape": [8, 0], "classes": 2}, "shape"),
    ],
)
def test_half_a_description_of_records_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        few(data=data)


def test_a_simulation_refuses_records_that_only_nodes_hold() -> None:
    with pytest.raises(InputError, match=r"\[data\] shape describes records that only nodes hold"):
        gather(few(**SHAPED))


def test_test_records_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"have shape \[28, 28, 1\] and 10 classes, but those of the nodes"):
        gather_without_records(few(**SHAPED), server=True)


def test_a_federation_needs_secrets_and_the_whole_roster() -> None:
    keys = dict.fromkeys(range(9), bytes(32))
    with pytest.raises(SottovoceError, match="give it Secrets, not seeds"):
        Parties.of_machines(Seeds(1), keys, bytes(32), nobody)
    with pytest.raises(InputError, match=r"\[data\] clients = 9, but the roster has 8 clients"):
        gather_for_server(few(), Parties.of_machines(Secrets(1), dict.fromkeys(range(8), bytes(32))))
    with pytest.raises(InputError, match="the public seed of the run is 2"):
        gather_for_server(few(), Parties.of_machines(Secrets(2), keys))
    assert gather_for_server(few(), Parties.of_machines(Seeds(1), keys, seeded=True)).parties.deployment is False


def test_a_run_that_nobody_measures_has_a_model_and_no_best_round(tmp_path: Path) -> None:
    summary = run(few(experiment={"rounds": 2, "evaluation": "none"}, engine={"workers": 1}), tmp_path / "run")

    assert summary["accuracy_final"] is None
    assert summary["best_round"] is None
    assert (tmp_path / "run" / "model.npz").exists()
    assert not (tmp_path / "run" / "model-best.npz").exists()


def test_a_run_between_machines_can_be_planned_from_the_shape_of_its_records() -> None:
    shaped = plan(few(**SHAPED, **PRIVATE, **REAL))
    whole = plan(few(**PRIVATE, **REAL))

    for key in ("dim", "bytes_up_per_client_round", "epsilon_server", "noise_multiplier"):
        assert shaped[key] == whole[key]
