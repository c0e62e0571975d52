"""Engines that use the same actors, one after the other: to start one takes a second, and tests need many engines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

import ray

from sottovoce.federation.engines.machines import WorkerPlace
from sottovoce.federation.engines.ray import RayEngine
from sottovoce.federation.engines.ray_session import RaySession
from sottovoce.federation.engines.shared_memory import Arrays
from sottovoce.federation.engines.worker import Blueprint

__all__ = ["Crew"]


class Crew:
    """Actors that wait for the next engine."""

    def __init__(self, session: RaySession) -> None:
        self._session = session
        self._actors: dict[str | None, list[Any]] = {}

    def engine(self, blueprint: Blueprint, arrays: Arrays, workers: int | None = None) -> RayEngine:
        """Return an engine of the crew; everything but how its actors came to be is as in any other."""
        crew = self._actors

        class Hired(RayEngine):
            def _hire(self, homes: Sequence[str | None]) -> list[Any]:
                found = []
                for home in homes:
                    waiting = crew.setdefault(home, [])
                    found.append((home, waiting.pop(0) if waiting else super()._hire([home])[0]))
                for home, actor in found:
                    crew[home].append(actor)
                return [actor for _, actor in found]

            def close(self) -> None:
                self._actors.clear()
                self._places.clear()
                super().close()

        return Hired(self._session, blueprint, arrays, workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Stop the actors, and wait until they have ended."""
        everyone = [actor for actors in self._actors.values() for actor in actors]
        places: list[WorkerPlace] = ray.get([actor.place.remote() for actor in everyone])
        for actor in everyone:
            ray.kill(actor)
        self._actors.clear()
        end = time.monotonic() + 30
        while any(place.runs_here for place in places) and time.monotonic() < end:
            time.sleep(0.05)
