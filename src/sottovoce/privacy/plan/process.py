"""Solve plans in a process of its own, which ends and gives its memory back.

Accounting loads scipy.stats and dp-accounting, about 70 MB that a device in a federation needs once. A device says

    with solving_apart():
        plan = PrivacyPlan.solve(...)

and gets the same plan, or the same refusal, without them. A device whose every request starts a process keeps what was
solved (`keeping`).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from sottovoce.core.errors import RunError, SottovoceError
from sottovoce.privacy.plan.request import PrivacyRequest

Keep = Callable[[PrivacyRequest, Callable[[], dict[str, Any]]], dict[str, Any]]
"""Return what was solved for a request before, or call the second argument and keep what it returns."""

_APART: Final[ContextVar[bool]] = ContextVar("apart", default=False)
_KEEP: Final[ContextVar[Keep]] = ContextVar("keep", default=lambda request, solve: solve())


@contextmanager
def solving_apart() -> Iterator[None]:
    """Let another process solve every plan, while it lasts."""
    before = _APART.set(True)
    try:
        yield
    finally:
        _APART.reset(before)


@contextmanager
def keeping(keep: Keep) -> Iterator[None]:
    """Let every plan be looked up first, while it lasts."""
    before = _KEEP.set(keep)
    try:
        yield
    finally:
        _KEEP.reset(before)


def solve_here_or_apart(request: PrivacyRequest) -> dict[str, Any]:
    """Return the fields of a `PrivacyPlan` but its seal, or raise the sentence that says why there is none."""
    return _KEEP.get()(request, lambda: _solve(request))


def _solve(request: PrivacyRequest) -> dict[str, Any]:
    if not _APART.get():
        from sottovoce.privacy.plan.solve import solve_request

        return solve_request(request)
    search = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109 - "" means here
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        input=pickle.dumps(request),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": search},
        check=False,
    )
    if done.returncode:
        raise RunError(f"the process that solves the privacy plan ended with exit code {done.returncode}")
    # From our own child over our own pipe: nobody else can write there.
    outcome: dict[str, Any] | SottovoceError = pickle.loads(done.stdout)
    if isinstance(outcome, SottovoceError):
        raise outcome
    return outcome


def main() -> None:
    """Solve the request on stdin; write its plan, or the reason why there is none, to stdout."""
    request: PrivacyRequest = pickle.loads(sys.stdin.buffer.read())
    outcome: dict[str, Any] | SottovoceError
    try:
        outcome = solve_here_or_apart(request)
    except SottovoceError as error:
        outcome = error
    sys.stdout.buffer.write(pickle.dumps(outcome))
