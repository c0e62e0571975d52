"""Play a federation whose client 0 is curious, and say how well it tells which rounds had a property."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import norm

from sottovoce.assembly.overrides import NOTHING, Given
from sottovoce.assembly.parts import Parts
from sottovoce.config.experiment import Experiment
from sottovoce.config.tables import InferenceTable
from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.core.streams import Purpose
from sottovoce.core.validate import nearest
from sottovoce.core.vectors import Vector
from sottovoce.data import HAS, UNKNOWN
from sottovoce.models import Shard, Trainer, evaluate, make_trainer
from sottovoce.schemes.packed_signs import expand, pack_signs
from sottovoce.studies.setting import INSIDER, PublicSetting, Seen, Update, prepare, public_of, watch
from sottovoce.threats.measures import judge

Features = Literal["sizes", "values"]

_STEP_OF_SCHEME: Final = (("server_lr", 1.0), ("momentum", 0.0))
_LARGE: Final = 5000  # a dense kernel of more values is pooled, as in the published code of Melis et al.
_LONGEST: Final = 2**15  # messages of a scheme that sends less are features as they are, up to so many
_HELD_BACK: Final = 0.25  # of the emulated rounds, the last ones: they judge which features tell more


class PropertyRecords(NamedTuple):
    """Records of which it is known whether they have the property."""

    shard: Shard
    has: NDArray[np.bool_]

    def batch(self, size: int, share: float, rng: Generator) -> Shard:
        """Draw records without replacement, of which a share has the property and no other does."""
        places = self.places(size, share, rng)
        return Shard(self.shard.x[places], self.shard.y[places])

    def places(self, size: int, share: float, rng: Generator) -> NDArray[np.int64]:
        """Draw the places of such records."""
        with_it = round(size * share)
        chosen = [
            rng.choice(np.flatnonzero(self.has == wanted), count, replace=False)
            for wanted, count in ((True, with_it), (False, size - with_it))
        ]
        return rng.permutation(np.concatenate(chosen))


class Attacked(NamedTuple):
    """What the attack found: for each round, the probability that the others' records had the property."""

    probabilities: NDArray[np.float64]
    features: Features
    model: Vector  # the last that it was sent


def check_step(public: PublicSetting) -> None:
    """Raise if the server does more with a sum than the attacker knows how to undo."""
    if public.step.adaptive is not None or public.step.average:
        raise InputError(
            'the attacker undoes the server\'s step, and knows how to for [server] optimizer = "sgd" without average; '
            "set them so"
        )


def others_part(public: PublicSetting, rounds: Iterable[Seen]) -> Iterator[tuple[Seen, Vector]]:
    """Yield each round with what the other clients added to its sum, as well as client 0 can tell, in message units.

    Of n clients the server steps by y = sum / n, so it is n y - own, where y = E (after - before) is the step as the
    scheme would have encoded it. Momentum, the server's and that of FL-CS, is undone: y_t = v_t - m v_(t-1), where v is
    the step over the step size. What FL-CS could not reconstruct it keeps for the next round; that stays as an error.
    """
    rng = np.random.default_rng(0)  # a linear scheme draws nothing
    scheme, step = public.scheme, public.step
    own_rate, own_momentum = (float(getattr(scheme, key, default)) for key, default in _STEP_OF_SCHEME)
    last: list[Any] = [np.float32(0), np.float32(0)]
    for seen in rounds:
        moved = seen.after - seen.before
        if scheme.form == "signs":
            yield seen, others_vote(public, np.sign(moved), seen)
            continue
        y = scheme.encode(moved, scheme.round_seed(seen.round), rng)
        for place, (rate, momentum) in enumerate(((own_rate, own_momentum), (step.lr_at(seen.round), step.momentum))):
            velocity = y / np.float32(rate)
            y, last[place] = velocity - np.float32(momentum) * last[place], velocity
        yield seen, np.float32(public.cohort) * y - seen.own


def others_vote(public: PublicSetting, vote: Vector, seen: Seen) -> Vector:
    """Return what the others are expected to have added, given the vote v = sign(own + others), which hides the sum.

    If the others' sum is normal around zero with standard deviation s, that is v s phi(z) / Phi(v z) with z = own / s,
    phi and Phi the normal density and distribution: a vote against one's own tells much, one that agrees little. Each
    of n - 1 others adds a vote of variance 1 and, in a private run, its share of the noise.
    """
    plan = public.plan
    share = 0.0 if plan is None else plan.stddev() ** 2 / seen.terms.cohort
    spread = math.sqrt((public.cohort - 1) * (1 + share))
    z = seen.own.astype(np.float64) / spread
    return np.asarray(vote * spread * np.exp(norm.logpdf(z) - norm.logcdf(vote * z)), np.float32)


@dataclass(frozen=True)
class PropertyAttack:
    """The attacker: what it knows, its own records, and how it learns."""

    public: PublicSetting
    trainer: Trainer
    records: PropertyRecords  # its own, disjoint from those of the others
    batch: int
    share: float
    pairs: int
    features: Literal["best", "sizes", "values"]
    classifier: Literal["logistic", "forest"]

    def run(
        self, rounds: Iterable[Seen], rng: Generator, tell: Callable[[int], None] = lambda round_: None
    ) -> Attacked:
        """Watch all rounds, learn from emulated ones, and say of each whether the others had the property."""
        kinds: tuple[Features, ...] = ("sizes", "values") if self.features == "best" else (self.features,)
        watched: dict[Features, list[Vector]] = {kind: [] for kind in kinds}
        emulated: dict[Features, list[Vector]] = {kind: [] for kind in kinds}
        labels: list[bool] = []
        for seen, part in others_part(self.public, rounds):
            for kind in kinds:
                watched[kind].append(self.look(part, seen.round, kind))
            for has in [False, True] * self.pairs:
                made = self.emulate(seen, has, rng)
                labels.append(has)
                for kind in kinds:
                    emulated[kind].append(self.look(made, seen.round, kind))
            tell(seen.round)
        known, seed = np.array(labels), int(rng.integers(2**31))
        examples = {kind: np.stack(emulated[kind]) for kind in kinds}
        chosen = kinds[0] if len(kinds) == 1 else max(kinds, key=lambda kind: self._tell(examples[kind], known, seed))
        model = self._classifier(seed).fit(examples[chosen], known)
        return Attacked(model.predict_proba(np.stack(watched[chosen]))[:, 1], chosen, seen.after)

    def emulate(self, seen: Seen, has: bool, rng: Generator) -> Vector:
        """Return what the attacker would know of the others' part, had one of them had the property, or none.

        Everything is as in the round that it saw, but the others' records are its own, and their noise is its own too.
        """
        public, scheme = self.public, self.public.scheme
        seed, others = scheme.round_seed(seen.round), public.cohort - 1
        shares = [self.share if has and other == 0 else 0.0 for other in range(others)]
        shards = [self.records.batch(self.batch, share, rng) for share in shares]
        total = np.zeros(scheme.length, np.float32)
        for update in self.trainer.updates(seen.before, shards, [rng] * others, scheme.trainable(seed)):
            total += public.contribution(scheme.encode(update, seed, rng), seen.terms, rng.bytes(32))
        if scheme.form == "floats":
            return total
        vote = expand(pack_signs(total + seen.own, rng), scheme.length).astype(np.float32)  # ties are drawn
        return others_vote(public, vote, seen)

    def look(self, part: Vector, round_: int, kind: Features) -> Vector:
        """Return the features of the others' part: pooled where it is a whole update, as it is where it is short."""
        seed = self.public.scheme.round_seed(round_)
        if seed:  # other coordinates in every round
            part = self.public.scheme.transpose(part, seed)
        if part.size == self.public.network.dim:
            tensors = self.public.network.layout.views(part).values()
            return np.concatenate([_pooled(tensor, kind) for tensor in tensors])
        width = -(-part.size // _LONGEST)
        padded = np.zeros(-(-part.size // width) * width, np.float32)
        padded[: part.size] = part
        return _reduced(padded.reshape(-1, width), 1, kind)

    def _tell(self, examples: NDArray[np.float32], known: NDArray[np.bool_], seed: int) -> float:
        """Return how well features tell the last emulated rounds apart, learned from the others."""
        first = round(len(known) * (1 - _HELD_BACK))
        model = self._classifier(seed).fit(examples[:first], known[:first])
        return judge(known[first:], model.predict_proba(examples[first:])[:, 1]).auc.value

    def _classifier(self, seed: int) -> Any:
        # scikit-learn takes a second to import.
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import Normalizer, StandardScaler

        if self.classifier == "forest":  # as Melis et al.
            last: Any = RandomForestClassifier(100, min_samples_leaf=5, random_state=seed)
        else:
            last = LogisticRegression(C=0.01, max_iter=300)
        return make_pipeline(Normalizer(), StandardScaler(), last)


def _pooled(tensor: Vector, kind: Features) -> Vector:
    """Return a kernel by its filters (over the window) or, if it is large and dense, by the units on its two sides."""
    if tensor.ndim > 2:
        return _reduced(tensor, tuple(range(tensor.ndim - 2)), kind).ravel()
    if tensor.ndim == 2 and tensor.size > _LARGE:
        return np.concatenate([_reduced(tensor, axis, kind) for axis in (0, 1)])
    return _reduced(tensor.reshape(-1, 1), 1, kind)


def _reduced(values: Vector, axis: int | tuple[int, ...], kind: Features) -> Vector:
    return np.asarray(np.abs(values).max(axis) if kind == "sizes" else values.mean(axis))


VICTIM: Final = 1  # whose batch has the property, if one has
_FEWEST: Final = 8  # rounds, to learn from and to be judged by

Tell = Callable[[int, int], None]  # rounds that are done, rounds in all


def infer_property(
    experiment: Experiment, given: Given = NOTHING, tell: Tell = lambda done, rounds: None
) -> dict[str, Any]:
    """Play one experiment under attack and return how often the attacker was right, in plain JSON.

    In every round a coin decides whether the batch of client 1 has the property; nobody else's has. The attacker is
    client 0, and its own records are all that it learns from.
    """
    began = time.perf_counter()
    table = experiment.inference or InferenceTable()
    _check(experiment)
    ready = prepare(experiment, given)
    parts, public = ready.protection.parts, public_of(ready)
    check_step(public)
    records, size = _records(parts, table), int(experiment.client.batch_size)  # "all" was refused
    client = parts.experiment.client
    trainer = make_trainer(parts.network, parts.training(), client.trainer, client.device)
    world, rng = parts.seeds.world, parts.seeds.adversary.get(Purpose.ATTACK)
    rounds = experiment.experiment.rounds if ready.plan is None else ready.plan.rounds
    truth = world.get(Purpose.ATTACK, 2).random(rounds) < 0.5

    def deal(round_: int, number: int) -> Shard:
        share = table.share if number == VICTIM and truth[round_ - 1] else 0.0
        return records[number].batch(size, share, world.get(Purpose.BATCH, round_, number))

    attack = PropertyAttack(
        public, trainer, records[INSIDER], size, table.share, table.pairs, table.features, table.classifier
    )
    update = _updates(parts, trainer, records[INSIDER], size, table.active)
    found = attack.run(watch(ready, trainer, deal, update), rng, lambda round_: tell(round_, rounds))
    member = None if ready.plan is None else ready.plan.epsilon_member
    guesses = judge(truth, found.probabilities)
    scores = trainer.scores(found.model, parts.dataset.x_test)
    return {
        "name": experiment.experiment.name,
        "scheme": parts.scheme.name,
        "private": ready.plan is not None,
        # Against one client of the cohort, which the attacker is; None: there is no bound.
        "epsilon_member": None if member is None or math.isinf(member) else member,
        "noise_multiplier": None if ready.plan is None else ready.plan.noise_multiplier,
        "property": table.property,
        "clients": parts.cohort.clients,
        "rounds": rounds,
        "active": table.active,
        "features": found.features,
        "classifier": table.classifier,
        **{name: part.value for name, part in guesses._asdict().items()},
        **{f"{name}_low": part.low for name, part in guesses._asdict().items()},
        **{f"{name}_high": part.high for name, part in guesses._asdict().items()},
        "main_accuracy": evaluate(scores, parts.dataset.y_test, parts.network.task)["accuracy"],
        "seconds": time.perf_counter() - began,
    }


def _updates(parts: Parts, trainer: Trainer, records: PropertyRecords, size: int, weight: float) -> Update:
    """Return how the attacker trains: as everybody on its own records, or actively on the property too.

    Its own batch is half with and half without the property.
    """
    streams = parts.seeds.client(INSIDER)
    active = None
    if weight:
        require(f"[inference] active = {weight:g}, an attacker that trains on the property too,", "torch")
        from sottovoce.models.multitask import MultiTask  # it imports torch

        active = MultiTask(parts.network, parts.training(), weight)

    def update(round_: int, params: Vector, trainable: NDArray[np.bool_] | None) -> Vector:
        rng = streams.get(Purpose.BATCH, round_)
        places = records.places(size, 0.5, rng)
        shard = Shard(records.shard.x[places], records.shard.y[places])
        if active is not None:
            return active.update(params, shard, records.has[places], trainable)
        return next(trainer.updates(params, [shard], [rng], trainable))

    return update


def _check(experiment: Experiment) -> None:
    require("property inference", "sklearn")
    if experiment.cohort.sample_rate != 1 or experiment.cohort.cap is not None:
        raise InputError(
            "the attacker takes part in every round, and so does everybody; set [cohort] sample_rate = 1 without cap"
        )
    if experiment.data.clients < 2:
        raise InputError(f"[data] clients must be at least 2, the attacker and a victim, got {experiment.data.clients}")
    if experiment.client.batch_size == "all":
        raise InputError('[client] batch_size must be a number: of each round one batch is drawn, got "all"')
    if experiment.client.balanced or experiment.client.held_out:
        raise InputError("property inference draws its own batches; remove [client] balanced and held_out")
    if experiment.make_dropout().possible:
        raise InputError(
            "the attacker relies on everybody taking part in every round; remove [devices] dropout and leave"
        )
    if experiment.experiment.rounds < _FEWEST:
        raise InputError(
            f"property inference needs [experiment] rounds of at least {_FEWEST}, got {experiment.experiment.rounds}"
        )


def _records(parts: Parts, table: InferenceTable) -> list[PropertyRecords]:
    """Return each client's records of which the property is known, or raise if they are too few for a batch."""
    dataset, size = parts.dataset, int(parts.experiment.client.batch_size)
    if table.property not in dataset.properties:
        known = list(dataset.properties)
        guess = nearest(table.property, known)
        hint = f"did you mean {guess!r}?" if guess else f"it has {', '.join(known) or 'none; use fairface or lfw'}"
        raise InputError(f"[inference] property: {dataset.name} has no property {table.property!r}; {hint}")
    told = dataset.properties[table.property].train
    found = []
    for client in range(parts.cohort.clients):
        places = parts.partition.records(client)
        places = places[told[places] != UNKNOWN]
        has = told[places] == HAS
        needed = {True: round(size * table.share) if client in (INSIDER, VICTIM) else 0, False: size}
        for wanted, least in needed.items():
            there = int((has == wanted).sum())
            if there < least:
                raise InputError(
                    f"client {client} has {there} records {'with' if wanted else 'without'} {table.property!r}, and a "
                    f"batch needs {least}; lower [client] batch_size or [data] clients"
                )
        found.append(PropertyRecords(Shard(dataset.x_train[places], dataset.y_train[places]), has))
    return found
