"""Runs on the same records add up: sums are printed, and one budget file counts a population over runs.

The budget charges before anything is released, and never less: killed, full, cut or shared, it refuses or charges.
"""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.cli.app import app
from sottovoce.config.experiment import Experiment, parse, to_toml
from sottovoce.core.errors import ConfigError, PrivacyError, RunError, SottovoceError
from sottovoce.data import load
from sottovoce.planning.plan import plan
from sottovoce.privacy.accounting import accountant
from sottovoce.privacy.accounting.events import Event
from sottovoce.privacy.accounting.population import ADDED, PRICED, SLACK, Cost, Limit, added, fixed, order_for
from sottovoce.privacy.budget import Budget, BudgetTerms, cost_of
from sottovoce.report.html import page
from sottovoce.report.runs import facts, read_run
from sottovoce.report.tables import notes
from sottovoce.runs.folder import RunFolder
from sottovoce.runs.loop import run
from sottovoce.runs.population import ALONE, declared_costs, make_folder, population_name, totals
from sottovoce.search.sweep import sweep
from sottovoce.search.tune import tune
from tests.runs.machines import federation, private
from tests.runs.small import small
from tests.runs.test_deployed import lose

ONE = {"workers": 1}
DELTA = 1e-5
PRIVACY: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "clip_norm": 0.5}


def once(seed: int = 1, **privacy: Any) -> Experiment:
    """Return one round of everybody at epsilon 1: a Gaussian without sampling, and done in a moment."""
    return small(
        experiment={"rounds": 1, "seed": seed, "name": f"run-{seed}"},
        cohort={"sample_rate": 1},
        privacy={**PRIVACY, **privacy},
        engine=ONE,
    )


def gaussian(noise: float, rounds: int = 1, delta: float = DELTA) -> Cost:
    """Return the cost of a run of unsampled Gaussians."""
    event = Event(noise_multiplier=noise, sample_rate=1.0, rounds=rounds)
    epsilon = accountant.epsilon([event], delta=delta)
    return Cost(
        epsilon=epsilon, epsilon_server=epsilon, delta=delta, events=(event,), precision=rounds / noise**2, lattice=0.0
    )


class EnoughError(Exception):
    """Raised where a kill is played."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# The sums.


def test_a_sweep_of_four_private_runs_prints_their_sum_and_it_is_that_of_dp_accounting(tmp_path: Path) -> None:
    tables = once().tables() | {"sweep": {"experiment": {"seed": [1, 2, 3, 4]}}}
    summaries = sweep(parse(tables), tmp_path / "sweep")
    oracle = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    oracle.compose(dp.GaussianDpEvent(summaries[0]["noise_multiplier"]), 4)

    assert [round(summary["epsilon"], 3) for summary in summaries] == [1.0] * 4
    together = {summary["epsilon_population"] for summary in summaries}
    assert len(together) == 1
    assert together.pop() == pytest.approx(oracle.get_epsilon(DELTA), rel=2e-3) == pytest.approx(2.15, abs=0.01)
    assert {summary["population"]["runs"] for summary in summaries} == {4}
    assert all("fixed before the first" in summary["population"]["method"] for summary in summaries)
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text()) == summaries


def test_the_sum_of_sampled_runs_of_several_kinds_is_that_of_dp_accounting() -> None:
    kinds = ((1.2, 1 / 60, 200), (2.0, 0.1, 50), (5.0, 1.0, 3))
    costs, oracle = [], PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    for noise, rate, rounds in kinds:
        event = Event(noise_multiplier=noise, sample_rate=rate, rounds=rounds)
        epsilon = accountant.epsilon([event], delta=DELTA)
        costs.append(
            Cost(epsilon=epsilon, epsilon_server=50.0, delta=DELTA, events=(event,), precision=rounds / noise**2)
        )
        oracle.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), rounds)
    total = fixed(costs)

    assert total.epsilon == pytest.approx(oracle.get_epsilon(DELTA), rel=5e-3)
    assert total.delta == pytest.approx(DELTA, rel=1e-3)
    assert total.delta > DELTA, "what the Gaussians do not describe is added"


def test_report_prints_the_sum_of_the_runs_that_it_is_given_and_only_of_those_on_the_same_records(
    tmp_path: Path,
) -> None:
    for seed in (1, 2):
        run(once(seed), tmp_path / f"run-{seed}")
    other = once(3, population="others")
    run(other, tmp_path / "run-3")
    runs = [read_run(tmp_path / f"run-{seed}") for seed in (1, 2, 3)]
    [total] = totals(facts(runs))
    words = " ".join(note for note, _ in notes(facts(runs)))

    assert (total["population"], total["runs"]) == ("digits", 2)
    assert total["epsilon"] == pytest.approx(1.4658, rel=2e-3)
    assert total["if_chosen_after_looking"]["epsilon"] == pytest.approx(2.0, rel=1e-4)
    assert total["if_chosen_after_looking"]["delta"] == 2 * DELTA
    assert "2 private runs on the same records add up" in words
    assert "add up: together" in page(runs)
    shown = CliRunner().invoke(app, ["report", *(str(each.path) for each in runs), "--json"])
    assert json.loads(shown.stdout)["populations"] == [total]


def test_runs_of_an_older_version_count_with_their_epsilons(tmp_path: Path) -> None:
    for seed in (1, 2):
        run(once(seed), tmp_path / f"run-{seed}")
    path = tmp_path / "run-2" / "summary.json"
    old = json.loads(path.read_text())
    for key in ("population", "epsilon_population", "epsilon_server_population", "delta_population"):
        old.pop(key)
    old["privacy"].pop("cost")
    path.write_text(json.dumps(old))
    [total] = totals(facts([read_run(tmp_path / f"run-{seed}") for seed in (1, 2)]))

    assert total["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert total["unknown"] == 0


def test_a_run_without_a_budget_says_that_others_add_to_it(tmp_path: Path) -> None:
    summary = run(once(), tmp_path / "run")

    assert summary["epsilon_population"] is None
    assert summary["population"]["method"] == ALONE
    assert "population" not in run(small(engine=ONE), tmp_path / "plain"), "it spends nothing"


# Limits that hold though runs are chosen after looking.


def test_runs_chosen_after_looking_are_refused_by_a_filter_and_not_by_the_pld_of_spent_and_next() -> None:
    """Five runs of epsilon 1 cost 2.44 by pld, if they were fixed before. No proof covers them under 2.5 if not."""
    one = gaussian(3.7307)
    limit = Limit(epsilon=2.5, epsilon_server=None, delta=2e-5, order=order_for(one, 2.5, 2e-5))

    assert fixed([one] * 5).epsilon < 2.5
    assert limit.fits([one] * 4)
    assert not limit.fits([one] * 5)


@settings(max_examples=25, deadline=None)
@given(
    noises=st.lists(st.floats(0.8, 20.0), min_size=1, max_size=5),
    rate=st.sampled_from([1.0, 0.1]),
    limit=st.floats(0.5, 8.0),
)
def test_what_fits_a_limit_costs_no_more_by_the_pld_accountant(noises: list[float], rate: float, limit: float) -> None:
    """A filter must be at least as dear as the same runs fixed in advance, at the limit's own delta."""
    events = [Event(noise_multiplier=noise, sample_rate=rate, rounds=3) for noise in noises]
    costs = [
        Cost(
            epsilon=accountant.epsilon([event], delta=DELTA, accountant="rdp"),
            epsilon_server=accountant.epsilon_server([(event.noise_multiplier, 3)], delta=DELTA),
            delta=DELTA,
            events=(event,),
            precision=3 / event.noise_multiplier**2,
        )
        for event in events
    ]
    outsiders = Limit(epsilon=limit, epsilon_server=None, delta=2e-5, order=order_for(costs[0], limit, 2e-5))
    server = Limit(epsilon=None, epsilon_server=limit, delta=2e-5, order=8.0)

    if outsiders.fits(costs):
        assert accountant.epsilon(events, delta=2e-5) <= limit * (1 + 1e-6)
    if server.fits(costs):
        exact = dp.get_epsilon_gaussian(sum(3 / noise**2 for noise in noises) ** -0.5, 2e-5)
        assert exact <= limit * (1 + 1e-6)


def test_a_limit_affords_one_run_of_its_own_epsilon_and_the_server_is_limited_by_the_sum_of_precisions() -> None:
    one = gaussian(3.7307)
    alone = Limit(epsilon=1.0, epsilon_server=None, delta=2e-5, order=order_for(one, 1.0, 2e-5))
    server = Limit(epsilon=None, epsilon_server=2.3, delta=2e-5, order=8.0)

    assert alone.fits([one])
    assert not alone.fits([one] * 2)
    assert server.fits([one] * 4), "m Gaussians are one Gaussian of z / sqrt(m), chosen after looking or not"
    assert not server.fits([one] * 5)


def test_each_condition_of_a_limit_has_its_own_part_of_delta() -> None:
    """Half for adding, a quarter for the filter, a quarter for slack: else two conditions would spend one delta."""
    limit = Limit(epsilon=2.5, epsilon_server=2.5, delta=2e-5, order=9.1)
    one = gaussian(3.7307)
    runs = 12.5  # times the divergence of one
    oracle, _ = dp.rdp.compute_epsilon([9.1], [runs * one.divergence(9.1)], 0.25 * 2e-5)

    assert ADDED + PRICED + SLACK <= 1
    assert limit.fits([Cost(epsilon=0.01, epsilon_server=0.01, delta=0.5 * 2e-5)])
    assert not limit.fits([Cost(epsilon=0.01, epsilon_server=0.01, delta=0.51 * 2e-5)])
    allowed = runs * one.divergence(9.1) - (oracle - 2.5)  # where the conversion gives just 2.5
    share = replace(limit, epsilon_server=None).share([one] * 4)
    assert share == pytest.approx(4 * one.divergence(9.1) / allowed, rel=1e-9)


def test_what_a_renyi_filter_takes_is_the_divergence_of_dp_accounting() -> None:
    event = Event(noise_multiplier=1.2244, sample_rate=1 / 60, rounds=200)
    oracle = dp.rdp.RdpAccountant([4.0])
    oracle.compose(dp.PoissonSampledDpEvent(1 / 60, dp.GaussianDpEvent(1.2244)), 200)

    cost = Cost(epsilon=1.0, epsilon_server=math.inf, delta=DELTA, events=(event,), precision=1.0)

    assert cost.divergence(4.0) == pytest.approx(float(oracle._rdp[0]), rel=1e-12)


def test_a_release_of_which_only_epsilon_and_delta_are_known_is_bounded_by_randomised_response() -> None:
    """(epsilon, 0)-DP is dominated by randomised response; its divergences and trade-off must lie below the bounds."""
    opaque = Cost(epsilon=1.0, epsilon_server=1.0, delta=DELTA)
    yes = math.e / (1 + math.e)
    for order in (1.5, 4.0, 16.0):
        real = math.log(yes**order * (1 - yes) ** (1 - order) + (1 - yes) ** order * yes ** (1 - order)) / (order - 1)
        assert real <= opaque.divergence(order) + 1e-12
    for epsilon in np.linspace(0, 1, 11):
        hockey = yes - math.exp(epsilon) * (1 - yes)
        assert dp.get_epsilon_gaussian(opaque.gaussian**-0.5, max(hockey, 1e-12)) >= epsilon - 1e-6
    assert added([opaque, opaque])[:3] == (2.0, 2.0, 2 * DELTA)


# Records and persons.


def records(seed: int = 1, *, measured: bool = False, **privacy: Any) -> Experiment:
    """Return two rounds of five sites, where each record is protected at epsilon 1 against the server."""
    keys = {"unit": "record", "epsilon_server": 1.0, "delta": DELTA, "clip_norm": 0.5, **privacy}
    tables: dict[str, Any] = {
        "experiment": {"rounds": 2, "evaluate_every": 2, "seed": seed, "name": f"run-{seed}"},
        "data": {"source": "digits", "clients": 5, "test_public": True},
        "model": {"name": "logistic"},
        "privacy": keys,
        "aggregation": {"threshold": 4},
        "engine": ONE,
    }
    if measured:
        tables["experiment"]["evaluation"] = "federated"
        tables["client"] = {"held_out": 0.2}
    return parse(tables)


def test_runs_that_protect_records_share_a_limit_and_it_is_kept_by_the_filter(tmp_path: Path) -> None:
    ledger = tmp_path / "records.ledger"
    limits = {"budget": str(ledger), "budget_epsilon_server": 2.2, "budget_delta": 4e-5}
    told = [run(records(seed, **limits), tmp_path / f"run-{seed}") for seed in (1, 2, 3, 4)]

    with pytest.raises(PrivacyError, match=r"budget_epsilon_server 2\.2 .* 4 releases on 'digits'"):
        run(records(5, **limits), tmp_path / "run-5")

    assert not (tmp_path / "run-5").exists()
    assert [summary["epsilon_server_population"] for summary in told] == [2.2] * 4
    assert [summary["population"]["runs"] for summary in told] == [1, 2, 3, 4]
    assert lines(ledger)[0]["unit"] == "record"
    noises = [summary["privacy"]["noise_multiplier"] * math.sqrt(4 / 5) for summary in told]  # threshold 4 of 5
    oracle = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for noise in noises:
        oracle.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise), 2))
    assert 1.5 < oracle.get_epsilon(DELTA) < 2.2, "what dp-accounting says of all runs together is within the limit"


def test_a_budget_is_for_one_unit(tmp_path: Path) -> None:
    ledger = str(tmp_path / "b")
    run(records(budget=ledger), tmp_path / "first")

    with pytest.raises(PrivacyError, match=r"counts what each record of 'digits' pays, .* each client; .* file"):
        run(once(budget=ledger), tmp_path / "second")
    assert not (tmp_path / "second").exists()
    assert len(lines(tmp_path / "b")) == 2


def test_the_delta_of_a_budget_is_compared_with_the_records_and_not_with_the_sites(tmp_path: Path) -> None:
    limits = {"budget": str(tmp_path / "b"), "budget_epsilon": 4.0, "budget_delta": 1e-3}

    with pytest.raises(PrivacyError, match=r"budget_delta must be below 1 / records = 0\.000"):
        run(records(**limits), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "b").exists()


def test_records_that_are_set_aside_are_charged_for_what_is_measured_on_them() -> None:
    """A run whose measurements cost more than its training takes that from the limit, by every sum."""
    experiment = records(measured=True, evaluation_noise_multiplier=2.0, epsilon_server=None, noise_multiplier=40.0)
    solved = protect(gather(experiment)).plan
    assert solved is not None
    cost = cost_of(solved)
    trained = replace(cost, apart=())

    assert cost.apart
    assert cost == Cost.read(json.loads(json.dumps(cost.told())))
    [measured] = cost.apart
    assert cost.divergence(8.0) == pytest.approx(accountant.renyi([measured], 8.0))
    assert cost.divergence(8.0) > 10 * trained.divergence(8.0)
    left = measured.left(solved.shares.server_part)
    assert cost.precision == pytest.approx(measured.rounds / left**2)
    both = fixed([cost, cost])
    assert both.epsilon >= accountant.epsilon([replace(measured, rounds=2 * measured.rounds)], delta=DELTA)


def test_runs_of_several_units_are_summed_apart(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("clients", "first", "second")]
    for folder, experiment in zip(folders, (once(1), records(2), records(3)), strict=True):
        run(experiment, folder)

    [together] = totals(facts([read_run(folder) for folder in folders]))
    assert (together["unit"], together["runs"]) == ("record", 2)


# The file.

TERMS = BudgetTerms(population="patients", epsilon=2.5)


def test_a_run_that_would_exceed_the_budget_is_refused_before_training_with_what_is_left(tmp_path: Path) -> None:
    ledger = tmp_path / "population.ledger"
    limits = {"budget": str(ledger), "budget_epsilon": 2.5}
    told = [run(once(seed, **limits), tmp_path / f"run-{seed}") for seed in (1, 2, 3, 4)]
    before = ledger.read_bytes()
    with pytest.raises(PrivacyError, match=r"budget_epsilon 2\.5 .* 4 releases on 'digits', .* 5% is left") as refused:
        run(once(5, **limits), tmp_path / "run-5")

    assert refused.value.exit_code == 3
    assert not (tmp_path / "run-5").exists()
    assert ledger.read_bytes() == before
    assert [summary["epsilon_population"] for summary in told] == [2.5] * 4
    assert [summary["population"]["runs"] for summary in told] == [1, 2, 3, 4]
    assert "Renyi filter" in told[0]["population"]["method"]
    with pytest.raises(PrivacyError, match="5% is left"):
        plan(once(5, **limits))
    plan(once(6, **(limits | {"epsilon": 0.4})))
    run(once(6, **(limits | {"epsilon": 0.4})), tmp_path / "run-6")


def test_the_command_exits_with_3_and_says_what_is_left(tmp_path: Path) -> None:
    keys = {"budget": str(tmp_path / "b"), "budget_epsilon": 1.2, "budget_delta": 1e-3}
    (tmp_path / "e.toml").write_text(to_toml(once(**keys).tables()))
    command = [sys.executable, "-m", "sottovoce", "run", str(tmp_path / "e.toml"), "--out"]
    first, second = (subprocess.run([*command, str(tmp_path / str(k))], capture_output=True, text=True) for k in (1, 2))

    assert first.returncode == 0, first.stderr
    assert "epsilon of the population digits" in first.stdout
    assert second.returncode == 3
    assert "error: [privacy] budget_epsilon 1.2" in second.stderr
    assert "is left" in second.stderr
    assert not (tmp_path / "2").exists()


def test_without_a_limit_epsilons_and_deltas_are_added(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        summary = run(once(seed, budget=str(tmp_path / "b")), tmp_path / f"run-{seed}")

    assert summary["epsilon_population"] == pytest.approx(3.0, rel=1e-4)
    assert summary["delta_population"] == pytest.approx(3 * DELTA)
    assert summary["epsilon_server_population"] == pytest.approx(3 * summary["epsilon_server"])
    assert summary["population"]["if_fixed_in_advance"]["epsilon"] == pytest.approx(1.835, rel=2e-3)


def test_a_resumed_run_does_not_pay_twice_and_one_killed_before_it_reserved_pays_then(tmp_path: Path) -> None:
    ledger = tmp_path / "b"
    experiment = small(privacy={**PRIVACY, "epsilon": 8.0, "budget": str(ledger)}, engine=ONE)

    def stop(record: dict[str, Any]) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        run(experiment, tmp_path / "run", observe=stop)
    run(experiment, tmp_path / "run", resume=True)
    assert [line["kind"] for line in lines(ledger)] == ["open", "run"]

    def killed(more: dict[str, Any]) -> RunFolder:
        shutil.copytree(tmp_path / "run", tmp_path / "late", ignore=shutil.ignore_patterns("ledger*", "summary*"))
        environment = json.loads((tmp_path / "late" / "environment.json").read_text())
        (tmp_path / "late" / "environment.json").write_text(json.dumps(environment | more))
        raise EnoughError

    with pytest.raises(EnoughError):
        make_folder(experiment, protect(gather(experiment)).plan, killed)
    assert len(lines(ledger)) == 2, "nothing was released yet"
    for name in ("rounds.jsonl", "operator.jsonl"):
        (tmp_path / "late" / name).unlink()
    shutil.rmtree(tmp_path / "late" / "checkpoint")
    run(experiment, tmp_path / "late", resume=True)
    assert [line["kind"] for line in lines(ledger)] == ["open", "run", "run"]


def test_a_run_whose_budget_was_replaced_is_not_resumed(tmp_path: Path) -> None:
    experiment = small(privacy={**PRIVACY, "epsilon": 8.0, "budget": str(tmp_path / "b")}, engine=ONE)
    run(experiment, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    for name in ("b", "b.mark"):
        (tmp_path / name).unlink()

    with pytest.raises(PrivacyError, match="which does not know it: the file was cut or replaced"):
        run(experiment, tmp_path / "run", resume=True)


def test_changed_rows_do_not_reset_a_budget_and_another_population_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    own, other = tmp_path / "own.npz", tmp_path / "other.npz"

    def write(path: Path) -> None:
        x, y = rng.random((120, 4), np.float32), rng.integers(0, 2, 120)
        np.savez(path, x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])

    def on(source: Path, seed: int) -> Experiment:
        tables = once(seed, budget=str(tmp_path / "b")).tables()
        tables["data"] |= {"source": str(source)}
        tables["privacy"]["unsafe_preprocessing"] = True
        return parse(tables)

    for seed in (1, 2):
        write(own)  # other rows each time
        costs = run_or_refuse(on(own, seed), tmp_path / f"run-{seed}")
    assert costs["population"]["runs"] == 2
    (tmp_path / "link.npz").symlink_to(own)
    assert population_name(on(tmp_path / "link.npz", 3)) == "own.npz"
    write(other)
    with pytest.raises(PrivacyError, match=r"is the budget of 'own\.npz', and this run is on 'other\.npz'; give it"):
        run_or_refuse(on(other, 4), tmp_path / "run-4")


def run_or_refuse(experiment: Experiment, path: Path) -> dict[str, Any]:
    """Play a run on a file; whether its test records are allowed is another test's question."""
    try:
        return run(experiment, path)
    except SottovoceError as error:
        if "unsafe_test" in str(error):
            tables = experiment.tables()
            tables["privacy"]["unsafe_test"] = True
            return run(parse(tables), path)
        raise


def test_a_limit_is_fixed_when_the_file_is_made(tmp_path: Path) -> None:
    run(once(1, budget=str(tmp_path / "b"), budget_epsilon=2.5), tmp_path / "run-1")

    with pytest.raises(PrivacyError, match=r"budget_epsilon is 9, but b was made with 2\.5"):
        run(once(2, budget=str(tmp_path / "b"), budget_epsilon=9.0), tmp_path / "run-2")
    with pytest.raises(PrivacyError, match=r"budget_delta must be below 1 / clients = 0\.05, got 0\.5"):
        run(once(3, budget=str(tmp_path / "c"), budget_epsilon=9.0, budget_delta=0.5), tmp_path / "run-3")
    assert not (tmp_path / "c").exists(), "a refusal leaves nothing behind"


CHILD = """
import os, signal, sys
from pathlib import Path
from sottovoce.privacy.budget import Budget, BudgetTerms
from tests.attacks.test_a7_runs_on_the_same_records_add_up import gaussian

armed = False

def step(name):
    if armed and name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

with Budget(Path(sys.argv[1]), BudgetTerms(population="patients", epsilon=2.5), step=step) as budget:
    budget.reserve("1", "first", "plan", gaussian(3.7307))
    armed = True
    budget.reserve("2", "second", "plan", gaussian(3.7307))
    print("released", flush=True)
"""


@pytest.mark.parametrize(
    ("step", "charged"),
    [("before the write", 1), ("within the line", 1), ("before the mark", 2), ("after the mark", 2)],
)
def test_a_kill_at_any_step_never_loses_a_charge_that_was_acted_upon(tmp_path: Path, step: str, charged: int) -> None:
    path = tmp_path / "b"
    child = subprocess.run([sys.executable, "-c", CHILD, str(path), step], capture_output=True, text=True)

    assert child.returncode == -signal.SIGKILL, child.stderr
    assert "released" not in child.stdout
    with Budget(path, TERMS) as budget:
        assert budget.runs == charged
        budget.reserve("2", "second", "plan", gaussian(3.7307))
    with Budget(path, TERMS) as budget:
        assert budget.runs == 2, "the killed run goes on, and is charged once"


@pytest.mark.parametrize("place", ["within the line", "mark"])
def test_a_full_disk_refuses_and_leaves_a_file_that_can_be_read(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False

    def step(name: str) -> None:
        if full and name == place:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(self: Budget) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "b"
    with Budget(path, TERMS, step=step) as budget:
        budget.reserve("1", "first", "plan", gaussian(3.7307))
        full = True
        with monkeypatch.context() as patch:
            if place == "mark":
                patch.setattr(Budget, "_write_mark", refuse)
            with pytest.raises(RunError, match="cannot be written: No space left on device"):
                budget.reserve("2", "second", "plan", gaussian(3.7307))
        with pytest.raises(PrivacyError, match="could not be written before"):
            budget.reserve("2", "second", "plan", gaussian(3.7307))
    with Budget(path, TERMS) as budget:
        assert budget.runs == (2 if place == "mark" else 1)
        budget.reserve("2", "second", "plan", gaussian(3.7307))
        assert budget.runs == 2


def filled(path: Path) -> bytes:
    with Budget(path, TERMS) as budget:
        for run_ in ("1", "2"):
            budget.reserve(run_, run_, "plan", gaussian(3.7307))
    return path.read_bytes()


def cut(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"noise_multiplier": 3.7307', b'"noise_multiplier": 9.7307', 1))


def swap(path: Path) -> None:
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + third + second)


def without_mark(path: Path) -> None:
    path.with_name("b.mark").unlink()


def damaged_mark(path: Path) -> None:
    path.with_name("b.mark").write_text("[" * 100_000)


@pytest.mark.parametrize("harm", [cut, tear, change, swap, without_mark, damaged_mark, Path.unlink])
def test_a_file_that_was_cut_damaged_or_removed_is_refused(tmp_path: Path, harm: Any) -> None:
    path = tmp_path / "b"
    filled(path)
    harm(path)

    with pytest.raises(PrivacyError, match="restore"):
        Budget(path, TERMS)


def _compete(path: str, number: int, granted: Any) -> None:
    for attempt in range(3):
        try:
            with Budget(Path(path), TERMS) as budget:
                budget.reserve(f"{number}-{attempt}", "run", "plan", gaussian(3.7307))
            granted.put(1)
        except PrivacyError:
            granted.put(0)


def test_processes_that_share_a_file_are_granted_no_more_than_its_limit(tmp_path: Path) -> None:
    """Four runs of epsilon 1 fit into 2.5; three processes ask for nine, at the same time."""
    context = multiprocessing.get_context("fork")
    granted = context.Queue()
    others = [context.Process(target=_compete, args=(str(tmp_path / "b"), number, granted)) for number in range(3)]
    for process in others:
        process.start()
    answers = [granted.get(timeout=120) for _ in range(9)]
    for process in others:
        process.join()

    assert sum(answers) == 4
    with Budget(tmp_path / "b", TERMS) as budget:
        assert budget.runs == 4


# Who uses it.


def test_simulate_reserves_in_the_same_file(tmp_path: Path) -> None:
    run(once(1, budget=str(tmp_path / "b")), tmp_path / "run-1")
    result = sv.simulate(
        "digits",
        "logistic",
        privacy=sv.Privacy(epsilon=1, clip_norm=0.5, budget=str(tmp_path / "b")),
        clients=20,
        sample_rate=1,
        rounds=1,
        workers=1,
    )

    assert result["population"]["runs"] == 2
    assert result["epsilon_population"] == pytest.approx(2.0, rel=1e-4)


def test_a_run_between_machines_reserves_too_and_pays_as_against_the_server_once_outsiders_saw_a_cohort(
    tmp_path: Path,
) -> None:
    experiment = private(experiment={"rounds": 6}, privacy={"budget": str(tmp_path / "b")})
    deployed, _ = federation(experiment)
    calm = run(experiment, tmp_path / "calm", parties=deployed)
    deployed, _ = federation(experiment, lost=lose(2, 3, 4, phase="advertise"), sleep=lambda seconds: None)
    seen = run(experiment, tmp_path / "seen", parties=deployed)

    assert seen["epsilon"] is None
    assert [line["kind"] for line in lines(tmp_path / "b")] == ["open", "run", "run", "exposed"]
    assert calm["epsilon_population"] == pytest.approx(calm["epsilon"])
    assert seen["epsilon_population"] == pytest.approx(calm["epsilon"] + seen["epsilon_server"])
    assert seen["privacy"]["cost"]["epsilon"] == seen["epsilon_server"]


def test_a_run_between_machines_pays_for_a_cohort_that_was_seen_before_it_is_seen(tmp_path: Path) -> None:
    """A server that is killed in the pause after a failure has told outsiders of it, and may never be resumed."""
    experiment = private(experiment={"rounds": 6}, privacy={"budget": str(tmp_path / "b")})
    kinds: list[list[str]] = []

    def killed(seconds: float) -> None:
        kinds.append([line["kind"] for line in lines(tmp_path / "b")])
        raise EnoughError

    deployed, _ = federation(experiment, lost=lose(2, phase="advertise"), sleep=killed)
    with pytest.raises(EnoughError):
        run(experiment, tmp_path / "run", parties=deployed)

    assert kinds == [["open", "run", "exposed"]]


def test_tuning_on_public_records_spends_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((400, *load("digits").shape), np.float32), np.arange(400) % 10
    np.savez(tmp_path / "public.npz", x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    tables = once(
        budget=str(tmp_path / "b"), budget_epsilon=1.5, spent=[{"epsilon": 1.0}], unsafe_preprocessing=True
    ).tables()
    tables |= {"tune": {"client": {"client_lr": [0.1, 0.2]}}}
    tune(tables, str(tmp_path / "public.npz"), tmp_path / "tuned", budget=4, seeds=2, workers=1)

    assert len(list((tmp_path / "tuned").glob("**/summary.json"))) == 4
    assert not (tmp_path / "b").exists()


def test_what_was_released_before_is_declared_once_for_a_file(tmp_path: Path) -> None:
    spent = [{"epsilon": 0.5, "delta": 1e-6}, {"noise_multiplier": 3.7307, "rounds": 1}]
    alone = run(once(0, spent=spent), tmp_path / "run-0")
    for seed in (1, 2):
        summary = run(once(seed, spent=spent, budget=str(tmp_path / "b")), tmp_path / f"run-{seed}")

    assert alone["epsilon_population"] == pytest.approx(2.5, rel=1e-3)
    assert [line["kind"] for line in lines(tmp_path / "b")] == ["open", "declared", "declared", "run", "run"]
    assert summary["epsilon_population"] == pytest.approx(3.5, rel=1e-3)
    again = once(2, spent=spent, budget=str(tmp_path / "b"))
    assert run(again, tmp_path / "run-2", resume=True) == summary, "what was declared is read again from the folder"
    assert summary["epsilon"] == alone["epsilon"], "it does not change the run's own noise"
    assert summary["epsilon_server_population"] is None, "what the first release costs against the server is not told"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"epsilom": 1.0}, "did you mean 'epsilon'"),
        ({"epsilon": -1}, r"entry 1: epsilon must be a number in \[1e-12, 1e\+07\], got -1"),
        ({"epsilon": "one"}, "must be a number, got 'one'"),
        ({"delta": 1e-5}, "needs either epsilon, or noise_multiplier"),
        ({"epsilon": 1.0, "noise_multiplier": 2.0}, "needs either epsilon, or noise_multiplier"),
        ({"epsilon": 1.0, "rounds": 3}, "no use for rounds"),
        ({"noise_multiplier": 1.0, "rounds": 1.5}, "must be a whole number"),
        ({"noise_multiplier": 1.0, "sample_rate": 2}, r"in \[1e-12, 1\], got 2"),
    ],
)
def test_a_declared_release_that_makes_no_sense_is_refused(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        once(spent=[entry])


def test_a_declared_release_is_priced_as_dp_accounting_does() -> None:
    experiment = once(spent=[{"noise_multiplier": 1.54, "sample_rate": "1/60", "rounds": 200}])
    assert experiment.privacy is not None
    [cost] = declared_costs(experiment, experiment.privacy)

    assert cost.epsilon == pytest.approx(0.6806, abs=1e-3)
    assert cost.precision == pytest.approx(200 / 1.54**2)


def test_a_limit_without_a_file_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r'budget_epsilon is a limit for all runs in a budget file, .* budget = "FILE"'
    ):
        once(budget_epsilon=3.0)
