"""Which worker may act for which client: everyone for anyone, or those on machines that hold the client's records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from sottovoce.core.errors import InputError, RunError, SottovoceError
from sottovoce.data.machine_parts import PART, Folder, expanded


@final
@dataclass(frozen=True)
class Holding:
    """The workers that hold each part of the clients; client k belongs to part k mod their number.

    >>> Holding(((0, 1), (2,))).keeper(2), Holding(((0, 1), (2,))).keeper(5)
    (1, 2)
    """

    workers: tuple[tuple[int, ...], ...]

    @classmethod
    def of_all(cls, count: int) -> Holding:
        """Return what holds where every worker can act for every client."""
        return cls((tuple(range(count)),))

    @property
    def parts(self) -> int:
        """Count the parts."""
        return len(self.workers)

    def keeper(self, client: int) -> int:
        """Return the one worker that keeps a client's secrets."""
        there = self.workers[client % self.parts]
        return there[client // self.parts % len(there)]

    def by_part(self, clients: Collection[int]) -> list[list[int]]:
        """Return the clients of each part, in their order."""
        return [[client for client in clients if client % self.parts == part] for part in range(self.parts)]


class Found(NamedTuple):
    """A part that was found on a machine, or what is wrong with it."""

    number: int
    digest: str
    problem: str | None


def find_parts(folder: str) -> list[Found]:
    """Return the parts in a folder of this machine, each compared with what was written."""
    return [_found(Folder(path)) for path in sorted(expanded(folder).glob(f"{PART}-*")) if path.is_dir()]


def check_found(found: Mapping[str, Sequence[Found]], digests: Sequence[str], folder: str) -> None:
    """Raise unless every part of a division is on some machine, and no machine has any other.

    Guarantee: all machines hold the bytes that were written, and every client's records are on one at least.
    """
    for machine, parts in found.items():
        for part in parts:
            if part.problem is not None:
                raise RunError(f"machine {machine}: {part.problem}")
            if part.number >= len(digests) or part.digest != digests[part.number]:
                raise RunError(
                    f"machine {machine}: {PART}-{part.number} in {folder} is of another split than common on this one; "
                    "copy all of them from one split"
                )
    there = {part.number for parts in found.values() for part in parts}
    for number in range(len(digests)):
        if number not in there:
            raise RunError(
                f"{PART}-{number} of {len(digests)} is on no machine of the cluster that has CPUs; copy it into "
                f"{folder} on one of them"
            )


def place_workers(held: Mapping[str, Collection[int]], cpus: Mapping[str, int], workers: int) -> list[str]:
    """Return the machine of each worker, in turn among those that hold parts; 0 workers: one for each of their CPUs.

    The first ones reach every part.
    """
    missing = set().union(*held.values())
    order: list[str] = []
    while missing:
        best = max(held, key=lambda machine: len(missing & set(held[machine])))
        order.append(best)
        missing -= set(held[best])
    needed = len(order)
    order += [machine for machine in held if held[machine] and machine not in order]
    turns = [machine for turn in range(max(cpus.values())) for machine in order if turn < cpus[machine]]
    if workers and not needed <= workers <= len(turns):
        raise InputError(
            f"[engine] workers must be from {needed}, which reach every part of the records, to the {len(turns)} CPUs "
            f"of the machines that hold them, got {workers}"
        )
    return turns[: workers or len(turns)]


def _found(folder: Folder) -> Found:
    name = folder.path.name
    number = name.removeprefix(f"{PART}-")
    try:
        facts = folder.check()
        told = facts.get("number")
        if str(told) != number:
            return Found(0, "", f"{folder.path} holds {PART}-{told}, which is not its name; copy {name} there")
        return Found(int(number), folder.digest, None)
    except (SottovoceError, ValueError) as error:
        return Found(0, "", str(error))
