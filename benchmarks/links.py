"""Measure federations behind thin links: seconds of each round, who was in it, and what the links carried.

    python -m benchmarks.links                          every link, one after the other
    python -m benchmarks.links --only 2g,satellite      --what ballots, --rounds 4, --nodes 6

Six nodes in namespaces of their own behind links of `emulator`, with real Mosquitto and mutual TLS: FL-TOP with 0.5 %
of 1.66 million weights, by the real secure sum; or ballots. Needs root and Linux.
"""

from __future__ import annotations

from benchmarks.measure import quiet_threads

quiet_threads()

import argparse  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from contextlib import ExitStack  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Final  # noqa: E402

from benchmarks.emulator import LINKS, Emulator, Link  # noqa: E402
from sottovoce.assembly.parts import gather  # noqa: E402
from sottovoce.config.experiment import parse, to_toml  # noqa: E402
from sottovoce.deployment.acl import mosquitto_conf  # noqa: E402
from sottovoce.deployment.helper.keys import add_helper  # noqa: E402
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster  # noqa: E402
from sottovoce.deployment.trial.broker import mosquitto  # noqa: E402
from sottovoce.deployment.trial.trial import deal, deployable, environment  # noqa: E402

PHASES: Final = {"sum": 5, "ballots": 1}
PORT: Final = 8883

SUM: Final[dict[str, Any]] = {
    "experiment": {"name": "links", "evaluation": "none"},
    "data": {"source": "fashion-mnist", "records_per_client": 100},
    "model": {"name": "cnn"},
    "scheme": {"name": "fl-top", "ratio": 0.005, "public": "mnist"},
    "client": {"local_steps": 1, "batch_size": 10, "client_lr": 0.1},
    "cohort": {"sampling": "fixed", "sample_rate": 1.0},
    "aggregation": {"secure": "real"},
}
BALLOTS: Final[dict[str, Any]] = {
    **SUM,
    "cohort": {"sampling": "poisson", "sample_rate": 1.0},
    "aggregation": {"secure": "ballot"},
    "privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 1.0},
}


def federation(folder: Path, what: str, nodes: int, rounds: int, hub: str, engine: dict[str, Any]) -> list[str]:
    """Make keys, records and the file of a federation; return the broker's command."""
    tables = {**(BALLOTS if what == "ballots" else SUM)}
    tables["experiment"] = tables["experiment"] | {"rounds": rounds}
    tables["data"] = tables["data"] | {"clients": nodes}
    dealt = gather(parse(tables))
    tables["engine"] = {"name": "mqtt", "min_nodes": nodes, **engine}
    experiment = deployable(parse(tables), dealt)
    fed = folder / "fed"
    init_federation(fed, broker=hub)
    add_nodes(fed, [f"n{number}" for number in range(nodes)])
    if what == "ballots":
        add_helper(fed, "notary")
    sign_roster(fed)
    deal(dealt, folder)
    (folder / "run.toml").write_text(to_toml(experiment.tables()))
    place = folder / "broker"
    place.mkdir()
    for path in ("public/ca.pem", "public/crl.pem", "public/acl", "broker/cert.pem", "broker/key.pem"):
        (place / Path(path).name).write_bytes((fed / path).read_bytes())
    conf = mosquitto_conf(place, port=PORT, bind=hub).replace("log_dest syslog", "log_dest stderr")
    (place / "conf").write_text(conf + "user root\n")
    return [mosquitto() or "mosquitto", "-c", str(place / "conf")]


def measure(
    link: Link, what: str, folder: Path, *, nodes: int, rounds: int, most: float, engine: dict[str, Any]
) -> dict[str, Any]:
    """Play a run behind links of one kind and return what came of it."""
    names = [f"n{number}" for number in range(nodes)]
    here = [sys.executable, "-m", "sottovoce"]
    with ExitStack() as stack:
        net = stack.enter_context(Emulator(dict.fromkeys(names, link)))
        command = federation(folder, what, nodes, rounds, net.hub, engine)
        began: list[subprocess.Popen[bytes]] = []
        stack.callback(lambda: [(each.terminate(), each.wait()) for each in began])

        def start(name: str, words: list[str], log: str) -> subprocess.Popen[bytes]:
            with (folder / f"{log}.log").open("ab") as file:
                made = net.popen(name, words, stdout=file, stderr=file, env=environment())
            began.append(made)
            return made

        start("", command, "broker")
        file, url = str(folder / "run.toml"), f"mqtts://{net.hub}:{PORT}"
        words = [*here, "serve", file, "--keys", str(folder / "fed/server"), "--out", str(folder / "out")]
        words += ["--log", "text", "--set", f"engine.broker={url}"]
        if what == "ballots":
            counter = [*here, "count", file, "--keys", str(folder / "fed/helper"), "--listen", "127.0.0.1:8900"]
            start("", counter, "helper")
            words += ["--set", "aggregation.helper=127.0.0.1:8900"]
            while "listening" not in (folder / "helper.log").read_text():
                time.sleep(0.2)
        time.sleep(1.0)
        server = start("", words, "server")
        for number, name in enumerate(names):
            data = str(folder / f"node{number}.npz")
            keys = str(folder / "fed/nodes" / name)
            start(name, [*here, "join", url, "--run", file, "--keys", keys, "--data", data, "--log", "text"], name)
        until = time.monotonic() + most
        while server.poll() is None and time.monotonic() < until:
            time.sleep(0.5)
        carried = [net.carried(name) for name in names]
    found = folder / "out" / "operator.jsonl"
    lines = found if found.exists() else folder / "out" / "rounds.jsonl"
    told = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    played = [each for each in told if each["round"] is not None]  # the last line is of the whole run
    return {
        "exit": server.returncode,
        "seconds": [round(each["seconds"], 1) for each in played],
        "senders": [each["senders"] for each in played],
        "kB": [round((each["bytes_up"] + each["bytes_down"]) / nodes / 1e3, 1) for each in played],
        "carried": [round(each / 1e3, 1) for each in carried],
    }


def main() -> None:
    """Print one line a link."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(LINKS))
    parser.add_argument("--what", default="sum", choices=PHASES)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--most", type=float, default=1800.0, help="seconds until a run is given up")
    parser.add_argument("--keep", type=Path, help="folder that keeps logs and run folders")
    parser.add_argument("--set", action="append", default=[], help="of [engine], such as phase_timeout=30")
    told = parser.parse_args()
    engine = {key: json.loads(value) for key, _, value in (each.partition("=") for each in told.set)}
    for name in told.only.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            folder = (told.keep / f"{name}-{told.what}") if told.keep else Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            result = measure(
                LINKS[name], told.what, folder, nodes=told.nodes, rounds=told.rounds, most=told.most, engine=engine
            )
        print(name, told.what, json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
