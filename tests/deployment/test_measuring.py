"""Nodes measure the model beside their rounds: over the real engine, with marks and charges of their own."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np

from sottovoce.assembly.parties import Parties
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.core.streams import Seeds
from sottovoce.deployment.node.state import Book
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.stages.evaluation import EVALUATION
from sottovoce.runs.folder import read_rounds
from sottovoce.runs.loop import run
from tests.deployment.wired import RUN, roster_of, wired
from tests.runs.machines import private
from tests.runs.played import model

EXPERIMENT = private(
    experiment={"rounds": 2, "evaluate_every": 1, "evaluation": "federated"},
    client={"held_out": 0.25},
    privacy={"evaluation_noise_multiplier": 2.0},
)


def test_nodes_behind_a_broker_measure_what_a_simulation_measures(tmp_path: Path) -> None:
    run(EXPERIMENT, tmp_path / "alone")
    with wired(EXPERIMENT) as held:
        parties = Parties.of_machines(
            Seeds(1),
            SimulatedKeys(Seeds(1), 6),
            roster_of(6).digest,
            lambda parts, run_id: nullcontext(held.engine),
            new_run=RUN,
            seeded=True,
        )
        run(EXPERIMENT, tmp_path / "together", parties=parties)

    assert np.array_equal(model(tmp_path / "alone"), model(tmp_path / "together"))
    assert read_rounds(tmp_path / "alone") == read_rounds(tmp_path / "together")


def test_a_book_charges_measurements_beside_the_rounds_and_marks_them_apart(tmp_path: Path) -> None:
    plan = protect(gather(EXPERIMENT)).plan
    with Book(tmp_path, plan) as book:
        rounds, beside = book.enter(b"r" * 16)
        for round_ in (1, 2):
            book.charge(EVALUATION + round_)
            beside.before_mask(EVALUATION + round_)

        assert book.spent == 0
        assert not book.affords(EVALUATION + 3)
        assert book.affords(1)
        rounds.check(1)
