"""A node signs at the end of a run what its own account says: once, and not what a lying server would like."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import PrivacyError, WireError
from sottovoce.deployment.countersign import PHASE, Claim, Countersignature, Opening
from sottovoce.deployment.node.build import promise_of
from sottovoce.deployment.node.node import Node
from sottovoce.deployment.node.state import Book
from sottovoce.federation.engines.mqtt.envelope import Envelope, Kind
from tests.deployment.test_node import CLIENTS, PRIVATE, Table, plan_of, table
from tests.deployment.wired import RUN, roster_of


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Table]:
    """A table at which two rounds were played; node 1 has its account on disk."""
    with Book(tmp_path, plan_of(PRIVATE)) as book:
        held = table(PRIVATE, {1: book})
        held.play(range(1, 3))
        yield held


def honest(node: Node, **changes: Any) -> Claim:
    facts, promise = node.member.facts, node.member.promise
    claim = Claim(
        run=RUN.hex(),
        roster=facts.roster,
        experiment=facts.config,
        plan="a" * 64,
        epsilon=promise.epsilon,
        epsilon_server=promise.epsilon_server,
        delta=promise.delta,
        rounds=2,
        charges=2,
        files="b" * 64,
    )
    return replace(claim, **changes)


def ask(held: Table, claim: Claim) -> Envelope:
    (answer,) = held.ask(1, claim.rounds, PHASE, claim.pack())
    return answer


def test_a_node_signs_what_its_own_account_says(played: Table) -> None:
    claim = honest(played.nodes[1])
    signed = Countersignature.unpack(ask(played, claim).payload)

    assert signed.agrees and signed.signer == 1
    assert signed.holds(claim, roster_of(CLIENTS).keys[1])
    assert not signed.holds(replace(claim, rounds=3), roster_of(CLIENTS).keys[1])
    assert not signed.holds(claim, roster_of(CLIENTS).keys[2])


@pytest.mark.parametrize(
    "lie",
    [
        {"rounds": 1},
        {"epsilon_server": 0.1},
        {"delta": 1e-9},
        {"experiment": "c" * 64},
        {"roster": "c" * 64},
        {"run": "c" * 32},
        {"plan": None, "epsilon": None, "epsilon_server": None, "delta": None},
    ],
)
def test_a_node_signs_that_a_lie_is_none_of_its_account(played: Table, lie: dict[str, Any]) -> None:
    claim = honest(played.nodes[1], **lie)
    signed = Countersignature.unpack(ask(played, claim).payload)

    assert not signed.agrees and signed.holds(claim, roster_of(CLIENTS).keys[1])


def test_a_node_signs_one_claim_of_a_run_also_after_a_restart(played: Table, tmp_path: Path) -> None:
    claim = honest(played.nodes[1])
    first = ask(played, claim)

    assert ask(played, claim).payload == first.payload
    assert ask(played, replace(claim, charges=1)).kind == Kind.REFUSAL
    again = Book(None, None)
    again._folder = tmp_path  # the same folder, read anew
    with pytest.raises(PrivacyError, match="other numbers"):
        again.sign(RUN, replace(claim, charges=1), agrees=True)
    assert again.sign(RUN, claim, agrees=True).commitment == Countersignature.unpack(first.payload).commitment


def test_what_is_signed_does_not_tell_the_account_without_its_salt(played: Table, tmp_path: Path) -> None:
    signed = Countersignature.unpack(ask(played, honest(played.nodes[1])).payload)
    told = json.loads((tmp_path / f"signed-{RUN.hex()}").read_text())["opening"]

    assert Opening(**told).commitment == signed.commitment
    assert Opening("", told["lines"], told["hash"]).commitment != signed.commitment
    assert Opening.make(told["lines"], told["hash"]).commitment != signed.commitment
    assert (tmp_path / f"signed-{RUN.hex()}").stat().st_mode & 0o077 == 0


def test_a_weaker_claim_is_agreed_to(played: Table) -> None:
    assert Countersignature.unpack(ask(played, honest(played.nodes[1], epsilon=None, rounds=9)).payload).agrees


def test_a_damaged_record_of_what_was_signed_is_refused(played: Table, tmp_path: Path) -> None:
    (tmp_path / f"signed-{RUN.hex()}").write_text("{")

    assert ask(played, honest(played.nodes[1])).kind == Kind.REFUSAL


@given(payload=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_what_is_no_claim_is_refused_and_never_a_crash(payload: bytes) -> None:
    for read in (Claim.unpack, Countersignature.unpack):
        with pytest.raises(WireError):
            read(payload)


def test_a_plan_without_a_bound_promises_none() -> None:
    promise = promise_of(plan_of(PRIVATE))

    assert promise.delta == 1e-5 and promise.epsilon is None and promise.epsilon_server
    assert promise_of(None).delta is None
