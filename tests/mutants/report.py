"""Mutants of the report: a scheme that looks more robust, or a run that looks more private, than its folder says."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TABLE = "tests/report/test_attacks.py"
MATRIX = "tests/report/test_matrix.py tests/report/test_robustness.py"
CURVES = "tests/report/test_curves.py"
AUDITS = "tests/report/test_audits.py"
PAGE = "tests/report/test_html.py"
NOISY = "tests/models/test_noisy_quality.py"

MUTANTS = (
    of(
        "ties-count-whole",
        "a record of class 1 that ties with one of class 0 counts as ranked above it",
        ("models/metrics.py", "(np.cumsum(counts) - (counts - 1) / 2)[places]", "np.cumsum(counts)[places]"),
        tests="tests/models/test_metrics.py",
    ),
    of(
        "broken-model-has-an-accuracy",
        "a run that ended in guessing shows the accuracy of a lucky round",
        (
            "report/tables.py",
            "DIVERGED if diverged(record) else decimal(record.get(name))",
            "decimal(record.get(name))",
        ),
        tests=TABLE,
    ),
    of(
        "broken-runs-are-averaged",
        "seeds in which the attack won are averaged away, or flatter a cell",
        ("report/robustness.py", "for point in points if not diverged(point.record)]", "for point in points]"),
        tests=MATRIX,
    ),
    of(
        "survivors-are-not-counted",
        "a cell hides that some of its runs diverged",
        ("report/matrix.py", "return shown if not cell.diverged else", "return shown if True else"),
        tests=MATRIX,
    ),
    of(
        "broken-run-is-the-best",
        "the highest accuracy on the page belongs to a run that diverged",
        ("report/html.py", "if not diverged(record) and weak(record) is None]", "if weak(record) is None]"),
        tests=PAGE,
    ),
    of(
        "coin-is-the-best",
        "the highest accuracy on the page belongs to a model that always gives one answer",
        ("report/html.py", "if not diverged(record) and weak(record) is None]", "if not diverged(record)]"),
        tests="tests/report/test_quality.py",
    ),
    of(
        "coin-is-a-success",
        "a model whose interval reaches down to the baseline passes as better than it",
        ("models/quality.py", "    if low > baseline.accuracy:", "    if high > baseline.accuracy:"),
        tests="tests/models/test_quality.py",
    ),
    of(
        "first-rounds-count-as-diverged",
        "an unfinished run is given up because of its first rounds",
        ("report/attacks.py", 'measured[-1].get("diverged") is True', 'measured[0].get("diverged") is True'),
        tests=TABLE,
    ),
    of(
        "settings-are-averaged",
        "runs with and without a setting are one cell, and their average is nobody's",
        ("report/robustness.py", "        if finer > parts:", "        if finer < parts:"),
        tests=MATRIX,
    ),
    of(
        "defence-goes-unnamed",
        "a scheme looks robust because its rows do not say that a defence helped",
        ("report/robustness.py", '_FOREMOST: Final = {"defence", "guard"}', '_FOREMOST: Final = {""}'),
        tests=MATRIX,
    ),
    of(
        "seeds-make-rows",
        "no two runs ever meet in a cell",
        ("report/robustness.py", ' and not key.endswith(".seed")}', "}"),
        tests=MATRIX,
    ),
    of(
        "class-zero-is-no-class",
        "0 is taken for False, and the attacked class 0 is said to be none",
        ("report/robustness.py", "value is None or value is False or value", "value in (None, False) or value"),
        tests=MATRIX,
    ),
    of(
        "boosts-go-unsaid",
        "a column compares schemes under unequal attacks and does not say so",
        ("report/matrix.py", "if cell.how.get(key) != other.how.get(key)", "if False"),
        tests=MATRIX,
    ),
    of(
        "success-at-its-own-best",
        "the success of an unfinished run is the last one, and not that of the best round",
        ("report/attacks.py", 'f"{key}_best": best.get(key)', 'f"{key}_best": last.get(key)'),
        tests=TABLE,
    ),
    of(
        "withheld-class-is-unknown",
        "the class that an out-backdoor aims at has no accuracy",
        ("report/classes.py", "if source is not None and values[source] is None:", "if False:"),
        tests=CURVES,
    ),
    of(
        "classes-of-another-round",
        "the table of classes shows the last round beside the best accuracy",
        ("report/classes.py", 'if other["round"] == record.get("best_round")]', "]"),
        tests=CURVES,
    ),
    of(
        "accusation-is-kept-quiet",
        "an audit accuses a run, and the report says nothing",
        ("report/audits.py", 'if isinstance(reasons, list) and audit.get("accused") else []', "if False else []"),
        ("report/audits.py", 'if audit.get("accused") and not found:', "if False:"),
        tests=AUDITS,
    ),
    of(
        "numbers-are-not-compared",
        "a measured epsilon above the proven one passes if the audit did not say that it accuses",
        ("report/audits.py", "and least > most:", "and False:"),
        tests=AUDITS,
    ),
    of(
        "measured-epsilon-is-rounded-up",
        "a run is accused of more than was seen",
        ("report/audits.py", "math.floor(number / step + 1e-9)", "math.ceil(number / step - 1e-9)"),
        tests=AUDITS,
    ),
    of(
        "no-alarm-on-the-page",
        "an accusation stands below the table only",
        ("report/page.html", "{% if alarms %}", "{% if false %}"),
        tests=f"{AUDITS} {PAGE}",
    ),
    of(
        "private-run-chooses-its-threshold-on-training-records",
        "a number that was fitted on the clients' records is in the summary, and nothing charged it",
        ("runs/evaluation.py", "elif not parts.boundary.passes(Owned()):", "elif False:"),
        tests="tests/cli/test_predict.py::test_a_private_run_looks_at_no_training_record_for_a_threshold",
    ),
    of(
        "a-hidden-class-has-an-accuracy",
        "a share of noise is told as sensitivity",
        ("models/noisy_quality.py", "return count >= max(1.0, HIDDEN * self.stddev)", "return count > 0"),
        tests=NOISY,
    ),
    of(
        "noisy-verdict-forgets-the-interval",
        "a model that is as good as the baseline by luck of the noise is called better",
        (
            "models/noisy_quality.py",
            "if accuracy - max(accuracy - interval[0], noise / float(self.counts.sum())) > share:",
            "if accuracy >= share:",
        ),
        tests=NOISY,
    ),
    of(
        "threshold-moves-the-loss",
        "predict tells another loss of the same probabilities",
        ("runs/saved_model.py", ' | {"loss": found["loss"]}', ""),
        tests="tests/cli/test_predict.py::test_a_threshold_changes_the_answers_and_not_the_probabilities",
    ),
)
