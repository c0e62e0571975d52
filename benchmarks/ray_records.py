"""Say what each machine of a Ray cluster receives of the records: all of them, or its own part alone.

.venv-ray/bin/python -m benchmarks.ray_records      two machines on this one, Fashion-MNIST, 6000 clients, three rounds
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from ray.cluster_utils import Cluster

from sottovoce.assembly.division import divide
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import few
from sottovoce.config.experiment import Experiment
from sottovoce.federation.engine import drive
from sottovoce.federation.engines.ray import RayEngine
from sottovoce.federation.engines.ray_session import ZERO, joined
from sottovoce.federation.round import server_round

PARTS = "SOTTOVOCE_BENCHMARK_PARTS"


def main() -> None:
    """Print the store of each machine and the digest of the model, with parts first: a store never shrinks."""
    os.environ.update(dict.fromkeys(ZERO, "0"))
    undivided = few(clients=6000, data={"source": "fashion-mnist"}, cohort={"sample_rate": "1/60"})
    engine = undivided.engine.model_copy(update={"name": "ray", "data": f"${PARTS}"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        divide(undivided, 2, folder / "split")
        os.environ[PARTS] = str(folder / "split")
        cluster = Cluster()
        for number, more in enumerate(({"include_dashboard": False}, {})):
            own = folder / str(number)
            own.mkdir()
            shutil.move(folder / "split" / f"part-{number}", own)
            cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", env_vars={PARTS: str(own)}, **more)
        try:
            measure("its own part", undivided.model_copy(update={"engine": engine}), cluster)
            measure("all records", undivided, cluster)
        finally:
            cluster.shutdown()


def measure(kind: str, experiment: Experiment, cluster: Cluster) -> None:
    """Play three rounds and look at the shared memory of the two machines."""
    parts = gather(experiment)
    with joined(cluster.address) as session, RayEngine(session, parts.blueprint(), parts.arrays()) as engine:
        ready = stages(protect(parts))[TRAINING].server_side(engine)
        ready.enrol(engine)
        state = ready.server.init(parts.start)
        for round_ in (1, 2, 3):
            state = drive(engine, server_round(ready.server, state, round_)).state
        raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
        stores = [int(_status(pid, "RssShmem")) / 1024 for pid in raylets]
    model = hashlib.sha256(state["params"].tobytes()).hexdigest()[:12]
    print(f"{kind}: store of each machine {', '.join(f'{store:.1f} MiB' for store in stores)}; model {model}")


def _status(pid: int, key: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(key))


if __name__ == "__main__":
    main()
