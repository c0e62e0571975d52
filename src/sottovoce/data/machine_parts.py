"""Records that are divided among machines: one folder for each, and one small folder with what all have in common.

    common/    split.json, test records and others that are no client's, the number of records of each client
    part-0/    part.json, and the train records of the clients 0, n, 2n, ... of n parts
    part-1/    ... of the clients 1, n + 1, ...

`part.json` has the hash of each file beside it, and `split.json` that of every `part.json`: parts of the same records,
divided in the same way, are the same bytes, and all others are told apart.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import files
from sottovoce.core.errors import DataError, InputError, RunError
from sottovoce.data.files import damaged
from sottovoce.data.partition import Partition, Records, Sizes, Virtual

COMMON: Final = "common"
PART: Final = "part"
_VERSION: Final = 1
_LARGEST: Final = 1 << 26  # bytes of a JSON file


def expanded(folder: str) -> Path:
    """Return a folder as it is named on this machine: ~ and $VARIABLES are this machine's own."""
    return Path(os.path.expandvars(folder)).expanduser()


@final
@dataclass(frozen=True, eq=False)
class Away:
    """Partition of records that the machines of a cluster hold: who has how many is known here, and no record."""

    owners: Partition  # only its numbers are right
    trained: float  # the mean number of records that a client trains with
    folder: str  # where each machine looks for its parts
    parts: tuple[str, ...]  # the digest of each

    @property
    def clients(self) -> int:
        """Count the clients."""
        return self.owners.clients

    @property
    def total(self) -> int:
        """Count the records of all clients."""
        return self.owners.total

    @property
    def mean_size(self) -> float:
        """Return the mean number of records of a client."""
        return self.owners.mean_size

    @property
    def sizes(self) -> Sizes:
        """Sum up the numbers of records."""
        return self.owners.sizes

    def size(self, client: int) -> int:
        """Count the records of one client."""
        return self.owners.size(client)

    def records(self, client: int) -> Records:
        """Refuse: they are not here."""
        part = client % len(self.parts)
        raise InputError(f"the records of client {client} are on the machines that hold {PART}-{part}, and not here")


@final
@dataclass(frozen=True, eq=False)
class Part:
    """The train records of one part's clients, as they lie on the disk."""

    number: int
    of: int
    x: NDArray[Any]
    y: NDArray[Any]
    owners: Virtual | NDArray[np.int64]  # the partition, or where the records of each of the part's clients begin

    def records(self, client: int) -> Records:
        """Return the places of one client's records in this part."""
        if client % self.of != self.number:
            raise RunError(f"client {client} belongs to part {client % self.of}, and this is part {self.number}")
        if isinstance(self.owners, Virtual):
            return self.owners.records(client) // self.of
        place = client // self.of
        return np.arange(self.owners[place], self.owners[place + 1])


@final
@dataclass(frozen=True, eq=False)
class Held:
    """The parts that one machine holds."""

    parts: Mapping[int, Part]
    of: int

    @classmethod
    def open(cls, folder: str, digests: tuple[str, ...]) -> Held:
        """Map the parts of a division that lie in a folder; what they hold was compared before."""
        parts: dict[int, Part] = {}
        for number, digest in enumerate(digests):
            place = Folder(expanded(folder) / f"{PART}-{number}")
            if place.path.is_dir() and place.digest == digest:
                parts[number] = _opened(place)
        return cls(parts, len(digests))

    def of_client(self, client: int) -> Part:
        """Return the part that has a client's records."""
        found = self.parts.get(client % self.of)
        if found is None:
            raise RunError(f"the records of client {client} are in part {client % self.of}, which is not here")
        return found


@final
@dataclass(frozen=True)
class Folder:
    """A folder of arrays and a JSON file with the hash of each of them."""

    path: Path

    @property
    def _told(self) -> Path:
        return self.path / ("split.json" if self.path.name == COMMON else "part.json")

    @property
    def digest(self) -> str:
        """Return what tells this folder from any other with other bytes."""
        with damaged(self._told):
            return hashlib.sha256(self._told.read_bytes()).hexdigest()

    def facts(self) -> dict[str, Any]:
        """Read the JSON file."""
        with damaged(self._told):
            if self._told.stat().st_size > _LARGEST:
                raise DataError(f"{self._told} is too large to be what its name says; copy it again")
            facts: dict[str, Any] = json.loads(self._told.read_text("utf-8"))
            if facts["version"] != _VERSION:
                raise DataError(f"{self._told} has version {facts['version']}, and {_VERSION} is known; split again")
            return facts

    def array(self, name: str) -> NDArray[Any]:
        """Map an array, read-only."""
        path = self.path / f"{name}.npy"
        with damaged(path):
            mapped: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
            return mapped.view(np.ndarray)

    def check(self) -> dict[str, Any]:
        """Return the facts; raise unless every array is as it was written."""
        facts = self.facts()
        with damaged(self._told):
            for name, digest in facts["arrays"].items():
                if _hash(self.path / f"{name}.npy") != digest:
                    raise DataError(f"{self.path / name}.npy is not as it was written; copy {self.path.name} again")
        return facts


def part_of(number: int, of: int, x: NDArray[Any], y: NDArray[Any], owners: Partition) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part: the records of every client k with k mod `of` = number."""
    if isinstance(owners, Virtual):
        return {"x_train": x[number::of], "y_train": y[number::of]}
    mine = [owners.records(client) for client in range(number, owners.clients, of)]
    places = np.concatenate(mine)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in mine])]).astype(np.int64)
    return {"x_train": x[places], "y_train": y[places], "offsets": offsets}


def write_folder(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays and facts into a new folder; return its digest."""
    path.mkdir()
    hashes: dict[str, str] = {}
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
        hashes[name] = _hash(path / f"{name}.npy")
    folder = Folder(path)
    folder._told.write_text(
        json.dumps({"version": _VERSION, **facts, "arrays": hashes}, indent=1, sort_keys=True) + "\n", "utf-8"
    )
    return folder.digest


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to write into that has the name `path` when all went well, and is gone otherwise."""
    if path.exists():
        raise InputError(f"{path} exists already; choose another --out")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.new_folder(path, 0o755) as scratch:
            yield scratch
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def _opened(folder: Folder) -> Part:
    facts = folder.facts()
    with damaged(folder.path):
        virtual = facts["virtual"]
        owners = folder.array("offsets") if virtual is None else Virtual(**virtual)
        return Part(facts["number"], facts["of"], folder.array("x_train"), folder.array("y_train"), owners)


def _hash(path: Path) -> str:
    with damaged(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
