"""The schemes: encode, sum, decode; one file each."""

from sottovoce.schemes.base import Message, Scheme, State, Task
from sottovoce.schemes.importance import importance
from sottovoce.schemes.registry import known, make

__all__ = ["Message", "Scheme", "State", "Task", "importance", "known", "make"]
