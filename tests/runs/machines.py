"""A federation of machines without a network: each node has its own state, keys and secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

from sottovoce.assembly.elsewhere import gather_without_records, node_records
from sottovoce.assembly.parties import BackOff, Parties
from sottovoce.assembly.parts import Parts, gather
from sottovoce.assembly.protection import Protection, protect
from sottovoce.assembly.stages import stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import SottovoceError
from sottovoce.core.streams import Owners, Secrets, Seeds
from sottovoce.federation.client import Client, ClientState, Credentials
from sottovoce.federation.engine import Enrolment, Reply, Request
from sottovoce.federation.stages.evaluation import EVALUATION
from sottovoce.federation.stages.local_evaluation import LocalSplit
from sottovoce.federation.stages.statistics import trainer_for
from sottovoce.models import Shard, all_features, make_trainer
from sottovoce.secagg import verifying_key
from tests.runs.played import merged
from tests.runs.small import small

Lost = Callable[[Request, int], bool]

ONE = {"engine": {"workers": 1}}
PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}
REAL = {"secure": "real"}
ALL_ANSWER = {**REAL, "answer_rate": 1.0}  # else a private run between machines has no epsilon against outsiders
SCHEMES: dict[str, dict[str, Any]] = {
    "fl-std": {},
    "fl-sign": {"scheme": {"name": "fl-sign"}, "privacy": {"clip_norm": None}},
    "fl-top": {"scheme": {"name": "fl-top", "ratio": 0.2, "public": "leaves"}},
    "adaptive": {"privacy": {"clipping": "adaptive", "count_stddev": 1.0}},
}


def private(scheme: str = "fl-std", **tables: dict[str, Any]) -> Experiment:
    """Return a small private run of six clients with real secure sums."""
    base: dict[str, Any] = {
        "experiment": {"rounds": 3, "evaluate_every": 1},
        "data": {"clients": 6},
        "cohort": {"sample_rate": 1},
        "privacy": PRIVATE,
        "aggregation": ALL_ANSWER,
        **ONE,
    }
    whole = merged(base, SCHEMES[scheme], tables)
    return small(**{name: {k: v for k, v in table.items() if v is not None} for name, table in whole.items()})


def signing_key(client: int) -> bytes:
    """Return the signing key of a node of the tests."""
    return bytes([client + 1]) * 32


def keys(clients: int) -> dict[int, bytes]:
    """Return the roster's keys."""
    return {client: verifying_key(signing_key(client)) for client in range(clients)}


@lru_cache(maxsize=1)
def records(experiment: str) -> Parts:
    """Return the whole parts, from which each node gets its own records."""
    return gather(Experiment.model_validate_json(experiment))


@dataclass
class Node:
    """One machine: its client, and the state that changes."""

    number: int
    protection: Protection
    split: LocalSplit
    client: Client | None = None
    measurer: Client | None = None
    state: ClientState = field(default_factory=ClientState)
    measuring: ClientState = field(default_factory=ClientState)

    def enrol(self, told: Enrolment) -> None:
        """Take in the set-up message; everything else the node knows from its own file."""
        known = stages(self.protection).values()
        stage = next(each for each in known if each.scheme.name == told.scheme.name).heard(told.setup)
        parts = stage.parts
        own = self.split.held_out if told.measures else self.split.train
        shard = Shard(all_features(parts.network, own.x, 1), own.y) if len(own.y) else own
        knowledge = stage.client_side(told.setup)
        table = parts.experiment.client
        trainer = make_trainer(parts.network.trained, parts.training(), table.trainer, table.device)
        client = Client(
            knowledge,
            self.number,
            parts.seeds.client(self.number),
            lambda: shard,
            trainer_for(knowledge.scheme, parts.network.trained, trainer),
            Credentials(signing_key(self.number)),
        )
        if told.measures:
            self.measurer = client
        else:
            self.client, self.state = client, ClientState(mark=self.state.mark)

    def answer(self, request: Request) -> bytes:
        """Return the answer to a request."""
        payload = request.payloads[self.number]
        if request.round >= EVALUATION:
            assert self.measurer is not None
            sent, self.measuring = self.measurer.answer(request.round, request.phase, payload, self.measuring)
        else:
            assert self.client is not None
            sent, self.state = self.client.answer(request.round, request.phase, payload, self.state)
        return sent


@dataclass
class Machines:
    """An engine of nodes; `lost` tells which answers never come."""

    nodes: list[Node]
    lost: Lost
    requests: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)

    def enrol(self, enrolment: Enrolment) -> None:
        for node in self.nodes:
            node.enrol(enrolment)

    def send(self, request: Request) -> Reply:
        sizes: dict[int, int] = {}
        failures: dict[int, str] = {}
        left: dict[int, str] = {}
        self.requests.append((request.round, request.phase, tuple(request.payloads)))
        for client in request.payloads:
            if self.lost(request, client):
                left[client] = f"did not answer {request.phase}"
                continue
            try:
                payload = self.nodes[client].answer(request)
                request.take(client, payload)
                sizes[client] = len(payload)
            except SottovoceError as error:
                failures[client] = str(error)
        return Reply(sizes, failures, left)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def federation(
    experiment: Experiment, *, simulated: bool = False, lost: Lost = lambda request, client: False, **more: Any
) -> tuple[Parties, list[Machines]]:
    """Return what `run` is to be given, and a list that will hold the engine once it is connected."""
    seed, clients = experiment.experiment.seed, experiment.data.clients
    engines: list[Machines] = []

    def owners() -> Owners:
        return Seeds(seed) if simulated else Secrets(seed)

    @contextmanager
    def connect(parts: Parts, run: bytes) -> Iterator[Machines]:
        assert len(run) == 16
        whole = records(experiment.model_dump_json())
        own = replace(Parties.of_machines(owners(), keys(clients), seeded=simulated), run=parts.parties.run)
        bare = gather_without_records(experiment, own)
        solved = protect(bare)  # once for all nodes, to save time: it follows from the file alone
        nodes = []
        for number in range(clients):
            mine, data = whole.partition.records(number), whole.dataset
            protection = replace(solved, parts=replace(bare, parties=replace(own, owners=owners())))
            split = node_records(bare, number, Shard(data.x_train[mine], data.y_train[mine]))
            nodes.append(Node(number, protection, split))
        with Machines(nodes, lost) as engine:
            engines.append(engine)
            yield engine

    pauses = {name: more.pop(name) for name in ("max_aborts", "first", "longest", "sleep") if name in more}
    back_off = BackOff(**{"sleep": lambda seconds: None, **pauses})
    parties = Parties.of_machines(
        owners(), keys(clients), bytes(32), connect, seeded=simulated, back_off=back_off, **more
    )
    return parties, engines
