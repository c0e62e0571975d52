"""Mutants of tasks: what would be learnt, or measured, wrongly in silence."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TASKS = "tests/models/test_task.py"
RUNS = "tests/api/test_tasks.py"
OWN = "tests/api/test_own_metrics.py"
EXPORT = "tests/models/test_export.py"

MUTANTS = (
    of(
        "errors-on-the-scale-of-the-scores",
        "MAE and RMSE are told in other units than the label has",
        ("models/task.py", "np.float64) * self.target.scale + self.target.centre", "np.float64)"),
        tests=TASKS,
    ),
    of(
        "a-scale-that-was-fitted-passes-as-declared",
        "mean and deviation of the clients' labels are published by a private run",
        ("api/data.py", 'if columns.kind == "number" and columns.label_range is None:', "if False:"),
        tests=RUNS,
    ),
    of(
        "labels-beyond-the-range-stay",
        "one record's label moves a model as far as it likes",
        ("core/target.py", "wide = np.clip(wide, self.low, self.high)", "pass"),
        tests=TASKS,
    ),
    of(
        "the-largest-error-is-the-best",
        "the worst round is kept as the best one",
        ("models/metrics.py", "else value < other", "else value > other"),
        tests=TASKS,
    ),
    of(
        "weights-of-classes-are-forgotten",
        "class_weights change nothing",
        ("models/task.py", "return None if self.weights else int(self.single)", "return int(self.single)"),
        tests=RUNS,
    ),
    of(
        "a-metric-that-nobody-measures",
        "a metric of one's own is asked of clients, which never tell it, and is null without a reason",
        ("runs/evaluation.py", 'if own and parts.experiment.evaluation != "server":', "if False:"),
        tests=OWN,
    ),
    of(
        "own-metrics-see-raw-scores",
        "a metric of one's own is computed from other numbers than the docs say",
        ("models/own_metrics.py", "known.guesses if number else task.probabilities(known.scores)", "known.scores"),
        tests=OWN,
    ),
    of(
        "exported-numbers-stay-on-the-scale-of-the-scores",
        "an exported graph gives other values than predict",
        ("models/task.py", '{"values": scores * self.target.scale + self.target.centre}', '{"values": scores}'),
        tests=EXPORT,
    ),
    of(
        "an-exported-order-is-any-classes",
        "the class of an exported graph is another than that of predict",
        ("models/task.py", '"classes": (scores > 0).to(torch.int64).sum(1)}', '"classes": scores.argmax(1)}'),
        tests=EXPORT,
    ),
)
