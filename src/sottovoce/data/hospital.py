"""Prepare in-hospital mortality on the diabetes130 table as thesis 8.4.1 prepares its closed records.

One record a patient: the first encounter. As in the thesis (8.3.2 and 8.4.1), adults who stayed at least three days are
kept, and elective, newborn and pregnant admissions are left out. Ages are decades here, so an adult is 20 or older. The
thesis reads the first day of a stay; this table does not tell days apart, so all of the first encounter is read.

Features are what the thesis has: age, gender, admission type, drugs with their dosage, ICD-9 codes; the number of
medications stands in for the MRCI. Whatever tells the outcome (`discharge_disposition_id`, `readmitted`), is known only
at the end (`time_in_hospital`, which chooses records and describes none) or is the patient's history
(`number_inpatient`, ...) is not a feature.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.data.dataset import Dataset
from sottovoce.data.features import held_out, min_max, numbers, one_hot
from sottovoce.data.files import damaged, read_table

__all__ = ["DOWN", "OVER", "WEIGHTED", "balance", "balanced_size", "read_diabetes130"]

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
RARE: Final = 100  # a feature on fewer patients' records is dropped
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


class _Stay(NamedTuple):
    encounter: int
    patient: str
    gender: str
    age: int  # where its decade begins
    admission: str
    died: bool
    medications: str
    days: int
    codes: frozenset[str]


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
    codes = [stay.codes for stay in stays]
    appearances = Counter(code for stay, used in zip(stays, train, strict=True) if used for code in stay.codes)
    common = sorted(code for code, count in appearances.items() if count >= RARE)
    x = np.column_stack(
        [
            min_max(np.array([stay.age for stay in stays], np.float64), train),
            min_max(numbers(f"{path}: num_medications", (stay.medications for stay in stays)), train),
            one_hot([(stay.gender,) for stay in stays], GENDERS),
            one_hot([(stay.admission,) for stay in stays], (*ADMISSIONS.values(), "unknown")),
            one_hot(codes, common),
        ]
    )
    y = np.array([stay.died for stay in stays], np.uint8)
    ids = numbers(f"{path}: patient_nbr", (stay.patient for stay in stays)).astype(np.int64)
    return Dataset("diabetes130", x[train], y[train], x[test], y[test], classes=2, ids=ids[train])


def _stays(path: Path) -> list[_Stay]:
    """Return the first encounter of each patient, in the order of encounters, unless it is excluded."""
    first: dict[str, _Stay] = {}
    for row in read_table(path, (*_FIELDS, *DIAGNOSES, *DRUGS)):
        encounter, patient, gender, age, admission, disposition, medications, days = row[: len(_FIELDS)]
        known = first.get(patient)
        if known is not None and known.encounter <= int(encounter):
            continue
        diagnoses = row[len(_FIELDS) : len(_FIELDS) + len(DIAGNOSES)]
        doses = zip(DRUGS, row[len(_FIELDS) + len(DIAGNOSES) :], strict=True)
        codes = {f"icd9 {code}" for code in diagnoses if code != "?"}
        codes.update(f"{drug} {dose}" for drug, dose in doses if dose != "No")
        first[patient] = _Stay(
            encounter=int(encounter),
            patient=patient,
            gender=gender if gender in GENDERS else "Unknown",
            age=int(age[1:].split("-")[0]),
            admission=admission,
            died=disposition in DIED,
            medications=medications,
            days=int(days),
            codes=frozenset(codes),
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
    category = code.removeprefix("icd9 ")[:3]
    return code.startswith("icd9 ") and category.isdigit() and 630 <= int(category) <= 679
