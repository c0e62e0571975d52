"""Play the game on what is published: all of it must follow from the released sums and from public numbers.

A short run is played in several worlds. In the first one its released sums are kept; in the others they are put in the
place of the sums that came out, and something that only the operator may know is another: who was drawn, whether one
client is there, what the clients' records are. Whatever is published must then be equal, bit for bit: the model, the
lines of the rounds, the summary, what callbacks hear, and the model that clients are sent. If it is, then what is
published is as private as the sums (post-processing), and these have games and tests of their own. There is no chance
in it: a number that tells worlds apart was never charged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.random import Generator

from sottovoce.assembly.overrides import Callbacks
from sottovoce.assembly.parts import Parts
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.streams import NamedStreams, Purpose, Seeds, Streams
from sottovoce.data.machine_parts import Away
from sottovoce.federation.aggregation.aggregator import Total
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Engine, Evaluator, Reply, Request
from sottovoce.federation.wrappers.base import Around
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.folder import RunFolder
from sottovoce.runs.loop import play
from sottovoce.schemes import State
from sottovoce.studies.audit.options import Options, protected
from sottovoce.studies.audit.records import check_folder
from sottovoce.threats.audit.finding import AuditFinding, checked

PUBLISHED = ("config.toml", "preprocessing.json", "rounds.jsonl", "summary.json", "model.npz", "model-best.npz")
_ROUNDS = 3
_PLAN = "plan"

Evidence = dict[str, Any]  # what was published, by name


@dataclass
class _Sums:
    """The released sums of the first world, by round, and the clients that each round asked."""

    totals: dict[int, tuple[Any, float]] = field(default_factory=dict)
    asked: dict[int, list[int]] = field(default_factory=dict)

    def keep(self, round_: int, total: Total) -> None:
        """Keep a total."""
        self.asked[round_] = list(total.clients)
        if total.values is not None:
            self.totals[round_] = np.array(total.values), total.clip_norm

    def put(self, round_: int, total: Total) -> None:
        """Put what the first world released in the place of what this one did."""
        if total.values is not None and round_ in self.totals:
            total.values, total.clip_norm = self.totals[round_]


@dataclass
class _Heard:
    """A callback that keeps what it is told."""

    evidence: Evidence = field(default_factory=dict)

    def on_round(self, record: dict[str, Any], state: State) -> None:
        """Keep a round: its record, and a hash of each array of the state."""
        told = {name: sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in state.items()}
        self.evidence[f"callbacks of round {record['round']}"] = record | told

    def on_end(self, summary: dict[str, Any]) -> None:
        """Keep the summary."""
        self.evidence["callbacks of the end"] = summary


@dataclass
class _Overheard(Around):
    """An engine that keeps the downlink of each round without its terms; `absent` clients never answer."""

    absent: frozenset[int]
    evidence: Evidence = field(default_factory=dict)

    def send(self, request: Request) -> Reply:
        """Deliver a request; of the answers of absent clients nothing comes."""
        if request.opening and request.phase == "train" and request.payloads:  # without masks, which differ anyway
            down, _ = Terms.split(next(iter(request.payloads.values())))
            self.evidence[f"downlink of round {request.round}"] = sha256(down).hexdigest()
        gone = dict.fromkeys(self.absent.intersection(request.payloads), f"left before {request.phase}")
        if request.opening:
            request = request._replace(silent=request.silent | gone.keys())
        else:
            kept = {client: payload for client, payload in request.payloads.items() if client not in gone}
            request = request._replace(payloads=kept)
        reply = self.engine.send(request)
        return reply._replace(left={**reply.left, **gone})


@dataclass(frozen=True)
class _Redrawn:
    """Streams with other draws of cohorts, and all else as it was."""

    inner: NamedStreams
    cohorts: Streams

    def get(self, purpose: Purpose, *path: int) -> Generator:
        """Return a generator for a name."""
        return (self.cohorts if purpose == Purpose.COHORT else self.inner).get(purpose, *path)

    def key(self, purpose: Purpose, *path: int, size: int = 32) -> bytes:
        """Return bytes for a name."""
        return self.inner.key(purpose, *path, size=size)


@dataclass(frozen=True)
class _OtherCohorts(Seeds):
    """The seeds of a simulation whose server draws other cohorts."""

    cohorts: int = 0

    @property
    def server(self) -> Any:
        """Return the server's streams."""
        return _Redrawn(Seeds(self.seed).server, Seeds(self.cohorts).server)


def published(experiment: Experiment, plan: PrivacyPlan, options: Options, base: int) -> list[AuditFinding]:
    """Compare what is published in worlds that differ in secrets alone."""
    with TemporaryDirectory() as folder:
        (_, first), *others = played_worlds(experiment, plan, options, base, Path(folder))
        checks = check_folder(Path(folder) / "first", first.pop(_PLAN))
        return [replace(check, name=f"short run, {check.name}") for check in checks] + [
            checked(
                f"published, {name}",
                not (different := _differences(first, evidence)),
                f"what is published tells {name}, beyond the released sums: {', '.join(different)}",
            )
            for name, evidence in others
        ]


def played_worlds(
    experiment: Experiment, plan: PrivacyPlan, options: Options, base: int, folder: Path
) -> list[tuple[str, Evidence]]:
    """Play the worlds, each into a folder of its own, and return what each published; the first one is as it is."""
    real = options.secure and not experiment.protocol.counts_votes  # transfers take minutes, and tell no more of this
    protection = protected(_short(experiment, plan), replace(options, secure=real))
    parts, sums = protection.parts, _Sums()

    def world(name: str, engine: Engine, evaluator: Evaluator, own: Parts, absent: frozenset[int]) -> Evidence:
        ready = stages(replace(protection, parts=own))[TRAINING].server_side(evaluator)
        heard, overheard = _Heard(), _Overheard(engine, absent)
        path = folder / name.replace(" ", "-")
        with RunFolder.create(path, own.experiment, {}, own.dataset.describe_inputs()) as run:
            play(own, ready, overheard, evaluator, run, lambda record: None, Callbacks([heard], private=True))
        files = {file: _content(path / file) for file in PUBLISHED}
        return files | heard.evidence | overheard.evidence | {_PLAN: ready.plan}

    found: list[tuple[str, Evidence]] = []
    with options.start(parts, None) as (engine, evaluator):
        found.append(("first", world("first", engine, evaluator, replace(parts, watch=sums.keep), frozenset())))
        own = replace(parts, watch=sums.put)
        if plan.request.sample_rate < 1:
            drawn = replace(own, parties=replace(own.parties, owners=_OtherCohorts(parts.seeds.seed, base)))
            found.append(("who was drawn", world("who was drawn", engine, evaluator, drawn, frozenset())))
        if (client := _dispensable(sums, plan)) is not None:
            name = "whether a client is there"
            found.append((name, world(name, engine, evaluator, own, frozenset({client}))))
    if not plan.request.unsafe and not isinstance(parts.partition, Away):
        data = parts.dataset
        own = replace(own, dataset=replace(data, x_train=data.x_train[::-1], y_train=data.y_train[::-1]))
        with options.start(own, None) as (engine, evaluator):
            name = "what the records are"
            found.append((name, world(name, engine, evaluator, own, frozenset())))
    return found


def _dispensable(sums: _Sums, plan: PrivacyPlan) -> int | None:
    """Return a client that was asked and without whom every round still has a quorum, whose lack is charged apart."""
    for client in sorted({client for asked in sums.asked.values() for client in asked}):
        sizes = [len(asked) for asked in sums.asked.values() if client in asked]
        if all(plan.shares.survivors(size) < size for size in sizes):
            return client
    return None


def _short(experiment: Experiment, plan: PrivacyPlan) -> Experiment:
    """Return the experiment with few rounds and the noise of all of them, each of them evaluated."""
    tables = {name: dict(table) for name, table in experiment.tables().items()}
    rounds = min(_ROUNDS, plan.rounds)
    tables["experiment"] |= {"rounds": rounds, "evaluate_every": 1}
    targets = ("epsilon", "epsilon_server")
    privacy = {  # without the file of a population: a game spends nothing of anybody's
        key: value for key, value in tables["privacy"].items() if key not in targets and not key.startswith("budget")
    }
    tables["privacy"] = privacy | {"noise_multiplier": plan.noise_multiplier}
    return parse(tables)


def _content(path: Path) -> Any:
    """Return what a file holds: its JSON, key by key, or a hash of its bytes."""
    if not path.exists():
        return None
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        return {f"{key} of round {line['round']}": value for line in lines for key, value in line.items()}
    return sha256(path.read_bytes()).hexdigest()


def _differences(one: Evidence, other: Evidence) -> list[str]:
    """Name what differs; of JSON the keys."""
    found = []
    for name in sorted(one.keys() & other.keys()):  # a round that asks nobody has no downlink
        if one[name] == other[name]:
            continue
        if isinstance(one[name], dict) and isinstance(other[name], dict):
            keys = sorted(key for key in one[name] | other[name] if one[name].get(key) != other[name].get(key))
            found.append(f"{name} ({', '.join(keys[:3])})")
        else:
            found.append(name)
    return found
