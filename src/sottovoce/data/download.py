"""Download a file from its canonical home with pooch, and keep it only if its SHA-256 is the pinned one."""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from sottovoce.core.errors import DataError, RunError
from sottovoce.core.packages import require
from sottovoce.data.catalogue import Remote
from sottovoce.data.files import read_member

TIMEOUT = 30.0


def download(remote: Remote, folder: Path, *, progress: bool) -> Path:
    """Return the verified file in `folder`; what is already there and verified is not fetched again."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / remote.file
        if target.exists() and _sha256(target) == remote.sha256:
            return target
        require("a download", "pooch")
        import pooch

        pooch.get_logger().setLevel(logging.WARNING)
        with _Bar(remote, shown=progress) as bar:
            fetcher = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=TIMEOUT)
            if remote.inside is None:
                pooch.retrieve(remote.url, f"sha256:{remote.sha256}", target.name, folder, downloader=fetcher)
            else:
                _retrieve_member(remote, remote.inside, target, fetcher)
    except DataError as error:  # the archive that came is damaged; not the user's fault
        raise RunError(f"{remote.url} could not be fetched: {error}") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{remote.url} could not be fetched: {_why(remote, error, folder)}") from None
    return target


def _why(remote: Remote, error: OSError | ValueError, folder: Path) -> str:
    """Return the reason and the way out: requests' own words on a dead line fill several lines of a terminal."""
    offline = isinstance(error, OSError) and error.errno is None and getattr(error, "response", None) is None
    if offline:  # requests: no connection, no name, no proxy, no answer in time
        host = urlsplit(remote.url).hostname
        return f"no connection to {host}; try again online, or fetch the file elsewhere and put it into {folder}"
    # An HTTP status, a disk, or pooch's wrong checksum, which is a ValueError over several lines.
    return " ".join(str(error).split())


def _retrieve_member(remote: Remote, member: str, target: Path, fetcher: object) -> None:
    """Keep one member of a zip file whose own checksum nobody published; the member's is checked instead."""
    import pooch

    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        archive = Path(pooch.retrieve(remote.url, None, "archive.zip", scratch, downloader=fetcher))
        body = read_member(archive, member, limit=remote.size)
        found = hashlib.sha256(body).hexdigest()
        if found != remote.sha256:
            raise RunError(f"{remote.url}: {member} has SHA-256 {found}, expected {remote.sha256}; it was not kept")
        part = Path(scratch) / target.name
        part.write_bytes(body)
        part.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class _Bar:
    """Progress bar of a download on stderr; pooch fills it through `total`, `update`, `reset` and `close`."""

    def __init__(self, remote: Remote, *, shown: bool) -> None:
        self.total = remote.size
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(file=sys.stderr), disable=not shown)
        self._task = self._progress.add_task(remote.file, total=remote.size)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, count: int) -> None:
        """Add bytes."""
        self._progress.update(self._task, total=self.total or None, advance=count)

    def reset(self) -> None:
        """Start again from nothing."""
        self._progress.reset(self._task)

    def close(self) -> None:
        """Leave the bar as it is; the `with` block stops it, also after an error."""
