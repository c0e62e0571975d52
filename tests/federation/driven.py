"""Drive the server's side of a round in this process: no workers, and clients that are a function."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import SottovoceError
from sottovoce.federation.coding import Coding, Private, Terms
from sottovoce.federation.engine import Reply, Request

Result = TypeVar("Result")
Answer = Callable[[Request, int], bytes]


class GoneError(Exception):
    """Raised in place of an answer by a client that left."""


def drive(conversation: Generator[Request, Reply, Result], answer: Answer) -> Result:
    """Ask `answer` for each client's payload; an error it raises is that client's failure."""
    try:
        request = next(conversation)
        while True:
            sizes: dict[int, int] = {}
            failures: dict[int, str] = {}
            left: dict[int, str] = {}
            for client in request.payloads:
                try:
                    payload = answer(request, client)
                    request.take(client, payload)
                    sizes[client] = len(payload)
                except SottovoceError as error:
                    failures[client] = str(error)
                except GoneError:
                    left[client] = "left before mask"
            request = conversation.send(Reply(sizes, failures, left))
    except StopIteration as stop:
        return stop.value


def sending(coding: Coding, message: Callable[[int], NDArray[Any]], *, miscounted: float = 1.0) -> Answer:
    """Return clients that send their message; `miscounted` is how many times the cohort they think there is."""

    def answer(request: Request, client: int) -> bytes:
        terms = Terms(0, 0.0)
        if isinstance(coding, Private):
            _, terms = Terms.split(request.payloads[client])
            terms = terms._replace(cohort=round(terms.cohort * miscounted))
        return coding.pack(coding.words(message(client), terms, request.round, client))

    return answer


def constant(length: int) -> Callable[[int], NDArray[np.float32]]:
    """Return the message of client k: k + 1 everywhere."""
    return lambda client: np.full(length, client + 1, np.float32)
