"""Turn a row of a published table into an experiment, at either scale."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from sottovoce.config.experiment import TABLES, Experiment, parse
from sottovoce.core.errors import InputError
from sottovoce.schemes import make
from sottovoce.search.cells import digest
from sottovoce.search.runner import Campaign
from sottovoce.studies.published.table import Published, Row, ScaleName, Tables, merge, read_toml

CELLS: Final = "cells"  # the folder of the run folders
_NOT_THE_RESULT: Final = {"experiment": ("name", "checkpoint_every", "chosen_on", "loggers"), "data": ("folder",)}


_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    name: {
        key: field.get_default(call_default_factory=True)
        for key, field in kind.model_fields.items()
        if not field.is_required()
    }
    for name, kind in TABLES.items()
}


class Setup(BaseModel):
    """Parameters that several tables share: an experiment, parts that rows add to it, and what differs from theirs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    differs: tuple[str, ...] = ()
    train_records: int | None = None  # that the papers' data set has, where ours may have fewer
    tables: Tables
    parts: dict[str, Tables]


@cache
def read_setup(name: str) -> Setup:
    """Return a set-up by its name; one that names a `base` has what the base has and it does not say otherwise."""
    document = read_toml("setups", name)
    base = document.pop("base", None)
    if base is not None:
        document = merge(read_setup(base).model_dump(exclude_none=True), document)
    try:
        return Setup.model_validate(document)
    except ValidationError as error:
        raise InputError(f"the data of set-up {name} is damaged: {error.errors()[0]['msg']}") from None


def setup_of(table: Published, row: Row, scale: ScaleName) -> Setup:
    """Return the set-up of a row."""
    names = row.setup or table.setup
    return read_setup(names.full if scale == "full" else names.small)


def resolve(table: Published, row: Row, scale: ScaleName, seed: int = 1, workers: int | None = None) -> Experiment:
    """Return the experiment of a row.

    Its name is made of its scheme and of a digest of all that decides its result: rows of two tables that ask for the
    same have the same name, and so one run folder.
    """
    setup = setup_of(table, row, scale)
    tables: dict[str, Any] = setup.tables
    for part in row.uses:
        if part not in setup.parts:
            raise InputError(f"table {table.name}, row {row.name!r}: its set-up has no part {part!r}")
        tables = merge(tables, setup.parts[part])
    tables = merge(merge(tables, table.set), row.set)
    if scale == "small":
        tables = merge(merge(tables, table.small), row.small)
    tables = merge(tables, {"experiment": {"seed": seed}})
    if workers is not None:
        tables = merge(tables, {"engine": {"workers": workers}})
    experiment = parse(tables, where=f"table {table.name}, row {row.name!r}")
    general = experiment.experiment.model_copy(update={"name": _name(experiment)})
    return experiment.model_copy(update={"experiment": general})


def _name(experiment: Experiment) -> str:
    """Return the name of a cell: a key at its default is not part of it, so that a key which is new leaves it as it is.

    A default that changes does not go unseen: a folder is opened only with the very experiment that it was made with.
    """
    usual = make(experiment.scheme.name)
    defaults = _DEFAULTS | {"scheme": _DEFAULTS["scheme"] | {key: getattr(usual, key) for key in usual.own_keys()}}
    identity = {
        name: {key: value for key, value in table.items() if value != defaults.get(name, {}).get(key)}
        for name, table in experiment.identity().items()
    }
    identity["scheme"]["name"] = experiment.scheme.name
    for table, keys in _NOT_THE_RESULT.items():
        for key in keys:
            identity.get(table, {}).pop(key, None)
    identity = {name: table for name, table in identity.items() if table or name == "privacy"}
    private = "-dp" if experiment.privacy is not None else ""
    return f"{experiment.scheme.name}{private}-{digest(identity)[:16]}"


def campaign(out: Path | str) -> Campaign:
    """Return the runs of all tables below a folder: one for each experiment, whichever tables ask for it.

    The best round's model stays.
    """
    return Campaign(Path(out) / CELLS, ("model.npz",), timed=True)
