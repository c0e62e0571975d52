"""Write run folders by the contract alone, without running anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sottovoce.privacy.ledger import Ledger

Maker = Callable[..., Path]

CONFIG = """\
[experiment]
name = {name}
seed = {seed}
rounds = {rounds}
evaluate_every = 2

[data]
source = {source}
clients = 100
partition = "iid"

[model]
name = "mlp"

[client]
local_steps = 5
batch_size = 10
client_lr = 0.1
optimizer = "sgd"

[cohort]
sampling = "poisson"
sample_rate = "1/10"

[scheme]
name = {scheme}
"""


@pytest.fixture
def make_run(tmp_path: Path) -> Maker:
    return _maker(tmp_path)


@pytest.fixture(scope="session")
def make_run_at(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Maker]:
    """Return a maker with a new folder at every call, for properties, which are tried many times in one test."""
    return lambda: _maker(tmp_path_factory.mktemp("runs"))


def _maker(tmp_path: Path) -> Maker:
    def make(
        folder: str = "run",
        *,
        name: str = "small",
        scheme: str = "fl-std",
        source: str = "digits",
        rounds: int = 10,
        done: int = 10,
        bytes_up: int = 1000,
        private: bool = False,
        finished: bool = True,
        summary: dict[str, Any] | None = None,
        metrics: tuple[str, ...] = ("accuracy",),
        older: bool = False,
        seed: int = 1,
        threat: dict[str, Any] | None = None,
        tables: dict[str, dict[str, Any]] | None = None,
        by_class: list[float | None] | None = None,
        success: float | None = None,
        diverged: bool = False,
        rejected: tuple[int, ...] = (),
        audit: dict[str, Any] | None = None,
    ) -> Path:
        path = tmp_path / folder
        path.mkdir(parents=True)
        words = {key: json.dumps(value) for key, value in (("name", name), ("source", source), ("scheme", scheme))}
        config = CONFIG.format(rounds=rounds, seed=seed, **words)
        for table, keys in (({"threat": threat} if threat else {}) | (tables or {})).items():
            config += f"\n[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        (path / "config.toml").write_text(config + ("\n[privacy]\ndelta = 1e-5\n" if private else ""))
        records = []
        for round_ in range(1, done + 1):
            record = {"round": round_, "bytes_up": 10 * bytes_up, "bytes_down": 40_000}
            record |= {"epsilon": 2.0, "epsilon_spent": round_ / 10} if private else {"epsilon": None}
            if not private or older:
                record |= {"cohort": 10, "senders": 10, "seconds": 0.5}
            if round_ % 2 == 0:
                record |= dict.fromkeys(metrics, 0.5 + 0.04 * round_ if round_ < 10 else 0.8)
                if threat:
                    record |= {"accuracy_by_class": by_class, "attack_success": success}
                    record["class_accuracy"] = None if by_class is None else by_class[threat.get("source", 0)]
                if diverged:
                    record["diverged"] = True
            if round_ in rejected:
                record["rejected"] = True
            records.append(record)
        (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if private:
            with Ledger(path / "ledger.jsonl", digest="d" * 64, limit=rounds, deployment=False) as ledger:
                for round_ in range(1, done + 1):
                    ledger.charge(round_)
        if finished:
            told = {
                "name": name,
                "scheme": scheme,
                "private": private,
                "rounds": done,
                "accuracy_final": 0.8,
                "accuracy_best": 0.82,
                "best_round": 8,
                "epsilon": 0.75 if private else None,
                "epsilon_server": 6.5 if private else None,
                "delta": 1e-5 if private else None,
                "bytes_up_per_client_round": bytes_up,
                "bytes_down_per_client_round": 4000,
                "bytes_up_total": 10 * bytes_up * done,
                "bytes_down_total": 40_000 * done,
                "bytes_setup_per_client": 32,
                "paper_cost_up_bytes": 3200.0,
                "paper_cost_down_bytes": 3300.0,
                "joules_per_client": None,
                "seconds": None if private else 5.0,
                "stopped_early": False,
            }
            if threat:
                told |= {"attack": threat["attack"], "attack_fraction": threat["fraction"], "diverged": diverged}
                told |= {f"attack_success_{when}": success for when in ("best", "final")}
                on_class = None if by_class is None else by_class[threat.get("source", 0)]
                told |= {f"class_accuracy_{when}": on_class for when in ("best", "final")}
                told |= {"rejected_rounds": len(rejected) if rejected else None}
            (path / "summary.json").write_text(json.dumps(told | (summary or {})))
        if audit is not None:
            (path / "audit.json").write_text(json.dumps(audit))
        return path

    return make
