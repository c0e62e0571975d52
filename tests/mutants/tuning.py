"""Mutants of tuning: ways in which the clients' records, or the score's own, would choose the settings."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

ORIGIN, PROXY, TUNE = "tests/data/test_origin.py", "tests/search/test_proxy.py", "tests/search/test_tune.py"
OPENED = "tests/cli/test_tune.py::test_no_file_of_the_clients_data_is_opened_by_any_process"
CLOSED = ("search/tune.py", "with closed(clients_origin(experiment)):", "if True:")

MUTANTS = (
    of(
        "closed-data-is-loaded",
        "the loader hands out what is to stay closed",
        ("data/sources.py", "    check_open(origin(name, folder))\n", ""),
        tests=ORIGIN,
    ),
    of(
        "closed-table-is-read",
        "a table that is to stay closed is read like another",
        ("data/table.py", "    check_open(Origin(name, files))\n", ""),
        tests=ORIGIN,
    ),
    of("nothing-is-closed", "a part of a cell may load the clients' data", CLOSED, tests=TUNE),
    of(
        "clients-records-are-counted",
        "tuning opens the clients' data to learn its size",
        CLOSED,
        (
            "search/proxy.py",
            "        return known.train\n",
            "        return load(table.source, table.folder).records\n",
        ),
        ("search/proxy.py", "    if records is not None:\n        return records\n", ""),
        tests=OPENED,
    ),
    of(
        "tuned-on-the-clients-data",
        "the clients' own source is taken as public data",
        ("search/proxy.py", "if found.same_as(private):", "if False:"),
        tests=PROXY,
    ),
    of(
        "only-names-are-compared",
        "the clients' file is taken as public data under another path",
        (
            "data/same_records.py",
            "return any(_same_file(one, two) for one in self.files for two in other.files)",
            "return False",
        ),
        tests=PROXY,
    ),
    of(
        "public-test-records-score",
        "the proxy's test set is used up",
        ("search/proxy.py", "x_test=scoring.x_train, y_test=scoring.y_train, ", ""),
        tests=PROXY,
    ),
    of(
        "scored-records-are-trained-on",
        "the score rewards learning by heart",
        ("search/proxy.py", "    kind = _partition(", "    rest = public\n    kind = _partition("),
        tests=PROXY,
    ),
    of(
        "coordinates-from-the-dealt-records",
        "the public slice of a cell is not set aside",
        ("search/cells.py", "if shared else None", "if False else None"),
        tests=TUNE,
    ),
    of(
        "private-slice-is-loaded",
        "[scheme] public = the clients' own data reaches the loader",
        ("search/cells.py", "if named.same_as(self.proxy.private):", "if False:"),
        tests=TUNE,
    ),
    of(
        "epsilon-is-tuned",
        "the search finds that no privacy is best",
        ("search/axes.py", "if table not in _ONLY or key in _ONLY[table]:", "if True:"),
        tests="tests/search/test_axes.py",
    ),
    of(
        "the-first-seed-decides",
        "luck is chosen",
        ("search/grid.py", "(-len(self.scores[point]), -self.mean(point))", "-(self.scores[point][0] or 0)"),
        tests="tests/search/test_search.py",
    ),
)
