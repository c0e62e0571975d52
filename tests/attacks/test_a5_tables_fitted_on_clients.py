"""A5: a known table is read by public ranges and lists, so that nobody's record changes what another's becomes."""

from __future__ import annotations

import lzma
import tomllib
from pathlib import Path

import numpy as np
import pytest

from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import gather
from sottovoce.core.errors import PrivacyError
from sottovoce.data import adult, imdb, load
from sottovoce.data.dataset import Dataset
from sottovoce.data.hospital import icd9, read_diabetes130
from sottovoce.data.schema import SHIPPED, read_schema
from tests.data.test_hospital import patients, table
from tests.runs.small import small

PRIVACY = {"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5}


def people(path: Path, **victim: str) -> Dataset:
    """Read adults of whom one, who is in no test set, is a victim."""
    lines = [",".join(adult._HEADER)]
    for row in range(60):
        person = dict(zip(adult._HEADER, PERSON, strict=True)) | {"age": str(20 + row)}
        lines.append(",".join({**person, **(victim if row == 7 else {})}.values()))
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)
    return adult.read_packed(path)


PERSON = (
    *("30", "Private", "77516", "Bachelors", "13", "Never-married", "Sales", "Not-in-family", "White", "Female"),
    *("0", "0", "40", "Cuba", "<=50K"),
)


def changed(before: Dataset, after: Dataset) -> int:
    """Count the train and test records that are not what they were."""
    assert before.shape == after.shape
    parts = ((before.x_train, after.x_train), (before.x_test, after.x_test))
    return sum(int(np.any(one != other, axis=1).sum()) for one, other in parts)


@pytest.mark.parametrize(
    "victim",
    [
        {"capital_gain": "99999"},
        {"age": "90"},
        {"hours_per_week": "99", "capital_loss": "4356"},
        {"native_country": "Holand-Netherlands"},
        {"workclass": "Never-worked"},
        {"occupation": "nobody has heard of it"},
    ],
)
def test_no_adult_changes_the_features_of_others(tmp_path: Path, victim: dict[str, str]) -> None:
    plain, other = people(tmp_path / "a.csv"), people(tmp_path / "b.csv", **victim)

    assert changed(plain, other) <= 1
    assert plain.preprocessing == other.preprocessing
    assert plain.fitted_on == "schema" and not plain.fitted


@pytest.mark.parametrize(
    "victim", [{"num_medications": "81"}, {"age": "[20-30)"}, {"diag_3": "999.9"}, {"acarbose": "Up"}]
)
def test_no_patient_changes_the_features_of_others(tmp_path: Path, victim: dict[str, str]) -> None:
    """Before, ranges were those of the patients, and a code was a feature if 100 of them had it."""
    rows = patients(130, diag_1="428")
    for row in rows[:99]:
        row |= {"diag_3": "999.9", "acarbose": "Up"}
    plain = read_diabetes130(table(tmp_path / "a.csv", rows))
    assert plain.ids is not None
    rows[int(plain.ids[plain.ids > 99][0]) - 1] |= victim  # a train patient

    assert changed(plain, read_diabetes130(table(tmp_path / "b.csv", rows))) == 1


def test_a_private_run_refuses_a_vocabulary_of_the_clients_reviews() -> None:
    tokens = np.arange(40 * imdb.LENGTH, dtype=np.uint16).reshape(40, imdb.LENGTH) % 5000
    y = np.arange(40) % 2
    reviews = Dataset("imdb", tokens, y, tokens[:, ::-1], y, classes=2, fitted=imdb.FITTED)
    tables = {"data": {"source": "imdb", "clients": 10}, "model": {"name": "logistic", "front": "hashed"}}

    assert gather(small(**tables), Given(dataset=reviews))
    with pytest.raises(PrivacyError, match="the vocabulary of 'imdb' was taken from the clients' records"):
        gather(small(**tables, privacy=PRIVACY), Given(dataset=reviews))
    gather(small(**tables, privacy={**PRIVACY, "unsafe_preprocessing": True}), Given(dataset=reviews))


def test_an_unpacked_copy_still_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = np.ones(9, np.uint16)
    parts = {f"{name}_{part}": value for part in ("train", "test") for name, value in
             (("tok", words), ("len", np.array([4, 5])), ("y", np.array([0, 1])))}  # fmt: skip
    np.savez(tmp_path / "imdb.npz", **parts)
    people(tmp_path / "adult.csv.xz")

    for _ in range(2):  # read, then mapped
        assert load("imdb", tmp_path).fitted == imdb.FITTED
        assert load("adult", tmp_path).fitted_on == "schema"


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_schema_names_its_source(path: Path) -> None:
    text = path.read_text("utf-8")
    head = [line for line in text.splitlines() if line.startswith("#")]

    assert any("read off the records" in line for line in head)
    assert any(word in text for word in ("UCI", "National Center"))
    if path.stem != "icd9":
        schema = read_schema(path)
        assert all(column.categories or column.minimum is not None for column in schema.columns.values())


def test_sections_of_the_classification_do_not_overlap_and_pregnancy_is_none_of_them() -> None:
    sections = list(tomllib.loads((SHIPPED / "icd9.toml").read_text("utf-8"))["sections"])
    bounds = [edge for name in sections for edge in name.split("-")]

    assert bounds == sorted(bounds)
    assert all(first <= last for first, last in (name.split("-") for name in sections))
    assert icd9().feature("650") is None
    assert [icd9().feature(code) for code in ("38", "250", "250.6", "E888", "V58")] == [
        *("030-041", "250.0", "250.6", "E", "V50-V59"),
    ]
