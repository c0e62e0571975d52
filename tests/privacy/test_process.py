"""A plan that another process solves is the same plan, and a refusal the same refusal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sottovoce.core.errors import PrivacyError, RunError, SottovoceError
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan import process as apart

KEYS = {"clients": 100, "sample_rate": 0.2, "rounds": 5, "delta": 1e-3, "length": 50, "clip_norm": 1.0}


def test_a_plan_solved_apart_is_the_same_and_loads_no_accountant() -> None:
    code = f"""
import sys
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.plan.process import solving_apart
with solving_apart():
    plan = PrivacyPlan.solve(**{KEYS!r}, epsilon=4.0)
print(plan.seal, [name for name in ("scipy.stats", "dp_accounting") if name in sys.modules])
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert told == f"{PrivacyPlan.solve(**KEYS, epsilon=4.0).seal} []\n"


def test_a_refusal_comes_back_as_it_is() -> None:
    keys = {**KEYS, "epsilon": 0.01, "noise_multiplier": 0.5}
    with pytest.raises(SottovoceError) as here:
        PrivacyPlan.solve(**keys)

    with apart.solving_apart(), pytest.raises(type(here.value)) as there:
        PrivacyPlan.solve(**keys)

    assert str(there.value) == str(here.value)
    assert isinstance(here.value, PrivacyError)


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with apart.solving_apart(), pytest.raises(RunError, match="ended with exit code 1"):
        PrivacyPlan.solve(**KEYS, epsilon=4.0)
