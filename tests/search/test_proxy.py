"""Public records in the place of the clients': how many, which ones, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data import Dataset, load
from sottovoce.search.proxy import Proxy, make_proxy


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write 600 public 28 x 28 images, each of its own grey, as mnist; Fashion-MNIST is not on this machine."""
    monkeypatch.setenv("SOTTOVOCE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "mnist.npz")
    return tmp_path


def write(path: Path, *, classes: int = 10, side: int = 28, test: int = 0) -> Path:
    x = np.zeros((600, side, side), np.uint8)
    x[:, 0, 0], x[:, 0, 1] = np.arange(600) % 256, np.arange(600) // 256
    y = np.arange(600) % classes
    np.savez(path, x_train=x, y_train=y, x_test=np.full((50, side, side), test, np.uint8), y_test=y[:50])
    return path


def file(source: str = "fashion-mnist", clients: int = 60, **data: Any) -> Experiment:
    return small(data={"source": source, "clients": clients, **data})


def numbers(x: np.ndarray) -> list[int]:
    """Return which of the 600 images these are."""
    return sorted((x[:, 0, 0, 0].astype(int) + 256 * x[:, 0, 1, 0].astype(int)).tolist())


def made(experiment: Experiment, source: str = "mnist", **keys: Any) -> tuple[Proxy, Dataset]:
    proxy = make_proxy(experiment, source, **keys)
    return proxy, proxy.dataset


def test_each_client_has_as_many_records_as_in_the_file(pictures: Path) -> None:
    """The catalogue says 60,000 records of Fashion-MNIST, so 60 clients hold 1,000 each; there are 500 public ones."""
    proxy, dataset = made(file())

    assert dataset.records == 60_000
    assert np.bincount(numbers(dataset.x_train)).max() == 120
    assert proxy.partition == "iid"
    assert "the other 500 are dealt, with 59500 copies of some, to 60 clients, 1000 each" in proxy.notes[0]
    assert "sample_rate 1/2 and so the cohort of 30 are the file's" in proxy.notes[0]


@pytest.mark.parametrize("count", [100, 300, 500, 777])
def test_a_number_of_records_that_is_told_is_dealt_evenly(pictures: Path, count: int) -> None:
    _, dataset = made(file(), records=count)

    copies = np.bincount(numbers(dataset.x_train), minlength=600)
    assert dataset.records == count
    assert copies.max() == -(-count // 500)
    assert np.count_nonzero(copies) == min(count, 500)


def test_records_that_score_are_train_records_that_no_client_holds(pictures: Path) -> None:
    proxy, dataset = made(file(), records=500, aside=40)

    assert proxy.aside is not None
    parts = [numbers(x) for x in (dataset.x_train, dataset.x_test, proxy.aside.x_train)]
    assert (proxy.scored, proxy.aside.records) == (100, 40)
    assert sorted({*parts[0], *parts[1], *parts[2]}) == list(range(600))
    assert not set(parts[0]) & set(parts[1]) and not set(parts[0]) & set(parts[2]) and not set(parts[1]) & set(parts[2])
    assert "that no client holds" in str(dataset.test_data)


def test_the_public_test_records_are_not_used(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.npz", test=1), write(tmp_path / "two.npz", test=2)

    assert len({make_proxy(file(), str(path), records=100).fingerprint() for path in (one, two)}) == 1
    assert load(str(one)).x_test.sum() != load(str(two)).x_test.sum()


def test_the_same_seed_cuts_the_same_way_and_another_does_not(pictures: Path) -> None:
    prints = [make_proxy(file(), "mnist", records=100, seed=seed).fingerprint() for seed in (1, 1, 2)]

    assert prints[0] == prints[1] != prints[2]


def test_a_slice_for_the_scheme_is_part_of_what_was_set_aside(pictures: Path) -> None:
    proxy, _ = made(file(), records=100, aside=40)

    small_slice, whole = proxy.public_slice(10, seed=5), proxy.public_slice(40, seed=5)
    assert proxy.aside is not None and small_slice is not None and whole is proxy.aside
    assert small_slice.records == 10
    assert set(numbers(small_slice.x_train)) < set(numbers(whole.x_train))


def test_virtual_clients_draw_from_all_public_records(pictures: Path) -> None:
    proxy, dataset = made(file(partition="virtual", clients=1_000_000))

    assert (proxy.partition, dataset.records) == ("virtual", 500)


@pytest.mark.parametrize("source", ["fashion-mnist", "./fashion_mnist.npz", "folder/../fashion_mnist.npz"])
def test_the_clients_own_data_is_refused(pictures: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(pictures)
    (pictures / "folder").mkdir()
    (pictures / "fashion_mnist.npz").write_bytes(b"opening this would be noticed")

    with pytest.raises(PrivacyError, match="tuning on the clients' data is not covered by epsilon"):
        make_proxy(file(), source)


def test_mnist_that_would_be_read_from_the_clients_folder_is_refused(pictures: Path) -> None:
    """Both sets are published under the same file names, so [data] folder would give Fashion-MNIST for mnist."""
    from sottovoce.data.images import IDX

    clients = pictures / "clients"
    clients.mkdir()
    for name in IDX:
        (clients / f"{name}.gz").write_bytes(b"not to be opened")

    with pytest.raises(PrivacyError, match="not covered by epsilon"):
        make_proxy(file(folder=str(clients)), "mnist")


def test_public_data_of_another_shape_or_with_more_classes_is_refused(pictures: Path) -> None:
    with pytest.raises(InputError, match=r"'digits' has records of shape \(8, 8, 1\) .*they must match"):
        make_proxy(file(), "digits")
    more = write(pictures / "more.npz", classes=20)
    with pytest.raises(InputError, match=r"and 20 classes, 'fashion-mnist' has \(28, 28, 1\) and 10"):
        make_proxy(file(), str(more))


def test_fewer_classes_keep_the_clients_network(pictures: Path) -> None:
    fewer = write(pictures / "fewer.npz", classes=4)

    proxy, dataset = made(file(), str(fewer), records=100)

    assert dataset.classes == 10
    assert any("has 4 of the 10 classes" in note for note in proxy.notes)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="there is no data set 'mnits'; did you mean 'mnist'"):
        make_proxy(file(), "mnits")


def test_of_an_own_file_what_is_not_known_is_said_or_asked_for() -> None:
    proxy, dataset = made(file("mine.npz", clients=20, records_per_client=7), "digits")
    unknown, whole = made(file("mine.npz", clients=20), "digits")

    assert dataset.records == 140
    assert any("is not checked: it is not opened" in note for note in proxy.notes)
    assert whole.records == 1438 - 239
    assert any("say it with --records" in note for note in unknown.notes)
    with pytest.raises(InputError, match=r"1199 public records are too few for 5000 clients; say it with --records"):
        make_proxy(file("mine.npz", clients=5000), "digits")


def test_records_that_the_file_sets_aside_itself_are_added(pictures: Path) -> None:
    tables = {"data": {"source": "mine.npz", "clients": 20, "records_per_client": 10, "held_out": 0.2}}
    plain = small(**tables)
    sliced = small(**tables, scheme={"name": "fl-top", "ratio": 0.5, "public_samples": 30})

    assert make_proxy(plain, "mnist").dataset.records == 250
    assert make_proxy(sliced, "mnist").dataset.records == 280


def test_owners_are_kept_where_there_are_enough_and_else_records_are_dealt(tmp_path: Path) -> None:
    x, y = np.zeros((300, 5), np.float32), np.arange(300) % 2
    np.savez(tmp_path / "owned.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9], ids=np.arange(300) % 50)
    asked = {"source": "mine.npz", "partition": "by-id"}

    few, _ = made(small(data={**asked, "clients": 40}), str(tmp_path / "owned.npz"))
    many, _ = made(small(data={**asked, "clients": 60}), str(tmp_path / "owned.npz"), records=300)
    nobody, _ = made(small(data={**asked, "clients": 40}), "digits")

    assert few.partition == "by-id"
    assert many.partition == "iid" and any("names 50 owners" in note for note in many.notes)
    assert nobody.partition == "iid" and any("does not say who owns" in note for note in nobody.notes)


def test_a_table_is_read_by_the_files_own_schema(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text('[label]\nclasses = ["no", "yes"]\n[columns.age]\nkind = "number"\nminimum = 0\nmaximum = 100\n')
    rows = "\n".join(f"{age},{'yes' if age > 50 else 'no'}" for age in range(100))
    (tmp_path / "public.csv").write_text(f"age,died\n{rows}\n")
    data = {"source": "mine.csv", "label": "died", "schema": str(schema), "clients": 10}

    proxy, dataset = made(small(data=data), str(tmp_path / "public.csv"), records=60)

    assert (dataset.fitted_on, dataset.shape) == ("schema", (1,))
    assert not any("not checked" in note for note in proxy.notes)
    del data["schema"]
    bare, _ = made(small(data=data), str(tmp_path / "public.csv"), records=60)
    assert any("scaled by its own records" in note for note in bare.notes)
