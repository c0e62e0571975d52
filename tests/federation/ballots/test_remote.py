"""The count with a helper elsewhere, as far as it needs no helper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sottovoce.federation.aggregation.ballots.count import RemoteCount
from sottovoce.federation.coding import Terms


class Stub:
    """A link, and a leader, that write down what they are asked."""

    def __init__(self, new: bool) -> None:
        self.new, self.log = new, list[str]()
        self.plan = SimpleNamespace(shares=SimpleNamespace(survivors=lambda cohort: cohort))

    def ready(self) -> bool:
        self.log.append("ready")
        return self.new

    def forsake(self) -> None:
        self.log.append("forsake")

    def begin(self, *_: Any) -> None:
        self.log.append("begin")

    def accept(self, *_: Any) -> None:
        self.log.append("accept")


@pytest.mark.parametrize(("new", "log"), [(True, ["ready", "forsake", "begin"]), (False, ["ready", "begin"])])
def test_a_round_waits_for_the_helper_and_transfers_end_with_their_connection(new: bool, log: list[str]) -> None:
    stub: Any = Stub(new)
    count = RemoteCount(stub, stub, {}, stub, link=stub, setup=b"", signing_key=b"", covers=True)
    count._leader = stub

    next(count.collect(1, [0], b"the model", Terms(0, 1.0), lambda: None))

    assert stub.log == log  # before anybody was asked
