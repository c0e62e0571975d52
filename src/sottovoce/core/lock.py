"""Hold a file or folder for one process: the one place that knows how an operating system does it."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt

    # One byte far beyond any content: there a lock keeps nobody from reading, which it does elsewhere on Windows.
    _PLACE = 1 << 40

    def hold(descriptor: int, *, wait: bool) -> None:
        """Hold an open file until it is closed or this process ends, however it ends.

        If another process holds it, wait; without `wait` raise a `BlockingIOError`.
        """
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            while True:
                try:
                    return msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                except OSError as error:  # `LK_LOCK` gives up after ten seconds
                    if not wait:
                        raise BlockingIOError(*error.args) from None
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)

else:
    import fcntl

    def hold(descriptor: int, *, wait: bool) -> None:
        """Hold an open file or folder until it is closed or this process ends, however it ends.

        If another process holds it, wait; without `wait` raise a `BlockingIOError`.
        """
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
