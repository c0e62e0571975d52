"""Keep a node's state from one process to the next, sealed: where every request starts a process of its own.

state/<16 digits of the experiment's digest>/
    seal.key       32 random bytes of this machine, readable by its owner alone
    sealed         what the node remembers of its run, under that key (ChaCha20-Poly1305); without a round's secrets
                   once the round has ended
    plans          what was solved for the plan of a private run, under that key: the same in every process

Two processes of one node take turns: the second finds what the first has answered, and sends the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.files import PRIVATE, read_private, replace_file
from sottovoce.core.lock import hold
from sottovoce.deployment.node.node import Memory, Node
from sottovoce.privacy.plan.request import PrivacyRequest

_KEY: Final = 32
_NONCE: Final = 12
_ACCOUNTANTS: Final = ("dp-accounting", "scipy", "numpy")

log = logging.getLogger(__name__)


@contextmanager
def taking_turns(folder: Path) -> Iterator[None]:
    """Wait until no other process acts for the node that keeps its state in a folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "turn").open("a") as file:
        hold(file.fileno(), wait=True)
        yield


@contextmanager
def remembering(node: Node, folder: Path, purpose: bytes) -> Iterator[None]:
    """Give a node what it remembered, and seal what it remembers when it has acted.

    `purpose` names the experiment: a state of another one does not open.
    """
    key, path = _key(folder / "seal.key"), folder / "sealed"
    if path.exists() and (memory := _recalled(key, path, purpose)) is not None:
        node.recall(memory)
    yield
    _seal(key, path, _origin(folder) + b"\n" + pickle.dumps(node.memory()), purpose)


def kept_plan(folder: Path, request: PrivacyRequest, solve: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what was solved for a request by these versions of the packages, or solve it and seal it.

    What does not open, or is of other versions, is solved anew: nothing but time is lost.
    """
    with taking_turns(folder):
        key, path, purpose = _key(folder / "seal.key"), folder / "plans", _accountants()
        plain = _open(key, path, purpose) if path.exists() else None
        known: list[tuple[PrivacyRequest, dict[str, Any]]] = [] if plain is None else pickle.loads(plain)
        for asked, solved in known:
            if asked == request:
                return solved
        solved = solve()
        _seal(key, path, pickle.dumps([*known, (request, solved)]), purpose)
        return solved


def _recalled(key: bytes, path: Path, purpose: bytes) -> Memory | None:
    """Return what was sealed; None if it is of another version, which might be misread, or of another folder.

    A state names the files of its marks by their path. In a folder that was moved it would look for them where they no
    longer are, and take a round that was masked for a new one.
    """
    plain = _open(key, path, purpose)
    if plain is None:
        raise RunError(f"{path} does not open with this node's key; delete it to forget the round under way and go on")
    origin, _, pickled = plain.partition(b"\n")
    if origin != _origin(path.parent):
        log.warning("%s is of another version of sottovoce, or was moved: the round under way is forgotten", path)
        return None
    memory = pickle.loads(pickled)  # nobody but this node can have sealed it
    if not isinstance(memory, Memory):
        raise RunError(f"{path} holds no state of a node; delete it to forget the round under way and go on")
    return memory


def _seal(key: bytes, path: Path, plain: bytes, purpose: bytes) -> None:
    nonce = os.urandom(_NONCE)
    replace_file(path, nonce + ChaCha20Poly1305(key).encrypt(nonce, plain, purpose), PRIVATE)


def _open(key: bytes, path: Path, purpose: bytes) -> bytes | None:
    """Return what this node has sealed for a purpose; None if it did not."""
    data = read_private(path)
    try:
        return ChaCha20Poly1305(key).decrypt(data[:_NONCE], data[_NONCE:], purpose)
    except (InvalidTag, ValueError):
        return None


def _origin(folder: Path) -> bytes:
    return json.dumps([version("sottovoce"), str(folder.resolve())]).encode()


def _accountants() -> bytes:
    return b"plans of " + json.dumps([version(name) for name in ("sottovoce", *_ACCOUNTANTS)]).encode()


def _key(path: Path) -> bytes:
    if not path.exists():
        replace_file(path, os.urandom(_KEY), PRIVATE)  # a process that is killed here leaves no half of a key
    if len(key := read_private(path)) != _KEY:
        raise InputError(f"{path} must hold {_KEY} bytes; delete it, and what it sealed, to begin anew")
    return key
