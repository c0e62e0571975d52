from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from sottovoce.data import leaves
from sottovoce.models import Model, all_features, fronted, keeping_features, partial
from sottovoce.models import features as module
from sottovoce.models.fronted import Fronted
from sottovoce.models.fronts.fourier import Fourier
from sottovoce.models.fronts.scattering import Scattering
from sottovoce.models.partial import Partial
from sottovoce.models.zoo import network

X = leaves((8, 8, 1), records=40).x_train
FRONT = Scattering((8, 8, 1), 1 / 255, 10).fitted(leaves((8, 8, 1), records=100).x_train, 1 / 255)
SCATTERED = Fronted(FRONT, network("logistic", (10,), 3))
CNN = network("cnn", (8, 8, 1), 10)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the records whose features were really computed."""
    calls: list[int] = []
    mapped = fronted.mapped

    def counted(function: Any, x: Any, *more: Any) -> Any:
        calls.append(len(x))
        return mapped(function, x, *more)

    for room in (fronted, partial):
        monkeypatch.setattr(room, "mapped", counted)
    return calls


def head(seed: int) -> Partial:
    return Partial.start(CNN, ("fc2",), None, default_rng(seed))


@pytest.mark.parametrize("model", [SCATTERED, head(1)], ids=["front", "layers"])
def test_features_are_kept_for_later_runs_and_only_while_asked(model: Model, computed: list[int]) -> None:
    plain = all_features(model, X, 1)
    with keeping_features():
        first, again, copied = (all_features(model, records, 1) for records in (X, X, X.copy()))
    all_features(model, X, 1)

    assert computed == [40, 40, 40]
    assert again is first and copied is first
    assert np.array_equal(first, plain) and not first.flags.writeable


def test_another_front_or_other_records_are_computed_anew(computed: list[int]) -> None:
    other = replace(SCATTERED, front=replace(FRONT, input_scale=1 / 200))
    fitted = replace(SCATTERED, front=FRONT.fitted(leaves((8, 8, 1), records=100, seed=2).x_train, 1 / 255))
    computed.clear()
    rows = default_rng(1).random((6, 4)).astype(np.float32)
    with keeping_features():
        found = [all_features(model, X, 1) for model in (SCATTERED, other, fitted, head(1), head(2))]
        found += [all_features(SCATTERED, X[::-1], 1)]
        cosines = [
            all_features(Fronted(Fourier((4,), dims=5, seed=seed), network("logistic", (5,), 3)), rows, 1)
            for seed in (1, 2)
        ]

    assert computed == [40] * 6 + [6] * 2
    assert not np.array_equal(cosines[0], cosines[1])
    assert all(not np.array_equal(found[0], one) for one in found[1:])


def test_a_head_of_another_class_count_shares_the_frozen_layers_below(computed: list[int]) -> None:
    moved = head(1)
    changed = moved.whole.copy()
    changed[moved.places] += 1
    with keeping_features():
        all_features(moved, X, 1)
        all_features(replace(moved, whole=changed), X, 1)

    assert computed == [40]


def test_the_oldest_go_where_there_is_no_room(computed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2 * 40 * 10 * 4)
    with keeping_features():
        for records in (X, X + 1, X, X + 2, X + 1, X):
            all_features(SCATTERED, records, 1)

    assert len(computed) == 4  # only X itself had to go, when the third came


def test_records_without_a_front_are_never_copied_or_kept() -> None:
    with keeping_features():
        assert all_features(CNN, X, 1) is X


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for features; also small ones are kept."""
    monkeypatch.setattr(module, "_LEAST_ON_DISK", 1)
    return tmp_path / "features"


def test_features_on_disk_serve_later_runs_and_their_owner_alone(computed: list[int], folder: Path) -> None:
    found = [all_features(SCATTERED, x, 1, folder) for x in (X, X.copy(), X[::-1])]

    assert computed == [40, 40]
    assert np.array_equal(found[0], all_features(SCATTERED, X, 1)) and np.array_equal(found[0], found[1])
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600, 0o600]
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_damaged_or_short_file_is_computed_anew(computed: list[int], folder: Path, place: int) -> None:
    whole = all_features(SCATTERED, X, 1, folder)
    (file,) = folder.iterdir()
    damaged = bytearray(file.read_bytes())
    damaged[place] ^= 1
    for body in (damaged, damaged[:-4]):
        file.write_bytes(body)
        assert np.array_equal(all_features(SCATTERED, X, 1, folder), whole)

    assert computed == [40] * 3


def test_other_code_does_not_find_what_earlier_code_left(
    computed: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_features(SCATTERED, X, 1, folder)
    monkeypatch.setattr(module, "_code", lambda: b"other")
    all_features(SCATTERED, X, 1, folder)

    assert computed == [40, 40]


def test_the_folder_is_bounded_and_what_was_used_longest_ago_goes(
    computed: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_ON_DISK", 2 * (40 * 10 * 4 + 32))
    for records in (X, X + 1, X, X + 2, X, X + 1):
        all_features(SCATTERED, records, 1, folder)

    assert len(computed) == 4 and len(list(folder.iterdir())) == 2


def test_a_users_function_and_a_disk_that_refuses_are_computed_every_time(computed: list[int], tmp_path: Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_bytes(b"")
    for _ in range(2):
        all_features(head(1), X, 1, tmp_path)
        all_features(SCATTERED, X, 1, no_folder)

    assert computed == [40] * 4
