"""Keep a run folder: whole files or none, one writer, and always a state to go on from.

config.toml         the resolved experiment, complete
environment.json    what it ran on
preprocessing.json  what the model reads, and how a table became features
front.bin           the numbers of a public front, as every client is sent them; absent if there are none
whitening.bin       the numbers by which features are whitened, as every client is sent them; absent if they are not
rounds.jsonl        one object a round
operator.jsonl      private runs: what must not be published of each round, in step with rounds.jsonl, and of the end
checkpoint/         the newest state and the one before it, each replaced in one step; not to be published either, they
                    count who was drawn
model.npz           the final model, one array a tensor
model-best.npz      the model of the best evaluated round, in the same form
digests.json        written at the end: hashes of the files above that may be checked, and of the summary
summary.json        written last: a folder with a summary is a finished run
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import shutil
import time
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from sottovoce.assembly.overrides import NOTHING, Given
from sottovoce.assembly.parts import Parts
from sottovoce.core import wire
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.files import new_folder, replace_file, replacing
from sottovoce.core.lock import hold
from sottovoce.federation.engines.local import cores
from sottovoce.models import choose_trainer
from sottovoce.privacy import Ledger
from sottovoce.runs.digests import DIGESTS, describe_digests, summary_text

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment

FRONT = "front.bin"
WHITENING = "whitening.bin"
STATES = ("state.npz", "previous.npz")  # the newest first

log = logging.getLogger(__name__)

Record = dict[str, Any]
State = dict[str, NDArray[Any]]


class RunFolder:
    """The folder of one run; only one process can hold it."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock
        self._told: bytes | None = None  # hash of the records that the restored checkpoint belongs to

    @classmethod
    def check(cls, path: Path, *, resume: bool) -> None:
        """Raise if a run could not be written here; changes nothing."""
        if path.exists() and not path.is_dir():
            raise InputError(f"output folder {path} is a file; choose another with --out")
        if path.is_dir() and any(path.iterdir()):
            if not (path / "config.toml").exists():
                raise InputError(f"output folder {path} is not empty and holds no run; choose another with --out")
            if not resume:
                raise InputError(f"output folder {path} already holds a run; add --resume, or choose another --out")
        parent = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            raise InputError(f"output folder {path} cannot be written: no permission in {parent}; choose another --out")

    @classmethod
    def create(
        cls,
        path: Path,
        experiment: Experiment,
        environment: Mapping[str, Any],
        inputs: Mapping[str, Any] | None = None,
        front: bytes = b"",
    ) -> Self:
        """Make a new folder in one step, so that a folder without its config is never seen.

        `inputs` says what the model reads (`Dataset.describe_inputs`). `front` are a front's numbers, which another
        machine would not find again bit for bit.
        """
        from sottovoce.config.experiment import to_toml

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_folder(path, 0o777) as draft:  # fails if a run appeared there meanwhile
                replace_file(draft / "config.toml", to_toml(experiment.tables()))
                replace_file(draft / "environment.json", json.dumps(environment, indent=2) + "\n")
                if inputs is not None:
                    replace_file(draft / "preprocessing.json", json.dumps(inputs, indent=2) + "\n")
                if front:
                    replace_file(draft / FRONT, front)
                lock = take_lock(draft, path)
        except OSError as error:
            raise InputError(f"output folder {path} cannot be written: {error.strerror}") from None
        return cls(path, lock)

    @classmethod
    def reopen(cls, path: Path, experiment: Experiment, given: Sequence[str] = ()) -> Self:
        """Open a folder to go on with it; the experiment, and which of its parts were given, must be the folder's."""
        from sottovoce.config.experiment import parse

        try:
            # Parsed, so that keys which did not exist when the run was started have their defaults.
            text = (path / "config.toml").read_text(encoding="utf-8")
            if not text.endswith("\n"):
                raise ValueError("its end is missing")
            old = parse(tomllib.loads(text)).identity()
        except (ValueError, InputError) as error:  # of a file that was written whole
            raise InputError(
                f"{path / 'config.toml'} is damaged: {error}; restore it from a copy, or begin another run with --out"
            ) from None
        except OSError as error:
            raise InputError(f"{path / 'config.toml'} cannot be read: {error.strerror}") from None
        new = experiment.identity()
        for table in sorted(set(new) | set(old)):
            before, now = old.get(table, {}), new.get(table, {})
            for key in sorted(set(before) | set(now)):
                if before.get(key) != now.get(key):
                    raise InputError(
                        f"{path} was started with [{table}] {key} = {before.get(key)!r}, not {now.get(key)!r}; "
                        "resume with the same experiment, or choose another --out"
                    )
        if (before := read_environment(path).get("given", [])) != list(given):
            raise InputError(
                f"{path} was started with these parts given as objects: {', '.join(before) or 'none'}; now it is "
                f"{', '.join(given) or 'none'}; resume with the same, or choose another --out"
            )
        return cls(path, take_lock(path, path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def front(self) -> bytes:
        """Return the numbers of the public front; empty if it has none."""
        return read_front(self.path)

    def keep_whitening(self, numbers: NDArray[np.float32]) -> None:
        """Keep the numbers by which features are whitened; whoever uses the model needs them."""
        try:
            replace_file(self.path / WHITENING, wire.pack(numbers))
        except OSError as error:
            raise RunError(f"{self.path / WHITENING} cannot be written: {error.strerror}") from None

    @property
    def finished(self) -> Record | None:
        """Return the summary of a finished run."""
        return read_summary(self.path)

    # Rounds.

    def append(self, record: Record, operator: Record | None = None) -> None:
        """Add one round; whole lines only. What is for the operator is written first, and so never behind."""
        if operator is not None:
            self._add_line("operator.jsonl", operator)
        self._add_line("rounds.jsonl", record)

    def append_vote(self, operator: Record) -> None:
        """Add the vote or the warm start before round 1, unless it is there: a resumed run repeats it to the bit."""
        if not read_operator(self.path):
            self._add_line("operator.jsonl", operator)

    def append_end(self, operator: Record) -> None:
        """Add what the operator alone may know of the end of a run; its round is null. A rewind drops it."""
        self._add_line("operator.jsonl", {"round": None, **operator})

    def rewind(self, round_: int, *, private: bool = False) -> tuple[list[Record], list[Record]]:
        """Drop the rounds after the checkpoint: they will be played again, with the same outcome.

        Returns what is left of `rounds.jsonl` and, for a private run, of `operator.jsonl`, without the vote.
        """
        if self._told is not None and self._told != _records_digest(self.path, round_):
            raise RunError(
                f"rounds.jsonl or operator.jsonl in {self.path} was changed after the checkpoint of round {round_}, or "
                "lacks rounds before it; restore both files"
            )
        kept = self._rewound("rounds.jsonl", read_rounds(self.path), round_)
        if not private:
            return kept, []
        mine = self._rewound("operator.jsonl", read_operator(self.path), round_)
        return kept, [record for record in mine if record["round"] > 0]

    def _rewound(self, name: str, records: list[Record], round_: int) -> list[Record]:
        kept = [record for record in records if record["round"] is not None and record["round"] <= round_]
        if [record["round"] for record in kept if record["round"] > 0] != list(range(1, round_ + 1)):
            raise RunError(f"{self.path / name} lacks rounds before the checkpoint of round {round_}")
        replace_file(self.path / name, "".join(json.dumps(record) + "\n" for record in kept))
        return kept

    def _add_line(self, name: str, record: Record) -> None:
        with self._full_disk(), (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    # Checkpoints.

    def save(self, round_: int, state: State) -> None:
        """Replace the checkpoint in one step, and keep the one before: a disk can spoil what was written well."""
        folder = self.path / "checkpoint"
        folder.mkdir(exist_ok=True)
        newest, previous = (folder / name for name in STATES)
        told = np.frombuffer(_records_digest(self.path, round_), np.uint8)
        with self._full_disk(), replacing(newest) as draft:
            with draft.open("wb") as file:
                np.savez(file, allow_pickle=False, round=np.int64(round_), records=told, **state)
            if newest.exists():
                with replacing(previous) as older:
                    shutil.copyfile(newest, older)

    def restore(self) -> tuple[int, State] | None:
        """Return the round and state of the newest checkpoint that can be read, or None if there is none yet."""
        newest, previous = (self.path / "checkpoint" / name for name in STATES)
        trouble = "is gone"
        for path in (newest, previous):
            try:
                with np.load(path, allow_pickle=False) as arrays:
                    state = {name: arrays[name] for name in arrays.files}
                round_, told = int(state.pop("round")), state.pop("records", None)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                trouble = f"is damaged ({error})"
                continue
            self._told = None if told is None else told.tobytes()
            if path is previous:
                log.warning("%s %s; going on from the one before, of round %d", newest, trouble, round_)
                if newest.exists():  # it would take the place of the one that is whole
                    newest.rename(newest.with_name("damaged.npz"))
            return round_, state
        if trouble == "is gone":
            return None
        raise RunError(f"{newest} {trouble}, and so is the one before; restore the folder, or choose another --out")

    # Models.

    def keep_best(self, tensors: State) -> None:
        """Replace the best round's model in one step.

        It may be ahead of the checkpoint after a kill. The rounds in between are played again, with the same outcome,
        and end with the same best model.
        """
        with self._full_disk():
            self._save_model("model-best.npz", tensors)

    def check_best(self, round_: int) -> None:
        """Raise if the model of the best round before the checkpoint is gone: it cannot be made again."""
        if not (self.path / "model-best.npz").exists():
            raise RunError(
                f"{self.path / 'model-best.npz'} is missing, the model of round {round_}; restore it, or choose "
                "another --out to start again from round 1"
            )

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Raise if the model reads other inputs than when the run was started; a file that is gone is written again."""
        path, text = self.path / "preprocessing.json", json.dumps(inputs, indent=2) + "\n"
        if not path.exists():
            replace_file(path, text)
        elif _read_object(path) != json.loads(text):
            raise InputError(
                f"{path} describes other inputs than the data of this experiment now; resume with the same data, or "
                "choose another --out"
            )

    def finish(self, summary: Record, tensors: State) -> None:
        """Write the model, the digests of all that may be checked, then the summary."""
        with self._full_disk():
            self._save_model("model.npz", tensors)
            text = summary_text(summary)
            replace_file(self.path / DIGESTS, json.dumps(describe_digests(self.path, text), indent=2) + "\n")
            replace_file(self.path / "summary.json", text)

    def _save_model(self, name: str, tensors: State) -> None:
        """Write an archive without timestamps: equal models are equal bytes."""
        with replacing(self.path / name) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **tensors)

    def _full_disk(self) -> _DiskErrors:
        return _DiskErrors(self.path)


class _DiskErrors:
    """A guard that turns a full or broken disk into one sentence that says how to go on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, OSError):
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}; mend it and go on with --resume"
            ) from None


def read_rounds(path: Path) -> list[Record]:
    """Return the rounds of a folder; a torn last line, from a kill in the middle of a write, is left out."""
    return _read_lines(path / "rounds.jsonl")


def read_operator(path: Path) -> list[Record]:
    """Return what a private run told its operator alone; not to be published.

    The vote comes first, as round 0. What is told of the end comes last, and its round is None.
    """
    return _read_lines(path / "operator.jsonl", end=True)


def _read_lines(path: Path, *, end: bool = False) -> list[Record]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    whole, _, _ = text.rpartition("\n")
    try:
        records = [json.loads(line) for line in whole.splitlines() if line]
    except json.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from None
    kinds: tuple[type, ...] = (int, type(None)) if end else (int,)
    if not all(isinstance(record, dict) and isinstance(record.get("round", ""), kinds) for record in records):
        raise RunError(f"{path} is damaged: a line is not the record of a round")
    return records


def read_summary(path: Path) -> Record | None:
    """Return the summary of a finished run, or None.

    Older versions wrote what was spent as `epsilon`; the plan's stood in `privacy`, and takes its place.
    """
    try:
        summary: Record = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{path / 'summary.json'} is damaged: {error}") from None
    plan = summary.get("privacy") if isinstance(summary, dict) else None
    if isinstance(plan, dict) and "epsilon" in plan and "epsilon" in summary and "epsilon_spent" not in summary:
        summary["epsilon_spent"] = summary["epsilon"]
        summary["epsilon"] = summary["epsilon_best_round"] = plan.get("epsilon")
    return summary


def read_front(path: Path) -> bytes:
    """Return the numbers of a public front that a run folder keeps; empty if it keeps none."""
    try:
        return (path / FRONT).read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RunError(f"{path / FRONT} cannot be read: {error}") from None


def read_whitening(path: Path) -> NDArray[np.float32]:
    """Return the numbers by which the features of a run are whitened."""
    try:
        frame = (path / WHITENING).read_bytes()
    except OSError as error:
        raise RunError(f"{path / WHITENING} cannot be read: {error.strerror}") from None
    return wire.unpack_floats(frame, length=max(0, len(frame) - wire.HEADER) // 4)


def read_environment(path: Path) -> Record:
    """Return what a run was started on."""
    return _read_object(path / "environment.json")


def _read_object(path: Path) -> Record:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it") from None
    if not isinstance(document, dict):
        raise RunError(f"{path} is damaged: it holds no JSON object; restore it")
    return document


def _records_digest(path: Path, round_: int) -> bytes:
    """Return the hash of what was told of all rounds up to one, to the public and to the operator."""
    lines = [
        json.dumps(record)
        for records in (read_rounds(path), [{"round": 0, "operator": True}], read_operator(path))
        for record in records
        if record["round"] is not None and record["round"] <= round_
    ]
    return hashlib.sha256("\n".join(lines).encode()).digest()


def take_lock(folder: Path, name: Path, option: str = "--out") -> IO[str]:
    """Take the only lock of a folder, which errors call `name`; closing the file gives it back."""
    lock = (folder / ".lock").open("a+", encoding="utf-8")
    try:
        hold(lock.fileno(), wait=False)
    except BlockingIOError:
        lock.close()
        raise InputError(
            f"{name} is being written by another process; wait for it, or choose another {option}"
        ) from None
    return lock


_DECIDE: Final = ("python", "machine", "trainer")  # beside the packages: what the bits of an update depend on


def describe_environment(parts: Parts, given: Given) -> dict[str, Any]:
    """Return what the run runs on; which trainer the workers take is logged too."""
    packages = ("sottovoce", "numpy", "scipy", "torch", "scikit-learn", "dp-accounting", "cryptography")
    client = parts.experiment.client
    choice = choose_trainer(parts.network, parts.training(), client.trainer, client.device)
    if parts.experiment.statistics is None:
        logging.getLogger(__name__).info("trainer: %s", choice)
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": cores(),
        "packages": {name: _version(name) for name in packages},
        "trainer": choice.trainer,
        "trainer_reason": choice.reason,
        **({"given": given.names} if given.names else {}),
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def check_environment(path: Path, parts: Parts, ledger: Ledger | None, done: int) -> None:
    """Raise if rounds that were charged would be repeated on something else than what the run was started on.

    A resumed simulation repeats rounds after its checkpoint with the same noise. If the clients' updates come out
    otherwise, the difference of the two sums has no noise at all.
    """
    before, now = read_environment(path), describe_environment(parts, NOTHING)
    changed = [name for name in _DECIDE if before.get(name) != now[name]]
    was, packages = before.get("packages"), now["packages"]
    needed = [name for name in packages if name != "torch" or now["trainer"] == "torch"]
    changed += [name for name in needed if not isinstance(was, dict) or was.get(name) != packages[name]]
    if not changed:
        return
    words = f"{path} was started with another version or kind of {', '.join(changed)}"
    if ledger is not None and (repeated := max(ledger.rounds, default=0)) > done:
        raise PrivacyError(
            f"{words}, and rounds {done + 1} to {repeated} would be repeated with the same noise and other updates; "
            "resume with what is in its environment.json, or choose another --out"
        )
    logging.getLogger(__name__).warning("%s: the model may differ in some bits from an undisturbed run", words)


def _version(package: str) -> str | None:
    """Return the version of a package that is installed; None for one that is not, as torch may be."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
