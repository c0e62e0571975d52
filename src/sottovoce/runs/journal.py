"""What a run keeps on disk, and in which order: a journal that can be repeated, or one that cannot be revoked.

A simulation repeats a lost round bit for bit, so its journal is *repeatable*: a checkpoint every few rounds, and what
came after it is played again. Between machines nothing can be repeated: noise and masks are fresh each time, and the
clients may have answered. That journal is *irrevocable*. `checkpoint/opened.npz` says on disk, before anybody is asked,
which round is begun and how often each client has been drawn, and every round is on disk before anybody hears of it. A
round that was begun when the server stopped is void: it stays in the record and in the ledger, if it was charged, and
the run goes on with the next number. Round 0 is asked once for the same reason: what it found is in
`checkpoint/opening.npz` before anybody trains.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override

from sottovoce.assembly.parts import Parts
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.files import replacing, sync_folder
from sottovoce.core.vectors import Vector
from sottovoce.federation.aggregation.aggregator import Costs, Total
from sottovoce.federation.round import draws_commitment
from sottovoce.privacy import Ledger
from sottovoce.runs.exposure import VOID, Aborts, with_seen
from sottovoce.runs.folder import STATES, RunFolder, check_environment, read_environment
from sottovoce.runs.records import Instrument, Record, RoundRecords
from sottovoce.schemes import State

_KEPT: Final = ("draws", "draws_salt")
_FILE: Final = "opening.npz"
_ANEW: Final = "clients send it once, so play the experiment anew, with another seed and another --out"


class Journal(ABC):
    """The record of a run in its folder: what is there when it begins or goes on, and how rounds are added."""

    def __init__(self, folder: RunFolder, parts: Parts) -> None:
        self.folder = folder
        self.parts = parts
        self.done, self.state = folder.restore() or (0, {})  # the last round, and the state after it
        private = parts.experiment.privacy is not None
        self.records, operator = folder.rewind(self.done, private=private)  # what is published of the rounds
        pairs = itertools.zip_longest(self.records, operator, fillvalue=None)
        self.told = [RoundRecords(record or {}, mine) for record, mine in pairs]  # the rounds that were there before

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """Return what the journal itself adds to the record of a round."""
        return ()

    @abstractmethod
    def check(self, ledger: Ledger | None) -> None:
        """Raise unless the folder, the ledger and this machine let the run go on from here."""

    @abstractmethod
    def found(self) -> Vector | None:
        """Return what round 0 found when it was asked before; None if it must be asked."""

    @abstractmethod
    def keep_found(self, found: Vector, total: Total) -> None:
        """Keep what round 0 found."""

    @abstractmethod
    def lost(self, state: State, ledger: Ledger | None, costs: Costs | None) -> Iterator[tuple[RoundRecords, State]]:
        """Close the rounds that can never end: yield what is told of each, and the state after it."""

    @abstractmethod
    def await_turn(self, round_: int) -> None:
        """Return when a round may be played, or raise if none may."""

    @abstractmethod
    def begin(self, round_: int, state: State) -> None:
        """Take note of a round and the draws up to it; on return clients may be asked."""

    @abstractmethod
    def keeping(self, told: RoundRecords, state: State) -> AbstractContextManager[None]:
        """Keep a round; who hears of it does so inside."""

    @abstractmethod
    def close(self, state: State) -> None:
        """Keep the state after the last round."""

    def _append(self, told: RoundRecords) -> None:
        self.records.append(told.public)
        self.folder.append(told.public, told.operator)
        self.done += 1


class Repeatable(Journal):
    """The journal of a simulation: a checkpoint every few rounds; what came after it is played again, bit for bit."""

    def __init__(self, folder: RunFolder, parts: Parts) -> None:
        super().__init__(folder, parts)
        self._saved = self.done

    @override
    def check(self, ledger: Ledger | None) -> None:
        if ledger is not None and self.done:
            ledger.check_draws(self.done, draws_commitment(self.state))
        if self.done or (ledger is not None and ledger.rounds):
            check_environment(self.folder.path, self.parts, ledger, self.done)

    @override
    def found(self) -> Vector | None:
        return None

    @override
    def keep_found(self, found: Vector, total: Total) -> None:
        pass

    @override
    def lost(self, state: State, ledger: Ledger | None, costs: Costs | None) -> Iterator[tuple[RoundRecords, State]]:
        return iter(())

    @override
    def await_turn(self, round_: int) -> None:
        pass

    @override
    def begin(self, round_: int, state: State) -> None:
        pass

    @override
    @contextmanager
    def keeping(self, told: RoundRecords, state: State) -> Iterator[None]:
        self._append(told)
        yield
        if self.done % self.parts.experiment.experiment.checkpoint_every == 0:
            self._save(state)

    @override
    def close(self, state: State) -> None:
        if self._saved != self.done:
            self._save(state)

    def _save(self, state: State) -> None:
        self.folder.save(self.done, state)
        self._saved = self.done


class Irrevocable(Journal):
    """The journal of a run between machines: no round is played twice, and each is on disk before anybody hears of it.

    Guarantee: which round is begun, and with whose draws, is on disk before a client is asked.
    """

    def __init__(self, folder: RunFolder, parts: Parts) -> None:
        super().__init__(folder, parts)
        self._begun = read_begun(folder.path)
        self._aborts = Aborts(parts.parties.back_off)

    @property
    @override
    def instruments(self) -> tuple[Instrument, ...]:
        return (self._aborts,)

    @override
    def check(self, ledger: Ledger | None) -> None:
        if ledger is not None:
            check_begun(ledger, self.done, self.state, self._begun)
        check_kept(self.folder.path, self.done, self._begun, ledger)

    @override
    def found(self) -> Vector | None:
        return found_before(self.folder.path)

    @override
    def keep_found(self, found: Vector, total: Total) -> None:
        keep_found(self.folder.path, found, total)

    @override
    def lost(self, state: State, ledger: Ledger | None, costs: Costs | None) -> Iterator[tuple[RoundRecords, State]]:
        begun = self._begun
        while begun is not None and begun.round > self.done:  # two, after a checkpoint that the disk has spoilt
            round_ = self.done + 1
            state = with_seen({**state, **begun.draws}, VOID)
            if ledger is not None and ledger.last_drawn < round_:  # killed between the two writes
                ledger.drawn(round_, draws_commitment(state))
            told = _void_record(round_, costs)
            self._write(told, state)
            yield told, state

    @override
    def await_turn(self, round_: int) -> None:
        self._aborts.wait(round_ - 1)

    @override
    def begin(self, round_: int, state: State) -> None:
        write_begun(self.folder.path, round_, state)

    @override
    @contextmanager
    def keeping(self, told: RoundRecords, state: State) -> Iterator[None]:
        self._write(told, state)
        yield

    @override
    def close(self, state: State) -> None:
        pass

    def _write(self, told: RoundRecords, state: State) -> None:
        self._append(told)
        sync_records(self.folder.path)
        self.folder.save(self.done, state)


def make_journal(folder: RunFolder, parts: Parts) -> Journal:
    """Return the journal of a run: machines cannot repeat a round, a simulation can."""
    return (Irrevocable if parts.parties.machines else Repeatable)(folder, parts)


class Begun(NamedTuple):
    """The last round that was begun, and the draws up to it; of a run that is not private there are none."""

    round: int
    draws: State


def write_begun(path: Path, round_: int, state: State) -> None:
    """Say on disk that a round is begun, with the draws up to it; on return clients may be asked."""
    folder = path / "checkpoint"
    folder.mkdir(exist_ok=True)
    kept = {name: state[name] for name in _KEPT if name in state}
    try:
        with replacing(folder / "opened.npz") as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, round=np.int64(round_), **kept)
        sync_folder(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}; mend it and go on with --resume") from None


def read_begun(path: Path) -> Begun | None:
    """Return the last round that was begun; None before the first."""
    file = path / "checkpoint" / "opened.npz"
    try:
        with np.load(file, allow_pickle=False) as arrays:
            state = {name: arrays[name] for name in arrays.files}
        return Begun(int(state.pop("round")), state)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RunError(f"{file} is damaged ({error}); restore it: no round may be played twice") from None


def check_kept(path: Path, done: int, begun: Begun | None, ledger: Ledger | None) -> None:
    """Raise if a part of what a run between machines goes on from is gone: it would begin anew under later numbers.

    `done` is the round of the checkpoint, 0 if there is none. Round 1 may be begun, or charged, before the first one.
    """
    latest = max([0 if begun is None else begun.round, *(() if ledger is None else ledger.rounds)])
    where = path / "checkpoint"
    if not done and latest > 1:
        kind = RunError if ledger is None else PrivacyError
        raise kind(
            f"{where / STATES[0]} is gone, and round {latest} was begun: the run would begin anew, and all its rounds "
            "are spent; restore the folder, or choose another --out"
        )
    if done and (begun is None or begun.round < done):
        what = "is gone" if begun is None else f"is of round {begun.round}, an older copy"
        raise RunError(f"{where / 'opened.npz'} {what}; restore it: no round may be played twice")


def check_begun(ledger: Ledger, done: int, state: State, begun: Begun | None) -> None:
    """Raise unless checkpoint and begun round count the draws that the ledger has recorded last.

    A server killed between the two writes has begun one round more than the ledger knows; nobody was asked in it.
    """
    known = {done: draws_commitment(state)} if done else {}
    if begun is not None:
        known[begun.round] = draws_commitment(begun.draws)
    if ledger.last_drawn:
        ledger.check_draws(ledger.last_drawn, known.get(ledger.last_drawn, ""))


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


def found_before(path: Path) -> Vector | None:
    """Return what round 0 of a run between machines found; None if nobody was asked yet."""
    file = path / "checkpoint" / _FILE
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays["found"], np.float32)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RunError(f"{file} is damaged ({error}); restore it: clients answer round 0 once") from None
    if read_begun(path) is not None:
        raise RunError(f"the server stopped while the message before round 1 was open; {_ANEW}")
    return None


def keep_found(path: Path, found: Vector, total: Total) -> None:
    """Keep what round 0 found; on return it is on disk. Raise if too few answered: what was decoded is noise.

    Guarantee: nothing of a round 0 that failed is released; clients and server have paid for it all the same.
    """
    if total.reason is not None:
        raise RunError(f"the message before round 1 failed: {total.reason}; {_ANEW}")
    folder = path / "checkpoint"
    folder.mkdir(exist_ok=True)
    try:
        with replacing(folder / _FILE) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, found=found)
        sync_folder(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}; {_ANEW}") from None


def _void_record(round_: int, costs: Costs | None) -> RoundRecords:
    """Return the records of a void round; nobody knows what it sent and received."""
    mark: Record = {"round": round_, "void": True, "epsilon": None, "epsilon_spent": None}
    nothing: Record = {"round": round_, "cohort": 0, "senders": 0, "bytes_up": 0, "bytes_down": 0, "seconds": 0.0}
    if costs is None:
        return RoundRecords(nothing | mark, None)
    operator = nothing | {"void": True, "reason": f"round {round_}: the server stopped while it was open"}
    return RoundRecords(mark | {"bytes_up": costs.round.up, "bytes_down": costs.round.down}, operator)
