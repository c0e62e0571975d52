"""Prepare in-hospital mortality on the diabetes130 table as thesis 8.4.1 prepares its closed records.

One record a patient: the first encounter. As in the thesis (8.3.2 and 8.4.1), adults who stayed at least three days are
kept, and elective, newborn and pregnant admissions are left out. Ages are decades here, so an adult is 20 or older. The
thesis reads the first day of a stay; this table does not tell days apart, so all of the first encounter is read.

Features are what the thesis has: age, gender, admission type, drugs with their dosage, diagnoses; the number of
medications stands in for the MRCI. Which they are, and their ranges, is in `schemas/diabetes130.toml` and
`schemas/icd9.toml`, from public sources: no record changes another. The thesis keeps the ICD-9 codes that occur often,
which tells of the patients; here a diagnosis is told by its section of the classification. Whatever tells the outcome
(`discharge_disposition_id`, `readmitted`), is known only at the end (`time_in_hospital`, which chooses records and
describes none) or is the patient's history (`number_inpatient`, ...) is not a feature.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.data.csv_file import CsvTable
from sottovoce.data.dataset import Dataset
from sottovoce.data.features import held_out, numbers, one_hot
from sottovoce.data.files import damaged, read_table
from sottovoce.data.preprocessing import fit_columns
from sottovoce.data.schema import SHIPPED, read_schema

# How clients balance their classes; the thesis takes the first, and has tried the others (8.3.2, footnote 2).
DOWN: Final = "down-sampling"
OVER: Final = "over-sampling"
WEIGHTED: Final = "weighted-loss"

DIED: Final = frozenset({"11", "19", "20", "21"})
ELECTIVE, NEWBORN = "3", "4"
ADULT: Final = 20  # years: the first decade, [20-30), that holds no minors
SHORTEST: Final = 3  # days in hospital
GENDERS: Final = ("Female", "Male", "Unknown")
ADMISSIONS: Final = {"1": "emergency", "2": "urgent", "7": "trauma"}
DIAGNOSES: Final = ("diag_1", "diag_2", "diag_3")
DRUGS: Final = (
    *("metformin", "repaglinide", "nateglinide", "chlorpropamide", "glimepiride", "acetohexamide", "glipizide"),
    *("glyburide", "tolbutamide", "pioglitazone", "rosiglitazone", "acarbose", "miglitol", "troglitazone"),
    *("tolazamide", "examide", "citoglipton", "insulin", "glyburide-metformin", "glipizide-metformin"),
    *("glimepiride-pioglitazone", "metformin-rosiglitazone", "metformin-pioglitazone"),
)
_FIELDS: Final = (
    *("encounter_id", "patient_nbr", "gender", "age", "admission_type_id", "discharge_disposition_id"),
    *("num_medications", "time_in_hospital"),
)


@dataclass(frozen=True)
class Icd9:
    """The sections of the classification, as features."""

    sections: tuple[tuple[str, str, str], ...]  # first and last category, and the feature's name
    subdivided: str  # the category that is told by its fourth digit

    @property
    def features(self) -> list[str]:
        """Name the features."""
        digits = [f"{self.subdivided}.{digit}" for digit in range(10)]
        return [*(name for _, _, name in self.sections), *digits, "E"]

    def feature(self, code: str) -> str | None:
        """Return the feature of a code; None: the classification has no such section.

        >>> icd9().feature("428.1"), icd9().feature("250.41"), icd9().feature("E849"), icd9().feature("V45")
        ('420-429', '250.4', 'E', 'V40-V49')
        """
        category, _, digits = code.partition(".")
        if code.startswith("E"):
            return "E"
        if category == self.subdivided:
            return f"{category}.{digits[:1] or '0'}"
        category = category.zfill(3)  # the table writes 8 for 008
        found = (name for first, last, name in self.sections if first <= category <= last and len(category) == 3)
        return next(found, None)


@cache
def icd9() -> Icd9:
    """Read the sections."""
    told = tomllib.loads((SHIPPED / "icd9.toml").read_text("utf-8"))
    return Icd9(tuple((*name.split("-"), name) for name in told["sections"]), told["subdivided"])


class _Stay(NamedTuple):
    encounter: int
    patient: str
    gender: str
    age: int  # where its decade begins
    admission: str
    died: bool
    medications: str
    days: int
    doses: tuple[str, ...]  # of each drug
    codes: frozenset[str]  # ICD-9


def balance(y: NDArray[Any], rng: Generator, how: str = DOWN) -> NDArray[np.int64]:
    """Return the sorted places of as many records of each class as the rarest class has.

    By `OVER`-sampling as many as the most frequent class has: all its records, and some of them again, each about as
    often as the others. A client with one class keeps all its records: there is nothing to balance, and no client may
    end up empty.
    """
    present, counts = np.unique(y, return_counts=True)
    if len(present) < 2:
        return np.arange(len(y), dtype=np.int64)
    own = [np.flatnonzero(y == label) for label in present]
    if how == OVER:
        kept = [np.concatenate([_again(places, int(counts.max()), rng)]) for places in own]
    else:
        kept = [rng.choice(places, counts.min(), replace=False, shuffle=False) for places in own]
    return np.sort(np.concatenate(kept)).astype(np.int64)


def _again(places: NDArray[Any], count: int, rng: Generator) -> NDArray[Any]:
    """Return every place as often as it goes into the count, and different ones at random for what is left."""
    whole, left = divmod(count, len(places))
    return np.concatenate([np.tile(places, whole), rng.choice(places, left, replace=False, shuffle=False)])


def balanced_size(y: NDArray[Any], how: str = DOWN) -> int:
    """Count the records that `balance` keeps."""
    _, counts = np.unique(y, return_counts=True)
    return int(len(counts) * (counts.max() if how == OVER else counts.min()))


def read_diabetes130(path: Path) -> Dataset:
    """Read the original table and return train and test patients, 80 to 20; `ids` are patient numbers."""
    with damaged(path):
        stays = _stays(path)
    if not stays:
        raise DataError(f"{path} has no first encounter of an adult for at least {SHORTEST} days that is not excluded")
    test = held_out([stay.patient for stay in stays])
    train = ~test
    doses = zip(*(stay.doses for stay in stays), strict=True)
    plain = CsvTable(
        str(path),
        {
            "age": [str(stay.age) for stay in stays],
            "num_medications": [stay.medications for stay in stays],
            "gender": [stay.gender for stay in stays],
            "admission": [stay.admission for stay in stays],
            **dict(zip(DRUGS, doses, strict=True)),
        },
    )
    schema, sections = read_schema(SHIPPED / "diabetes130.toml"), icd9()
    diagnoses = [[name for code in stay.codes if (name := sections.feature(code))] for stay in stays]
    fitted = fit_columns(plain, schema, train, ())
    x = np.column_stack([fitted.apply(plain), one_hot(diagnoses, sections.features)])
    y = np.array([stay.died for stay in stays], np.uint8)
    ids = numbers(f"{path}: patient_nbr", (stay.patient for stay in stays)).astype(np.int64)
    return Dataset("diabetes130", x[train], y[train], x[test], y[test], classes=2, ids=ids[train], ranged=fitted.ranged)


def _stays(path: Path) -> list[_Stay]:
    """Return the first encounter of each patient, in the order of encounters, unless it is excluded."""
    first: dict[str, _Stay] = {}
    for row in read_table(path, (*_FIELDS, *DIAGNOSES, *DRUGS)):
        encounter, patient, gender, age, admission, disposition, medications, days = row[: len(_FIELDS)]
        known = first.get(patient)
        if known is not None and known.encounter <= int(encounter):
            continue
        diagnoses = row[len(_FIELDS) : len(_FIELDS) + len(DIAGNOSES)]
        first[patient] = _Stay(
            encounter=int(encounter),
            patient=patient,
            gender=gender if gender in GENDERS else "Unknown",
            age=int(age[1:].split("-")[0]),
            admission=admission,
            died=disposition in DIED,
            medications=medications,
            days=int(days),
            doses=tuple(row[len(_FIELDS) + len(DIAGNOSES) :]),
            codes=frozenset(code for code in diagnoses if code != "?"),
        )
    ordered = sorted(first.values(), key=lambda stay: stay.encounter)
    return [
        stay._replace(admission=ADMISSIONS.get(stay.admission, "unknown"))
        for stay in ordered
        if stay.age >= ADULT
        and stay.days >= SHORTEST
        and stay.admission not in (ELECTIVE, NEWBORN)
        and not any(map(_pregnant, stay.codes))
    ]


def _pregnant(code: str) -> bool:
    """Tell whether a code is one of ICD-9's chapter on pregnancy and childbirth, 630 to 679."""
    return code[:3].isdigit() and 630 <= int(code[:3]) <= 679
