"""A Flower fleet on this machine: a SuperLink and SuperNodes as processes, TLS on, nodes known by their keys."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

BIN = Path(sys.executable).parent


@dataclass
class Fleet:
    """A SuperLink and its SuperNodes; `certificate`, `key` and `authority` are TLS files for 127.0.0.1."""

    folder: Path
    certificate: Path
    key: Path
    authority: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        (self.folder / "home").mkdir(parents=True)
        (self.folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.authority}"\n'
        )
        try:
            self._start(
                "superlink",
                "flower-superlink",
                *("--host", "127.0.0.1", "--port", str(self.port), "--enable-supernode-auth"),
                *("--ssl-certfile", str(self.certificate), "--ssl-keyfile", str(self.key)),
                *("--ssl-ca-certfile", str(self.authority), "--disable-runtime-dependency-installation"),
            )
            self.wait_for("superlink", "Uvicorn running", 60)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def new_key(self, name: str) -> Path:
        """Write a SuperNode's key pair; return the private file."""
        key = ec.generate_private_key(ec.SECP384R1())
        path = self.folder / f"{name}.key"
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        path.chmod(0o600)
        path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
        return path

    def register(self, key: Path) -> None:
        """Tell the SuperLink of a SuperNode's key."""
        self.flwr("supernode", "register", str(key.with_suffix(".pub")), "here")

    def add_node(self, name: str, key: Path, told: Mapping[str, str | int]) -> None:
        """Start a SuperNode with its own configuration."""
        config = " ".join(f'{k}="{v}"' if isinstance(v, str) else f"{k}={v}" for k, v in told.items())
        self._start(
            name,
            "flower-supernode",
            *("--root-certificates", str(self.authority), "--superlink", f"127.0.0.1:{self.port}"),
            *("--host", "127.0.0.1", "--port", str(free_ports(1)[0])),
            *("--auth-supernode-private-key", str(key), "--node-config", config),
        )

    def flwr(self, *arguments: str, seconds: float = 200) -> str:
        """Run a command of Flower's and return what it printed."""
        done = subprocess.run(
            [BIN / "flwr", *arguments], env=self.environment, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def log(self, name: str) -> str:
        """Return what a process printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, words: str, seconds: float) -> None:
        """Wait until a process has printed some words."""
        until = time.monotonic() + seconds
        while words not in self.log(name):
            assert self.processes[name].poll() is None, f"{name} ended: {self.log(name)}"
            assert time.monotonic() < until, f"{name} never said {words!r}: {self.log(name)}"
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """Kill a process and everything that it started."""
        os.killpg(self.processes.pop(name).pid, signal.SIGKILL)

    def kill_within(self, name: str, program: str) -> None:
        """Kill the newest process of a program that a process of ours has started."""
        parents, named = {}, []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words, number = (folder / "cmdline").read_bytes().split(b"\0"), int(folder.name)
                parents[number] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if any(Path(word.decode(errors="replace")).name == program for word in words[:2]):
                    named.append(number)

        def ours(number: int) -> bool:
            return number == self.processes[name].pid or (number in parents and ours(parents[number]))

        found = [number for number in named if ours(number)]
        # A copy that it forked, and one of an earlier run that is about to end, have the same name for a moment.
        process = max(number for number in found if parents[number] not in found)
        os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        """Stop all processes."""
        for process in self.processes.values():
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(timeout=5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of Flower's processes: their own home, no telemetry, no look at the network."""
        off = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        home = {"FLWR_HOME": str(self.folder / "home"), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        return {**os.environ, **off, **home, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

    def _start(self, name: str, program: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [BIN / program, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
