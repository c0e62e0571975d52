"""Whether a private node answers must not depend on its records: a refusal has no noise and is not charged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.config.experiment import parse
from tests.deployment.test_node import CLIENTS, PRIVATE, table


class Diverging:
    """A trainer whose update overflows: a server that chooses the model can make that depend on a node's records."""

    def __init__(self, trainer: Any, value: float) -> None:
        self._trainer, self._value = trainer, value

    def updates(self, *given: Any) -> Iterator[Any]:
        for update in self._trainer.updates(*given):
            update[3] = self._value
            yield update

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("scheme", ["fl-std", "fl-sign"])
def test_a_private_node_whose_training_diverged_answers_like_any_other(scheme: str, value: float) -> None:
    tables = PRIVATE.tables()
    tables["scheme"]["name"] = scheme
    if scheme == "fl-sign":
        tables["privacy"].pop("clip_norm")
    held = table(parse(tables))
    seat = held.nodes[1]._seat
    assert seat is not None
    seat.client = replace(seat.client, trainer=Diverging(seat.client.trainer, value))

    totals = held.play(range(1, 2))

    assert totals[0].failures == {}
    assert totals[0].senders == CLIENTS
