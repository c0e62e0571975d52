"""What a user calls data, model or scheme is read, or refused in one sentence before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import sottovoce as sv
from sottovoce.api.arrays import fifth, number_labels
from sottovoce.api.data import Columns, Loaded, Reader, read
from sottovoce.schemes import make
from tests.api.small import WORDS, blobs, simulate

X, Y = blobs()
NAMED = Reader(named=True, tokens=False)


def loaded(data: Any, test: Any = None, reader: Reader = NAMED, **columns: Any) -> Loaded:
    return read(data, reader, test=test, columns=Columns(**columns), seed=1)


class Items(TorchDataset[Any]):
    """A map-style Dataset that knows its items one by one."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return torch.tensor(self.x[number]), int(self.y[number])


def test_arrays_tensors_and_torch_datasets_hold_the_same_records() -> None:
    arrays = loaded((X, Y)).dataset
    tensors = torch.tensor(X), torch.tensor(Y)

    for data in (tensors, TensorDataset(*tensors), Items(X, Y)):
        other = loaded(data).dataset
        assert np.array_equal(other.x_train, arrays.x_train) and np.array_equal(other.y_test, arrays.y_test)
        assert other.x_train.dtype == np.float32


def test_without_test_records_a_fifth_of_each_class_is_set_aside_by_the_seed() -> None:
    one, again = loaded((X, Y)), loaded((X, Y))
    other = read((X, Y), NAMED, test=None, columns=Columns(), seed=2)

    assert np.bincount(one.dataset.y_test).tolist() == [6, 6, 6]
    assert one.dataset.records == 72
    assert np.array_equal(one.dataset.x_test, again.dataset.x_test)
    assert not np.array_equal(one.dataset.x_test, other.dataset.x_test)
    assert one.dataset.test_data is not None and "a fifth of the records (18)" in one.dataset.test_data


def test_given_test_records_are_taken_and_named_as_given() -> None:
    for data, test in (((X, Y, X[:7], Y[:7]), None), ((X, Y), (X[:7], Y[:7]))):
        dataset = loaded(data, test).dataset
        assert dataset.records == 90 and len(dataset.y_test) == 7
        assert dataset.test_data == "given (7 records)"


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (Y, (0, 1, 2)),
        (Y == 1, (False, True)),
        (WORDS[Y], ("bénigne", "maligne", "unclear")),
        (WORDS[Y].astype(object), ("bénigne", "maligne", "unclear")),
        (Y.astype(float), (0, 1, 2)),
    ],
    ids=["integers", "booleans", "texts", "objects", "whole floats"],
)
def test_labels_become_numbers_and_their_names_are_kept(labels: Any, classes: tuple[Any, ...]) -> None:
    (numbers,), names = number_labels([labels], None)

    assert names == classes
    assert [names[number] for number in numbers] == labels.tolist()


def test_classes_give_the_order_of_the_labels() -> None:
    assert (
        loaded((X, WORDS[Y]), classes=WORDS.tolist()).dataset.y_test.tolist() == loaded((X, Y)).dataset.y_test.tolist()
    )


def test_a_list_of_clients_is_the_partition_and_nobody_loses_the_last_record() -> None:
    parts = [(X[:1], Y[:1]), (X[1:3], Y[1:3]), Items(X[3:], Y[3:])]

    read_in = loaded(parts)

    shards = read_in.partition
    assert shards is not None and shards.clients == 3
    assert shards.records(0).tolist() == [0]
    assert np.array_equal(read_in.dataset.x_train[0], X[0].astype(np.float32))
    assert shards.total == read_in.dataset.records < 90
    assert read_in.tables == {"source": "clients", "clients": 3, "partition": "by-id"}


@pytest.mark.parametrize("owners", [[0, 0, 1, 2, 3, 4, 4, 4, 4, 4] * 3, list(range(30))], ids=["some", "all alone"])
def test_the_fifth_never_empties_an_owner(owners: list[int]) -> None:
    y = np.zeros(30, np.int64)
    if len(set(owners)) == 30:
        with pytest.raises(sv.DataError, match="every client has one record"):
            fifth(y, np.random.default_rng(0), np.array(owners))
        return
    test = fifth(y, np.random.default_rng(0), np.array(owners))
    assert set(np.array(owners)[~test]) == set(owners)


def test_images_get_a_channel_axis_for_named_networks_and_stay_as_they_are_for_modules() -> None:
    images = np.zeros((20, 8, 6), np.uint8)
    labels = np.arange(20) % 2
    turned = TensorDataset(torch.zeros(20, 1, 8, 6), torch.tensor(labels))
    module = Reader(named=False, tokens=False)

    assert loaded((images, labels)).dataset.shape == (8, 6, 1)
    assert loaded((images, labels)).dataset.input_scale == 1 / 255
    assert loaded((images, labels), reader=module).dataset.shape == (8, 6)
    assert loaded(turned).dataset.shape == (8, 6, 1)
    assert loaded(turned, reader=module).dataset.shape == (1, 8, 6)


def test_integers_are_features_unless_the_model_reads_tokens() -> None:
    ids = np.arange(40).reshape(10, 4)

    assert loaded((ids, np.arange(10) % 2)).dataset.x_train.dtype == np.float32
    tokens = loaded((ids, np.arange(10) % 2), reader=Reader(named=False, tokens=True))
    assert tokens.dataset.x_train.dtype == ids.dtype


def net(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def integer_parameters() -> nn.Module:
    module = net(nn.Linear(4, 3))
    module.number = nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)  # type: ignore[assignment]
    return module


def shared_storage() -> nn.Module:
    one, two = nn.Linear(4, 3), nn.Linear(4, 3)
    two.weight = nn.Parameter(one.weight.data.view(3, 4))
    return net(one, nn.Linear(3, 4), two)


def with_nan(x: Any) -> Any:
    x = x.copy()
    x[3, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("data", "model", "keys", "reason"),
    [
        ((X, Y), net(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), {}, "use GroupNorm"),
        ((X, Y), integer_parameters(), {}, "parameters must be float32"),
        ((X, Y), shared_storage(), {}, "views of the same storage"),
        ((X, Y), net(nn.Linear(4, 5)), {}, "the labels have 3 classes; give it 3 outputs"),
        ((X, Y), nn.Linear, {}, "give an instance, not the class"),
        ((X, Y[:80]), "mlp", {}, "x has 90 records and y 80 labels"),
        ((with_nan(X), Y), "mlp", {}, "1 of 360 values that are NaN or infinite"),
        ((X, np.eye(3)[Y]), "mlp", {}, r"take argmax\(1\)"),
        ((X, Y - 5), "mlp", {}, "class numbers from 0"),
        ((X, Y), "mlp", {"classes": [0, 1]}, "label 2 is none of the classes"),
        ((X[:0], Y[:0]), "mlp", {}, "no records"),
        ((X, Y), "mlp", {"clients": 73}, "clients must be at most the 72 train records, got 73"),
        ((X, Y), "mlp", {"label": "sick"}, "label= is for another kind of data than arrays"),
        ((X, Y, X, Y), "mlp", {"test": (X, Y)}, "test= is for arrays"),
        ((X, Y), "mlp", {"test": (X[:, :2], Y)}, r"test has records of shape \(2,\)"),
        ((X, Y), "mlp", {"id": [1, 2]}, "there are 90 records"),
        ([(X, Y), (X[:0], Y[:0])], "mlp", {"clients": None}, "client 1 has no records"),
        ([(X, Y), (X, Y)], "mlp", {"clients": 3}, "data lists 2 of them"),
        ([(X, Y), (X, Y)], "mlp", {"clients": None, "partition": "iid"}, "leave partition out"),
        ([(X, Y), (X[:, :2], Y)], "mlp", {"clients": None}, "client 1 has records of shape"),
        ({"a": [1.0] * 9}, "mlp", {}, 'label="..."'),
        ({"a": [1.0] * 9}, "mlp", {"label": "b"}, "has no column 'b'"),
        (12, "mlp", {}, "data must be a name"),
        ("digit", "mlp", {}, "did you mean 'digits'"),
        ((X, Y), "mlpp", {}, "did you mean 'mlp'"),
        ((X, Y), "mlp", {"scheme": "fl-topp"}, "did you mean 'fl-top'"),
        ((X, Y), "mlp", {"scheme": ("fl-top", {"ration": 1})}, "did you mean 'ratio'"),
        ((X, Y), "mlp", {"scheme": 7}, "scheme must be a name"),
        ((X, Y), "mlp", {"local_step": 3}, "did you mean 'local_steps'"),
        ((X, Y), "mlp", {"batch_size": 0}, r"\[client\] batch_size must be"),
        ((X, Y), "mlp", {"privacy": {"epsilom": 1}}, "did you mean 'epsilon'"),
        ((X, Y), "mlp", {"callbacks": [3]}, "a callback must be a function"),
        ((X, WORDS[Y]), "mlp", {"privacy": sv.Privacy(epsilon=8, delta=1e-3)}, r"give them in classes=\[...\]"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_before_anything_is_written(
    tmp_path: Path, data: Any, model: Any, keys: dict[str, Any], reason: str
) -> None:
    with pytest.raises((sv.InputError, sv.PrivacyError), match=reason) as told:
        simulate(data, model, out=tmp_path / "run", **keys)

    assert "\n" not in str(told.value)
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True, eq=False, kw_only=True)
class Halved(sv.Scheme):
    """Send half of the update; `honest` gives all of the promises."""

    name: ClassVar[str] = "halved"
    paper: ClassVar[str] = "none"
    saves: ClassVar[Literal["nothing", "up", "up and down"]] = "nothing"
    honest: bool = True

    def encode(self, update: Any, seed: int, rng: Any) -> Any:
        return update / np.float32(2) if self.honest else np.append(update, np.float32(0))

    def decode(self, mean: Any, state: Any, seed: int, rng: Any) -> Any:
        return {"params": state["params"] + 2 * mean}


def test_a_scheme_that_breaks_its_contract_gets_the_sentence_of_the_check(tmp_path: Path) -> None:
    with pytest.raises(sv.InputError, match=r"halved: encode must return 15 float32 for length 15, got shape \(16,\)"):
        simulate((X, Y), scheme=Halved(honest=False), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_scheme_of_a_users_own_cannot_take_the_name_of_another() -> None:
    impostor = type("Impostor", (Halved,), {"name": "fl-std"})

    with pytest.raises(sv.InputError, match="cannot be named 'fl-std'"):
        simulate((X, Y), scheme=impostor())
    with pytest.raises(sv.InputError, match=r"write Halved\(...\)"):
        simulate((X, Y), scheme=Halved)
    assert make("fl-std").name == "fl-std"
