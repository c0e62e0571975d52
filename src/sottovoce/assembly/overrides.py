"""Objects that a Python caller hands to a run: parts in place of those that the file names, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from sottovoce.data import Dataset, Partition
from sottovoce.models import Model
from sottovoce.schemes import Scheme, State

_SECRET: Final = ("draws", "draws_salt")  # who was drawn how often: what a private run must not publish


class Stop(Exception):  # noqa: N818 - not an error: the caller has seen enough
    """Raised by a callback to end a run after this round; the run is whole, and its summary says `stopped_early`."""


@dataclass(frozen=True, eq=False)
class Given:
    """Parts of an experiment that are handed over as objects; None: made from the experiment's tables.

    A partition names places in the train records of the data set as it is given, so nothing can be set aside from
    these records afterwards.
    """

    dataset: Dataset | None = None
    partition: Partition | None = None
    network: Model | None = None
    scheme: Scheme | None = None
    metrics: tuple[Callable[..., Any], ...] | None = None  # functions beside those of `[model] metrics`
    public: Dataset | None = None  # its train records, in place of those of `[scheme] public`

    @property
    def names(self) -> list[str]:
        """Name the parts that are given."""
        return [part.name for part in fields(self) if getattr(self, part.name) is not None]


NOTHING: Final = Given()


class Callbacks:
    """The callbacks of one run: objects with any of `on_start(config)`, `on_round(record, state)`, `on_end(summary)`.

    Guarantee: of a private run they see what may be published, and nothing that tells who was drawn.
    """

    def __init__(self, callbacks: Iterable[object], *, private: bool) -> None:
        self._callbacks = tuple(callbacks)
        self._private = private

    def start(self, config: dict[str, Any]) -> None:
        """Tell the resolved experiment, before the first round that is played."""
        self._tell("on_start", config)

    def round(self, record: dict[str, Any], state: State) -> bool:
        """Tell the published record of a round, and the state after it; return whether a callback ends the run."""
        seen = {name: value for name, value in state.items() if not (self._private and name in _SECRET)}
        return self._tell("on_round", dict(record), seen)

    def end(self, summary: dict[str, Any]) -> None:
        """Tell the summary, after it is written."""
        self._tell("on_end", summary)

    def _tell(self, method: str, *values: Any) -> bool:
        stop = False
        for callback in self._callbacks:
            act = getattr(callback, method, None)
            if act is not None:
                try:
                    act(*values)
                except Stop:
                    stop = True  # the others still hear of this round
        return stop
