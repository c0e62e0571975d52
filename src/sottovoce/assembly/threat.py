"""An attack on an experiment: which records malicious clients have, what honest ones lack, and what is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.config.privacy import AggregationTable
from sottovoce.config.threat import ThreatTable
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Streams
from sottovoce.core.words import value_words
from sottovoce.data import Dataset, Partition, With, Without
from sottovoce.federation.wrappers.conspiracy import Conspiracy
from sottovoce.federation.wrappers.malicious import Choice
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.omission import Omission, Weakened, epsilons_under_attack
from sottovoce.schemes import Scheme
from sottovoce.threats.attack import Attack
from sottovoce.threats.attacks import ATTACKS
from sottovoce.threats.defences import Defence, make

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment
if TYPE_CHECKING:
    from sottovoce.federation.cohort import Cohort

ATTACKED: Final = "attacked"  # the split of test records that are to be mistaken, where accuracy leaves them out
_CIFAR_CLASSES: Final = (0, 8)  # airplane, ship
_BIRDS_AND_TRUCKS: Final = (2, 9)
_PAIRS: Final = {"withheld": (0, 1), "tail": (0, 1)}  # source and target of the thesis; 5 and 7 for all others
_NEAR_CHANCE: Final = 0.05  # of the way from guessing to perfect: below it a model is lost


@dataclass(frozen=True, eq=False)
class Threat:
    """An attack with all that the experiment left open: classes, boost, and who holds which records."""

    table: ThreatTable
    attack: Attack
    behaviour: Conspiracy
    choice: Choice
    source: int | None
    target: int | None
    hoard: Partition | None = None  # the records of malicious clients; None: as those of honest ones
    labels: NDArray[Any] | None = None  # of all train records, as malicious clients label them

    def epsilons(self, plan: PrivacyPlan) -> dict[str, float | None]:
        """Return what the plan promises honest clients while the malicious ones add no noise; null where nothing is."""
        if not self.table.omit_noise:
            attacked = Weakened(plan.epsilon, plan.epsilon_server)
        elif self.choice.of == "cohort":
            attacked = epsilons_under_attack(plan, Omission(self.choice.most))
        else:
            everywhere = math.ceil(self.choice.fraction * self.choice.clients)
            attacked = epsilons_under_attack(plan, Omission(None, everywhere))
        return {
            "epsilon_under_attack": _finite(attacked.epsilon),
            "epsilon_server_under_attack": _finite(attacked.epsilon_server),
        }

    def pool(self, world: Streams) -> tuple[int, ...]:
        """Return whose records the attackers put together in every round; empty: those of the round's own."""
        return self.choice.pool(world) if self.table.pool == "all" and self.table.fraction else ()

    def metrics(
        self, guesses: NDArray[np.int64], labels: NDArray[Any], attacked: NDArray[np.int64] | None, classes: int
    ) -> dict[str, Any]:
        """Return the accuracy of each class, that of the attacked class, and how often the attack succeeds.

        `guesses` and `labels` are of the test records, -1 where a score was not finite; `attacked` are the guesses of
        the test records that are to be mistaken, where these are not among the others.
        """
        right = guesses == labels
        by_class = [float(right[labels == each].mean()) if (labels == each).any() else None for each in range(classes)]
        told: dict[str, Any] = {"accuracy_by_class": by_class, "class_accuracy": None, "attack_success": None}
        if self.target is None:
            if self.attack.poison == "all":
                told["attack_success"] = float((guesses == classes - 1 - labels.astype(np.int64)).mean())
            return told
        mistaken = guesses[labels == self.source] if attacked is None else attacked
        if len(mistaken):
            told["class_accuracy"] = float((mistaken == self.source).mean())
            told["attack_success"] = float((mistaken == self.target).mean())
        return told


def aim(experiment: Experiment, dataset: Dataset) -> tuple[Dataset, tuple[int, int] | None]:
    """Return the data without the classes that are removed, and the source and target class of an attack with a target.

    Raises for a class that the data does not have.
    """
    table = experiment.threat
    if table is None:
        return dataset, None
    dataset = replace(dataset, properties={})  # records come and go below, and no attack on training asks for them
    kind = ATTACKS[table.attack]
    cifar = dataset.name == "cifar10"
    removed = [_class(name, dataset, "remove") for name in table.remove or ()]
    if table.remove is None and cifar and kind.poison == "withheld":
        removed = list(_BIRDS_AND_TRUCKS)
    pair = None
    wanted = kind.goal == "targeted" and kind.poison != "all"
    if wanted or table.source is not None or table.target is not None:
        source, target = _CIFAR_CLASSES if cifar else _PAIRS.get(kind.poison, (5, 7))
        source = source if table.source is None else _class(table.source, dataset, "source")
        target = target if table.target is None else _class(table.target, dataset, "target")
        pair = _checked(source, target, removed, dataset)
    if removed:
        dataset = _without_classes(dataset, removed)
    return dataset, pair


def beset(
    experiment: Experiment,
    scheme: Scheme,
    dataset: Dataset,
    owners: Partition,
    pair: tuple[int, int] | None,
    cohort: float,
) -> tuple[Threat | None, Dataset, Dataset | None, Partition]:
    """Return the threat, the data as it is measured, the test records to be mistaken, and what honest clients have."""
    table = experiment.threat
    if table is None:
        return None, dataset, None, owners
    kind = ATTACKS[table.attack]
    attack = _make(kind, table, pair, cohort)
    behaviour = Conspiracy(
        attack,
        boost=1.0
        if experiment.protocol.counts_votes
        else _boost(table, scheme, private=experiment.privacy is not None),
        data=dataset.name,
        fraction=float(table.fraction),
        cohort=cohort,
        omit_noise=table.omit_noise,
        skip_clipping=table.skip_clipping,
        guard_width=experiment.server.guard_width,
    )
    source, target = pair or (None, None)
    stretches = tuple((first, last) for first, last in table.rounds or ())
    choice = Choice(table.fraction, table.of, owners.clients, stretches, opening=experiment.model.whiten)
    threat = Threat(table, attack, behaviour, choice, source, target)
    if kind.poison == "nothing" or (pair is None and kind.poison != "all"):
        return threat, dataset, None, owners
    struck = _struck(kind.poison, dataset.x_train, dataset.y_train, source, table.edge)
    labels = dataset.y_train.copy()
    labels[struck] = target if target is not None else dataset.classes - 1 - labels[struck]
    if kind.poison in ("source", "all"):
        return replace(threat, hoard=owners, labels=labels), dataset, None, owners
    hoard = With(owners, np.flatnonzero(struck)) if kind.poison == "tail" else owners
    struck_test = _struck(kind.poison, dataset.x_test, dataset.y_test, source, table.edge)
    if not struck_test.any() or struck_test.all():
        raise InputError(f"[threat] source {source} leaves no test records to measure the attack, or the model, on")
    attacked = replace(
        dataset, x_train=dataset.x_test[struck_test], y_train=dataset.y_test[struck_test], ids=None, persons=None
    )
    measured = replace(dataset, x_test=dataset.x_test[~struck_test], y_test=dataset.y_test[~struck_test])
    return replace(threat, hoard=hoard, labels=labels), measured, attacked, Without(owners, struck)


def is_lost(record: dict[str, Any], classes: int) -> bool:
    """Tell whether a measured model is at the level of guessing, or no longer gives finite scores.

    The papers print "-" for a model that "does not converge", and do not say when; this is ours: accuracy less than a
    twentieth of the way from 1 / classes to 1.
    """
    chance = 1 / classes
    accuracy = record.get("accuracy")
    return accuracy is None or accuracy < chance + _NEAR_CHANCE * (1 - chance)


def _make(kind: type[Attack], table: ThreatTable, pair: tuple[int, int] | None, cohort: float) -> Attack:
    """Return the attack, with those of its keys that the table has."""
    known = {"stddev": table.stddev, "cohort": cohort, "targeted": pair is not None}
    keys: dict[str, Any] = {name: value for name, value in known.items() if name in kind.__dataclass_fields__}
    if table.collude is not None:
        keys["collude"] = table.collude
    return kind(**keys, **table.keys)


def _boost(table: ThreatTable, scheme: Scheme, *, private: bool) -> float | None:
    """Return the boost; None: the attack's own, which may depend on how many are malicious in a round."""
    if table.boost is not None:
        return table.boost
    if scheme.form == "signs":
        return 5000.0 if private else 1.0
    return 1.0 if scheme.name == "fl-cs" else None  # "to not impact the sparsity" (thesis, 6.2)


def _struck(poison: str, x: NDArray[Any], y: NDArray[Any], source: int | None, edge: float) -> NDArray[np.bool_]:
    """Tell which records malicious clients label anew."""
    if source is None:
        return np.ones(len(y), np.bool_)
    of_class = np.asarray(y == source)
    if poison != "tail":
        return of_class
    places = np.flatnonzero(of_class)
    records = x[places].reshape(len(places), -1).astype(np.float64)
    if not len(places):
        return of_class
    distance = np.linalg.norm(records - records.mean(axis=0), axis=1)
    tail = np.zeros(len(y), np.bool_)
    tail[places[np.argsort(-distance, kind="stable")[: max(1, round(edge * len(places)))]]] = True
    return tail


def _class(name: int | str, dataset: Dataset, key: str) -> int:
    names = dataset.class_names or ()
    if isinstance(name, str):
        if name in names:
            return names.index(name)
        known = f"known: {', '.join(names)}" if names else f"its classes are 0 to {dataset.classes - 1}"
        raise InputError(f"[threat] {key} = {value_words(name)} is no class of {dataset.name}; {known}")
    if not 0 <= name < dataset.classes:
        raise InputError(
            f"[threat] {key} = {name} is no class of {dataset.name}; its classes are 0 to {dataset.classes - 1}"
        )
    return name


def _checked(source: int, target: int, removed: list[int], dataset: Dataset) -> tuple[int, int]:
    last = dataset.classes - 1
    for key, value in (("source", source), ("target", target)):
        if value > last:
            raise InputError(
                f"[threat] {key} is {value} where it is not set, but {dataset.name} has 0 to {last}; set it"
            )
        if value in removed:
            raise InputError(f"[threat] {key} = {value} is among the classes that are removed; choose another")
    if source == target:
        raise InputError(f"[threat] source and target must be two classes, got {source} for both")
    if not (dataset.y_train == source).any():
        raise InputError(f"[threat] source = {source} has no train record in {dataset.name}; choose another class")
    return source, target


def _without_classes(dataset: Dataset, removed: list[int]) -> Dataset:
    train, test = ~np.isin(dataset.y_train, removed), ~np.isin(dataset.y_test, removed)
    if not train.any() or not test.any():
        raise InputError("[threat] remove leaves no records; name fewer classes")
    return replace(
        dataset,
        x_train=dataset.x_train[train],
        y_train=dataset.y_train[train],
        x_test=dataset.x_test[test],
        y_test=dataset.y_test[test],
        ids=None if dataset.ids is None else dataset.ids[train],
        persons=None if dataset.persons is None else dataset.persons[train],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def make_defence(table: AggregationTable) -> Defence | None:
    """Return the defence that a table names; None if there is none."""
    if table.defence == "none":
        return None
    return make(table.defence, **({} if table.defence_bound is None else {"bound": table.defence_bound}))


def check_defended_cohort(table: AggregationTable, cohort: Cohort) -> None:
    """Raise if a cohort that may be drawn is too small for the defence; a cohort of nobody needs none."""
    defence = make_defence(table)
    if defence is None:
        return
    for clients in range(max(1, cohort.least), cohort.most + 1):
        malicious = math.ceil(table.defence_attackers * clients)
        if clients >= defence.fewest(malicious):
            continue
        drawn = f"a cohort has {clients}"
        ways = "raise [cohort] sample_rate or lower [aggregation] defence_attackers"
        if cohort.sampling == "poisson" and cohort.least < cohort.most:
            drawn = f"Poisson sampling of {cohort.expected:g} clients may draw {clients}"
            ways = f'set [cohort] sampling = "fixed", {ways}'
        raise InputError(
            f'[aggregation] defence = "{table.defence}" needs {defence.fewest(malicious)} clients to stand {malicious} '
            f"malicious ({table.defence_attackers} of {clients}, rounded up), but {drawn}; {ways}"
        )
