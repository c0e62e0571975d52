"""The machines of a cluster: where a worker is, who can be reached, and what each computes with."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

Versions = Mapping[str, str]
_PACKAGES: Final = ("sottovoce", "numpy", "torch")  # that decide the bits of a model
_OPTIONAL: Final = "torch"  # a machine without it computes the same bits, or says that it cannot
_REACHED: Final = 5.0  # seconds for a machine to accept a connection


class WorkerPlace(NamedTuple):
    """Where a worker is."""

    machine: str
    host: str
    process: int

    @classmethod
    def here(cls, machine: str) -> WorkerPlace:
        """Return the place of this process."""
        return cls(machine, socket.gethostname(), os.getpid())

    @property
    def runs_here(self) -> bool:
        """Tell whether it is on this machine and has not ended."""
        return self.host == socket.gethostname() and _runs(self.process)

    @property
    def ended_here(self) -> bool:
        """Tell whether it was on this machine and has ended."""
        return self.host == socket.gethostname() and not _runs(self.process)


def machine_name(address: str, node: str) -> str:
    """Return what tells a machine from others, also from one that plays several."""
    return f"{address} ({node[:8]})"


def answers(host: str, port: int) -> None:
    """Raise OSError unless somebody listens there."""
    socket.create_connection((host, port), _REACHED).close()


def differences(ours: Versions, theirs: Mapping[str, Versions]) -> str | None:
    """Return what other machines have in other versions than this one, as a clause; None if all are the same."""
    told = [
        f"machine {machine} has {name} {versions.get(name, 'not installed')} and this one {version}"
        for machine, versions in theirs.items()
        for name, version in ours.items()
        if versions.get(name) != version and (name in versions or name != _OPTIONAL)
    ]
    return "; ".join(told) or None


def reader_of_versions() -> Callable[[], dict[str, str]]:
    """Return a function that tells the versions of a machine; sent as code, as the machine may lack this package."""
    packages = _PACKAGES

    def versions() -> dict[str, str]:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        found = {"python": platform.python_version()}
        for name in packages:
            try:
                found[name] = version(name).partition("+")[0]  # without how it was built
            except PackageNotFoundError:
                continue
        return found

    return versions


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's, and so runs
        return True
    return True
