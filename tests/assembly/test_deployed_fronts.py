"""Fronts between machines: the server fits them, the set-up carries their numbers, and nodes compute the features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.runs.machines import ALL_ANSWER, ONE, PRIVATE, federation
from tests.runs.played import Tables, ledger, merged, model
from tests.runs.small import small

from sottovoce.assembly import model as fronts
from sottovoce.assembly.elsewhere import gather_for_server, gather_without_records
from sottovoce.assembly.protection import Protection
from sottovoce.assembly.stages import TRAINING, Stage, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import RunError, WireError
from sottovoce.core.streams import Seeds
from sottovoce.federation.client import setup_message
from sottovoce.federation.engine import Request
from sottovoce.runs.folder import read_rounds
from sottovoce.runs.loop import run

SCATTERING: Tables = {"model": {"front": "scattering", "projection": {"dims": 20, "samples": 100}}}
GABOR: Tables = {"model": {"name": "cnn", "front": "gabor", "projection": {"dims": 10, "samples": 100}}}
CASES: dict[str, Tables] = {
    "scattering": SCATTERING,
    "head behind a front": merged(SCATTERING, {"model": {"name": "mlp", "hidden": 8}, "scheme": {"train": "head"}}),
    "once with everyone": merged(
        SCATTERING,
        {
            "scheme": {"name": "fl-once", "record_norm": 3.34},
            "experiment": {"rounds": 1},
            "privacy": {"clip_norm": None},
        },
    ),
    "gabor, head": merged(GABOR, {"scheme": {"train": "head"}}),
    "gabor, all": merged(GABOR, {"experiment": {"rounds": 1}}),
    "own": {"model": {"front": f"{__name__}:corners", "projection": {"dims": 6, "samples": 100}}},
    "measured by nodes": merged(
        SCATTERING,
        {
            "experiment": {"evaluation": "federated"},
            "client": {"held_out": 0.25},
            "privacy": {"evaluation_noise_multiplier": 2.0},
        },
    ),
}


def corners(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return a front of the user's."""
    return x[:, :4, :4, 0].reshape(len(x), -1).astype(np.float32)


def private(*several: Tables) -> Experiment:
    base: Tables = {
        "experiment": {"rounds": 2, "evaluate_every": 1},
        "data": {"clients": 4},
        "cohort": {"sample_rate": 1},
        "privacy": PRIVATE,
        "aggregation": ALL_ANSWER,
        **ONE,
    }
    whole = merged(base, *several)
    return small(**{name: {k: v for k, v in table.items() if v is not None} for name, table in whole.items()})


@pytest.mark.parametrize("name", CASES)
def test_a_front_between_machines_gives_the_model_of_a_simulation_bit_for_bit(name: str, tmp_path: Path) -> None:
    experiment = private(CASES[name])
    run(experiment, tmp_path / "alone")
    run(experiment, tmp_path / "together", parties=federation(experiment, simulated=True)[0])

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))
    assert read_rounds(tmp_path / "alone") == read_rounds(tmp_path / "together")
    assert ledger(tmp_path / "alone") == ledger(tmp_path / "together")
    assert (tmp_path / "alone" / "front.bin").read_bytes() == (tmp_path / "together" / "front.bin").read_bytes()


def test_a_resumed_server_tells_the_numbers_that_it_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(request: Request, client: int) -> bool:
        if (request.round, request.phase) == (1, "mask"):
            raise KeyboardInterrupt
        return False

    def nothing(*_: object) -> Any:
        raise RunError("a front was fitted twice")

    experiment = private(SCATTERING)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", parties=federation(experiment, lost=stop)[0])
    deployed, engines = federation(experiment)
    monkeypatch.setattr(fronts, "_projection_source", nothing)
    run(experiment, tmp_path / "run", resume=True, parties=deployed)

    assert {round_ for round_, _, _ in engines[0].requests} == {2}
    with pytest.raises(RunError, match="fitted twice"):
        gather_for_server(experiment, deployed)


def setup_of(experiment: Experiment) -> bytes:
    """Return the set-up of a server that plays an experiment."""
    parts = gather_without_records(experiment, server=True)
    bound = parts.scheme.bind(parts.network.dim, start=parts.start)
    return setup_message(bound, Seeds(1).public, parts.network.start_payload())


def node_of(experiment: Experiment) -> Stage:
    """Return a node before the set-up; its plan has no part in it."""
    return stages(Protection(gather_without_records(experiment)))[TRAINING]


def dims(number: int) -> Tables:
    return {"model": {"projection": {"dims": number, "samples": 100}}}


@pytest.mark.parametrize("number", [1, 19, 21, 60])
def test_a_node_refuses_a_front_of_another_size_than_its_file_has(number: int) -> None:
    node = node_of(private(SCATTERING))
    told = setup_of(private(merged(SCATTERING, dims(number))))

    with pytest.raises(WireError):
        node.heard(told)


def test_a_node_refuses_a_server_that_trains_other_layers() -> None:
    with pytest.raises(WireError, match="trains other layers than the experiment file"):
        node_of(private(GABOR, {"scheme": {"train": "head"}})).heard(setup_of(private(GABOR)))


def test_a_node_reads_no_more_axes_than_its_file_has_features() -> None:
    node, experiment = node_of(private(merged(SCATTERING, dims(2)))), private(SCATTERING)
    front = gather_without_records(experiment, server=True).network.front  # type: ignore[attr-defined]
    assert len(front.projection.channels) > 2
    known = replace(front.projection, pairs=front.projection.pairs[:2] % 2, centre=front.projection.centre[:2])
    payload = replace(known, factor=front.projection.factor[:2]).payload()
    seed = setup_message(experiment.make_scheme().bind(10), Seeds(1).public)

    with pytest.raises(WireError, match="axes for"):
        node.heard(seed + payload)


def test_a_node_that_has_not_heard_the_numbers_cannot_go_on() -> None:
    parts = gather_without_records(private(SCATTERING))
    with pytest.raises(Exception, match="has no projection yet"):
        parts.network.start_payload()
