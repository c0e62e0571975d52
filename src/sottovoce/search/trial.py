"""Play plans for a little while on records that are nobody's, and tell what each reaches: a measured ranking.

Records are public ones that the user names, or synthetic ones in the shape of the file's. Clients, cohorts, noise and
rounds are the plan's own, so that signal and noise have the proportion of the run that is planned.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.assembly.overrides import Given
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, SottovoceError
from sottovoce.core.provenance import Public
from sottovoce.data import Dataset
from sottovoce.models import leading_metric
from sottovoce.runs.folder import Record
from sottovoce.runs.loop import run
from sottovoce.search.proxy import make_proxy

SECONDS: Final = 60.0
_TEST: Final = 2_000  # synthetic records that measure
_MOST: Final = 100_000  # synthetic records of all clients
_MEASURED: Final = 8  # times in a run
_SEED: Final = 20_001
_OF_RECORDS: Final = (
    *("label", "id", "person", "split", "test", "test_public", "schema", "folder", "shape", "scale", "augment"),
    "records_per_client",
)
_SPARED: Final = ("budget", "budget_epsilon", "budget_epsilon_server", "budget_delta", "population", "spent")


def try_plans(
    experiment: Experiment,
    plans: Sequence[Experiment],
    shape: Dataset,
    *,
    on: str | None = None,
    units: int | None = None,
    seconds: float = SECONDS,
    observe: Callable[[str], None] = lambda text: None,
) -> tuple[list[Record | None], Record]:
    """Play plans of an experiment in turn, and return what each reached and what they were tried on.

    `shape` is a data set like the clients', of which nothing but shape, type and classes is used. Each plan gets an
    equal part of the time that is left; one that is not done by then is told with the rounds that it played. Where
    records or persons are protected, `units` says how many there are: each is a synthetic record.

    Guarantee: no record of the clients is read here.
    """
    if not 1 <= seconds <= 3600:
        raise InputError(f"--try must be from 1 to 3600 seconds, got {seconds:g}")
    began = time.monotonic()
    records = _public(experiment, on) if on is not None else synthetic(shape, units or _count(experiment))
    counts = np.bincount(records.y_test, minlength=records.classes)
    binary = records.classes == 2
    told: Record = {
        "on": f"{on!r}, which you named as public" if on is not None else "synthetic records of the same shape",
        "metric": leading_metric(binary),
        "baseline": 0.5 if binary else float(counts.max() / counts.sum()),
        "records": len(records.y_test),
        "clients": experiment.data.clients,
        "problems": {},
    }
    trials: list[Record | None] = []
    for number, plan in enumerate(plans):
        left = seconds - (time.monotonic() - began)
        if left <= 0:
            trials.append(None)
            continue
        observe(f"trying plan {number + 1} of {len(plans)}: {plan.scheme.name}")
        try:
            trials.append(_play(plan, records, told["metric"], left / (len(plans) - number)))
        except SottovoceError as error:
            trials.append(None)
            told["problems"][f"{plan.scheme.name} was not played"] = str(error)
    told["seconds"] = round(time.monotonic() - began, 1)
    return trials, told


def synthetic(shape: Dataset, count: int, seed: int = _SEED) -> Dataset:
    """Return records of the shape of others: a smooth pattern of each class, and noise that hides it in part."""
    if shape.x_train.dtype == np.uint16:
        raise InputError("--try makes no synthetic texts; name public ones with --on")
    rng = np.random.default_rng(seed)
    patterns = np.stack([_pattern(shape.shape, rng) for _ in range(shape.classes)])

    def made(records: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        labels = rng.integers(0, shape.classes, records)
        values = 0.5 + 0.12 * patterns[labels] + 0.2 * rng.standard_normal((records, *shape.shape), np.float32)
        clipped = np.clip(values, 0, 1) / shape.input_scale
        stored = np.rint(clipped) if shape.x_train.dtype == np.uint8 else clipped
        return stored.astype(shape.x_train.dtype), labels.astype(np.int64)

    (x_train, y_train), (x_test, y_test) = made(count), made(_TEST)
    return Dataset(
        "synthetic",
        x_train,
        y_train,
        x_test,
        y_test,
        classes=shape.classes,
        input_scale=shape.input_scale,
        test_from=Public("synthetic records"),
        counts_from=Public("synthetic records"),
    )


def _pattern(shape: tuple[int, ...], rng: Generator) -> NDArray[np.float32]:
    """Return values with mean square 1; of images, smooth ones, as pictures are."""
    values = rng.standard_normal(shape)
    if len(shape) == 3:
        from scipy.ndimage import gaussian_filter

        values = gaussian_filter(values, (max(1, shape[0] / 10), max(1, shape[1] / 10), 0))
    return np.asarray(values / np.sqrt(np.mean(values**2)), np.float32)


def _count(experiment: Experiment) -> int:
    table = experiment.data
    each = table.records_per_client or table.mean_records or 10
    return int(min(max(table.clients, math.ceil(table.clients * each)), max(_MOST, table.clients)))


def _public(experiment: Experiment, on: str) -> Dataset:
    return make_proxy(experiment, on, seed=_SEED).dataset


def _play(plan: Experiment, records: Dataset, metric: str, seconds: float) -> Record:
    """Play one plan until it is done or its time is over."""
    rounds = plan.experiment.rounds
    trial: dict[str, Any] = {"score": None, "rounds": 0, "of": rounds}
    ends = time.monotonic() + seconds

    def watch(record: Record) -> None:
        if record.get(metric) is not None:
            trial["score"], trial["rounds"] = float(record[metric]), int(record["round"])
        if time.monotonic() > ends and trial["score"] is not None:
            raise _TimeIsUp

    with tempfile.TemporaryDirectory(prefix="sottovoce-try-") as folder, suppress(_TimeIsUp):
        run(_simulated(plan), Path(folder) / "run", observe=watch, given=Given(dataset=records))
    return trial


class _TimeIsUp(Exception):  # noqa: N818
    """Sign that a plan had its time."""


def _simulated(plan: Experiment) -> Experiment:
    """Return a plan as it is played here: on records that are nobody's, measured by the server."""
    tables: dict[str, Any] = {name: dict(table) for name, table in plan.tables().items() if isinstance(table, Mapping)}
    general, data = tables["experiment"], tables["data"]
    general |= {"name": "try", "evaluation": "server", "patience": 0}
    general["evaluate_every"] = max(1, general["rounds"] // _MEASURED)
    for key in _OF_RECORDS:
        data.pop(key, None)
    kind = data.get("partition")
    data |= {"source": "synthetic.npz", "partition": kind if kind in ("iid", "dirichlet", "shards") else "iid"}
    if "privacy" in tables:
        privacy = {key: value for key, value in tables["privacy"].items() if key not in _SPARED}
        if privacy.get("unit", "client") != "client":  # a synthetic record stands for a person
            privacy = {key: value for key, value in privacy.items() if key not in ("units", "max_rows")}
            privacy["unit"] = "record"
        tables["privacy"] = privacy
    secure = {"real": "ideal", "ballot": "ideal-ballot"}  # the same sums, without the cryptography
    table = tables.get("aggregation", {})
    if table.get("secure") in secure:
        tables["aggregation"] = table | {"secure": secure[table["secure"]]}
    tables.pop("devices", None)
    return parse(tables, where="--try")


def ranked(solutions: Sequence[Record], trials: Sequence[Record | None]) -> list[Record]:
    """Return plans with what they reached, the best first; those that were not played keep their order at the end.

    >>> ranked([{"a": 1}, {"a": 2}], [None, {"score": 0.5, "rounds": 4, "of": 4}])[0]["a"]
    2
    """
    together = [{**solution, "tried": trial} for solution, trial in zip(solutions, trials, strict=True)]
    return sorted(together, key=lambda each: -((each["tried"] or {}).get("score") or -1.0))


def without_records(dataset: Dataset) -> Dataset:
    """Return one record of each class as zeros: the shape of a data set, and nothing of what is in it."""
    zeros = np.zeros((dataset.classes, *dataset.shape), dataset.x_train.dtype)
    labels = np.arange(dataset.classes, dtype=np.int64)
    return replace(
        dataset, x_train=zeros, y_train=labels, x_test=zeros, y_test=labels, ids=None, persons=None, properties={}
    )
