"""The helper of a trial on one machine: a process that counts ballots with the server, at a free port."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sottovoce.core.errors import RunError
from sottovoce.deployment.trial.children import die_with_parent

_START: Final = 120.0  # seconds in which it must have solved its plan
_SAID: Final = "listening at "


@dataclass
class TrialHelper:
    """A helper's process, which can be killed and started anew."""

    command: list[str]
    log: Path
    environment: dict[str, str] = field(repr=False)
    address: str = "127.0.0.1:0"
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and wait until it listens: at the port that it had, if it had one."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "--listen", self.address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        until = time.monotonic() + _START
        while _SAID not in (said := self.log.read_bytes()[before:].decode(errors="replace")):
            self.check()
            if time.monotonic() > until:
                raise RunError(f"the helper of the trial does not listen after {_START:g} s: {said.strip()[-200:]}")
            time.sleep(0.02)
        self.address = said.split(_SAID, 1)[1].split()[0]

    def check(self) -> None:
        """Raise what the helper said last if it has ended."""
        if self.process is not None and self.process.poll() not in (None, 0):
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
            raise RunError(f"the helper ended with code {self.process.returncode}: {lines[-1]}")

    def stop(self, *, kill: bool = False) -> None:
        """End the process."""
        if self.process is None:
            return
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def trial_helper(
    folder: Path, file: Path, environment: dict[str, str], simulated: bool, wanted: bool
) -> Iterator[TrialHelper | None]:
    """Start the helper of a trial, if its run counts ballots, and end it."""
    if not wanted:
        yield None
        return
    command = [sys.executable, "-m", "sottovoce", "count", str(file), "--keys", str(folder / "fed" / "helper")]
    command += ["--simulate-randomness"] if simulated else []
    made = TrialHelper(command, folder / "helper.log", environment)
    try:
        made.start()
        yield made
    finally:
        made.stop()
