"""Nodes behind a broker that compute features of a front whose numbers the server tells them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.parts import gather
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.streams import Seeds
from sottovoce.deployment.node.build import facts_of, largest_message, make_member
from sottovoce.deployment.server.serve import serve
from sottovoce.deployment.trial.trial import trial
from sottovoce.federation.client import setup_message
from sottovoce.models import Shard
from sottovoce.models.fronted import Fronted
from tests.assembly.test_deployed_fronts import CASES, private
from tests.deployment.test_trial import simulated, tables
from tests.deployment.wired import alone_and_together, identity_of, parts_of, records_of, roster_of
from tests.models.fronts.encoders import WIDTH, image_encoder
from tests.runs.machines import PRIVATE

CLIENTS = 4
SCATTERING = private(CASES["scattering"])


@pytest.mark.parametrize("name", ["measured by nodes", "gabor, head"])
def test_nodes_behind_a_broker_train_what_a_simulation_trains(name: str, tmp_path: Path) -> None:
    experiment = private(CASES[name])

    alone, together = alone_and_together(experiment, tmp_path)

    assert np.array_equal(alone, together)


@pytest.mark.parametrize("name", CASES)
def test_facts_are_those_of_the_file_and_a_set_up_fits_into_a_message(name: str) -> None:
    experiment, roster = private(CASES[name]), roster_of(CLIENTS)
    server, node = parts_of(experiment), gather_without_records(experiment)
    numbers = server.network.start_payload()

    assert facts_of(server, roster).difference(facts_of(node, roster)) is None
    assert np.any(facts_of(node, roster).probe)
    assert largest_message(server) == largest_message(node)
    assert largest_message(node) - (1 << 20) - 16 * node.network.dim - 4096 * CLIENTS >= len(numbers) - 16


def extreme(experiment: Experiment) -> bytes:
    """Return a set-up whose front leads out of the range of numbers."""
    parts = parts_of(experiment)
    net = parts.network
    assert isinstance(net, Fronted)
    known = net.front.projection  # type: ignore[attr-defined]
    huge = replace(known, factor=np.full_like(known.factor, 3e38), centre=np.full_like(known.centre, -3e38))
    payload = replace(net, front=replace(net.front, projection=huge)).start_payload()  # type: ignore[type-var]
    return setup_message(parts.scheme.bind(net.dim, start=parts.start), Seeds(1).public, payload)


def test_numbers_that_lead_out_of_range_do_not_show_in_features() -> None:
    shard = records_of(gather(SCATTERING), 0)
    few = Shard(shard.x[:20], shard.y[:20])
    member, _ = make_member(SCATTERING, identity_of(0), roster_of(CLIENTS), few, simulated=True, apart=False)

    assert np.isfinite(member.training.client(extreme(SCATTERING)).shard().x).all()


LEAN = """
import json, sys
from tests.deployment.test_lean_node import NEVER
from tests.deployment.test_trial import simulated, tables
from tests.deployment.wired import identity_of, roster_of
from sottovoce.deployment.node.build import make_member
from sottovoce.config.experiment import parse
from sottovoce.models import Shard
import numpy as np
told = json.loads(sys.argv[1])
records = Shard(np.zeros((2, 8, 8, 1), np.float32), np.zeros(2, np.int64))
member, _ = make_member(parse(told["tables"]), identity_of(0), roster_of(4), records, simulated=False, apart=False)
shape = member.training.client(bytes.fromhex(told["setup"])).shard().x.shape
print(json.dumps([shape, [name for name in ("torch", "numba", "scipy", "sklearn") if name in sys.modules]]))
"""


@pytest.mark.parametrize(("name", "width"), [("scattering", 20), ("gabor, head", 512)])
def test_a_node_computes_features_without_torch_numba_and_scipy(name: str, width: int) -> None:
    experiment = private(CASES[name])
    tables = {key: table for key, table in experiment.tables().items() if key not in ("privacy", "aggregation")}
    parts = parts_of(parse(tables))
    bound = parts.scheme.bind(parts.network.dim, start=parts.start)
    setup = setup_message(bound, Seeds(1).public, parts.network.start_payload())
    told = json.dumps({"tables": tables, "setup": setup.hex()})
    found = subprocess.run([sys.executable, "-c", LEAN, told], capture_output=True, text=True, check=True)

    assert json.loads(found.stdout) == [[2, width], []]


def test_nodes_with_a_pretrained_network_train_what_a_simulation_trains_without_torch(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    image_encoder(tmp_path / "own.onnx")
    experiment = private({"model": {"front": "encoder", "encoder": {"source": str(tmp_path / "own.onnx")}}})

    alone, together = alone_and_together(experiment, tmp_path)

    assert np.array_equal(alone, together)
    tables = {key: table for key, table in experiment.tables().items() if key not in ("privacy", "aggregation")}
    parts = parts_of(parse(tables))
    bound = parts.scheme.bind(parts.network.dim, start=parts.start)
    setup = setup_message(bound, Seeds(1).public, parts.network.start_payload())
    told = json.dumps({"tables": tables, "setup": setup.hex()})
    found = subprocess.run([sys.executable, "-c", LEAN, told], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == [[2, WIDTH], []]


def test_a_trial_of_processes_with_a_front_and_a_warm_start_equals_the_simulation(tmp_path: Path) -> None:
    told = tables(
        clients=3,
        model={"front": "scattering", "projection": {"dims": 20, "samples": 100}},
        scheme={"warm_start": "fl-once"},
        aggregation={"secure": "real"},
        privacy={**PRIVATE, "warm_noise_multiplier": 1.0},
    )
    ours = tmp_path / "ours"
    with trial(parse(told), 3, ours, simulated=True, kind="amqtt") as made:
        keys, broker = made.keys, made.broker.url
        serve(made.experiment, ours, keys=keys, broker=broker, simulated=True, min_nodes=3, check=made.check)
        for process in made.nodes:
            assert process.wait(20) == 0

    assert (ours / "model.npz").read_bytes() == simulated(told, tmp_path / "theirs")
    assert (ours / "front.bin").read_bytes() == (tmp_path / "theirs" / "front.bin").read_bytes()
