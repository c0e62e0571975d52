"""What the operator of a server sees of a federation at work: who is there, who is waited for, what it came to.

It holds the realised cohort of every round, so it is the operator's alone: the page is served on this machine, and the
file in the run folder (`operator-status.json`) is readable by its owner and stands among those that nobody publishes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError
from sottovoce.core.files import PRIVATE
from sottovoce.core.packages import install_line, installed
from sottovoce.core.pages import HTML, JSON, PageAnswer, PagePlace, PageServer
from sottovoce.federation.engines.mqtt.engine import Status

FILE: Final = "operator-status.json"
DAY: Final = 86400.0
_ROUNDS: Final = 50  # that are told one by one: the newest
_EVERY: Final = 2.0  # seconds between two looks at whether the file is to be written anew
_AT_LEAST: Final = 30.0  # seconds after which it is written in any case, so that its age tells of a dead server
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

Document = dict[str, Any]


class FleetStatus:
    """The status of one run, filled by the engine and by the rounds; every thread may read it."""

    def __init__(self, name: str, rounds: int, *, private: bool, now: Callable[[], float] = time.time) -> None:
        self.name, self.rounds, self.private = name, rounds, private
        self._now = now
        self._engine: Status | None = None
        self._told: deque[Document] = deque(maxlen=_ROUNDS)
        self._sums: Document = {}
        self._newest: Document = {}
        self._ended: str | None = None
        self._lock = threading.Lock()

    def watch(self, status: Status) -> None:
        """Take what an engine tells of its nodes from now on."""
        self._engine = status

    def observe(self, record: Mapping[str, Any]) -> None:
        """Take in one round, as the operator may see it."""
        with self._lock:
            self._told.append(_round(record))
            for key in ("bytes_up", "bytes_down", "wire_up", "wire_down"):
                self._sums[key] = self._sums.get(key, 0) + int(record.get(key) or 0)
            without = "without_quorum"
            self._sums[without] = self._sums.get(without, 0) + (self._told[-1]["quorum"] is False)
            for key in ("accuracy", "epsilon", "epsilon_spent"):
                if key in record:
                    self._newest[key] = _finite(record[key])

    def restart(self, _: object, experiment: Experiment) -> None:
        """Begin an epoch: rounds are counted anew."""
        with self._lock:
            self.name, self.rounds = experiment.experiment.name, experiment.experiment.rounds
            self._told.clear()

    def end(self, words: str) -> None:
        """Say that the run is over, and how."""
        self._ended = words

    @property
    def healthy(self) -> str | None:
        """Return what is wrong with the server now; None: nothing."""
        if self._ended is not None or self._engine is None:
            return None
        return None if self._engine.broker else "the broker cannot be reached"

    def document(self) -> Document:
        """Return all of it, as JSON has it."""
        engine, now = self._engine, self._now()
        nodes = [] if engine is None else engine.presence()
        with self._lock:
            told, sums, newest = list(self._told), dict(self._sums), dict(self._newest)
        epsilon, spent = newest.get("epsilon"), newest.get("epsilon_spent")
        busy = engine is not None and engine.phase
        return {
            "kind": "sottovoce status",
            "version": 1,
            "time": round(now, 3),
            "run": self.name,
            "private": self.private,
            "state": self._ended or self._state(engine, told),
            "ended": self._ended is not None,
            "broker": bool(engine and engine.broker),
            "round": engine.round if busy and engine is not None else told[-1]["round"] if told else 0,
            "rounds": self.rounds,
            "phase": engine.phase if engine is not None else "",
            "phase_seconds": round(now - engine.since, 1) if busy and engine is not None else None,
            "waiting_for": [node.name for node in nodes if node.waited_for],
            "there": sum(node.there for node in nodes),
            "nodes": [
                {
                    "name": node.name,
                    "there": node.there,
                    "seen": None if node.seen is None else round(node.seen, 1),
                    "waited_for": node.waited_for,
                    "refused": node.refused,
                    "cloned": node.cloned,
                    "certificate_days": days_left(node.expires, now),
                }
                for node in nodes
            ],
            "accuracy": newest.get("accuracy"),
            "epsilon": epsilon,
            "epsilon_spent": spent,
            "epsilon_left": None if epsilon is None or spent is None else max(0.0, epsilon - spent),
            "certificate_days": days_left(None if engine is None else engine.expires, now),
            "late": 0 if engine is None else engine.late,
            "foreign": 0 if engine is None else engine.foreign,
            **{key: sums.get(key, 0) for key in ("bytes_up", "bytes_down", "wire_up", "wire_down", "without_quorum")},
            "per_round": told,
        }

    def _state(self, engine: Status | None, told: list[Document]) -> str:
        if engine is None:
            return "starting"
        if engine.phase:
            return "in a round"
        return "between two rounds" if told else "waiting for nodes"


def days_left(expires: float | None, now: float) -> int | None:
    """Return the whole days until a time; negative after it."""
    return None if expires is None else math.floor((expires - now) / DAY)


def _round(record: Mapping[str, Any]) -> Document:
    """Return what is shown of a round; one with a reason had no quorum, though a private one looks like any other."""
    void = bool(record.get("void"))
    return {
        "round": int(record["round"]),
        "cohort": record.get("cohort"),
        "senders": record.get("senders"),
        "quorum": None if void else not record.get("reason") and not record.get("aborted"),
        "reason": record.get("reason"),
        "failures": len(record.get("failures") or ()),
        "seconds": record.get("seconds"),
        "accuracy": _finite(record.get("accuracy")),
    }


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def packed(document: Document) -> bytes:
    """Return a document in few bytes."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


@contextmanager
def keeping(status: FleetStatus, folder: Path) -> Iterator[None]:
    """Write the status into a run folder, once it is there, whenever it changes; the last word is written at the end.

    It is no account of anything: it is not brought to the disk, and a disk that is full does not stop the run.
    """
    over = threading.Event()

    def write(before: Document | None, at: float) -> tuple[Document | None, float]:
        document = status.document()
        bare = {key: value for key, value in document.items() if key not in ("time", "phase_seconds")}
        if not folder.is_dir() or (bare == before and time.monotonic() < at + _AT_LEAST):
            return before, at
        draft = folder / f".{FILE}.{os.getpid()}.new"
        with suppress(OSError):
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb") as file:
                file.write(packed(document))
            draft.replace(folder / FILE)
        return bare, time.monotonic()

    def follow() -> None:
        written: tuple[Document | None, float] = (None, 0.0)
        while not over.wait(_EVERY):
            written = write(*written)

    writer = threading.Thread(target=follow, name="status", daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
        write(None, 0.0)


def read_status(folder: Path) -> Document:
    """Return the status that a server wrote into its run folder."""
    try:
        document = json.loads((folder / FILE).read_bytes())
        if document["kind"] != "sottovoce status":
            raise KeyError("kind")
    except FileNotFoundError:
        raise InputError(
            f"{folder} has no {FILE}: no server of a federation has written to it; for others: sottovoce report"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder / FILE} is damaged; it is written anew while a server runs") from None
    return dict(document)


def serve_status(place: str, status: FleetStatus) -> PageServer:
    """Return a server of the page, its JSON, `/metrics` and `/healthz`, at work; `close` ends it."""
    content, policy = _page()
    routes: dict[str, Callable[[], PageAnswer]] = {
        "/": lambda: PageAnswer(content, HTML, policy=policy),
        "/status.json": lambda: PageAnswer(packed(status.document()), JSON),
        "/metrics": lambda: metrics_answer(lambda: fleet_families(status.document())),
        "/healthz": lambda: health_answer(status.healthy),
    }
    return PageServer(PagePlace.parse(place), routes).start()


def serve_health(place: str, healthy: Callable[[], str | None], families: Callable[[], list[Family]]) -> PageServer:
    """Return a server of `/metrics` and `/healthz`, at work, for a party that has no page."""
    routes: dict[str, Callable[[], PageAnswer]] = {
        "/metrics": lambda: metrics_answer(families),
        "/healthz": lambda: health_answer(healthy()),
    }
    return PageServer(PagePlace.parse(place), routes).start()


def health_answer(trouble: str | None) -> PageAnswer:
    """Return 200 and `ok`, or 503 and one sentence."""
    return PageAnswer(b"ok\n") if trouble is None else PageAnswer(f"{trouble}\n".encode(), code=503)


Family = tuple[str, str, str, list[tuple[dict[str, str], float]]]
"""Name, help, type (gauge or counter), and values by label of one metric."""


def fleet_families(document: Document) -> list[Family]:
    """Return the metrics of a server."""
    none: dict[str, str] = {}

    def one(name: str, words: str, key: str, kind: str = "gauge") -> Family:
        value = document[key]
        return (name, words, kind, [] if value is None else [(none, float(value))])

    nodes = document["nodes"]

    def each(name: str, words: str, key: str) -> Family:
        return (name, words, "gauge", [({"node": n["name"]}, float(n[key])) for n in nodes if n[key] is not None])

    newest: Document = document["per_round"][-1] if document["per_round"] else {"cohort": None, "senders": None}
    return [
        one("sottovoce_broker_connected", "Whether the connection to the broker stands", "broker"),
        one("sottovoce_round", "Round that is played, or was played last", "round"),
        one("sottovoce_rounds", "Rounds of the run", "rounds"),
        one("sottovoce_ended", "Whether the run is over", "ended"),
        one("sottovoce_nodes_there", "Nodes that are there", "there"),
        ("sottovoce_nodes", "Nodes of the roster", "gauge", [(none, float(len(nodes)))]),
        ("sottovoce_nodes_waited_for", "Nodes that owe an answer", "gauge", [(none, len(document["waiting_for"]))]),
        *(
            (f"sottovoce_round_{key}", words, "gauge", [] if newest[key] is None else [(none, float(newest[key]))])
            for key, words in (("cohort", "Nodes asked in the last round"), ("senders", "Nodes summed in it"))
        ),
        one("sottovoce_rounds_without_quorum", "Rounds that had no quorum", "without_quorum", "counter"),
        one("sottovoce_accuracy", "Accuracy when it was last measured", "accuracy"),
        one("sottovoce_epsilon", "Epsilon of the plan, against outsiders", "epsilon"),
        one("sottovoce_epsilon_spent", "Epsilon of the rounds that are charged", "epsilon_spent"),
        one("sottovoce_payload_up_bytes", "Bytes of messages from nodes", "bytes_up", "counter"),
        one("sottovoce_payload_down_bytes", "Bytes of messages to nodes", "bytes_down", "counter"),
        one("sottovoce_wire_up_bytes", "Bytes that came in on the server's connection", "wire_up", "counter"),
        one("sottovoce_wire_down_bytes", "Bytes that went out on the server's connection", "wire_down", "counter"),
        one("sottovoce_late_answers", "Answers that came too late, or twice", "late", "counter"),
        one("sottovoce_foreign_messages", "Messages that did not open", "foreign", "counter"),
        one("sottovoce_certificate_days", "Days until the server's own certificate expires", "certificate_days"),
        each("sottovoce_node_there", "Whether a node is there", "there"),
        each("sottovoce_node_seen_seconds", "When a node was last heard, in seconds since 1970", "seen"),
        each("sottovoce_node_cloned", "Whether two processes use a node's key", "cloned"),
        each("sottovoce_node_certificate_days", "Days until a node's certificate expires", "certificate_days"),
    ]


def metrics_answer(families: Callable[[], list[Family]]) -> PageAnswer:
    """Return metrics in Prometheus' text format; 501 and the way out where its package is not installed."""
    if not installed("prometheus_client"):
        words = f"/metrics needs prometheus-client, which is not installed; install it with: {install_line('metrics')}"
        return PageAnswer(f"{words}\n".encode(), code=501)
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}

    class _Collected:
        def collect(self) -> Iterator[Any]:
            for name, words, kind, values in families():
                family = kinds[kind](name, words, labels=list(values[0][0]) if values else [])
                for labels, value in values:
                    family.add_metric(list(labels.values()), value)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected())
    return PageAnswer(generate_latest(registry), _METRICS)


def _page() -> tuple[bytes, str]:
    """Return the page, and the policy that lets its own script and style run, and nothing else."""
    text = files("sottovoce.deployment").joinpath("status.html").read_text(encoding="utf-8")
    style, script = (_hash(_between(text, f"<{tag}>", f"</{tag}>")) for tag in ("style", "script"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def _between(text: str, begin: str, end: str) -> str:
    return text.split(begin, 1)[1].split(end, 1)[0]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
