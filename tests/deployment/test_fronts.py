"""Nodes behind a broker that compute features of a front whose numbers the server tells them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sottovoce.core.streams import Seeds
from sottovoce.deployment.member import facts_of, largest_message, make_member
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.deployed import Deployed, gather_without_records
from sottovoce.experiment.parts import gather
from sottovoce.experiment.run import run
from sottovoce.federation.client import setup_message
from sottovoce.federation.secure import Registry
from sottovoce.models import Shard
from sottovoce.models.fronted import Fronted
from tests.deployment.wired import identity_of, parts_of, records_of, roster_of, wired
from tests.experiment.played import model
from tests.experiment.test_deployed_fronts import CASES, private

CLIENTS = 4
SCATTERING = private(CASES["scattering"])


@pytest.mark.parametrize("name", ["measured by nodes", "gabor, head"])
def test_nodes_behind_a_broker_train_what_a_simulation_trains(name: str, tmp_path: Path) -> None:
    experiment = private(CASES[name])
    run(experiment, tmp_path / "alone")
    with wired(experiment) as held:
        keys = Registry(Seeds(1), CLIENTS)
        deployed = Deployed(Seeds(1), keys, lambda parts, run_id: nullcontext(held.engine), simulated=True)
        run(experiment, tmp_path / "together", deployed=deployed)

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))


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

    assert np.isfinite(member.client(extreme(SCATTERING)).shard().x).all()
