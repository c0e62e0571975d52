"""Find the model that training begins at from one message of every client, in a round before round 1.

It is a round like any other, with the number 0 and a scheme of its own that solves for a model (`Scheme.once`). So it
is noised, summed and charged by the code of every private round. The model travels in the first downlink.
"""

from __future__ import annotations

from collections.abc import Generator

from sottovoce.core.errors import RunError
from sottovoce.core.vectors import Vector
from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.round import RoundResult, Server, server_round

WARM = 0  # the round of the warm start


def find_start(server: Server, start: Vector) -> Generator[Request, Reply, RoundResult]:
    """Play the server's side; `server` has a scheme that solves for a model, and the plan that it is charged for.

    The state that it ends with has the `params` that training begins at.
    """
    result = yield from server_round(server, server.init(start), WARM)
    if result.total.values is None:
        raise RunError(
            "the warm start failed: too few clients stayed to the end; let fewer drop out, or lower [aggregation] "
            "threshold"
        )
    return result
