"""Divide the records of an experiment among the machines of a cluster, and gather the experiment without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from sottovoce.assembly.model import front_numbers
from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import Parts, check_held_out, gather, needs_public
from sottovoce.assembly.public import check_projection, cuts_public, load_public, may_mix
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.provenance import Owned, Provenance, Public
from sottovoce.core.target import Target
from sottovoce.core.validate import in_range
from sottovoce.core.words import value_words
from sottovoce.data import LEAVES, Dataset, Partition, Shards, Virtual
from sottovoce.data.files import damaged
from sottovoce.data.machine_parts import COMMON, PART, Away, Folder, expanded, new_folder, part_of, write_folder
from sottovoce.schemes import Scheme

_SPLITS: Final = ("held_out", "public")  # records that are no client's, as far as they were cut from the train records
_OTHERS: Final = ("folder", "shape", "classes", "scale", "mean_records")  # keys of [data] that deal nothing out


def divide(experiment: Experiment, parts: int, out: Path | str) -> dict[str, Any]:
    """Write the records of an experiment into a new folder, divided into parts, and tell what is in them.

    Client k is in part k mod `parts`. The folder appears when all of it is written.
    """
    in_range("--parts", parts, low=1, high=experiment.data.clients)
    _check(experiment)
    whole = gather(_undivided(experiment))
    owners = whole.partition
    if isinstance(owners, Virtual) and owners.pools % parts:
        raise InputError(
            f'[data] partition = "virtual" draws the records of a client from one of pools = {owners.pools}, and a '
            f"part must hold whole pools; set [data] pools to a multiple of --parts {parts}"
        )
    arrays = whole.arrays(["train"])
    with new_folder(Path(out)) as folder:
        told = [_write_part(folder, number, parts, arrays, owners) for number in range(parts)]
        _write_common(folder, whole, [digest for digest, _ in told])
    return {
        "folder": str(out),
        "parts": [{"folder": f"{PART}-{number}", **facts} for number, (_, facts) in enumerate(told)],
    }


def gather_divided(experiment: Experiment, given: Given, front: bytes | None) -> Parts:
    """Return the parts of an experiment whose train records are on the machines of a cluster.

    Guarantee: they are those of the undivided records, but for the records themselves, and what a private run refuses
    of these it refuses here too.
    """
    _check(experiment)
    check_held_out(experiment)
    if given.dataset is not None or given.partition is not None:
        raise InputError("[engine] data says where the records are, and others were given as objects; give up one")
    asked = str(experiment.engine.data)
    common = Folder(expanded(asked) / COMMON)
    if not common.path.is_dir():
        raise InputError(
            f"[engine] data has no folder {COMMON} on this machine, which leads the run: there is no {common.path}; "
            "copy it here from what sottovoce data split wrote"
        )
    facts = common.check()
    scheme = given.scheme or experiment.make_scheme()
    _compare(facts.get("recipe", {}), _recipe(experiment, scheme), common.path)
    with damaged(common.path):
        splits = {name: _split(common, facts, name) for name in facts["splits"]}
        dataset = _dataset(common, facts)
        told = bytes.fromhex(facts["front"])
        virtual = facts["virtual"]
        owners: Partition = Virtual(**virtual) if virtual is not None else _counted(common)
        away = Away(owners, facts["trained"], asked, tuple(facts["parts"]))
    if told:
        check_projection(experiment)
    _check_compared(experiment, scheme, facts.get("public", {}), common.path)
    parts = gather(
        _undivided(experiment, dealt=True),
        replace(given, dataset=dataset, partition=away, public=splits.get("public", given.public)),
        front or told,
    )
    kept = {name: split for name, split in splits.items() if name == "held_out"}
    return replace(parts, experiment=experiment, splits={**kept, **parts.splits})


def _check(experiment: Experiment) -> None:
    if experiment.threat is not None:
        raise InputError(
            "[threat] lets clients act on the records of others, and machines that hold parts have only their own; "
            "remove [engine] data, or [threat]"
        )
    if experiment.data.shape is not None:
        raise InputError("[data] shape is for records that only nodes hold; remove it, or do not split them")


def _undivided(experiment: Experiment, *, dealt: bool = False) -> Experiment:
    """Return the experiment with all records in one place; if they are dealt already, with nothing to cut off."""
    changes: dict[str, Any] = {"engine": experiment.engine.model_copy(update={"data": None})}
    if dealt:
        changes["data"] = experiment.data.model_copy(update={"held_out": 0.0, "augment": 1, "test": None})
    return experiment.model_copy(update=changes)


def _recipe(experiment: Experiment, scheme: Scheme) -> dict[str, Any]:
    """Return every key on which the parts depend; the same keys make the same parts."""
    told = {
        f"[data] {key}": value for key, value in experiment.data.model_dump(mode="json").items() if key not in _OTHERS
    }
    told["[experiment] seed"] = experiment.experiment.seed
    told["records cut for tests"] = experiment.aside
    told["[client] balanced"] = experiment.client.sampled
    told["[client] held_out"] = experiment.client.held_out
    cut = needs_public(experiment, scheme) and cuts_public(experiment)
    told["[scheme] public_samples cut from the train records"] = experiment.scheme.public_samples if cut else 0
    model = experiment.model
    told["[model] front"] = model.front
    told["[model]"] = None if model.front == "none" else model.model_dump(mode="json")
    return told


def _named_public(experiment: Experiment, scheme: Scheme) -> dict[str, str]:
    """Return the sources of public records that the run reads beside its own, by the keys that name them."""
    named: dict[str, str] = {}
    if needs_public(experiment, scheme) and not cuts_public(experiment):
        named["[scheme] public"] = str(experiment.scheme.public)
    if experiment.model.projection.source is not None:
        named["[model] projection.source"] = experiment.model.projection.source
    return {key: source for key, source in named.items() if source != LEAVES}


def _compared(whole: Parts) -> dict[str, int]:
    """Return how many records of each public set are the clients' own: where they lie apart, nobody can see it."""
    counts: dict[str, int] = {}
    for source in _named_public(whole.experiment, whole.scheme).values():
        public = load_public(source, whole.experiment, whole.dataset, 1)
        rest = [whole.splits[name] for name in ("held_out",) if name in whole.splits]
        counts[source] = sum(part.overlap(public) for part in (whole.dataset, *rest))
    return counts


def _check_compared(experiment: Experiment, scheme: Scheme, counts: dict[str, int], folder: Path) -> None:
    """Raise if a private run reads public records that are the clients', or that were not compared with theirs."""
    if may_mix(experiment):
        return
    for key, source in _named_public(experiment, scheme).items():
        if source not in counts:
            raise PrivacyError(
                f"{key} = {source!r} was not compared with the clients' records when {folder} was split, and they are "
                "not here; split the records of this experiment again, or set [privacy] unsafe_public = true"
            )
        if counts[source]:
            raise PrivacyError(
                f"{key} = {source!r} is not public: {counts[source]} of its records are the clients' own, and epsilon "
                "would not cover what they tell; name other data, or set [privacy] unsafe_public = true"
            )


def _compare(theirs: dict[str, Any], ours: dict[str, Any], folder: Path) -> None:
    for key, value in ours.items():
        if theirs.get(key) != value:
            raise InputError(
                f"{folder} was split with {key} = {value_words(theirs.get(key))}, and the experiment has "
                f"{value_words(value)}; split the records of this experiment, or set it as it was"
            )


def _write_part(
    folder: Path, number: int, of: int, arrays: dict[str, Any], owners: Partition
) -> tuple[str, dict[str, Any]]:
    mine = part_of(number, of, arrays["x_train"], arrays["y_train"], owners)
    facts = {"number": number, "of": of, "virtual": _virtual(owners)}
    digest = write_folder(folder / f"{PART}-{number}", facts, mine)
    told = {
        "clients": len(range(number, owners.clients, of)),
        "records": len(mine["y_train"]),
        "bytes": sum(array.nbytes for array in mine.values()),
    }
    return digest, told


def _write_common(folder: Path, whole: Parts, digests: list[str]) -> None:
    dataset, owners, experiment = whole.dataset, whole.partition, whole.experiment
    cut = [name for name in _SPLITS if name in whole.splits and (name != "public" or cuts_public(experiment))]
    arrays: dict[str, Any] = {"x_test": dataset.x_test, "y_test": dataset.y_test}
    for name in cut:
        arrays |= {f"x_{name}": whole.splits[name].x_train, f"y_{name}": whole.splits[name].y_train}
    if not isinstance(owners, Virtual):
        arrays["sizes"] = np.array([owners.size(client) for client in range(owners.clients)], np.int64)
    facts = {
        "recipe": _recipe(experiment, whole.scheme),
        "parts": digests,
        "splits": cut,
        "virtual": _virtual(owners),
        "trained": whole.mean_size,
        "front": front_numbers(experiment, whole.network).hex(),
        "public": _compared(whole),
        "labels": str(dataset.y_train.dtype),
        "dataset": {
            **dataset.describe_inputs(),
            "test_data": dataset.test_data,
            "test_from": _source(dataset.tested_on()),
            "fitted": dict(dataset.fitted),
        },
        "counts_from": _source(dataset.counts_from),
    }
    write_folder(folder / COMMON, facts, arrays)


def _virtual(owners: Partition) -> dict[str, int] | None:
    if not isinstance(owners, Virtual):
        return None
    return {name: int(getattr(owners, name)) for name in owners.__dataclass_fields__}


def _dataset(common: Folder, facts: dict[str, Any]) -> Dataset:
    """Return the data set with one zero a class in place of its train records."""
    told = facts["dataset"]
    classes, shape, target = told["classes"], tuple(told["input_shape"]), Target.of(told.get("target"))
    return Dataset(
        told["data"],
        np.broadcast_to(np.zeros((), told["input_type"]), (classes, *shape)),
        target.blank(classes, classes).astype(facts["labels"]),
        common.array("x_test"),
        common.array("y_test"),
        classes=classes,
        input_scale=told["input_scale"],
        target=target,
        class_names=None if told["class_names"] is None else tuple(told["class_names"]),
        preprocessing=told["table"],
        test_data=told["test_data"],
        test_from=_provenance(told.get("test_from")),
        counts_from=_provenance(facts.get("counts_from")),
        fitted=told.get("fitted", {}),
        placeholder=True,
    )


def _source(records: Provenance) -> str | None:
    """Return the source that makes records public; None: they are the clients'."""
    return records.source if isinstance(records, Public) else None


def _provenance(source: str | None) -> Provenance:
    return Owned() if source is None else Public(source)


def _split(common: Folder, facts: dict[str, Any], name: str) -> Dataset:
    return replace(_dataset(common, facts), x_train=common.array(f"x_{name}"), y_train=common.array(f"y_{name}"))


def _counted(common: Folder) -> Shards:
    """Return a partition with the number of records of each client; which they are it does not know."""
    sizes = common.array("sizes")
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Shards(np.broadcast_to(np.int64(0), (int(offsets[-1]),)), offsets)
