"""Mutants of what is called public: ways in which the clients' records tell something before round 1."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

TABLES = "tests/attacks/test_a5_tables_fitted_on_clients.py"
SPELLING, CLASSES = "tests/attacks/test_a4_public_by_spelling.py", "tests/attacks/test_a9_classes_of_clients.py"

MUTANTS = (
    of(
        "public-by-spelling",
        "the clients' file under another path is another data set",
        (
            "assembly/public.py",
            "origin(source, table.folder).same_as(origin(table.source, table.folder))",
            "source == table.source",
        ),
        tests=SPELLING,
    ),
    of(
        "public-records-not-compared",
        "a copy of the clients' file is public",
        ("assembly/public.py", "clients.overlap(public)\n", "0\n"),
        tests=SPELLING,
    ),
    of(
        "front-not-compared",
        "a front is fitted on a copy of the clients' records",
        (
            "assembly/model.py",
            '    check_no_client(experiment, "[model] projection.source", source, public, dataset)\n',
            "",
        ),
        tests=SPELLING,
    ),
    of(
        "tuned-on-a-copy",
        "settings that were chosen on a copy of the clients' records are not noticed",
        ("assembly/public.py", "    check_no_client(experiment, key, source, found, clients)\n", ""),
        tests=SPELLING,
    ),
    of(
        "formats-are-other-records",
        "images as numbers are other records than the same images as bytes",
        (
            "data/overlap.py",
            "if len(kinds) == 1 and np.issubdtype(public.x.dtype, np.integer):",
            "if True:",
        ),
        tests=SPELLING,
    ),
    of(
        "sixteen-bits-are-other-records",
        "a copy in half of the bits is public",
        ("data/overlap.py", "if not found and _is_half(public) != _is_half(clients):", "if False:"),
        tests="tests/attacks/test_a4_public_by_spelling.py",
    ),
    of(
        "one-record-is-chance",
        "single records of clients hide among public ones",
        ("data/overlap.py", "met > chance + _STDDEVS * spread", "met > 1 + chance + _STDDEVS * spread"),
        tests=SPELLING,
    ),
    of(
        "twins-are-always-chance",
        "a data set with every record twice may be called public",
        ("data/overlap.py", "rarest = int(counts.min())", "rarest = 1 or int(counts.min())"),
        tests=SPELLING,
    ),
    of(
        "split-without-comparison",
        "public records of a divided run are compared with zeros",
        (
            "assembly/division.py",
            '    _check_compared(experiment, scheme, facts.get("public", {}), common.path)\n',
            "",
        ),
        tests=SPELLING,
    ),
    of(
        "labels-are-counted",
        "one victim's class changes the shape of a private model",
        ("assembly/parts.py", "for what, way in dataset.fitted.items():", "for what, way in {}.items():"),
        tests=CLASSES,
    ),
    of(
        "labels-of-arrays-are-counted",
        "in Python a victim's class changes the shape of a private model",
        ("api/data.py", "columns.classes is None and not isinstance(classes[0], bool):", "False:"),
        tests=CLASSES,
    ),
    of(
        "divided-labels-are-counted",
        "who splits records first may count their labels",
        ("assembly/division.py", 'fitted=told.get("fitted", {}),', "fitted={},"),
        tests=CLASSES,
    ),
    of(
        "adults-fit-their-ranges",
        "means and categories of a known table are those of its people",
        ("data/adult.py", "fit_columns(people, _schema(), ", "fit_columns(people, Schema(), "),
        tests=TABLES,
    ),
    of(
        "patients-fit-their-ranges",
        "ranges and drugs of a known table are those of its patients",
        ("data/hospital.py", 'read_schema(SHIPPED / "diabetes130.toml"), icd9()', "read_schema({}), icd9()"),
        tests=TABLES,
    ),
    of(
        "vocabulary-of-the-clients",
        "the words of the clients' reviews are published as if they were everybody's",
        ("data/imdb.py", 'arrays["y_test"], classes=2, fitted=FITTED)', 'arrays["y_test"], classes=2)'),
        tests=TABLES,
    ),
    of(
        "unpacked-copy-forgets",
        "what was fitted on records is forgotten when a data set is read again",
        ("data/cache.py", 'fitted=facts["fitted"],', "fitted={},"),
        tests=TABLES,
    ),
)
