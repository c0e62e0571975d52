"""Rosters that change while a training goes on: who joins, who is out, and what all of it costs together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data import load
from sottovoce.deployment.keys import add_nodes, sign_roster
from sottovoce.deployment.party import Identity
from sottovoce.deployment.server.epochs import (
    Epoch,
    RosterWatch,
    _end,
    _experiment,
    _plan,
    _solve,
    play_epochs,
    read_epochs,
)
from sottovoce.privacy.budget import Budget, BudgetTerms, cost_of
from sottovoce.runs.folder import RunFolder
from sottovoce.runs.population import make_folder, reserve_again
from tests.deployment.test_agent import NAMES, RUN, experiment, fleet

ROUNDS = 7
OPEN = "[rules]\nprivate = false\n"


def test_a_node_joins_and_a_stolen_laptop_is_out_between_two_rounds_of_a_training(tmp_path: Path) -> None:
    digits = load("digits")
    np.savez(tmp_path / "paris.npz", x=digits.x_train[::5], y=digits.y_train[::5])
    heard: list[tuple[str, int]] = []
    with fleet(tmp_path) as made:

        def observe(record: dict[str, Any]) -> None:
            epoch = len(read_epochs(tmp_path / "run"))
            heard.append((f"epoch {epoch}", record["senders"]))
            if heard.count(("epoch 1", 4)) == 2 and epoch == 1:
                add_nodes(made.fed, ["paris"])
                sign_roster(made.fed)
                made.broker.reload()  # it knows paris now
                made.policy("paris", OPEN)
                made.start("paris")
            if sum(name == "epoch 2" for name, _ in heard) == 2 and epoch == 2:
                sign_roster(made.fed, ["lyon"])  # paris, the last, takes its number

        for name in NAMES:
            made.policy(name, OPEN)
            made.start(name)
        long = experiment(experiment={"rounds": ROUNDS}, engine={"min_nodes": 5, "broker": made.broker.url})
        summary, folder = play_epochs(long, tmp_path / "run", keys=made.fed / "server", observe=observe)
        again = play_epochs(long, tmp_path / "run", keys=made.fed / "server", resume=True)
        made.broker.reload()
        made.until("lyon", "it was revoked")

    assert [(each.clients, each.begun, each.ended) for each in read_epochs(tmp_path / "run")[:2]] == [
        (4, 2, True),
        (5, 2, True),
    ]
    assert heard == [("epoch 1", 4)] * 2 + [("epoch 2", 5)] * 2 + [("epoch 3", 4)] * 3
    assert folder.name == "epoch-3" and summary["rounds"] == 3 and again == (summary, folder)
    before, after = (np.load(tmp_path / "run" / name / "model.npz") for name in ("epoch-2", "epoch-3"))
    distance = sum(float(np.abs(before[name] - after[name]).max()) for name in before.files)
    assert 0 < distance < 1, "an epoch begins where the one before has ended"


# What epochs cost.

LIMITED: dict[str, Any] = {
    "unit": "client",
    "noise_multiplier": 3.0,
    "delta": 1e-6,
    "clip_norm": 0.5,
    "budget": "patients.jsonl",
    "budget_epsilon_server": 20.0,
    "budget_delta": 1e-4,
}


def private(rounds: int = 20, **more: Any) -> Experiment:
    tables = {name: dict(table) for name, table in RUN.items()}
    tables["experiment"] |= {"rounds": rounds}
    tables["data"] |= {"clients": 100}
    tables["cohort"] = {"sample_rate": 0.5}
    tables["aggregation"] |= {"answer_rate": 0.99}
    return parse({**tables, "privacy": LIMITED | more})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class _Roster:
    def __init__(self, clients: int, revision: int = 1) -> None:
        self.entries, self.revision = tuple(range(clients)), revision


def solve(base: Experiment, before: list[Epoch], clients: int) -> tuple[Epoch, Experiment]:
    return _solve(base, before, _Roster(clients), Path())  # type: ignore[arg-type]


def begin(base: Experiment, epoch: Epoch, before: list[Epoch], begun: int) -> Experiment:
    """Make an epoch's folder, reserve its plan, and begin some of its rounds."""
    played = _experiment(base, epoch, before)
    folder = Path("run") / f"epoch-{epoch.number}"

    def make(more: Any) -> RunFolder:
        return RunFolder.create(folder, played, more)

    make_folder(played, _plan(played), make).__exit__()
    (folder / "checkpoint").mkdir(exist_ok=True)
    np.savez(folder / "checkpoint" / "opened.npz", round=begun)
    return played


def charged() -> list[float | None]:
    with Budget(Path("patients.jsonl"), BudgetTerms(population="digits")) as budget:
        return [cost.precision for cost in budget.costs]


def test_an_epoch_pays_for_the_rounds_that_it_began_and_cannot_go_on() -> None:
    base = private()
    epoch, played = solve(base, [], 100)
    begin(base, epoch, [], begun=5)
    (whole,) = charged()

    ended = _end(base, Path("run"), [epoch])

    plan = _plan(played)
    assert plan is not None and (ended.begun, ended.ended) == (5, True)
    assert charged() == [cost_of(plan, 5).precision]
    assert charged()[0] == pytest.approx((whole or 0) * 5 / min(20, plan.max_participations))
    with RunFolder.reopen(Path("run/epoch-1"), played) as folder, pytest.raises(PrivacyError, match="begin another"):
        reserve_again(played, plan, folder)


def test_each_epoch_has_a_plan_of_its_own_that_fits_into_what_is_left() -> None:
    base = private(budget_epsilon_server=12.0)
    first, played = solve(base, [], 100)
    begin(base, first, [], begun=10)
    first = _end(base, Path("run"), [first])

    second, smaller = solve(base, [first], 80)
    begin(base, second, [first], begun=10)
    _end(base, Path("run"), [first, second])

    assert smaller.data.clients == 80 and smaller.experiment.rounds == 10
    one, two = _plan(played), _plan(smaller)
    assert one is not None and two is not None and one.digest() != two.digest()
    with Budget(Path("patients.jsonl"), BudgetTerms(population="digits")) as budget:
        assert budget.limit is not None and budget.limit.fits(budget.costs)
        assert len(budget.costs) == 2


def test_where_the_budget_is_spent_there_is_no_plan_and_no_epoch() -> None:
    base = private(rounds=400, noise_multiplier=3.0, budget_epsilon_server=20.0)
    first, _ = solve(base, [], 100)
    assert first.noise is not None and first.noise > 3.0, "the file's own noise does not fit"
    begin(base, first, [], begun=399)
    first = _end(base, Path("run"), [first])

    try:
        second, _ = solve(base, [first], 100)
    except PrivacyError as error:
        assert "no plan, no epoch" in str(error)
    else:
        begin(base, second, [first], begun=1)
        with Budget(Path("patients.jsonl"), BudgetTerms(population="digits")) as budget:
            assert budget.limit is not None and budget.limit.fits(budget.costs)


def test_epochs_of_a_private_training_need_a_budget_and_a_folder_of_their_own(tmp_path: Path) -> None:
    table = {key: value for key, value in LIMITED.items() if not key.startswith("budget")}
    tables = private().tables()
    lone = parse(tables | {"privacy": table})
    full = tmp_path / "full"
    full.mkdir()
    (full / "thing").touch()

    for bad, out, words in (
        (lone, tmp_path / "run", "share a budget"),
        (private(budget="/srv/patients.jsonl"), tmp_path / "run", "a path below this folder"),
        (private(), full, "holds no epochs"),
    ):
        with pytest.raises(InputError, match=words):
            play_epochs(bad, out, keys=tmp_path)


def test_a_roster_that_the_root_did_not_sign_ends_no_epoch(fed: Path) -> None:
    server = fed / "server"
    roster = Identity.read(server).read_roster()
    watch = RosterWatch(server, roster)
    raw = (server / "roster.json").read_bytes()

    assert not watch.look()
    (server / "roster.json").write_bytes(raw.replace(b"oslo", b"olso"))
    assert not watch.look()
    (server / "roster.json").write_bytes(raw)
    add_nodes(fed, ["paris"])
    sign_roster(fed)
    assert watch.look()
    assert set(watch.announcements(private())) == {0, 1, 2}
    sign_roster(fed, ["lyon"])
    later = RosterWatch(server, roster)
    assert later.look() and set(later.announcements(private())) == {1, 2}, "who is out is told nothing"
