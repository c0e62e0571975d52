"""A4: what a private run calls public is compared with the clients' records, not with the spelling of their file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.assembly.division import divide
from sottovoce.assembly.parts import gather
from sottovoce.core.errors import PrivacyError
from sottovoce.data import Dataset, load, table_dataset
from sottovoce.data.overlap import Values
from sottovoce.data.overlap import overlap as common
from tests.runs.small import small

PRIVACY = {"epsilon": 8.0, "delta": 1e-2}
MEASURED = {**PRIVACY, "clipping": "public"}
TOP = {"name": "fl-top", "ratio": 0.2, "public_samples": 20}


def images(seed: int, records: int = 300) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 255, (records, 8, 8), np.uint8), np.arange(records) % 4


def write(path: Path, x: Any, y: Any) -> Path:
    np.savez(path, x_train=x, y_train=y, x_test=255 - x[:1], y_test=y[:1])  # test records are nobody's
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the clients' file, own.npz, and another one that nobody of them owns."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "own.npz", *images(1))
    write(tmp_path / "other.npz", *images(2))
    return tmp_path


def spelled(folder: Path) -> str:
    return "./own.npz"


def absolute(folder: Path) -> str:
    return str(folder / "own.npz")


def symbolic(folder: Path) -> str:
    (folder / "link.npz").symlink_to(folder / "own.npz")
    return "link.npz"


def hard(folder: Path) -> str:
    os.link(folder / "own.npz", folder / "hard.npz")
    return "hard.npz"


def copied(folder: Path) -> str:
    shutil.copy(folder / "own.npz", folder / "copy.npz")
    return "copy.npz"


def shuffled(folder: Path) -> str:
    x, y = images(1)
    order = np.random.default_rng(3).permutation(len(y))
    write(folder / "shuffled.npz", x[order], y[order])
    return "shuffled.npz"


def part(folder: Path) -> str:
    x, y = images(1)
    write(folder / "part.npz", x[40:60], y[40:60])
    return "part.npz"


def mixed(folder: Path) -> str:
    """One record of the clients among 300 others, with another label."""
    x, y = images(2)
    x[7] = images(1)[0][100]
    write(folder / "mixed.npz", x, y)
    return "mixed.npz"


def converted(folder: Path) -> str:
    """The same images as numbers from 0 to 1."""
    x, y = images(1)
    write(folder / "floats.npz", (x / 255).astype(np.float32)[..., None], y)
    return "floats.npz"


WAYS: list[Callable[[Path], str]] = [
    *(spelled, absolute, symbolic, hard, copied, shuffled, part, mixed, converted),
]


def tables(public: str, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "data": {"source": "own.npz", "clients": 10, "classes": 4},
        "scheme": {**TOP, "public": public},
        "privacy": {**PRIVACY, "clip_norm": 0.5},
        **changes,
    }


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_clients_records_choose_no_coordinates_under_any_name(here: Path, way: Callable[[Path], str]) -> None:
    with pytest.raises(PrivacyError, match="the clients"):
        gather(small(**tables(way(here))))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_clients_records_give_no_public_clip_norm_under_any_name(here: Path, way: Callable[[Path], str]) -> None:
    scheme = {"name": "fl-std", "public": way(here), "public_samples": 20}

    with pytest.raises(PrivacyError, match="the clients"):
        gather(small(**tables("", scheme=scheme, privacy=MEASURED)))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_front_is_fitted_on_the_clients_records_under_any_name(here: Path, way: Callable[[Path], str]) -> None:
    model = {"name": "logistic", "front": "scattering", "projection": {"source": way(here), "dims": 4, "samples": 300}}
    rest = {"scheme": {"name": "fl-std"}, "model": model}

    with pytest.raises(PrivacyError, match="the clients"):
        gather(small(**tables("", **rest)))


def test_other_records_are_public_and_so_are_the_clients_where_that_is_asked_for(here: Path) -> None:
    assert gather(small(**tables("other.npz"))).splits["public"].records == 20

    unsafe = {**PRIVACY, "clip_norm": 0.5, "unsafe_public": True}
    cut = gather(small(**tables("./own.npz", privacy=unsafe)))
    assert (cut.splits["public"].records, cut.dataset.records) == (20, 280), "cut from the clients', not a copy of them"
    assert gather(small(**tables(copied(here), privacy=unsafe))).splits["public"].records == 20


def test_a_run_refuses_settings_that_were_chosen_on_the_clients_records(here: Path) -> None:
    for way in (spelled, copied, part):
        chosen = {"experiment": {"chosen_on": way(here)}, "scheme": {"name": "fl-std"}}
        with pytest.raises(PrivacyError, match="chosen_on"):
            gather(small(**tables("", **chosen)))

    chosen = {"experiment": {"chosen_on": "other.npz"}, "scheme": {"name": "fl-std"}}
    gather(small(**tables("", **chosen)))


def test_arrays_in_python_are_compared_with_the_file_that_is_called_public(here: Path) -> None:
    x, y = images(1)
    keys = {"ratio": 0.2, "public": copied(here), "public_samples": 20}

    with pytest.raises(PrivacyError, match="the clients"):
        sv.simulate(
            (x, y),
            "logistic",
            "fl-top",
            sv.Privacy(**PRIVACY, clip_norm=0.5),
            test=images(5, 40),
            classes=range(4),
            clients=10,
            rounds=2,
            sample_rate=0.5,
            workers=1,
            scheme_keys=keys,
        )


def test_a_table_is_compared_with_a_shuffled_part_of_itself(here: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [f"{rng.normal():.6f},{rng.normal():.6f},{rng.integers(2)}" for _ in range(200)]
    schema = "".join(f'[columns.{name}]\nkind = "number"\nminimum = -3\nmaximum = 3\n' for name in "ab")
    Path("s.toml").write_text(schema + '[label]\nclasses = ["0", "1"]\n')
    Path("own.csv").write_text("\n".join(["a,b,c", *rows]) + "\n")
    Path("part.tsv").write_text(
        "\n".join(["b\ta\tc", *("\t".join(r.split(",")[i] for i in (1, 0, 2)) for r in rows[9:3:-1])])
    )
    data = {"source": "own.csv", "label": "c", "schema": "s.toml", "clients": 10}

    with pytest.raises(PrivacyError, match="the clients"):
        gather(small(**tables("part.tsv", data=data, scheme={**TOP, "public": "part.tsv", "public_samples": 4})))


def test_parts_that_were_split_without_privacy_are_not_public_in_a_private_run(here: Path) -> None:
    plain = tables(copied(here))
    del plain["privacy"]
    divide(small(**plain), 2, here / "parts")
    engine = {"name": "ray", "data": str(here / "parts")}

    with pytest.raises(PrivacyError, match="the clients"):
        gather(small(**tables("copy.npz", engine=engine)))
    with pytest.raises(PrivacyError, match="split"):  # nobody has compared these
        gather(small(**tables("other.npz", engine=engine)))

    divide(small(**tables("other.npz")), 2, here / "again")
    assert gather(small(**tables("other.npz", engine={**engine, "data": str(here / "again")})))


def overlap(public: Dataset, clients: Dataset) -> int:
    return clients.overlap(public)


# -- what a table with natural twins means ----------------------------------------------------------------------------


def few_words(seed: int, records: int) -> Dataset:
    """Return records of which many have twins: four small numbers."""
    rng = np.random.default_rng(seed)
    x = np.stack([rng.geometric(p, records) for p in (0.4, 0.4, 0.3, 0.1)], axis=1).astype(np.float32)
    return Dataset("words", x, np.zeros(records, np.int64), x[:1], np.zeros(1, np.int64), classes=2)


def part_of(data: Dataset, places: Any) -> Dataset:
    return Dataset("part", data.x_train[places], data.y_train[places], data.x_test, data.y_test, classes=2)


def test_twins_that_an_independent_sample_has_by_chance_are_allowed_and_a_part_is_not() -> None:
    """False alarms: at four standard deviations about one in 10,000 for each of the 20 samples, 0.2 % in all."""
    clients = few_words(1, 4000)
    twins = np.unique(clients.x_train, axis=0, return_counts=True)[1]
    assert 0.2 < (twins == 1).sum() / 4000 < 0.8, "some records have twins, and some have none"

    assert not any(overlap(few_words(seed, 500), clients) for seed in range(2, 22))
    for seed in range(20):
        places = np.random.default_rng(seed).choice(4000, 500, replace=False)
        assert overlap(part_of(clients, places), clients)


def test_a_data_set_that_holds_every_record_twice_still_knows_its_own() -> None:
    x, y = images(1)
    own = Dataset("own", np.concatenate([x, x]), np.concatenate([y, y]), x[:1], y[:1], classes=4)
    other, _ = images(2)

    assert overlap(Dataset("part", x[:9], y[:9], x[:1], y[:1], classes=4), own) == 9
    assert not overlap(Dataset("other", other, y, x[:1], y[:1], classes=4), own)


def test_a_copy_is_noticed_where_every_record_has_many_twins() -> None:
    x, y = np.repeat(np.arange(6, dtype=np.float32), 50)[:, None], np.zeros(300, np.int64)
    own = Dataset("own", x, y, x[:1], y[:1], classes=2)

    assert overlap(Dataset("copy", x[::-1], y, x[:1], y[:1], classes=2), own) == 300
    assert not overlap(Dataset("like", x[:100], y[:100], x[:1], y[:1], classes=2), own)


def test_every_image_of_8_bits_is_itself_after_division() -> None:
    x = np.arange(256, dtype=np.uint8).reshape(256, 1, 1, 1)
    own = Dataset("own", x, np.arange(256), x[:1], np.zeros(1, np.int64), classes=256, input_scale=1 / 255)

    for values in (x / 255, (x / 255).astype(np.float32), x.astype(np.float32) * np.float32(1 / 255)):
        floats = Dataset("f", values.astype(np.float32), np.arange(256), x[:1], np.zeros(1, np.int64), classes=256)
        assert overlap(floats, own) == 256


def test_known_sets_have_no_record_in_common_with_others() -> None:
    assert not overlap(load("leaves"), load("digits"))
    assert overlap(load("digits"), load("digits")) == load("digits").records


def test_a_frame_is_compared_by_its_features() -> None:
    rng = np.random.default_rng(4)
    columns = {"a": rng.normal(size=100).round(6), "b": rng.normal(size=100).round(6), "c": np.arange(100) % 2}
    schema = {
        "label": {"classes": ["0", "1"]},
        "columns": {name: {"kind": "number", "minimum": -4, "maximum": 4} for name in "ab"},
    }
    whole = table_dataset(columns, label="c", schema=schema)
    part = table_dataset({name: values[::-3] for name, values in columns.items()}, label="c", schema=schema)

    assert overlap(part, whole)


@pytest.mark.parametrize("features", [6, 784])
def test_records_stored_in_half_of_the_bits_are_the_same_records(features: int) -> None:
    x = np.random.default_rng(1).normal(size=(200, features)).astype(np.float32)
    halved, others = x[:50].astype(np.float16), np.random.default_rng(2).normal(size=(50, features)).astype(np.float16)
    for stored in (halved, halved.astype(np.float32)):
        assert common(Values(stored, 1.0), Values(x, 1.0)) == 50
    assert common(Values(x, 1.0), Values(halved, 1.0)) == 50
    assert common(Values(others, 1.0), Values(x, 1.0)) == 0
    images = np.random.default_rng(3).integers(0, 256, (200, 8, 8, 1), dtype=np.uint8)
    assert common(Values((images[:50] / 255).astype(np.float16), 1.0), Values(images, 1 / 255)) == 50
