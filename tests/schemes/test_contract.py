"""Every scheme keeps the shared contract, and the contract catches those who do not."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from numpy.random import Generator

from sottovoce.checks.schemes import CHECKS, SchemeTrial, prepare, scheme_checks
from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.schemes import Message, Scheme, State, Task, known, make

PAGE = Path(__file__).parents[2] / "docs" / "add-a-scheme.md"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", known())
def test_every_scheme_keeps_every_promise(name: str, check: Callable[[SchemeTrial], None]) -> None:
    check(prepare(make(name), dim=203))


@pytest.mark.parametrize("dim", [20, 64, 1000, 9001])
@pytest.mark.parametrize("name", known())
def test_the_promises_hold_at_any_size_of_model(name: str, dim: int) -> None:
    if name == "fl-once" and dim > 1000:
        pytest.skip("it solves for as many unknowns, in time that grows as their cube")
    scheme_checks(make(name), dim=dim, seed=dim)


def test_the_scheme_of_the_page_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "strided_of_the_page.py").write_text(code + "\n\n" + test, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()

    scheme = make("strided_of_the_page:Strided", every=2).bind(9)
    sys.modules["strided_of_the_page"].test_strided_keeps_the_contract()

    assert scheme.length == 5
    with pytest.raises(InputError, match="every must be at least 1, got 0"):
        make("strided_of_the_page:Strided", every=0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Honest(Scheme):
    """Stand for FL-STD; each liar below breaks one promise of it."""

    name: ClassVar[str] = "honest"
    paper: ClassVar[str] = "none"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"

    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        return update

    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        return {"params": state["params"] + mean}


class Renormalises(Honest):
    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        return {"params": state["params"] + mean / max(float(np.abs(mean).max()), 1e-9)}


class WritesToTheUpdate(Honest):
    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        update *= 2
        return update


class WritesToTheState(Honest):
    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        state["params"] += mean
        return state


class SaysTooMuch(Honest):
    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        return np.append(update, np.float32(0))


class SaysDoubles(Honest):
    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        return update.astype(np.float64)


class IsNotLinear(Honest):
    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        return np.abs(update)


class DrawsFromNowhere(Honest):
    def encode(self, update: Vector, seed: int, rng: Generator) -> Message:
        return update * np.random.default_rng().random(dtype=np.float32)


class SendsAnOldModel(Honest):
    def receive(self, payload: bytes, memory: State) -> Task:
        return Task(np.asarray(self.start), 0, memory)


class ForgetsTheSeed(Honest):
    def round_seed(self, round_: int) -> int:
        return round_


class LeaksOutsideItsMask(Honest):
    def trainable(self, seed: int) -> Any:
        return np.arange(self.dim) % 2 == 0


class KeepsObjects(Honest):
    def decode(self, mean: Vector, state: State, seed: int, rng: Generator) -> State:
        return {"params": state["params"] + mean, "note": np.array([{"a": 1}], object)}


@pytest.mark.parametrize(
    ("liar", "broken"),
    [
        (Renormalises, "half of the expected cohort"),
        (WritesToTheUpdate, "encode must not write to its inputs"),
        (WritesToTheState, "decode must not write to its inputs"),
        (SaysTooMuch, "encode must return 203 float32"),
        (SaysDoubles, "encode must return 203 float32"),
        (IsNotLinear, "encode is not linear"),
        (DrawsFromNowhere, "two messages for the same inputs"),
        (SendsAnOldModel, "round 2: the downlink does not give the model"),
        (ForgetsTheSeed, "does not give the round seed"),
        (LeaksOutsideItsMask, "encode reads coordinates that cannot be trained"),
        (KeepsObjects, "arrays of plain numbers"),
    ],
)
def test_the_contract_names_the_promise_that_a_liar_breaks(liar: type[Scheme], broken: str) -> None:
    scheme_checks(Honest())
    with pytest.raises(InputError, match=broken):
        scheme_checks(liar())
