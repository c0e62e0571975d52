"""The helper as a process of its own, asked through a pipe.

It ends when its pipe does. Killed at any moment it leaves an account that says at least the truth.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from sottovoce.core.errors import PrivacyError, SecAggError, SottovoceError
from sottovoce.federation.aggregation.ballots.account import HelperAccount
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.privacy import PrivacyPlan
from sottovoce.secagg.ballots import BallotTerms, Helper


@dataclass(frozen=True)
class HelperSetup:
    """What a simulated helper is started with: where its account is, the count's terms, its keys."""

    folder: Path
    account: PrivacyPlan  # that it charges
    coding: Ballots  # its noise
    terms: BallotTerms
    registry: Mapping[int, bytes]
    signing_key: bytes = field(repr=False)
    exchange: bytes = field(repr=False)


class HelperProcess:
    """A helper in another process; one that died is started anew when a session begins."""

    def __init__(self, setup: HelperSetup) -> None:
        self._setup = setup
        self._pipe: Connection | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def answer(self, kind: str, payload: bytes) -> bytes:
        """Return the helper's answer, or raise as it did; SecAggError too if it is gone."""
        if self._pipe is None:
            if kind != "hello":
                raise SecAggError("the helper is gone; nothing was released")
            self._start()
        pipe = self._pipe
        try:
            if pipe is None:
                raise EOFError
            pipe.send((kind, payload))
            outcome, value = pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise SecAggError("the helper is gone; nothing was released") from None
        if outcome == "refused":
            error, words = value
            raise error(words)
        return bytes(value)

    def close(self) -> None:
        """End the helper."""
        if self._pipe is not None:
            self._pipe.close()
        if self.process is not None:
            self.process.wait()
        self._pipe = self.process = None

    def _start(self) -> None:
        import cloudpickle  # a node, which imports this module too, never needs it

        ours, theirs = Pipe()
        command = [sys.executable, "-c", f"from {__name__} import main; main({theirs.fileno()})"]
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {**os.environ, "PYTHONPATH": path}
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=environment)
        theirs.close()
        self._pipe = ours
        ours.send_bytes(cloudpickle.dumps(self._setup))


def serve(connection: Connection) -> None:
    """Answer the leader until the pipe ends; what is refused is told, what is broken ends the helper."""
    setup: HelperSetup = pickle.loads(connection.recv_bytes())
    with HelperAccount.open(setup.folder, setup.account) as account:
        helper = Helper(
            setup.terms,
            setup.signing_key,
            setup.exchange,
            setup.registry,
            account=account,
            noise=setup.coding.helper_noise,
            entropy=os.urandom,
            toss=setup.coding.helper_coins if setup.coding.coins else None,
        )
        while True:
            try:
                kind, payload = connection.recv()
            except (EOFError, OSError):
                return
            try:
                answer: tuple[str, object] = ("done", helper.answer(kind, payload))
            except SottovoceError as error:
                told = PrivacyError if isinstance(error, PrivacyError) else SecAggError
                answer = ("refused", (told, str(error)))
            try:
                connection.send(answer)
            except (BrokenPipeError, ConnectionResetError):
                return


def main(descriptor: int) -> None:
    """Be the helper's process, at the other end of a pipe."""
    # A Ctrl-C reaches the whole group: the leader ends the run, and the helper with it by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(descriptor))
