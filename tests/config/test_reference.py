from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from sottovoce.config.experiment import TABLES, Experiment, parse
from sottovoce.config.reference import find, markdown, reference
from sottovoce.core.errors import InputError
from sottovoce.schemes import SCHEMES, known

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_every_key_of_every_table_has_a_description_in_plain_sentences() -> None:
    for name, table in TABLES.items():
        for key, field in table.model_fields.items():
            assert field.description, f"[{name}] {key} has no description: Field(default, description=...)"
            assert field.description[0].isupper() or field.description[0] == '"', f"[{name}] {key}"
            assert field.description.endswith("."), f"[{name}] {key}"
    assert Experiment.model_fields["sweep"].description


@pytest.mark.parametrize("name", known())
def test_every_key_of_every_scheme_has_a_description(name: str) -> None:
    scheme = SCHEMES[name]
    for field in fields(scheme):
        if field.name in scheme.own_keys():
            assert field.metadata.get("description", "").endswith("."), f"{name}: {field.name} has no description"


def test_the_reference_names_every_table_and_key_of_a_resolved_experiment() -> None:
    listed = {table.table: {key.key for key in table.keys} for table in reference()}

    assert set(listed) == set(Experiment.model_fields)
    for name in known():
        cohort = {"sample_rate": 1} if name == "sign-sgd" else {}
        rounds = {"rounds": 1} if name == "fl-once" else {}
        resolved = parse({"experiment": rounds, "scheme": {"name": name}, "cohort": cohort}).tables()
        for table, keys in resolved.items():
            assert set(keys) <= listed[table]


def test_a_key_that_may_be_left_out_says_what_happens_then() -> None:
    for table in reference():
        for key in table.keys:
            if key.default is None and table.table not in ("sweep", "privacy", "devices"):
                assert "Not set:" in key.description, f"{table.table}.{key.key}"


def test_docs_reference_is_what_the_code_says() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == markdown(), (
        "docs/reference.md is out of date; run: sottovoce explain --markdown > docs/reference.md"
    )


def test_rows_of_the_markdown_have_five_cells() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("| `")]

    assert len(rows) == sum(len(table.keys) for table in reference())
    for row in rows:
        assert len(re.split(r"(?<!\\)\|", row)) == 7


def test_one_table_and_one_key_can_be_found() -> None:
    assert [key.key for key in find("cohort")[0].keys] == ["sampling", "sample_rate", "cap", "floor"]
    assert find("[model]") == find("model")
    assert [key.default for key in find("model.projection.samples")[0].keys] == [4000]
    (rounds,) = find("experiment.rounds")[0].keys
    assert (rounds.type, rounds.default, rounds.range) == ("a whole number", 100, "at least 1")
    assert {key.schemes for key in find("scheme.server_lr")[0].keys} == {("fl-sign", "sign-sgd"), ("fl-cs",)}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("privac", "did you mean 'privacy'?"),
        ("rounds", "did you mean 'experiment.rounds'?"),
        ("roundz", "did you mean 'experiment.rounds'?"),
        ("client.clientlr", "did you mean 'client.client_lr'?"),
        ("scheme.ration", "did you mean 'scheme.ratio'?"),
        ("zzzzzzzz", "known: experiment, data"),
        ("engine.zzzzzz", "known: name, workers"),
    ],
)
def test_a_wrong_name_is_refused_and_the_nearest_named(name: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        find(name)

    assert hint in str(caught.value)
