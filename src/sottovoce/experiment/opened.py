"""Remember which round of a run between machines is open, so that a killed server never plays its number again.

A simulation repeats a lost round bit for bit. Between machines it cannot: noise and masks are fresh each time, and the
clients may have answered. So `checkpoint/opened.npz` says on disk, before anybody is asked, which round is open and how
often each client has been drawn. A round that was open when the server stopped is void: it stays in the record and in
the ledger, if it was charged, and the run goes on with the next number.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.files import replacing, sync_folder
from sottovoce.experiment.folder import STATES, RunFolder, read_environment
from sottovoce.experiment.records import Record, Told
from sottovoce.federation.costs import Costs
from sottovoce.federation.round import draws_commitment
from sottovoce.privacy import Ledger
from sottovoce.schemes import State

__all__ = [
    "Opened",
    "check_kept",
    "check_kind",
    "check_opened",
    "check_roster",
    "keys_digest",
    "read_opened",
    "run_id",
    "sync_records",
    "void",
    "write_opened",
]

_KEPT = ("draws", "draws_salt")


class Opened(NamedTuple):
    """The last round that was opened, and the draws up to it; of a run that is not private there are none."""

    round: int
    draws: State


def write_opened(path: Path, round_: int, state: State) -> None:
    """Say on disk that a round is open, with the draws up to it; on return clients may be asked."""
    folder = path / "checkpoint"
    folder.mkdir(exist_ok=True)
    kept = {name: state[name] for name in _KEPT if name in state}
    try:
        with replacing(folder / "opened.npz") as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, round=np.int64(round_), **kept)
        sync_folder(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}; mend it and go on with --resume") from None


def read_opened(path: Path) -> Opened | None:
    """Return the last round that was opened; None before the first."""
    file = path / "checkpoint" / "opened.npz"
    try:
        with np.load(file, allow_pickle=False) as arrays:
            state = {name: arrays[name] for name in arrays.files}
        return Opened(int(state.pop("round")), state)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RunError(f"{file} is damaged ({error}); restore it: no round may be played twice") from None


def check_kept(path: Path, done: int, opened: Opened | None, ledger: Ledger | None) -> None:
    """Raise if a part of what a run between machines goes on from is gone: it would begin anew under later numbers.

    `done` is the round of the checkpoint, 0 if there is none. Round 1 may be open, or charged, before the first one.
    """
    begun = max([0 if opened is None else opened.round, *(() if ledger is None else ledger.rounds)])
    where = path / "checkpoint"
    if not done and begun > 1:
        kind = RunError if ledger is None else PrivacyError
        raise kind(
            f"{where / STATES[0]} is gone, and round {begun} was begun: the run would begin anew, and all its rounds "
            "are spent; restore the folder, or choose another --out"
        )
    if done and (opened is None or opened.round < done):
        what = "is gone" if opened is None else f"is of round {opened.round}, an older copy"
        raise RunError(f"{where / 'opened.npz'} {what}; restore it: no round may be played twice")


def check_opened(ledger: Ledger, done: int, state: State, opened: Opened | None) -> None:
    """Raise unless checkpoint and open round count the draws that the ledger has recorded last.

    A server killed between the two writes has opened one round more than the ledger knows; nobody was asked in it.
    """
    known = {done: draws_commitment(state)} if done else {}
    if opened is not None:
        known[opened.round] = draws_commitment(opened.draws)
    if ledger.last_drawn:
        ledger.check_draws(ledger.last_drawn, known.get(ledger.last_drawn, ""))


def void(folder: RunFolder, round_: int, state: State, ledger: Ledger | None, costs: Costs | None) -> Told:
    """Close a round that was open when the server stopped, with the draws it made and nothing else, and record it."""
    if ledger is not None and ledger.last_drawn < round_:  # killed between the two writes
        ledger.drawn(round_, draws_commitment(state))
    told = _void_record(round_, costs)
    folder.append(told.public, told.operator)
    sync_records(folder.path)
    folder.save(round_, state)
    return told


def sync_records(path: Path) -> None:
    """Bring the lines of all rounds to the disk, so that no checkpoint is ahead of them."""
    for name in ("operator.jsonl", "rounds.jsonl"):
        if (path / name).exists():
            with (path / name).open("rb") as file:
                os.fsync(file.fileno())


def run_id(path: Path) -> bytes:
    """Return the 16 bytes that were drawn for a run between machines when its folder was made."""
    try:
        return bytes.fromhex(read_environment(path)["run"])
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path / 'environment.json'} does not hold the id of a run between machines") from None


def check_kind(path: Path, *, deployed: bool) -> None:
    """Raise if a simulation is to go on between machines, or the other way round."""
    if ("run" in read_environment(path)) != deployed:
        was, now = ("a simulation", "between machines") if deployed else ("a run between machines", "as a simulation")
        raise InputError(f"{path} is the folder of {was}, which cannot go on {now}; choose another --out")


def keys_digest(keys: Mapping[int, bytes]) -> str:
    """Return the hash of who has which number, and by which key."""
    return hashlib.sha256(b"".join(number.to_bytes(4, "little") + keys[number] for number in sorted(keys))).hexdigest()


def check_roster(path: Path, keys: Mapping[int, bytes]) -> None:
    """Raise if others take part than before: draws, and what a client may still give, are counted by its number."""
    if read_environment(path).get("keys") != keys_digest(keys):
        raise InputError(
            f"{path} was begun with another roster, and a run is bound to its roster; go on with that one, or choose "
            "another --out"
        )


def _void_record(round_: int, costs: Costs | None) -> Told:
    """Return the records of a void round; nobody knows what it sent and received."""
    mark: Record = {"round": round_, "void": True, "epsilon": None, "epsilon_spent": None}
    nothing: Record = {"round": round_, "cohort": 0, "senders": 0, "bytes_up": 0, "bytes_down": 0, "seconds": 0.0}
    if costs is None:
        return Told(nothing | mark, None)
    operator = nothing | {"void": True, "reason": f"round {round_}: the server stopped while it was open"}
    return Told(mark | {"bytes_up": costs.round.up, "bytes_down": costs.round.down}, operator)
