"""Let a lying server replay all that was ever signed, over several runs, and compute the smallest sum that it opens.

A model of the secure sum on the complete graph, without cryptography. Honest clients stand in groups that act alike;
helpers do whatever the server likes. In each run the server chooses, for every group,

    old      whose keys of an earlier run stand in its key list, which it accepts if they were signed in its context
    masked   with whom it is told to mask: at least t, with itself
    named    the survivors that it signs, and opens if t clients signed the same in its context, in whatever run

and learns what the protocol tells: a seed that t told shares of, a masking key that t told shares of. Shares can be
read only between clients that have each other's keys of this very run. A vector is open when its seed is, and when of
every mask in it one of both masking keys is known, or the other vector is in the sum too.

The search is complete for servers that treat the clients of a group alike, and so for all servers if groups are single
clients. Earlier runs only gather signatures and masking keys; there everybody masks with everybody.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

Context = int
Signed = frozenset[tuple[Context, int, int]]  # a context, survivors as bits of groups, the group that signed them
Known = frozenset[tuple[Context, int]]  # a context, a group whose masking key of a run that is over was opened


@dataclass(frozen=True)
class Choice:
    """What the server does to each group in the last run."""

    named: tuple[int, ...]
    masked: tuple[int, ...]
    old: tuple[int, ...]


@dataclass(frozen=True)
class Game:
    """A cohort: how many honest clients each group has, how many help the server, and the threshold."""

    groups: tuple[int, ...]
    helpers: int
    threshold: int
    contexts: tuple[Context, ...]  # of the runs: a context that repeats is what a replay needs
    found: dict[tuple[object, ...], int] = field(default_factory=dict, compare=False)

    @cached_property
    def everyone(self) -> int:
        return (1 << len(self.groups)) - 1

    @cached_property
    def sizes(self) -> list[int]:
        return [
            sum(size for group, size in enumerate(self.groups) if members >> group & 1)
            for members in range(self.everyone + 1)
        ]

    def enough(self, members: int) -> bool:
        return self.sizes[members] + self.helpers >= self.threshold

    def sets_with(self, group: int) -> list[int]:
        """Return the survivors that a group can be told: with itself, and not too few."""
        return [named for named in range(self.everyone + 1) if named >> group & 1 and self.enough(named)]

    def smallest_sum(self) -> int:
        """Return the fewest honest vectors in a sum that the server opens in any of the runs."""
        states: set[tuple[Signed, Known]] = {(frozenset(), frozenset())}
        least = sum(self.groups)
        for number, context in enumerate(self.contexts):
            for signed, known in states:
                least = min(least, self._last_run(context, signed, known))
            if number + 1 < len(self.contexts):
                later = set(self.contexts[number + 1 :])
                states = {after for state in states for after in self._earlier_run(context, *state, later)}
        return least

    def _earlier_run(
        self, context: Context, signed: Signed, known: Known, later: set[Context]
    ) -> Iterator[tuple[Signed, Known]]:
        for named in itertools.product(*map(self.sets_with, range(len(self.groups)))):
            now = signed | {(context, survivors, group) for group, survivors in enumerate(named)}
            opens = self._opens(context, now, named)
            keys = {
                (context, group)
                for group in range(len(self.groups))
                if self.enough(sum(1 << x for x in opens if not named[x] >> group & 1))
            }
            yield (
                frozenset(entry for entry in now if entry[0] in later),  # what no later run can use is forgotten
                frozenset(entry for entry in known | keys if entry[0] in later),
            )

    def _opens(self, context: Context, signed: Signed, named: Sequence[int]) -> list[int]:
        """Return the groups that open what they signed, because t clients of that set did."""
        return [
            group
            for group, survivors in enumerate(named)
            if self.enough(sum(1 << x for x in range(len(self.groups)) if (context, survivors, x) in signed))
        ]

    def _last_run(self, context: Context, signed: Signed, known: Known) -> int:
        """Return the smallest sum of one run; who is not in it may mask with everybody, and has everyone's new keys."""
        name = (
            tuple(e[1:] for e in sorted(signed) if e[0] == context),
            tuple(g for c, g in sorted(known) if c == context),
        )
        if name not in self.found:
            replayed = sum(1 << group for c, group in known if c == context)
            self.found[name] = min(
                (
                    self._opened(context, signed, choice, victims)
                    for victims in self._victims()
                    for choice in self._choices(victims, replayed)
                ),
                default=sum(self.groups),
            )
        return self.found[name]

    def _victims(self) -> list[int]:
        return list(range(1, self.everyone + 1))

    def _choices(self, victims: int, replayed: int) -> Iterator[Choice]:
        options = []
        for group in range(len(self.groups)):
            sets = self.sets_with(group)
            if not victims >> group & 1:
                options.append([(named, self.everyone, 0) for named in sets])
                continue
            others = self.everyone & ~(1 << group)
            options.append(
                [
                    (named, masked, old)
                    for named in sets
                    for masked in _between(named, self.everyone)
                    for old in _between(0, replayed & others)
                ]
            )
        for combined in itertools.product(*options):
            named, masked, old = zip(*combined, strict=True)
            yield Choice(named, masked, old)

    def _opened(self, context: Context, signed: Signed, choice: Choice, victims: int) -> int:
        """Return how many vectors are in the sum of the victims, or of everyone if it does not open."""
        groups, nothing = range(len(self.groups)), sum(self.groups)
        now = signed | {(context, survivors, group) for group, survivors in enumerate(choice.named)}
        opens = self._opens(context, now, choice.named)

        def live(one: int, other: int) -> bool:
            return not (choice.old[one] >> other & 1 or choice.old[other] >> one & 1)

        seeds = sum(
            1 << owner
            for owner in groups
            if self.enough(sum(1 << x for x in opens if choice.named[x] >> owner & 1 and live(x, owner)))
        )
        if victims & ~seeds:
            return nothing
        keys = sum(
            1 << owner
            for owner in groups
            if self.enough(
                sum(
                    1 << x
                    for x in opens
                    if choice.masked[x] >> owner & 1 and not choice.named[x] >> owner & 1 and live(x, owner)
                )
            )
        )
        for one in groups:
            if not victims >> one & 1:
                continue
            removable = choice.old[one] | keys
            both = sum(1 << x for x in groups if victims >> x & 1 and choice.masked[x] >> one & 1 and live(x, one))
            if choice.masked[one] & ~(removable | both) and not keys >> one & 1:
                return nothing
        return self.sizes[victims]


def smallest_sum(clients: int, threshold: int, helpers: int, contexts: Sequence[Context], most_groups: int = 3) -> int:
    """Return the fewest honest vectors that a server opens, however the honest clients stand in groups."""
    honest = clients - helpers
    return min(
        Game(groups, helpers, threshold, tuple(contexts)).smallest_sum()
        for count in range(1, most_groups + 1)
        for groups in _partitions(honest, count)
    )


def _partitions(total: int, count: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    if count == 1:
        if largest is None or total <= largest:
            yield (total,)
        return
    for first in range(min(total - count + 1, largest or total), 0, -1):
        for rest in _partitions(total - first, count - 1, first):
            yield (first, *rest)


def _between(low: int, high: int) -> list[int]:
    """Return the sets that hold `low` and are in `high`."""
    return [members for members in range(high + 1) if members & low == low and members & ~high == 0]
