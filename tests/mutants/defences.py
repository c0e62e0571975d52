"""Mutants of the defences: a malicious client would count for more than it may, or a refused round would pass."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

HOME = "threats/defences"
PURE = "tests/threats/defences"
ROBUST = "tests/federation/test_robust.py"
TABLES = "tests/assembly/test_defence.py"

MUTANTS = (
    of(
        "not-finite-rows-stay",
        "one NaN is everybody's",
        (f"{HOME}/rows.py", "updates.shape[1]) < _INFINITY)", "updates.shape[1]) >= 0)"),
        tests=PURE,
    ),
    of(
        "infinite-rows-stay",
        "an infinite value is taken for a large one",
        (f"{HOME}/rows.py", "updates.shape[1]) < _INFINITY)", "updates.shape[1]) <= _INFINITY)"),
        tests=PURE,
    ),
    of(
        "trimmed-at-one-end",
        "huge values pass where only small ones are cut off",
        (f"{HOME}/coordinate.py", "malicious, len(rows) - malicious)", "malicious, len(rows))"),
        tests=PURE,
    ),
    of(
        "median-of-no-sort",
        "a comparator of the network is lost",
        (f"{HOME}/columns.py", "return np.array(kept[::-1], np.int32)", "return np.array(kept[:0:-1], np.int32)"),
        tests=PURE,
    ),
    of(
        "krum-counts-itself",
        "an update is its own nearest neighbour, and a lonely one looks close",
        (f"{HOME}/krum.py", "np.full(len(distances), np.inf)", "np.full(len(distances), 0.0)"),
        tests=PURE,
    ),
    of(
        "krum-counts-everyone",
        "malicious updates choose among the honest by standing far away",
        (f"{HOME}/krum.py", "ordered[:, :neighbours].sum(axis=1)", "ordered.sum(axis=1)"),
        tests=PURE,
    ),
    of(
        "ties-by-client-number",
        "of the closest pair the first client wins",
        (f"{HOME}/krum.py", "(ordered.sum(axis=1), ordered[", "(ordered[:, 0], ordered["),
        tests=PURE,
    ),
    of(
        "multi-krum-keeps-all",
        "it is the mean",
        (f"{HOME}/krum.py", "kept = len(rows) - malicious\n", "kept = len(rows)\n"),
        tests=PURE,
    ),
    of(
        "bulyan-without-its-second-half",
        "what Krum let pass is averaged whole",
        (f"{HOME}/krum.py", "len(chosen) - 2 * malicious)", "len(chosen))"),
        tests=PURE,
    ),
    of(
        "weiszfeld-from-the-mean",
        "one huge update carries the start off",
        (f"{HOME}/geometric.py", "(len(rows) - 1) // 2, len(rows) // 2 + 1", "0, len(rows)"),
        tests=PURE,
    ),
    of(
        "norms-stretched-to-the-bound",
        "short updates are made long",
        (f"{HOME}/norm_bound.py", "where=norms > bound", "where=norms > 0"),
        tests=PURE,
    ),
    of(
        "trust-in-the-opposite",
        "an update against the server's own counts too",
        (f"{HOME}/trust.py", "np.maximum(0, products", "np.abs(products"),
        tests=PURE,
    ),
    of(
        "trusted-updates-keep-their-length",
        "a long update in the right direction takes over",
        (f"{HOME}/trust.py", "* (own / norms)", "* 1"),
        tests=PURE,
    ),
    of(
        "blocks-as-many-as-threads",
        "the result depends on the machine",
        (f"{HOME}/spread.py", "    spans = [", "    block = max(1, -(-length // threads()))\n    spans = ["),
        tests=PURE,
    ),
    of(
        "malicious-of-those-who-came",
        "honest clients that leave take the defence with them",
        (
            "federation/aggregation/robust.py",
            "self.malicious(len(cohort)), reference",
            "self.malicious(total.senders), reference",
        ),
        (
            "federation/aggregation/robust.py",
            "self.fewest(cohort), self.malicious(cohort)",
            "self.fewest(cohort), self.malicious(senders)",
        ),
        tests=ROBUST,
    ),
    of(
        "too-few-for-the-defence",
        "a round is judged by a defence that stands nobody",
        ("federation/aggregation/robust.py", "needed = self.defence.fewest(malicious)", "needed = 0"),
        tests=ROBUST,
    ),
    of(
        "by-order-of-arrival",
        "the model depends on which worker was first",
        (
            "federation/aggregation/robust.py",
            "self._matrix[self._places[client]] =",
            "self._matrix[int(self._came.sum())] =",
        ),
        (
            "federation/aggregation/robust.py",
            "self._came[self._places[client]] = True",
            "self._came[int(self._came.sum())] = True",
        ),
        tests=ROBUST,
    ),
    of(
        "gaps-are-judged",
        "the row of a client that left holds whatever was in memory",
        ("federation/aggregation/robust.py", "return self._matrix[: len(places)]", "return self._matrix"),
        tests=ROBUST,
    ),
    of(
        "no-check-of-values",
        "a diverged client is no failure",
        (
            "federation/aggregation/robust.py",
            "read_floats(payload, self._matrix.shape[1])",
            "np.frombuffer(payload[24:], '<f4')",
        ),
        tests=ROBUST,
    ),
    of(
        "one-reference-for-all-rounds",
        "the server's own update is of a model that is long gone",
        ("assembly/aggregator.py", "bound, task.params, task.seed", "bound, parts.start, task.seed"),
        tests=TABLES,
    ),
    of(
        "defended-in-secret",
        "a defence goes with a secure sum that shows it nothing",
        ("config/privacy.py", "if experiment.protocol.hides_updates:", "if False:"),
        tests=TABLES,
    ),
    of(
        "records-judged-as-updates",
        "a warm start begins without the server's own update, or with all clients in memory",
        ("config/privacy.py", "if scheme.once or experiment.scheme.warm_start is not None:", "if False:"),
        tests=TABLES,
    ),
    of(
        "weights-as-claimed",
        "a malicious client claims a million records",
        ("assembly/parts.py", 'or self.experiment.aggregation.defence != "none"', ""),
        tests=TABLES,
    ),
    of(
        "only-the-expected-cohort",
        "a run begins whose rounds cannot be defended",
        ("assembly/threat.py", "range(max(1, cohort.least), cohort.most + 1)", "[round(cohort.expected)]"),
        tests=TABLES,
    ),
)
