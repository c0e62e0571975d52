"""A broker on 127.0.0.1 for trials and tests: Mosquitto if it is installed, else amqtt, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Literal, Self, final

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.files import replace_file
from sottovoce.core.packages import require
from sottovoce.deployment.acl import from_node, mosquitto_conf, to_node
from sottovoce.deployment.certificates import covers
from sottovoce.deployment.party import node_user
from sottovoce.deployment.roster import fingerprint
from sottovoce.deployment.roster_ledger import read_register
from sottovoce.deployment.trial.children import die_with_parent

Kind = Literal["auto", "mosquitto", "amqtt"]

_PATIENCE: Final = 20.0  # seconds until it listens
_FAREWELL: Final = 5.0  # seconds to stop before it is killed


def mosquitto() -> str | None:
    """Return where Mosquitto is; Debian keeps it where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@final
class Broker:
    """A broker for the federation in a folder, from `with` to its end; it listens on the loopback address only.

    >>> with Broker(Path("fed")) as broker:     # doctest: +SKIP
    ...     connect(broker.url)
    """

    def __init__(self, fed: Path, kind: Kind = "auto", *, port: int | None = None, log: Path | None = None) -> None:
        if kind == "auto":
            kind = "mosquitto" if mosquitto() else "amqtt"
        if kind == "mosquitto" and not mosquitto():
            raise InputError("mosquitto is not installed; on Debian: apt install mosquitto")
        if kind == "amqtt":
            require("a trial without mosquitto", "amqtt")
        self.kind: Final = kind
        self._fed = fed.resolve()
        self._register = read_register(fed)
        if not covers(self._register.broker_certificate, "127.0.0.1"):
            raise InputError(
                f"{fed} was made for a broker on {self._register.broker}; "
                "a trial on one machine needs keys of its own: sottovoce keys init NAME"
            )
        self.port: Final = port or _free_port()
        # Beside the keys, of which it holds a copy: what a killed process leaves is nowhere else.
        self._folder = self._fed / "broker" / f"run-{self.port}"
        self.log: Final = log or fed / "broker" / "broker.log"
        self._file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the address that server and nodes connect to."""
        return f"mqtts://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Return the process that serves."""
        if self._process is None:
            raise RunError("the broker is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker and wait until it listens; after `stop` it comes back at the same port."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        try:
            self._file = self.log.open("ab")
            self._process = subprocess.Popen(
                self._mosquitto() if self.kind == "mosquitto" else self._amqtt(),
                stdin=subprocess.DEVNULL,
                stdout=self._file,
                stderr=self._file,
                start_new_session=True,  # Ctrl-C is for the program that uses it, which then stops it in order
                preexec_fn=die_with_parent,
            )
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self, *, kill: bool = False) -> None:
        """End the process, at once if `kill`, and wait until it is gone."""
        if (process := self._process) is not None:
            self._process = None
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            try:
                process.wait(_FAREWELL)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._file is not None:
            self._file.close()
            self._file = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def reload(self) -> None:
        """Start anew with the folder's ACL and revocations, which also cuts connections that stand."""
        self.stop()
        self._register = read_register(self._fed)
        self.start()

    def _wait(self) -> None:
        process, patience = self._process, time.monotonic() + _PATIENCE
        while process is not None:
            if process.poll() is not None:
                raise RunError(f"the broker ended at once, with code {process.returncode}; see {self.log}")
            try:
                self._greet()
            except OSError:
                if time.monotonic() > patience:
                    raise RunError(f"the broker does not listen after {_PATIENCE:.0f} s; see {self.log}") from None
                time.sleep(0.02)
            else:
                return

    def _greet(self) -> None:
        """Shake hands over TLS: mosquitto listens for a moment before it finds that it cannot read its key."""
        context = ssl.create_default_context(cafile=self._fed / "public" / "ca.pem")
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain:
            context.wrap_socket(plain, server_hostname="127.0.0.1").close()

    def _mosquitto(self) -> list[str]:
        for path in (self._fed / "public" / "ca.pem", self._fed / "public" / "crl.pem", self._fed / "public" / "acl"):
            shutil.copy(path, self._folder)
        for path in (self._fed / "broker" / "cert.pem", self._fed / "broker" / "key.pem"):
            shutil.copy(path, self._folder)
        text = mosquitto_conf(self._folder, port=self.port, bind="127.0.0.1").replace(
            "log_dest syslog", "log_dest stderr"
        )
        if os.geteuid() == 0:
            text += "user root\n"  # or it becomes another user, who may not read the key
        path = self._folder / "mosquitto.conf"
        replace_file(path, text.encode())
        return [mosquitto() or "mosquitto", "-c", str(path)]

    def _amqtt(self) -> list[str]:
        federation, nodes = fingerprint(self._register.root)[:16], self._register.nodes
        read = {node_user(node.id): [to_node(federation, node.id)] for node in nodes}
        write = {node_user(node.id): [from_node(federation, node.id)] for node in nodes}
        settings: dict[str, Any] = {
            "public": str(self._fed / "public"),
            "broker": str(self._fed / "broker"),
            "port": self.port,
            "topics": {
                "read": read | {"server": [from_node(federation, "+")]},
                "write": write | {"server": [to_node(federation, "+")]},
            },
        }
        path = self._folder / "settings.json"
        replace_file(path, json.dumps(settings).encode())
        return [sys.executable, "-m", "sottovoce.deployment.trial.trial_broker", str(path)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
