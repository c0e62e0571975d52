from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError
from sottovoce.schemes import SCHEMES, known, make


def test_the_registry_holds_the_thirteen_names_of_the_design() -> None:
    names = "fl-std fl-sign sign-sgd fl-cs fl-top fl-rnd fl-freq fl-basic fl-bas-2 fl-bas-3 fl-bas-4 fl-top-bis fl-once"

    assert known() == names.split()
    assert [make(name).name for name in known()] == known()


def test_every_scheme_runs_with_its_name_alone_and_describes_itself() -> None:
    for name in known():
        described = json.loads(json.dumps(make(name).describe()))
        assert set(described) == {"name", "paper", "saves", "linear", "private_twin", "keys"}


def test_defaults_are_those_of_the_papers() -> None:
    assert make("fl-top").describe()["keys"] == {"ratio": 0.05}
    assert make("fl-sign").describe()["keys"] == {"server_lr": 0.001}
    assert make("fl-cs").describe()["keys"] == {
        "ratio": 0.05,
        "server_lr": 0.35,
        "momentum": 0.9,
        "chunks": None,
        "l1": 1e-5,
    }


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("fl-topp", {}, "scheme has no 'fl-topp'; did you mean 'fl-top'?"),
        ("zzz", {}, "scheme has no 'zzz'; known: fl-std, "),
        ("fl-top", {"ration": 0.1}, "fl-top has no key 'ration'; did you mean 'ratio'?"),
        ("fl-top", {"dim": 3}, "fl-top has no key 'dim'; "),
        ("fl-std", {"ratio": 0.1}, "fl-std has no key 'ratio'; it has none"),
        ("fl-cs", {"zzz": 1}, "fl-cs has no key 'zzz'; known: ratio, server_lr, momentum, chunks, l1"),
        ("fl-top", {"ratio": 3}, "ratio must be in (0, 1], got 3"),
        ("fl-rnd", {"ratio": 0}, "ratio must be in (0, 1], got 0"),
        ("fl-freq", {"ratio": math.nan}, "ratio must be in (0, 1], got nan"),
        ("fl-top", {"ratio": "a"}, "fl-top: ratio must be a number, got 'a'"),
        ("fl-top", {"ratio": True}, "fl-top: ratio must be a number, got True"),
        ("fl-cs", {"chunks": 1.5}, "fl-cs: chunks must be a whole number or left out, got 1.5"),
        ("fl-cs", {"chunks": 0}, "chunks must be at least 1, got 0"),
        ("fl-cs", {"momentum": 1}, "momentum must be in [0, 1), got 1"),
        ("fl-cs", {"l1": 0}, "l1 must be finite and above 0, got 0"),
        ("fl-sign", {"server_lr": -1}, "server_lr must be finite and above 0, got -1"),
        ("sign-sgd", {"server_lr": math.inf}, "server_lr must be finite and above 0, got inf"),
    ],
)
def test_bad_names_and_keys_are_refused_in_one_sentence(name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make(name, **keys)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in known() if "ratio" in make(name).own_keys()])
def test_a_ratio_that_keeps_nothing_is_refused_when_the_model_is_known(name: str) -> None:
    with pytest.raises(InputError, match=r"ratio 0\.0001 keeps none of 100 "):
        make(name, ratio=0.0001).bind(100)


@pytest.mark.parametrize(
    ("code", "place", "message"),
    [
        ("", "nowhere_at_all:Thing", "cannot be imported"),
        ("", ":Thing", "cannot be imported"),
        ("import not_there_either", "outside_a:Thing", "cannot be imported: No module named 'not_there_either'"),
        ("", "outside_b:Thing", "module 'outside_b' has no 'Thing'"),
        ("Thing = 3", "outside_c:Thing", "'Thing' is not a subclass"),
        ("class Thing: pass", "outside_d:Thing", "'Thing' is not a subclass"),
        (
            "from sottovoce.schemes import Scheme\nclass Thing(Scheme): name = 'x'",
            "outside_e:Thing",
            "does not define decode, encode, paper, saves",
        ),
        ("def broken(:", "outside_f:Thing", "cannot be imported"),
        ("raise RuntimeError('boom')", "outside_g:Thing", "cannot be imported: boom"),
    ],
)
def test_an_outside_scheme_that_cannot_serve_is_refused(
    code: str, place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = place.partition(":")[0]
    if module.startswith("outside"):
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()

    with pytest.raises(InputError, match=message):
        SCHEMES[place]


def test_naming_the_schemes_does_not_load_scipy() -> None:
    code = "import sys, sottovoce.schemes as s; s.known(); print('scipy.fft' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
