"""Keep a node's state from one process to the next, sealed: where every request starts a process of its own.

state/<16 digits of the experiment's digest>/
    seal.key       32 random bytes of this machine, readable by its owner alone
    sealed         what the node remembers of its run, under that key (ChaCha20-Poly1305); without a round's secrets
                   once the round has ended

Two processes of one node take turns: the second finds what the first has answered, and sends the same bytes.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from sottovoce.core.errors import InputError, RunError
from sottovoce.deployment.durable import PRIVATE, read_private, replace_file, write_new
from sottovoce.deployment.node import Memory, Node

__all__ = ["remembering", "taking_turns"]

_KEY: Final = 32
_NONCE: Final = 12


@contextmanager
def taking_turns(folder: Path) -> Iterator[None]:
    """Wait until no other process acts for the node that keeps its state in a folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "turn").open("a") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        yield


@contextmanager
def remembering(node: Node, folder: Path, purpose: bytes) -> Iterator[None]:
    """Give a node what it remembered, and seal what it remembers when it has acted.

    `purpose` names the experiment: a state of another one does not open.
    """
    key, path = _key(folder / "seal.key"), folder / "sealed"
    if path.exists():
        node.recall(_open(key, path, purpose))
    yield
    nonce = os.urandom(_NONCE)
    sealed = ChaCha20Poly1305(key).encrypt(nonce, pickle.dumps(node.memory()), purpose)
    replace_file(path, nonce + sealed, PRIVATE)


def _open(key: bytes, path: Path, purpose: bytes) -> Memory:
    data = read_private(path)
    try:
        plain = ChaCha20Poly1305(key).decrypt(data[:_NONCE], data[_NONCE:], purpose)
    except (InvalidTag, ValueError):
        raise RunError(
            f"{path} does not open with this node's key; delete it to forget the round under way and go on"
        ) from None
    memory = pickle.loads(plain)  # nobody but this node can have sealed it
    if not isinstance(memory, Memory):
        raise RunError(f"{path} holds no state of a node; delete it to forget the round under way and go on")
    return memory


def _key(path: Path) -> bytes:
    if not path.exists():
        write_new(path, os.urandom(_KEY), PRIVATE)
    if len(key := read_private(path)) != _KEY:
        raise InputError(f"{path} must hold {_KEY} bytes; delete it, and what it sealed, to begin anew")
    return key
