"""Mutants of the published tables: ways in which ours would look closer to theirs, or another run would be shown."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TABLES, REPRODUCE = "tests/studies/published/test_tables.py", "tests/studies/published/test_reproduce.py"
COMPARE, SETUP = (f"studies/published/{name}.py" for name in ("compare", "setup"))
BOUNDS, BALANCING = "tests/schemes/test_sign_bounds.py", "tests/data/test_balancing.py"

MUTANTS = (
    of(
        "seeds-share-a-cell",
        "three seeds are one run, and the spread is 0",
        (
            SETUP,
            '("name", "checkpoint_every", "chosen_on", "loggers")',
            '("name", "checkpoint_every", "chosen_on", "seed")',
        ),
        tests=f"{TABLES}::test_a_cell_is_named_by_what_decides_its_result",
    ),
    of(
        "scales-are-mixed",
        "the small scale is shown as the papers' set-up",
        (SETUP, 'names.full if scale == "full" else names.small', "names.small"),
        tests=f"{TABLES}::test_a_cell_is_named_by_what_decides_its_result",
    ),
    of(
        "epsilon-at-the-best-round",
        "the choice of the best round is not charged",
        (COMPARE, 'return _number(summary.get("epsilon"))', 'return _number(summary.get("epsilon_best_round"))'),
        tests=f"{REPRODUCE}::test_epsilon_is_for_all_rounds_and_costs_are_at_the_best_one",
    ),
    of(
        "refusal-fails-the-table",
        "a cell that the accountant refuses ends the command",
        ("search/runner.py", "except (InputError, PrivacyError) as error:", "except InputError as error:"),
        tests=f"{REPRODUCE}::test_a_cell_that_the_accountant_refuses_says_so_and_the_others_are_run",
    ),
    of(
        "refusal-is-silent",
        "the cell does not say why it is empty",
        (COMPARE, 'told.append(f"{kind}: {refused[0].reason}")', "pass"),
        tests=f"{REPRODUCE}::test_a_cell_that_the_accountant_refuses_says_so_and_the_others_are_run",
    ),
    of(
        "formula-is-shown-as-measured",
        "bytes by the papers' formula are passed off as those that were sent",
        (COMPARE, 'each, round_ = _number(summary.get(f"bytes_{way}_per_client_round"))', "each, round_ = 2600.0"),
        tests=f"{REPRODUCE}::test_a_table_has_theirs_ours_the_difference_and_the_reasons",
    ),
    of(
        "small-costs-are-compared",
        "the difference of two networks is shown as one of costs",
        (COMPARE, 'comparable = not (cost and scale == "small")', "comparable = True"),
        tests=f"{REPRODUCE}::test_a_table_has_theirs_ours_the_difference_and_the_reasons",
    ),
    of(
        "order-is-always-kept",
        "rows that come out the other way round are counted as agreeing",
        (COMPARE, "            elif gap > 0:\n", "            elif True:\n"),
        tests=f"{REPRODUCE}::test_the_order_of_rows_counts_pairs_that_differ_in_print",
    ),
    of(
        "lost-runs-rank-by-their-best-round",
        "a run that does not converge is above one that does",
        (COMPARE, "    if failed:\n        return -1.0\n", ""),
        tests=f"{REPRODUCE}::test_the_order_of_rows_counts_pairs_that_differ_in_print",
    ),
    of(
        "cells-run-again",
        "a finished cell is played once more for the next table",
        (SETUP, '{"name": _name(experiment)}', '{"name": f"{_name(experiment)}-{table.name}"}'),
        tests=f"{REPRODUCE}::test_a_cell_is_run_once_for_all_tables",
    ),
    of(
        "slack-of-the-printed-theorem",
        "nu is taken for half the noise that the lemma asks for",
        (
            "schemes/sign_bounds.py",
            "shared = (math.pi * stddev) ** 2 / cohort",
            "shared = 2 * (math.pi * stddev) ** 2 / cohort",
        ),
        tests=BOUNDS,
    ),
    of(
        "rare-classes-count-less",
        "the weighted loss is that of the raw classes",
        ("models/trainer.py", "len(y) / (len(counts) * counts[places])", "counts[places] / counts.mean()"),
        tests=BALANCING,
    ),
    of(
        "public-records-are-copied",
        "shifted copies of the records that were set aside go to clients",
        (
            "assembly/parts.py",
            "    dataset = augmented(dataset, table.augment, streams.get(Purpose.SPLIT, 2))\n",
            "",
        ),
        (
            "assembly/parts.py",
            "    dataset, pair = aim(experiment, dataset)\n",
            "    dataset, pair = aim(experiment, dataset)\n"
            "    dataset = augmented(dataset, table.augment, streams.get(Purpose.SPLIT, 2))\n",
        ),
        tests="tests/data/test_augment.py",
    ),
    of(
        "small-runs-judge",
        "a run of minutes counts as evidence for the papers' scale",
        ("studies/campaign.py", 'if record["scale"] == "full"]', "]"),
        tests="tests/studies/test_campaign.py",
    ),
    of(
        "every-row-holds",
        "a row that is far from what is printed is said to hold",
        ("studies/campaign.py", "<= NEAR + 1e-9", "<= 1"),
        tests="tests/studies/test_campaign.py",
    ),
)
