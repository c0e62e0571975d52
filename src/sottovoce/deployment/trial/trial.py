"""A whole federation on one machine, for a trial: keys, broker, a process for every node, and the server here.

Records are dealt out as a simulation deals them, and each node gets a file with its own; all of it goes away at the
end.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from sottovoce.assembly.elsewhere import check_deployable
from sottovoce.assembly.parts import Parts, gather
from sottovoce.config.experiment import Experiment, parse, to_toml
from sottovoce.core.errors import InputError, RunError
from sottovoce.core.files import PRIVATE, replacing, write_new
from sottovoce.core.lock import hold
from sottovoce.deployment.helper.keys import add_helper
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.trial.broker import Broker
from sottovoce.deployment.trial.broker import Kind as BrokerKind
from sottovoce.deployment.trial.children import die_with_parent
from sottovoce.deployment.trial.helper import TrialHelper, trial_helper

_FAREWELL: Final = 10.0  # seconds that nodes have to leave after the run


@dataclass
class Trial:
    """A federation on this machine: where its server's keys are, its broker, and its nodes' processes."""

    experiment: Experiment  # as server and nodes have it
    folder: Path
    broker: Broker
    nodes: list[subprocess.Popen[bytes]]
    command: list[str]
    helper: TrialHelper | None = None  # of a run that counts ballots

    @property
    def keys(self) -> Path:
        """Return the folder of the server's keys."""
        return self.folder / "fed" / "server"

    def start(self, number: int) -> None:
        """Start a node's process, or start it again."""
        name = f"node{number}"
        words = [*self.command, "--keys", str(self.folder / "fed" / "nodes" / name)]
        words += ["--data", str(self.folder / f"{name}.npz")]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for us; we tell them
                preexec_fn=die_with_parent,
            )
        self.nodes[number:] = [process, *self.nodes[number + 1 :]]

    def check(self) -> None:
        """Raise what a node said if one of them failed before the run did."""
        if self.helper is not None:
            self.helper.check()
        for number, process in enumerate(self.nodes):
            if process.poll() not in (None, 0):
                raise RunError(f"node {number} ended with code {process.returncode}: {self.last_words(number)}")

    def last_words(self, number: int) -> str:
        """Return the last line that a node wrote."""
        lines = (self.folder / f"node{number}.log").read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def stop(self) -> None:
        """Wait until the nodes have left; end those that have not."""
        until = time.monotonic() + _FAREWELL
        for process in self.nodes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
        for process in self.nodes:
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def trial(
    experiment: Experiment, nodes: int, beside: Path, *, simulated: bool, kind: BrokerKind = "auto"
) -> Iterator[Trial]:
    """Start broker and nodes; `beside` is the run folder, next to which keys and records are while the trial lasts."""
    if nodes != experiment.data.clients:
        raise InputError(
            f"--local must be the number of clients, {experiment.data.clients}, got {nodes}; give --local "
            f"{experiment.data.clients}, or --set data.clients={nodes}"
        )
    check_deployable(experiment)
    dealt = gather(experiment)
    experiment = deployable(experiment, dealt)
    with own_folder(beside) as folder:
        fed = folder / "fed"
        init_federation(fed)
        add_nodes(fed, [f"node{number}" for number in range(nodes)])
        counted = experiment.protocol.needs_helper
        if counted:
            add_helper(fed, "notary")
        sign_roster(fed)
        deal(dealt, folder)
        file = folder / "experiment.toml"
        write_new(file, to_toml(experiment.tables()).encode())
        with Broker(fed, kind) as broker, trial_helper(folder, file, environment(), simulated, counted) as helper:
            command = [sys.executable, "-m", "sottovoce", "join", broker.url, "--run", str(file)]
            command += ["--simulate-randomness"] if simulated else []
            made = Trial(experiment, folder, broker, [], command, helper)
            try:
                for number in range(nodes):
                    made.start(number)
                yield made
            except BaseException:
                for process in made.nodes:
                    process.terminate()
                raise
            finally:
                made.stop()


@contextmanager
def own_folder(beside: Path) -> Iterator[Path]:
    """Make a hidden folder next to the run folder, locked while it is in use, and remove it at the end.

    A server that was killed could not remove its own: what nobody holds any more is removed first, because keys and
    records of a trial are in it.
    """
    beside.parent.mkdir(parents=True, exist_ok=True)
    mark = f".{beside.name}.trial-"
    with _locked(beside.parent, wait=True):  # nobody looks for leftovers between our making a folder and locking it
        for left in beside.parent.glob(f"{glob.escape(mark)}*"):
            with suppress(BlockingIOError), _locked(left, wait=False):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=mark, dir=beside.parent))  # mode 0700
        held = ExitStack()
        held.enter_context(_locked(folder, wait=True))
    with held:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock on a folder, which the system gives back when this process ends, however it ends."""
    place = os.open(folder, os.O_RDONLY)
    try:
        hold(place, wait=wait)
        yield
    finally:
        os.close(place)


def deployable(experiment: Experiment, dealt: Parts) -> Experiment:
    """Return the experiment as machines play it: with the shape of the records, and their public mean, written down."""
    from sottovoce.data import outline

    tables: dict[str, Any] = experiment.tables()
    data, shaped = tables["data"], dealt.dataset
    if dealt.units is not None:
        tables["privacy"]["units"] = dealt.units_of_sites
    by_schema = experiment.data.schema is not None and dealt.dataset.fitted_on == "schema"
    if experiment.statistics is not None or by_schema:
        pass  # a survey or a schema fixes the shape
    elif outline(experiment.data.source, experiment.data.folder) is None and experiment.data.shape is None:
        data |= {"shape": list(shaped.shape), "scale": shaped.input_scale}
        if shaped.target.kind == "number":
            low, high = shaped.target.low, shaped.target.high
            data["label_range"] = [low, high] if low is not None and high is not None else shaped.target.usual_range
        else:
            data["classes"] = shaped.classes
    if dealt.weighted and experiment.data.mean_records is None:
        data["mean_records"] = dealt.mean_size
    if experiment.engine.name == "local":
        tables["engine"] |= {"name": "mqtt"}
    return parse(tables)


def deal(dealt: Parts, folder: Path) -> None:
    """Write each client's records to a file that only this user may read."""
    for number in range(dealt.partition.clients):
        places, path = dealt.partition.records(number), folder / f"node{number}.npz"
        with replacing(path, PRIVATE) as draft, draft.open("wb") as file:
            data = dealt.dataset
            y = data.y_train[places]
            arrays: dict[str, Any] = {"x": data.x_train[places], "y": y if y.dtype.kind == "f" else y.astype(np.int64)}
            np.savez(file, **arrays | ({} if data.persons is None else {"persons": data.persons[places]}))


def environment() -> dict[str, str]:
    """Return what a process of a trial is started with: this sottovoce, and one thread."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    search = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109 - "" means here
    return {**os.environ, **one, "PYTHONPATH": search}
