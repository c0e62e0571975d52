"""A9: the number of classes is the shape of the published model, so a private run counts no labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.assembly.division import divide
from sottovoce.assembly.parts import gather
from sottovoce.core.errors import DataError, InputError, PrivacyError
from sottovoce.data import load
from sottovoce.search.proxy import make_proxy
from tests.runs.small import small

PRIVACY = {"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5}
SIMULATED: dict[str, Any] = {"clients": 8, "rounds": 1, "sample_rate": 1, "workers": 1}


def records(victim: int) -> tuple[Any, Any]:
    """Return records of the classes 0 to 4, and those of one victim, whose class nobody else may have."""
    rng = np.random.default_rng(1)
    y = np.arange(80) % 5
    y[33] = victim
    return rng.normal(size=(80, 6)).astype(np.float32), y


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    x, y = records(victim=7)
    np.savez("own.npz", x_train=x, y_train=y, x_test=x[:9] + 1, y_test=np.arange(9) % 5)
    return "own.npz"


def test_one_victim_does_not_change_the_shape_of_a_private_model(own: str) -> None:
    data = {"source": own, "clients": 8}

    assert gather(small(data=data)).network.classes == 8, "without privacy, labels are counted"
    with pytest.raises(PrivacyError, match=r"the number of classes of 'own.npz' .* say it in \[data\] classes"):
        gather(small(data=data, privacy=PRIVACY))
    assert gather(small(data={**data, "classes": 10}, privacy=PRIVACY)).network.classes == 10


def test_who_insists_says_so(own: str) -> None:
    unsafe = {**PRIVACY, "unsafe_preprocessing": True}

    assert gather(small(data={"source": own, "clients": 8}, privacy=unsafe)).network.classes == 8


def test_declared_classes_are_not_extended_by_a_label(own: str) -> None:
    with pytest.raises(DataError, match=r"labels go up to 7, but \[data\] classes is 5"):
        gather(small(data={"source": own, "clients": 8, "classes": 5}, privacy=PRIVACY))
    with pytest.raises(DataError, match=r"\[data\] classes is 9, but 'digits' has 10"):
        gather(small(data={"classes": 9}))


def test_known_sets_declare_their_classes() -> None:
    assert gather(small(privacy=PRIVACY)).network.classes == 10
    assert not load("digits").fitted
    assert not load("leaves").fitted


@pytest.mark.parametrize("labels", [int, float, str])
def test_arrays_of_python_need_classes_in_a_private_run(labels: type) -> None:
    x, y = records(victim=3)
    y = np.array([labels(label) for label in y])

    with pytest.raises(PrivacyError, match=r"classes=\[...\]"):
        sv.simulate((x, y), "logistic", privacy=sv.Privacy(**PRIVACY), **SIMULATED)
    with pytest.raises(PrivacyError, match=r"classes=\[...\]"):
        sv.simulate([(x[k::8], y[k::8]) for k in range(8)], "logistic", privacy=sv.Privacy(**PRIVACY), test=(x, y))


@pytest.mark.parametrize("declared", [8, range(8), list(range(8))])
def test_classes_are_a_number_or_a_list(declared: Any, own: str) -> None:
    x, y = records(victim=3)
    public = (x[:20] + 1, y[:20])

    of_arrays = sv.simulate(
        (x, y), "logistic", privacy=sv.Privacy(**PRIVACY), classes=declared, test=public, **SIMULATED
    )
    of_file = sv.simulate(own, "logistic", privacy=sv.Privacy(**PRIVACY), classes=declared, **SIMULATED)

    assert of_arrays.classes == of_file.classes == tuple(range(8))
    assert of_file.config["data"]["classes"] == 8


def test_names_are_not_the_classes_of_a_file(own: str) -> None:
    with pytest.raises(InputError, match="its labels are numbers"):
        sv.simulate(own, "logistic", classes=["a", "b"], **SIMULATED)


def test_booleans_are_two_classes_whoever_has_them() -> None:
    x, y = records(victim=3)

    sv.simulate((x, y > 2), "logistic", privacy=sv.Privacy(**PRIVACY), test=(x + 1, y > 2), **SIMULATED)


def test_divided_records_remember_that_their_classes_were_counted(own: str, tmp_path: Path) -> None:
    data = {"source": own, "clients": 8}
    divide(small(data=data), 2, tmp_path / "parts")
    engine = {"name": "ray", "data": str(tmp_path / "parts")}

    assert gather(small(data=data, engine=engine)).network.classes == 8
    with pytest.raises(PrivacyError, match="the number of classes"):
        gather(small(data=data, engine=engine, privacy=PRIVACY))


def test_a_table_names_its_classes_in_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    schema = '[columns.a]\nkind = "number"\nminimum = 0\nmaximum = 40\n'
    Path("own.csv").write_text("a,b\n" + "".join(f"{row},{row % 3}\n" for row in range(40)))
    Path("silent.toml").write_text(schema)
    Path("whole.toml").write_text(schema + '[label]\nclasses = ["0", "1", "2", "3"]\n')
    data = {"source": "own.csv", "label": "b", "clients": 8}

    with pytest.raises(PrivacyError, match="columns b"):
        gather(small(data={**data, "schema": "silent.toml", "classes": 3}, privacy=PRIVACY))
    assert gather(small(data={**data, "schema": "whole.toml"}, privacy=PRIVACY)).network.classes == 4


def test_tuning_on_public_records_takes_the_declared_classes(own: str) -> None:
    x, y = records(victim=4)
    np.savez("public.npz", x_train=x + 1, y_train=y, x_test=x[:9], y_test=y[:9])
    data = {"source": own, "clients": 8, "classes": 8}

    proxy = make_proxy(small(data=data, privacy=PRIVACY), "public.npz")

    assert proxy.dataset.classes == 8 and not proxy.dataset.fitted
