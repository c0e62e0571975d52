"""Where clients may be made to behave otherwise than the protocol says: what an attack wraps.

An engine hands the behaviour to its workers, so it must be plain data that can be pickled. What travels when, and how
large it is, is seen by whoever wraps the engine itself, as `leaving` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from sottovoce.models import Shard, Trainer
from sottovoce.schemes.base import Message

__all__ = ["HONEST", "Behaviour", "Honest"]


class Behaviour(Protocol):
    """What each client does with its records, its training and its messages."""

    def shard(self, client: int, shard: Shard) -> Shard:
        """Return the records that a client trains with, in place of those that it owns."""
        ...

    def trainer(self, client: int, trainer: Trainer) -> Trainer:
        """Return what trains a client; clients with the same trainer object are trained together."""
        ...

    def message(self, client: int, round_: int, message: Message) -> Message:
        """Return the message to be protected, in place of the encoded update."""
        ...

    def words(self, client: int, round_: int, words: NDArray[Any]) -> NDArray[Any]:
        """Return what is masked or packed, in place of the protected message."""
        ...


@dataclass(frozen=True)
class Honest:
    """The behaviour of clients that follow the protocol."""

    def shard(self, client: int, shard: Shard) -> Shard:
        """Return the client's own records."""
        return shard

    def trainer(self, client: int, trainer: Trainer) -> Trainer:
        """Return the common trainer."""
        return trainer

    def message(self, client: int, round_: int, message: Message) -> Message:
        """Return the encoded update."""
        return message

    def words(self, client: int, round_: int, words: NDArray[Any]) -> NDArray[Any]:
        """Return the protected message."""
        return words


HONEST: Final = Honest()
