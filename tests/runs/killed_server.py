"""Kill the server of a federation at every step of round 2, resume it, and write down what both lives left behind.

python -m tests.runs.killed_server FOLDER

One process imports everything once; each life of a server is a fork of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sottovoce.privacy import Ledger, PrivacyPlan
from sottovoce.runs import journal
from sottovoce.runs import loop as run
from sottovoce.runs.folder import RunFolder
from tests.runs.machines import federation, private

DRAWS, CHARGE = 3, 4  # lines of round 2 in the ledger: open, draws 1, charge 1, draws 2, charge 2
STEPS = ("before the write", "within the line", "before the sync", "after the sync")
EXPERIMENT = private(experiment={"rounds": 4, "evaluate_every": 1})


def die(*_: object) -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def in_the_ledger(line: int, step: str) -> Callable[[], None]:
    """Die at a step of writing a line."""

    def plant() -> None:
        written = -1

        def at(now: str) -> None:
            nonlocal written
            written += now == STEPS[0]
            if (written, now) == (line, step):
                die()

        Ledger.__init__.__kwdefaults__["step"] = at  # type: ignore[index]

    return plant


def after(where: Any, name: str, round_: int = 2, *, before: bool = False) -> Callable[[], None]:
    """Die after, or before, a function was called for a round; the round is the first number among its arguments."""

    def plant() -> None:
        real = getattr(where, name)

        def act(*arguments: Any, **more: Any) -> Any:
            numbers = [a["round"] if isinstance(a, dict) and "round" in a else a for a in arguments]
            mine = next((number for number in numbers if isinstance(number, int)), 0) == round_
            if mine and before:
                die()
            result = real(*arguments, **more)
            if mine:
                die()
            return result

        setattr(where, name, act)

    return plant


POINTS: dict[str, Callable[[], None]] = {
    "opened": after(journal, "write_begun"),
    **{f"draws {step}": in_the_ledger(DRAWS, step) for step in STEPS},
    **{f"charge {step}": in_the_ledger(CHARGE, step) for step in STEPS},
    "appended": after(RunFolder, "append"),
    "before the checkpoint": after(RunFolder, "save", before=True),
    "checkpoint": after(RunFolder, "save"),
}


def live(path: Path, *plants: Callable[[], None]) -> None:
    """Play a life of a server in a fork, and return when it is over."""
    child = os.fork()
    if child == 0:
        for plant in plants:
            plant()
        deployed, engines = federation(EXPERIMENT)
        summary = run.run(EXPERIMENT, path, resume=True, parties=deployed)
        asked = sorted({round_ for round_, _, _ in engines[0].requests})
        (path / "life.json").write_text(json.dumps({"asked": asked, "summary": summary}))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status) == -signal.SIGKILL) == bool(plants), status


def lives(path: Path, point: str) -> None:
    """Kill a server at a point; one in its second life too, while it writes that the round is void."""
    live(path, POINTS[point])
    if point == "charge after the sync":
        live(path, after(journal.RunFolder, "append"))
    shutil.copy(path / "ledger.jsonl", path / "ledger.before")
    live(path)


def main(folder: Path) -> None:
    """Play all points."""
    known = PrivacyPlan.solve(**vars(_request()))
    PrivacyPlan.solve = classmethod(lambda cls, **keys: known)  # type: ignore[method-assign, assignment]
    for number, point in enumerate(POINTS):
        lives(folder / str(number), point)


def _request() -> Any:
    from sottovoce.assembly.elsewhere import gather_for_server
    from sottovoce.assembly.protection import protect

    plan = protect(gather_for_server(EXPERIMENT, federation(EXPERIMENT)[0])).plan
    assert plan is not None
    return plan.request


if __name__ == "__main__":
    main(Path(sys.argv[1]))
