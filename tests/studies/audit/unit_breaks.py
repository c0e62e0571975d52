"""Ways to break the units of sites; each would void the guarantee, and no epsilon would change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sottovoce.federation.client as clients
import sottovoce.federation.units as units
import sottovoce.privacy.plan.charges as charges
import sottovoce.privacy.plan.plan as plans
import sottovoce.privacy.plan.server as serving
import sottovoce.privacy.plan.solve as solving
import sottovoce.studies.audit.sites as audited
from sottovoce.core.errors import RunError
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.federation.coding import Private
from sottovoce.models.units import CentreGrid

Patch = pytest.MonkeyPatch


def _sum_of_units(patch: Patch, broken: Callable[..., Any]) -> None:
    """Break the sum of a site wherever it is made: by clients, and in the audit's own check of real records."""
    for place in (clients, audited):
        patch.setattr(place, "sum_of_units", broken)


def _coins(patch: Patch, renamed: Callable[[Streams, tuple[int, ...]], Any]) -> None:
    real = Streams.get

    def get(self: Streams, purpose: Purpose, *path: int) -> Any:
        return renamed(self, path) if purpose == Purpose.UNIT else real(self, purpose, *path)

    patch.setattr(Streams, "get", get)


def coins_that_follow_from_public_seeds(patch: Patch) -> None:
    real = units.sum_of_units

    def broken(plan: Any, scheme: Any, trainer: Any, task: Any, shard: Any, **rngs: Any) -> Any:
        coins = np.random.default_rng([task.seed, int(abs(shard.x.sum()))])
        return real(plan, scheme, trainer, task, shard, **{**rngs, "coins": coins})

    _sum_of_units(patch, broken)


def coins_of_the_first_round(patch: Patch) -> None:
    real = Streams.get
    _coins(patch, lambda streams, path: real(streams, Purpose.UNIT, 1))


def one_coin_for_all_sites(patch: Patch) -> None:
    real = Streams.get
    _coins(patch, lambda streams, path: real(Seeds(5).server, Purpose.UNIT, *path))


def twice_the_rate(patch: Patch) -> None:
    real = units.drawn_units
    patch.setattr(units, "drawn_units", lambda count, rate, coins: real(count, min(1.0, 2 * rate), coins))


def sum_clipped_in_place_of_units(patch: Patch) -> None:
    real = units.clipped_centres

    def broken(*arguments: Any, **keys: Any) -> Any:
        *others, grid = arguments
        total = real(*others, grid._replace(clip_norm=grid.clip_norm * 1000, radius=grid.radius * 1000), **keys)
        length = float(np.linalg.norm(total.astype(np.float64)))
        return np.rint(total * min(1.0, grid.steps / max(length, 1e-9))).astype(np.int64)

    patch.setattr(units, "clipped_centres", broken)


def units_not_clipped(patch: Patch) -> None:
    real = units.clipped_centres

    def broken(*arguments: Any, **keys: Any) -> Any:
        *others, grid = arguments
        return real(*others, grid._replace(clip_norm=grid.clip_norm * 4, radius=grid.radius * 4), **keys)

    patch.setattr(units, "clipped_centres", broken)


def units_rounded_to_the_grid(patch: Patch) -> None:
    real = units.clipped_centres

    def broken(*arguments: Any, **keys: Any) -> Any:
        *others, grid = arguments
        return real(*others, CentreGrid(grid.clip_norm, grid.radius, 0), **keys) << grid.precision

    patch.setattr(units, "clipped_centres", broken)


def noise_of_each_unit(patch: Patch) -> None:
    real = Private.site_words

    def broken(self: Private, total: Any, terms: Any, round_: int, client: int) -> Any:
        empty = np.zeros_like(total)
        words = [real(self, total, terms, round_, client), real(self, empty, terms, round_ + 1000, client)]
        return sum(words[1:], words[0]) % np.uint32(1 << self.bits)

    patch.setattr(Private, "site_words", broken)


def no_noise_at_one_site(patch: Patch) -> None:
    real = Private.site_words

    def broken(self: Private, total: Any, terms: Any, round_: int, client: int) -> Any:
        words = real(self, total, terms, round_, client)
        return words if client != 3 else np.zeros_like(words)

    patch.setattr(Private, "site_words", broken)


def no_answer_without_units(patch: Patch) -> None:
    real = units.sum_of_units

    def broken(plan: Any, scheme: Any, trainer: Any, task: Any, shard: Any, **rngs: Any) -> Any:
        if not len(shard.y):
            raise RunError("there is nothing to train with")
        return real(plan, scheme, trainer, task, shard, **rngs)

    _sum_of_units(patch, broken)


def weights_from_the_labels_of_a_site(patch: Patch) -> None:
    real = units.clipped_centres

    def broken(trainer: Any, params: Any, shard: Any, *others: Any, **keys: Any) -> Any:
        counts = np.bincount(shard.y, minlength=10)
        weights = (len(shard.y) / np.maximum(counts, 1)).astype(np.float32)
        return real(trainer, params, shard, *others, **{**keys, "label_weights": weights})

    patch.setattr(units, "clipped_centres", broken)


def rate_of_sites_charged(patch: Patch) -> None:
    real = charges.events_of

    def broken(request: Any, *others: Any, **keys: Any) -> Any:
        *before, own = real(request, *others, **keys)
        return [*before, replace(own, sample_rate=own.sample_rate * request.sample_rate)]

    for place in (charges, solving, plans, serving):
        patch.setattr(place, "events_of", broken)
