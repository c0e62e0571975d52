"""Mutants of what a run and several runs promise together: a reading passes for the guarantee, a sum is too small."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

EARLY = "tests/attacks/test_a2_epsilon_of_a_run_that_ends_early.py"
RUNS = "tests/attacks/test_a7_runs_on_the_same_records_add_up.py"
POPULATION, BUDGET = "privacy/accounting/population.py", "privacy/budget.py"

EPOCHS = "tests/deployment/test_epochs.py"

MUTANTS = (
    of(
        "epochs-go-on",
        "an epoch that paid for five rounds begins a sixth",
        ("runs/population.py", "        if budget.settled(run):", "        if False:"),
        tests=f"{EPOCHS}::test_an_epoch_pays_for_the_rounds_that_it_began_and_cannot_go_on",
    ),
    of(
        "epochs-are-free",
        "an epoch that has ended pays for one round, however many it began",
        ("runs/population.py", "cost_of(plan, max(1, begun))", "cost_of(plan, 1)"),
        tests=f"{EPOCHS}::test_an_epoch_pays_for_the_rounds_that_it_began_and_cannot_go_on",
    ),
    of(
        "epochs-forget-the-budget",
        "every epoch has the noise of the file, and the limit is exceeded",
        ("deployment/server/epochs.py", "if plan is None or _fits(played, plan):", "if True:"),
        tests=f"{EPOCHS}::test_where_the_budget_is_spent_there_is_no_plan_and_no_epoch",
    ),
    of(
        "revoked-nodes-are-told",
        "whoever was taken out is sent the new roster as if it stayed",
        ("deployment/server/epochs.py", "if each.name in staying}", "if True}"),
        tests=f"{EPOCHS}::test_a_roster_that_the_root_did_not_sign_ends_no_epoch",
    ),
    of(
        "epsilon-of-the-rounds-played",
        "a run that stops early promises less than its plan",
        (
            "runs/summary.py",
            '"epsilon": None if plan is None else plan.describe()["epsilon"],',
            '"epsilon": None if plan is None else plan.epsilon_after(min(spent, plan.rounds)),',
        ),
        tests=EARLY,
    ),
    of(
        "round-epsilon-is-the-reading",
        "rounds.jsonl promises what was spent so far",
        (
            "runs/exposure.py",
            'entry.public |= {"epsilon": plan.epsilon, ',
            'entry.public |= {"epsilon": spent, ',
        ),
        tests=EARLY,
    ),
    of(
        "best-round-epsilon-is-its-own",
        "the choice of the best round is not charged",
        (
            "runs/summary.py",
            '"epsilon_best_round": None if plan is None else plan.describe()["epsilon"],',
            '"epsilon_best_round": best and best.get("epsilon_spent"),',
        ),
        tests=EARLY,
    ),
    of(
        "old-folder-quotes-its-reading",
        "a folder of an older version is reported with what was spent",
        (
            "runs/folder.py",
            'summary["epsilon"] = summary["epsilon_best_round"] = plan.get("epsilon")',
            "pass",
        ),
        tests=EARLY,
    ),
    of(
        "audit-takes-the-reading",
        "an audit lets a folder promise what was spent",
        ("studies/audit/records.py", "reading if old else plan.epsilon", "reading"),
        tests=EARLY,
    ),
    of(
        "runs-do-not-add-up",
        "four runs together cost as much as one",
        (POPULATION, "rounds[single] = rounds.get(single, 0) + event.rounds", "rounds[single] = event.rounds"),
        tests=f"{RUNS}::test_a_sweep_of_four_private_runs_prints_their_sum_and_it_is_that_of_dp_accounting",
    ),
    of(
        "pld-passes-for-a-filter",
        "runs chosen after looking are allowed by a sum that is proven for fixed ones only",
        (
            POPULATION,
            "        if allowed <= 0:\n            return math.inf\n",
            "        return fixed(costs).epsilon / limit\n",
        ),
        tests=f"{RUNS}::test_runs_chosen_after_looking_are_refused_by_a_filter_and_not_by_the_pld_of_spent_and_next",
    ),
    of(
        "limit-forgets-the-server",
        "a limit against the server is not looked at",
        (POPULATION, "if self.epsilon_server is not None:", "if False:"),
        tests=f"{RUNS}::test_a_limit_affords_one_run_of_its_own_epsilon_and_the_server_is_limited_by_the_sum_of_precisions",
    ),
    of(
        "limit-gives-all-of-delta-twice",
        "two filters each get the whole delta",
        (POPULATION, "ADDED, PRICED, SLACK = 0.5, 0.25, 0.25", "ADDED, PRICED, SLACK = 1.0, 1.0, 1.0"),
        tests=f"{RUNS}::test_each_condition_of_a_limit_has_its_own_part_of_delta",
    ),
    of(
        "opaque-release-is-free",
        "a declared epsilon takes nothing from a Renyi filter",
        (POPULATION, "return min(self.epsilon, order * self.epsilon**2 / 2)", "return 0.0"),
        tests=f"{RUNS}::test_a_release_of_which_only_epsilon_and_delta_are_known_is_bounded_by_randomised_response",
    ),
    of(
        "refusal-leaves-a-folder",
        "a run that is refused has begun",
        ("runs/population.py", "        budget.check(cost, declared)\n        folder", "        folder"),
        tests=f"{RUNS}::test_a_run_that_would_exceed_the_budget_is_refused_before_training_with_what_is_left",
    ),
    of(
        "budget-never-reserves",
        "a run takes nothing from its budget",
        (
            "runs/population.py",
            "budget.reserve(run, experiment.experiment.name, plan.digest(), cost, declared)\n",
            "pass\n",
        ),
        tests=f"{RUNS}::test_without_a_limit_epsilons_and_deltas_are_added",
    ),
    of(
        "resume-reserves-nothing",
        "a run that was killed before it reserved goes on for free",
        (
            "runs/population.py",
            "budget.reserve(run, experiment.experiment.name, plan.digest(), cost_of(plan), "
            "declared_costs(experiment, table))\n",
            "pass\n",
        ),
        tests=f"{RUNS}::test_a_resumed_run_does_not_pay_twice_and_one_killed_before_it_reserved_pays_then",
    ),
    of(
        "resume-pays-twice",
        "a resumed run is charged again",
        (
            BUDGET,
            '        if self.holds(run, plan, None if about is None else about.get("year")):\n            return\n',
            "",
        ),
        tests=f"{RUNS}::test_a_resumed_run_does_not_pay_twice_and_one_killed_before_it_reserved_pays_then",
    ),
    of(
        "mark-is-not-compared",
        "a budget that was cut is accepted",
        (BUDGET, "if lines > len(self._heads) or (lines and self._heads[lines - 1] != head):", "if False:"),
        tests=f"{RUNS}::test_a_file_that_was_cut_damaged_or_removed_is_refused",
    ),
    of(
        "missing-mark-is-accepted",
        "a budget that may have been cut is accepted",
        (BUDGET, "if not lines and len(self._heads) > 1:", "if False:"),
        tests=f"{RUNS}::test_a_file_that_was_cut_damaged_or_removed_is_refused",
    ),
    of(
        "mark-is-never-written",
        "a budget that was cut cannot be told from a whole one",
        (
            BUDGET,
            '        self._step("before the mark")\n        try:\n            self._write_mark()',
            '        self._step("before the mark")\n        try:\n            pass',
        ),
        tests=f"{RUNS}::test_a_file_that_was_cut_damaged_or_removed_is_refused",
    ),
    of(
        "budget-without-a-lock",
        "two processes are granted the same rest",
        (BUDGET, "self._file = open_locked(path, patience=PATIENCE)", 'self._file = path.open("a+b")'),
        tests=f"{RUNS}::test_processes_that_share_a_file_are_granted_no_more_than_its_limit",
    ),
    of(
        "another-population-is-welcome",
        "a budget counts other people's runs, and theirs are not counted",
        (BUDGET, "if self._population != terms.population:", "if False:"),
        tests=f"{RUNS}::test_changed_rows_do_not_reset_a_budget_and_another_population_is_refused",
    ),
    of(
        "seen-cohorts-cost-nothing",
        "a run whose cohorts outsiders saw stays at the amplified epsilon",
        (
            "runs/population.py",
            "if seen(state) and table is not None",
            "if False and table is not None",
        ),
        tests=f"{RUNS}::test_a_run_between_machines_reserves_too_and_pays_as_against_the_server_once_outsiders_saw_a_cohort",
    ),
    of(
        "tuning-spends",
        "runs on public records take from the population's budget",
        ("search/cells.py", "if key not in spared", "if True"),
        tests=f"{RUNS}::test_tuning_on_public_records_spends_nothing",
    ),
    of(
        "set-aside-units-are-not-counted",
        "runs whose measurements cost more than their training take too little from a limit",
        (
            POPULATION,
            "return max(own, accounts.renyi(self.apart, order)) if self.apart else own",
            "return own",
        ),
        tests=f"{RUNS}::test_records_that_are_set_aside_are_charged_for_what_is_measured_on_them",
    ),
    of(
        "set-aside-units-are-nothing-to-the-server",
        "against the server only training is taken from a limit",
        (BUDGET, "max(_precision(lefts), _precision(aside))", "_precision(lefts)"),
        tests=f"{RUNS}::test_records_that_are_set_aside_are_charged_for_what_is_measured_on_them",
    ),
    of(
        "one-budget-for-all-units",
        "what is promised to clients and to records is added up as if it were the same",
        (BUDGET, "if self._unit != terms.unit:", "if False:"),
        tests=f"{RUNS}::test_a_budget_is_for_one_unit",
    ),
    of(
        "units-of-a-simulation-are-believed",
        "a declared number of records that is wrong sizes steps and delta",
        ("assembly/parts.py", "if isinstance(table.units, int) and table.units != sum(counts):", "if False:"),
        tests="tests/federation/test_units.py::test_declared_units_are_compared_with_the_records_of_a_simulation",
    ),
)
