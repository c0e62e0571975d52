"""Mutants of records and persons as units: the sums and epsilons look as before, and somebody is not protected."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

PERSONS = "tests/federation/test_persons.py"
STAGES = "tests/federation/test_unit_stages.py"
UNITS = "tests/federation/test_units.py"
PLAN = "tests/privacy/test_unit_plan.py"

SITES = "tests/deployment/test_units.py"

MUTANTS = (
    of(
        "scores-beyond-the-bins-unsaid",
        "an AUROC of scores that lie in one bin has an interval that leaves out the truth",
        ("federation/stages/unit_evaluation.py", "spread += formula.unseen(sums)", "pass"),
        tests=STAGES,
    ),
    of(
        "outsiders-shown-less",
        "the audit against outsiders takes rounds one by one, and shows less than half of what is lost",
        ("studies/audit/outsider.py", "mu * math.sqrt(self.rounds), delta)", "mu, delta)"),
        tests="tests/studies/audit/test_units.py",
    ),
    of(
        "outsiders-shown-too-much",
        "the audit against outsiders counts rounds that add up as roots in full, and accuses correct builds",
        ("studies/audit/outsider.py", "mu * math.sqrt(self.rounds), delta)", "mu * self.rounds, delta)"),
        tests="tests/studies/audit/test_units.py",
    ),
    of(
        "units-of-a-site-unchecked",
        "a site with other units than were agreed on takes part, and the server divides by a wrong number",
        ("assembly/parts.py", "    if held != agreed:\n", "    if False:\n"),
        tests=SITES,
    ),
    of(
        "columns-of-a-site-in-the-order-of-its-file",
        "a site whose columns stand in another order trains other weights than the others",
        (
            "data/preprocessing.py",
            "in self.columns:\n            wide = len(",
            "in sorted(self.columns, key=lambda c: [*table.columns].index(c.name)):\n            wide = len(",
        ),
        tests=SITES,
    ),
    of(
        "all-rows-of-a-person-on-nodes",
        "a node trains on more rows of a person than the simulation, and than was agreed on",
        ("assembly/elsewhere.py", "kept = rows_kept(owned.persons, table.max_rows)", "kept = np.arange(len(owned.y))"),
        tests=SITES,
    ),
    of(
        "rows-of-a-person-as-units",
        "each row of a person is clipped by itself, so that a person moves the sum by many clip norms",
        (
            "federation/units.py",
            "if shard.persons is None else Units.of_persons(shard.persons)",
            "if True else Units.of_persons(shard.persons)",
        ),
        tests=PERSONS,
    ),
    of(
        "kept-rows-by-others",
        "which rows of a person are kept depends on the persons before it",
        (
            "data/persons.py",
            "return np.sort(order[rank < most])",
            "return np.sort(np.argsort(rank)[: len(rank) - most])",
        ),
        tests=PERSONS,
    ),
    of(
        "persons-torn-apart",
        "a table is dealt out by rows, so that a person is at several sites and pays at each",
        ("assembly/parts.py", '"by-id" if whole_persons else table.partition', "table.partition"),
        tests=PERSONS,
    ),
    of(
        "person-becomes-a-feature",
        "the model reads who a row is about",
        ("data/table.py", "~test, special, order)", "~test, [label], order)"),
        tests=PERSONS,
    ),
    of(
        "persons-in-train-and-test",
        "rows of one person are trained and measured on",
        (
            "federation/stages/local_evaluation.py",
            "    if shard.persons is None:\n        places",
            "    if True:\n        places",
        ),
        tests=STAGES,
    ),
    of(
        "plan-of-persons-on-rows",
        "a site whose rows nobody put together answers a plan for persons",
        ("federation/units.py", '(plan.request.unit == "person") != (shard.persons is not None)', "False"),
        tests=PERSONS,
    ),
    of(
        "set-aside-for-nothing",
        "what is measured on units that are set aside is not charged",
        (
            "privacy/plan/solve.py",
            "{name: max(solved[name], cost) for name, cost in costs.items()}",
            "{name: solved[name] for name in costs}",
        ),
        tests=STAGES,
    ),
    of(
        "set-aside-above-the-target",
        "measurements may cost more than the run promises",
        ("privacy/plan/solve.py", "if target is not None and costs[name] > target:", "if False:"),
        tests=STAGES,
    ),
    of(
        "measurement-longer-than-its-norm",
        "a loss without a bound makes a message longer than was charged for, and clipping spoils all others",
        (
            "federation/stages/unit_evaluation.py",
            "return np.minimum(np.nan_to_num(losses, nan=self.loss_bound, posinf=self.loss_bound), self.loss_bound)",
            "return np.nan_to_num(losses, nan=self.loss_bound, posinf=self.loss_bound)",
        ),
        tests=STAGES,
    ),
    of(
        "interval-without-noise",
        "the interval of a measurement leaves the noise out",
        ("federation/stages/unit_evaluation.py", "stddev**2 * float(slopes @ slopes) + ", ""),
        tests=STAGES,
    ),
    of(
        "person-counts-by-its-rows",
        "a person with many rows sends their sum, and only clipping bounds it",
        ("federation/stages/unit_evaluation.py", " / sizes[:, None]).astype", ").astype"),
        tests=STAGES,
    ),
    of(
        "coins-of-units-twice",
        "the server divides by a batch with the sites' rate in it twice",
        (
            "privacy/plan/request.py",
            "self.sample_rate * self.unit_rate * self.protected",
            "self.unit_rate * self.protected",
        ),
        tests=PLAN,
    ),
    of(
        "rate-of-sites-amplifies",
        "the rate of the sites, which the server chooses, is multiplied into what is charged",
        (
            "privacy/plan/charges.py",
            "sample_rate=request.unit_rate if request.of_sites else request.sample_rate",
            "sample_rate=request.unit_rate * request.sample_rate if request.of_sites else request.sample_rate",
        ),
        tests=PLAN,
    ),
    of(
        "coins-reused",
        "the same units are drawn in every round",
        (
            "federation/client.py",
            "coins=self.streams.get(Purpose.UNIT, heard.round)",
            "coins=self.streams.get(Purpose.UNIT, 0)",
        ),
        tests=UNITS,
    ),
    of(
        "work-tells-the-draw",
        "how long a site works tells how many units its coins drew",
        ("federation/units.py", "    if rate < 1:\n        _summed", "    if False:\n        _summed"),
        tests=UNITS,
    ),
    of(
        "batch-norm-mixes-units",
        "what a record sends depends on others of its batch",
        ("models/torch_units.py", "_BatchNorm | _DropoutNd", "_DropoutNd"),
        tests=UNITS,
    ),
)
