"""Notice on resume that a run's records are not those that it was begun with.

A plain hash of records tells whoever guesses them that the guess is right, and two equal hashes that nothing changed.
So the hash is keyed with a secret that stays on this machine, and salted for each run. The budget does not depend on
it: what was spent is spent, whatever the records are now.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from sottovoce.assembly.parts import Parts
from sottovoce.core.errors import InputError, PrivacyError, RunError
from sottovoce.core.files import PRIVATE, replace_file, sync_folder, write_new
from sottovoce.data import Shards
from sottovoce.data.compact import row_blocks
from sottovoce.data.machine_parts import Away

_FILE: Final = "records.json"  # below checkpoint/, which is not published
_SECRET: Final = "records.key"
_BYTES: Final = 32


def keep_fingerprint(path: Path, parts: Parts) -> None:
    """Write the fingerprint of a new run's records; a log says so if there is no place for the secret."""
    secret = _secret(make=True)
    if secret is None:
        logging.getLogger(__name__).warning(
            "%s cannot be written, so a resumed run will not notice changed records", secret_file()
        )
        return
    salt = os.urandom(16)
    folder = path / "checkpoint"
    try:
        folder.mkdir(exist_ok=True)
        replace_file(
            folder / _FILE, json.dumps({"salt": salt.hex(), "mac": _mac(parts, secret, salt)}).encode() + b"\n", PRIVATE
        )
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}; mend it and go on with --resume") from None


def check_fingerprint(path: Path, parts: Parts) -> None:
    """Raise if the records are not those that the run in a folder was begun with.

    A run without privacy that has no fingerprint, as one of an older version, gets one.
    """
    file, secret = path / "checkpoint" / _FILE, _secret()
    refusal = PrivacyError if parts.boundary.private else InputError
    if not file.exists():
        if parts.boundary.private and secret is not None and _charged(path):
            raise PrivacyError(
                f"{file} is gone, so nobody can tell whether the records are those that were charged; restore "
                "it, or choose another --out"
            )
        logging.getLogger(__name__).warning("%s is missing: whether records changed is not known", file)
        keep_fingerprint(path, parts)
        return
    if secret is None:
        raise refusal(
            f"{path} was begun on another machine, or {secret_file()} is gone, so nobody can tell whether its records "
            "are the same; copy that file here, or choose another --out"
        )
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        salt, mac = bytes.fromhex(told["salt"]), str(told["mac"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} is damaged ({error}); restore it") from None
    if not hmac.compare_digest(mac, _mac(parts, secret, salt)):
        raise refusal(
            f"{path} was begun with other records than there are now; resume with those, or choose another --out; what "
            "was spent of a budget stays spent"
        )


def _charged(path: Path) -> bool:
    """Tell whether a folder's ledger has anything beside its first line."""
    ledger = path / "ledger.jsonl"
    return ledger.exists() and len(ledger.read_bytes().splitlines()) > 1


def secret_file() -> Path:
    """Return where this machine keeps the key of fingerprints."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path("~/.local/state").expanduser()) / "sottovoce" / _SECRET


def _secret(*, make: bool = False) -> bytes | None:
    """Return the key; None if there is none and it is not to be made, or cannot be."""
    file = secret_file()
    try:
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = file.with_name(f"{file.name}.{os.getpid()}")
            draft.unlink(missing_ok=True)
            write_new(draft, os.urandom(_BYTES), PRIVATE)
            try:
                os.link(draft, file)  # unlike a rename it does not replace a key that another process made meanwhile
                sync_folder(file.parent)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        secret = file.read_bytes()
    except (OSError, RuntimeError):
        return None
    if len(secret) != _BYTES:
        raise RunError(f"{file} must hold {_BYTES} bytes, got {len(secret)}; restore it")
    return secret


def _mac(parts: Parts, secret: bytes, salt: bytes) -> str:
    """Return the keyed hash of all records and of who owns them."""
    digest = hashlib.blake2b(key=secret, salt=salt, person=b"sv records", digest_size=32)
    for name, array in _arrays(parts):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        for rows in row_blocks(array):
            digest.update(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _arrays(parts: Parts) -> Iterator[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]]:
    data = parts.dataset
    yield from (("x_train", data.x_train), ("y_train", data.y_train), ("x_test", data.x_test), ("y_test", data.y_test))
    if parts.experiment.protects_persons and data.persons is not None:
        yield "persons", data.persons
    for name in sorted(parts.splits):
        yield f"x_{name}", parts.splits[name].x_train
        yield f"y_{name}", parts.splits[name].y_train
    owners = parts.partition
    if isinstance(owners, Shards):
        yield from (("order", owners.order), ("offsets", owners.offsets))
    elif isinstance(owners, Away):  # the digest of each part
        yield "parts", np.frombuffer("".join(owners.parts).encode(), np.uint8)
