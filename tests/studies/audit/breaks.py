"""Ways to break the build that an audit looks at; each would void the guarantee, and no epsilon would change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sottovoce.assembly.overrides as given
import sottovoce.federation.round as rounds
import sottovoce.federation.stages.evaluation as evaluation
import sottovoce.privacy.plan.cohort as cohorts
import sottovoce.runs.evaluation as evaluating
import sottovoce.runs.loop as running
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.client import Client
from sottovoce.federation.coding import Opened, Private, Terms
from sottovoce.federation.round import Server
from sottovoce.privacy import Randomness
from sottovoce.privacy.noise import path
from sottovoce.privacy.plan import plan as plans
from sottovoce.privacy.plan.plan import PrivacyPlan
from sottovoce.schemes.standard import Standard

Patch = pytest.MonkeyPatch


def singly(patch: Patch) -> None:
    """Let simulated clients protect their messages one by one, where the breaks are."""
    patch.setattr(PrivacyPlan, "protect_rows", lambda *_, **__: None)


def halved_noise(patch: Patch) -> None:
    scaled_noise(patch, Fraction(1, 4))


def a_tenth_less_noise(patch: Patch) -> None:
    scaled_noise(patch, Fraction(81, 100))


def scaled_noise(patch: Patch, factor: Fraction) -> None:
    for name in ("fraction_tables", "centred_tables"):
        real = getattr(path, name)
        patch.setattr(path, name, lambda variance, *more, real=real: real(variance * factor, *more))


def share_of_a_client_dropped(patch: Patch) -> None:
    singly(patch)
    real = Private.words

    def words(self: Private, message: Any, terms: Terms, round_: int, client: int) -> Any:
        made = real(self, message, terms, round_, client)
        return made * np.uint32(0) if client == 3 else made

    patch.setattr(Private, "words", words)


def missing_noise_not_made_up(patch: Patch) -> None:
    patch.setattr(path, "add_noise", lambda total, variance, bits, randomness: total)


def clip_skipped(patch: Patch) -> None:
    singly(patch)

    def centres(message: Any, length: float, clip_norm: float, radius: float, precision: int, out: Any) -> None:
        out[:] = np.rint(message.astype(float) * 2.0**precision * radius / clip_norm)

    patch.setattr(path, "_centres", centres)


def clipped_by_coordinate(patch: Patch) -> None:
    singly(patch)

    def centres(message: Any, length: float, clip_norm: float, radius: float, precision: int, out: Any) -> None:
        out[:] = np.rint(np.clip(message, -clip_norm, clip_norm).astype(float) * 2.0**precision * radius / clip_norm)

    patch.setattr(path, "_centres", centres)


def one_seed_for_all_rounds(patch: Patch) -> None:
    real = Streams.key
    patch.setattr(
        Streams,
        "key",
        lambda self, purpose, *path, size=32: real(
            self, purpose, *(() if purpose == Purpose.NOISE else path), size=size
        ),
    )


def one_seed_for_all_clients(patch: Patch) -> None:
    real = Seeds.client
    patch.setattr(Seeds, "client", lambda self, client: real(self, 0))


def one_seed_for_all_runs(patch: Patch) -> None:
    singly(patch)
    real = Private.words
    patch.setattr(
        Private,
        "words",
        lambda self, message, terms, round_, client: real(Private(self.plan, Seeds(1)), message, terms, round_, client),
    )


def server_noise_of_a_client(patch: Patch) -> None:
    def opened(self: Private, total: Any, terms: Terms, senders: int, round_: int) -> Opened:
        key = self.seeds.client(0).key(Purpose.NOISE, round_)
        randomness = Randomness.simulated(key)
        return Opened(*self.plan.recover(total, cohort=terms.cohort, survivors=senders, randomness=randomness))

    patch.setattr(Private, "open", opened)


def _sampler(patch: Patch, noise: Callable[[np.random.Generator, float, int], Any]) -> None:
    """Replace the draws from tables by rounded noise of the same variance."""
    singly(patch)
    variances: dict[int, float] = {}

    def remembering(real: Callable[..., Any]) -> Callable[..., Any]:
        def tables(variance: Fraction, *arguments: Any) -> Any:
            made = real(variance, *arguments)
            variances[id(made)] = float(variance)
            return made

        return tables

    def draw(made: Any, centres: Any, bits: Any, *, modulus_bits: int = 32) -> Any:
        rng = np.random.default_rng(bits.take(4))
        raw = centres / made.rows + noise(rng, variances[id(made)] ** 0.5, centres.size)
        return (np.rint(raw).astype(np.int64) & ((1 << modulus_bits) - 1)).astype(np.uint32)

    patch.setattr(path, "fraction_tables", remembering(path.fraction_tables))
    patch.setattr(path, "centred_tables", remembering(path.centred_tables))
    patch.setattr(path, "draw", draw)


def uniform_noise(patch: Patch) -> None:
    _sampler(patch, lambda rng, stddev, size: rng.uniform(-1, 1, size) * stddev * 3**0.5)


def laplace_noise(patch: Patch) -> None:
    _sampler(patch, lambda rng, stddev, size: rng.laplace(0, stddev / 2**0.5, size))


def cohorts_of_one_size(patch: Patch) -> None:
    real = cohorts.draw_cohort
    patch.setattr(plans, "draw_cohort", lambda draws, **keys: real(draws, **{**keys, "sampling": "fixed"}))


def cohorts_drawn_too_often(patch: Patch) -> None:
    real = cohorts.draw_cohort
    patch.setattr(
        plans, "draw_cohort", lambda draws, **keys: real(draws, **{**keys, "sample_rate": keys["sample_rate"] * 1.2})
    )


def no_participation_cap(patch: Patch) -> None:
    real = cohorts.draw_cohort
    patch.setattr(plans, "draw_cohort", lambda draws, **keys: real(draws, **{**keys, "max_participations": 10**6}))


def noise_shared_by_the_expected_cohort(patch: Patch) -> None:
    singly(patch)
    real = PrivacyPlan.protect

    def protect(self: PrivacyPlan, message: Any, *, cohort: int, **keys: Any) -> Any:
        return real(self, message, cohort=round(self.expected_cohort), **keys)

    patch.setattr(PrivacyPlan, "protect", protect)


def one_coordinate_without_noise(patch: Patch) -> None:
    _still_at(patch, 7, Private, "words")


def one_coordinate_without_the_servers_noise(patch: Patch) -> None:
    _still_at(patch, 7, Private, "open")


def _still_at(patch: Patch, place: int, owner: type, method: str) -> None:
    """Take the noise off one coordinate wherever a method draws it."""
    singly(patch)
    real, real_draw, inside = getattr(owner, method), path.draw, [False]

    def draw(made: Any, centres: Any, bits: Any, *, modulus_bits: int = 32) -> Any:
        words = real_draw(made, centres, bits, modulus_bits=modulus_bits)
        if inside[0]:
            words[place] = np.rint(centres[place] / made.rows).astype(np.int64) & ((1 << modulus_bits) - 1)
        return words

    def watched(*arguments: Any, **keys: Any) -> Any:
        inside[0] = True
        try:
            return real(*arguments, **keys)
        finally:
            inside[0] = False

    patch.setattr(path, "draw", draw)
    patch.setattr(owner, method, watched)


def one_coordinate_not_clipped(patch: Patch) -> None:
    singly(patch)
    real = path._centres

    def centres(message: Any, length: float, clip_norm: float, radius: float, precision: int, out: Any) -> None:
        others = message.copy()
        others[11] = 0
        real(others, float(np.linalg.norm(others.astype(float))), clip_norm, radius, precision, out)
        out[11] = np.rint(float(message[11]) * 2.0**precision * radius / clip_norm)

    patch.setattr(path, "_centres", centres)


def one_client_of_many_without_noise(patch: Patch) -> None:
    """Set no noise for the last client: a hundredth of a sum's variance, which no test of the sum sees."""
    singly(patch)
    real = Private.words

    def words(self: Private, message: Any, terms: Terms, round_: int, client: int) -> Any:
        made = real(self, message, terms, round_, client)
        return made * np.uint32(0) if client == self.plan.request.clients - 1 else made

    patch.setattr(Private, "words", words)


def model_divided_by_the_realised_cohort(patch: Patch) -> None:
    real, sizes = Server.draw, [1.0]

    def draw(self: Server, state: Any, round_: int) -> Any:
        cohort, kept = real(self, state, round_)
        sizes[0] = max(1.0, len(cohort))
        return cohort, kept

    patch.setattr(Server, "draw", draw)
    patch.setattr(Server, "expected", lambda self, state: sizes[0])


def model_divided_by_those_who_answered(patch: Patch) -> None:
    real = Direct.collect

    def collect(self: Direct, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Any) -> Any:
        total = yield from real(self, round_, cohort, down, terms, spend)
        patch.setattr(Server, "expected", lambda server, state: max(1.0, total.senders))
        return total

    patch.setattr(Direct, "collect", collect)


def cohort_size_in_the_records(patch: Patch) -> None:
    """Publish the realised size under a name that no list of secret keys has."""
    real = running.tell

    def tell(round_: int, cohort: int, total: Any, **keys: Any) -> Any:
        told = real(round_, cohort, total, **keys)
        return told._replace(public={**told.public, "momentum": cohort / 7})

    patch.setattr(running, "tell", tell)


def cohort_sizes_in_the_summary(patch: Patch) -> None:
    real, drawn = running.tell, [0]

    def tell(round_: int, cohort: int, total: Any, **keys: Any) -> Any:
        drawn[0] += cohort
        return real(round_, cohort, total, **keys)

    summarise = running.summarise

    def summed(*parts: Any, **keys: Any) -> Any:
        cohorts, drawn[0] = drawn[0], 0
        return {**summarise(*parts, **keys), "score": cohorts}

    patch.setattr(running, "tell", tell)
    patch.setattr(running, "summarise", summed)


def downlink_tells_the_cohort(patch: Patch) -> None:
    """Move the model that clients are sent in a round of an odd cohort by next to nothing."""
    real, sizes = Server.draw, [0]

    def draw(self: Server, state: Any, round_: int) -> Any:
        cohort, kept = real(self, state, round_)
        sizes[0] = len(cohort)
        return cohort, kept

    downlink = Standard.downlink

    def told(self: Standard, state: Any, seed: int) -> bytes:
        return downlink(self, {**state, "params": state["params"] + np.float32(1e-6 * (sizes[0] % 2))}, seed)

    patch.setattr(Server, "draw", draw)
    patch.setattr(Standard, "downlink", told)


def records_measured_without_noise(patch: Patch) -> None:
    """Publish a number of the clients' own records beside the accuracy on the test records."""
    real = evaluating.evaluate_model

    def evaluate(parts: Any, evaluator: Any, state: Any) -> Any:
        first = parts.partition.records(0)
        return {**real(parts, evaluator, state), "drift": float(parts.dataset.y_train[first].mean())}

    patch.setattr(evaluating, "evaluate_model", evaluate)


def failures_counted_in_the_records(patch: Patch) -> None:
    real = running.tell

    def tell(round_: int, cohort: int, total: Any, **keys: Any) -> Any:
        told = real(round_, cohort, total, **keys)
        return told._replace(public={**told.public, "retries": len(total.failures)})

    patch.setattr(running, "tell", tell)


def callbacks_hear_who_was_drawn(patch: Patch) -> None:
    patch.setattr(given, "_SECRET", ())


def same_cohort_in_every_round(patch: Patch) -> None:
    real = Server.draw
    patch.setattr(Server, "draw", lambda self, state, round_: real(self, state, 1))


def grid_carries_the_sum(patch: Patch) -> None:
    """Add the sum without noise to the digits below the grid, which no noise covers."""
    real = Private.open

    def opened(self: Private, total: Any, terms: Terms, senders: int, round_: int) -> Opened:
        values, clip_norm = real(self, total, terms, senders, round_)
        return Opened(values * np.float32(1 + 1e-4 * terms.cohort), clip_norm)

    patch.setattr(Private, "open", opened)


def noise_from_a_short_seed(patch: Patch) -> None:
    real = Randomness.simulated
    patch.setattr(Randomness, "simulated", lambda key: real(key[:2] + bytes(len(key) - 2)))


def clip_norm_by_the_number_of_records(patch: Patch) -> None:
    """Let who has more records move the sum further, by words that are a multiple of those of one client."""
    singly(patch)
    real = Client.send

    def send(self: Client, phase: str, payload: bytes, records: int, *rest: Any) -> Any:
        scale[0] = 1 + records // 6
        return real(self, phase, payload, records, *rest)

    scale, centres_of = [1], path._centres

    def centres(message: Any, length: float, clip_norm: float, radius: float, precision: int, out: Any) -> None:
        centres_of(message, length, clip_norm, radius, precision, out)
        out *= scale[0]

    patch.setattr(Client, "send", send)
    patch.setattr(path, "_centres", centres)


def count_without_noise(patch: Patch) -> None:
    real = path.draw

    def draw(made: Any, centres: Any, bits: Any, *, modulus_bits: int = 32) -> Any:
        words = real(made, centres, bits, modulus_bits=modulus_bits)
        words[-1] = int(np.rint(centres[-1] / made.rows)) & ((1 << modulus_bits) - 1)
        return words

    patch.setattr(path, "draw", draw)


def votes_without_noise(patch: Patch) -> None:
    _silent_at(patch, 650)


def measurements_without_noise(patch: Patch) -> None:
    _silent_at(patch, 3)


def _silent_at(patch: Patch, length: int) -> None:
    """Send zeros without noise where messages have a length that only rounds beside training have."""
    real = PrivacyPlan.protect

    def protect(self: PrivacyPlan, message: Any, **keys: Any) -> Any:
        made = real(self, message, **keys)
        return made * np.uint32(0) if message.size == length else made

    patch.setattr(PrivacyPlan, "protect", protect)


def measurements_never_charged(patch: Patch) -> None:
    patch.setattr(evaluation._Beside, "charge", lambda self, round_: None)


def draws_forgotten(patch: Patch) -> None:
    """Keep nothing of a draw, so that no client ever reaches its cap."""
    real = rounds.server_round

    def forgetful(server: Server, state: Any, round_: int) -> Any:
        result = yield from real(server, state, round_)
        return replace(result, state={**result.state, "draws": state["draws"]})

    patch.setattr(running, "server_round", forgetful)
