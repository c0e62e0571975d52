"""Check the sum over units against a twin that plays one unit at a time with the ordinary trainer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from torch import nn

from sottovoce.core.errors import InputError
from sottovoce.models import LocalTraining, Shard, Trainer, fast, make_trainer, network, units
from sottovoce.models.fast import FastTrainer
from sottovoce.models.kernels import Kernels
from sottovoce.models.network import Conv2d, Flatten, Linear, MaxPool, Network
from sottovoce.models.partial import Partial
from sottovoce.models.plain import PlainTrainer
from sottovoce.models.torch_trainer import TorchTrainer
from sottovoce.models.units import CentreGrid, Units, add_centre, clipped_centres, unit_updates
from sottovoce.models.wrap import wrap_module
from sottovoce.privacy.noise.path import unit_centres

pytestmark = pytest.mark.skipif(fast.unavailable() is not None, reason=str(fast.unavailable()))

ONE_STEP = LocalTraining(local_steps=1, batch_size=None, client_lr=0.3)
SMALL_CNN = Network(
    "small-cnn",
    (Conv2d(16, 5), MaxPool(2), Conv2d(8, 3), MaxPool(2), Flatten(), Linear(12), Linear(4, relu=False)),
    input_shape=(12, 12, 1),
    classes=4,
    input_scale=1 / 255,
)
NETWORKS = {
    "logistic": network("logistic", (17,), 2),
    "softmax": network("logistic", (9,), 5),
    "mlp": network("mlp", (20,), 10, hidden=23),
    "cnn": SMALL_CNN,
}


class InOrder(Generator):
    """A generator that leaves rows in their order, as one step on all of them does."""

    def permutation(self, x: Any, axis: int = 0) -> Any:
        return np.arange(x)


def in_order(_: int) -> Generator:
    return InOrder(np.random.PCG64(0))


def records_of(net: Any, count: int, seed: int = 0) -> Shard:
    rng = default_rng(seed)
    shape = (count, *net.input_shape)
    x = rng.integers(0, 256, shape).astype(np.uint8) if len(shape) == 4 else rng.standard_normal(shape)
    return Shard(x if len(shape) == 4 else x.astype(np.float32), rng.integers(0, net.classes, count))


def start_of(net: Any) -> NDArray[np.float32]:
    return np.asarray(net.initialise(default_rng(1)) + default_rng(2).standard_normal(net.dim) / 50, np.float32)


def middle_norm(trainer: Trainer, start: Any, shard: Shard) -> float:
    rows = [Shard(shard.x[i : i + 1], shard.y[i : i + 1]) for i in range(20)]
    return float(np.median([np.linalg.norm(u) for u in trainer.updates(start, rows, [default_rng(0)] * 20)]))


def twin(
    trainer: Trainer,
    start: Any,
    shard: Shard,
    groups: list[NDArray[np.int64]],
    grid: CentreGrid,
    encode: Callable[[Any], Any] = lambda update: update,
) -> NDArray[np.int64]:
    """Play one unit after the other as a client of its own, up to the noise."""
    total = np.zeros(encode(np.zeros(len(start), np.float32)).size, np.int64)
    for rows in groups:
        (update,) = trainer.updates(start, [Shard(shard.x[rows], shard.y[rows])], [in_order(0)])
        if not np.isfinite(update).all():
            continue
        keys = {"clip_norm": grid.clip_norm, "radius": grid.radius, "precision": grid.precision}
        total += unit_centres(encode(update)[None], **keys)[0]
    return total


def split(count: int, seed: int, most: int) -> list[NDArray[np.int64]]:
    """Deal some rows to units of one to `most` rows."""
    rng = default_rng(seed)
    rows, groups = rng.permutation(count), []
    while len(rows):
        size = int(rng.integers(1, most + 1))
        groups.append(rows[:size].astype(np.int64))
        rows = rows[size:]
    return groups


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_sum_in_one_pass_has_the_bits_of_one_client_after_the_other(name: str, most: int) -> None:
    net = NETWORKS[name]
    trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 130)
    for radius, precision in ((30.0, 4), (700.0, 9)):
        grid = CentreGrid(middle_norm(trainer, start, shard), radius, precision)
        groups = split(130, 3, most)

        total = clipped_centres(trainer, start, shard, Units.groups(groups), grid, rng_of=in_order)

        assert np.array_equal(total, twin(trainer, start, shard, groups, grid))
        assert np.abs(total).max() > 0


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), cut=st.integers(0, 150), name=st.sampled_from(sorted(NETWORKS)))
def test_the_sum_depends_on_no_order_no_chunk_and_no_site(seed: int, cut: int, name: str) -> None:
    net = NETWORKS[name]
    trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 150)
    grid = CentreGrid(0.02, 200.0, 6)
    rows = default_rng(seed).permutation(150)

    def total(own: Any, records: Shard = shard) -> Any:
        return clipped_centres(trainer, start, records, Units.records(own), grid, rng_of=in_order)

    whole = total(np.arange(150))
    elsewhere = Shard(shard.x[rows], shard.y[rows])  # the same records in another file

    assert np.array_equal(whole, total(rows))
    assert np.array_equal(whole, total(rows[:cut]) + total(rows[cut:]))
    assert np.array_equal(total(rows[:cut]), total(np.arange(cut), elsewhere))


@pytest.mark.parametrize("at_once", [1, 7, 96])
def test_the_number_of_units_that_share_a_product_changes_no_bit(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    for net in NETWORKS.values():
        trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 120)
        groups, grid = Units.groups(split(120, 1, 3)), CentreGrid(0.02, 200.0, 6)
        usual = clipped_centres(trainer, start, shard, groups, grid, rng_of=in_order)
        with monkeypatch.context() as patch:
            patch.setattr(fast, "_UNITS_AT_ONCE", at_once)
            assert np.array_equal(usual, clipped_centres(trainer, start, shard, groups, grid, rng_of=in_order))


def test_avx2_and_avx512_give_the_same_sum() -> None:
    spec = find_spec("sottovoce.models._kernels")
    assert spec is not None and spec.origin is not None
    loaded = ctypes.CDLL(spec.origin)
    if loaded.sottovoce_level() < 2:
        pytest.skip("this processor has one of them at most")
    for net in NETWORKS.values():
        start, shard, totals = start_of(net), records_of(net, 90), []
        for level in (1, 2):
            trainer: Any = FastTrainer(net, ONE_STEP)
            trainer._kernels = Kernels(loaded, level)
            keys: Any = {"grid": CentreGrid(0.02, 200.0, 6), "rng_of": in_order}
            totals.append(clipped_centres(trainer, start, shard, Units.records(np.arange(90)), **keys))
        assert np.array_equal(*totals)


def test_one_unit_moves_the_sum_by_no_more_than_the_radius_in_exact_integers() -> None:
    for net in NETWORKS.values():
        trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 40)
        grid = CentreGrid(1e-3, 25.0, 4)
        for row in range(40):
            centre = clipped_centres(trainer, start, shard, Units.records(np.array([row])), grid, rng_of=in_order)
            assert int((centre**2).sum()) <= (25 * 16) ** 2


def test_hardly_any_clipped_unit_is_lost_to_rounding() -> None:
    """A message that rounding lengthens is shortened a little, however few values it has; it is not left out."""
    for dim in (1, 3, 20, 171):
        rng, grid = default_rng(dim), CentreGrid(1e-2, 30.0, 8)
        for _ in range(300):
            total, compiled = np.zeros(dim, np.int64), units._Sum(grid, dim)
            message = rng.standard_normal(dim).astype(np.float32)
            message /= np.linalg.norm(message)
            add_centre(total, message, grid)
            compiled.add(message)
            assert 0.98 * grid.steps < np.linalg.norm(total) <= grid.steps
            assert np.array_equal(total, compiled.values)


def test_a_grid_too_fine_for_doubles_is_added_in_integers() -> None:
    net = NETWORKS["mlp"]
    trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 30)
    grid = CentreGrid(0.02, 3000.0, 18)

    total = clipped_centres(trainer, start, shard, Units.records(np.arange(30)), grid, rng_of=in_order)

    assert not grid.compiled
    assert np.array_equal(total, twin(trainer, start, shard, split(30, 0, 1), grid))


def test_a_unit_that_diverges_adds_nothing_and_disturbs_nobody() -> None:
    for net in (NETWORKS["logistic"], NETWORKS["mlp"]):
        trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 60)
        grid, bad = CentreGrid(0.1, 200.0, 6), shard.x.copy()
        bad[7], bad[21, 3], bad[22, 0] = np.nan, np.inf, 3e38
        others = np.setdiff1d(np.arange(60), [7, 21, 22])

        whole = clipped_centres(
            trainer, start, Shard(bad, shard.y), Units.records(np.arange(60)), grid, rng_of=in_order
        )
        without = clipped_centres(trainer, start, shard, Units.records(others), grid, rng_of=in_order)
        broken = clipped_centres(
            trainer, start, Shard(bad, shard.y), Units.records(np.array([7, 21])), grid, rng_of=in_order
        )
        long = clipped_centres(
            trainer, start, Shard(bad, shard.y), Units.records(np.array([22])), grid, rng_of=in_order
        )

        assert not broken.any()
        assert np.array_equal(whole, without + long)


def test_a_unit_without_a_gradient_adds_nothing() -> None:
    net = NETWORKS["logistic"]
    trainer, grid = FastTrainer(net, ONE_STEP), CentreGrid(0.1, 200.0, 6)
    start = np.zeros(net.dim, np.float32)
    start[-1] = 200  # sure of class 1
    shard = Shard(np.zeros((3, 17), np.float32), np.ones(3, np.int64))

    assert not clipped_centres(trainer, start, shard, Units.records(np.arange(3)), grid, rng_of=in_order).any()


def test_no_units_add_up_to_zero() -> None:
    net = NETWORKS["mlp"]
    trainer, grid, nobody = FastTrainer(net, ONE_STEP), CentreGrid(0.1, 200.0, 6), Units.records(np.empty(0))

    total = clipped_centres(trainer, start_of(net), records_of(net, 5), nobody, grid, rng_of=in_order)

    assert total.shape == (net.dim,) and not total.any() and total.dtype == np.int64
    assert list(unit_updates(trainer, start_of(net), records_of(net, 5), nobody, rng_of=in_order)) == []


def test_kept_coordinates_are_clipped_as_the_message_that_they_are() -> None:
    for net in NETWORKS.values():
        trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 50)
        chosen, grid = default_rng(4).permutation(net.dim)[: net.dim // 3], CentreGrid(0.01, 100.0, 6)
        rows = Units.records(np.arange(50))

        total = clipped_centres(trainer, start, shard, rows, grid, coordinates=chosen, rng_of=in_order)

        wanted = twin(trainer, start, shard, split(50, 0, 1), grid, partial(np.take, indices=chosen))
        assert np.array_equal(total, wanted)
        mask = np.zeros(net.dim, np.bool_)
        mask[chosen] = True
        keys: Any = {"coordinates": chosen, "trainable": mask, "rng_of": in_order}
        assert np.array_equal(total, clipped_centres(trainer, start, shard, rows, grid, **keys))


def test_a_scheme_encodes_every_unit_and_a_diverged_one_is_not_asked() -> None:
    net = NETWORKS["logistic"]
    trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 70)
    mixed, grid = default_rng(0).standard_normal((5, net.dim)).astype(np.float32), CentreGrid(0.1, 100.0, 6)
    shard.x[3] = np.nan

    def encode(update: Any) -> Any:
        assert np.isfinite(update).all()
        return mixed @ update

    total = clipped_centres(trainer, start, shard, Units.records(np.arange(70)), grid, encode=encode, rng_of=in_order)

    assert np.array_equal(total, twin(trainer, start, shard, split(70, 0, 1), grid, lambda update: mixed @ update))


@pytest.mark.parametrize("make", [FastTrainer, PlainTrainer, TorchTrainer])
def test_several_steps_train_every_unit_by_itself(make: Any) -> None:
    net = NETWORKS["mlp"]
    trainer = make(net, LocalTraining(local_steps=3, batch_size=None, client_lr=0.1))
    start, shard, grid = start_of(net), records_of(net, 90), CentreGrid(0.05, 100.0, 6)
    groups = split(90, 2, 3)

    total = clipped_centres(trainer, start, shard, Units.groups(groups), grid, rng_of=in_order)
    rows = np.concatenate(list(unit_updates(trainer, start, shard, Units.groups(groups), rng_of=in_order)))

    assert np.array_equal(total, twin(trainer, start, shard, groups, grid))
    wanted = [next(iter(trainer.updates(start, [Shard(shard.x[g], shard.y[g])], [in_order(0)]))) for g in groups]
    assert np.array_equal(rows, np.stack(wanted))


def test_the_sum_without_compiled_code_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    net = NETWORKS["mlp"]
    trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 80)
    grid, rows = CentreGrid(0.02, 100.0, 6), Units.records(np.arange(80))
    compiled = clipped_centres(trainer, start, shard, rows, grid, rng_of=in_order)

    monkeypatch.setattr(trainer._kernels, "sums_units", False)
    monkeypatch.setattr(units, "unavailable", lambda: "no compiler")

    assert np.array_equal(compiled, clipped_centres(trainer, start, shard, rows, grid, rng_of=in_order))


@given(
    values=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=40),
    radius=st.floats(1, 1e4),
    precision=st.integers(0, 10),
)
def test_a_centre_in_numpy_is_the_one_of_the_private_path(values: list[float], radius: float, precision: int) -> None:
    message, total = np.array(values, np.float32), np.zeros(len(values), np.int64)

    add_centre(total, message, CentreGrid(1.5, radius, precision))

    assert np.array_equal(total, unit_centres(message[None], clip_norm=1.5, radius=radius, precision=precision)[0])


def test_public_weights_of_labels_scale_the_gradient_of_a_record() -> None:
    weights = np.array([0.5, 3.0], np.float32)
    net = NETWORKS["logistic"]
    start, shard = start_of(net), records_of(net, 40)
    grid, groups = CentreGrid(1e3, 2e5, 6), Units.groups(split(40, 5, 3))
    sums = [
        clipped_centres(make(net, ONE_STEP), start, shard, groups, grid, label_weights=weights, rng_of=in_order)
        for make in (FastTrainer, PlainTrainer, TorchTrainer)
    ]
    plain = clipped_centres(FastTrainer(net, ONE_STEP), start, shard, groups, grid, rng_of=in_order)

    for other in sums[1:]:
        assert np.abs(sums[0] - other).max() <= 0.001 * np.abs(sums[0]).max()
    assert np.abs(sums[0] - plain).max() > 0.1 * np.abs(sums[0]).max()


def test_some_layers_alone_are_a_message_of_their_coordinates() -> None:
    net = network("mlp", (20,), 10, hidden=23)
    part = Partial(net, ("fc1",), net.initialise(default_rng(3)))
    trainer = make_trainer(part, ONE_STEP)
    start, shard, grid = part.initialise(default_rng(0)), records_of(net, 30), CentreGrid(0.05, 100.0, 6)

    total = clipped_centres(trainer, start, shard, Units.records(np.arange(30)), grid, rng_of=in_order)

    assert total.shape == (part.dim,)
    assert np.array_equal(total, twin(trainer, start, shard, split(30, 0, 1), grid))


def module(kind: str) -> Any:
    if kind == "mlp":
        return wrap_module(nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 4)), (20,), 4)
    layers = [nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 1)]
    return wrap_module(nn.Sequential(*layers), (12, 12, 1), 2)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_torch_module_differentiates_many_units_at_once(kind: str) -> None:
    net = module(kind)
    trainer = make_trainer(net, ONE_STEP)
    start, shard = net.initialise(default_rng(0)), records_of(net, 100)
    grid, groups = CentreGrid(0.3, 100.0, 6), split(100, 0, 1)
    whole = clipped_centres(trainer, start, shard, Units.records(np.arange(100)), grid, rng_of=in_order)
    rows, cut = default_rng(1).permutation(100), 37
    parts = [
        clipped_centres(trainer, start, shard, Units.records(own), grid, rng_of=in_order)
        for own in (rows[:cut], rows[cut:])
    ]

    assert np.array_equal(whole, parts[0] + parts[1])
    wanted = twin(trainer, start, shard, groups, grid)
    assert np.abs(whole - wanted).max() <= 3  # torch rounds a product of one row otherwise than one of many
    assert np.abs(wanted).max() > 1000


def test_a_torch_module_takes_persons_of_several_sizes_and_what_torch_cannot_vectorise() -> None:
    net = module("mlp")
    trainer = make_trainer(net, ONE_STEP)
    start, shard, groups = net.initialise(default_rng(0)), records_of(net, 60), split(60, 1, 3)
    grid = CentreGrid(0.3, 100.0, 6)

    total = clipped_centres(trainer, start, shard, Units.groups(groups), grid, rng_of=in_order)

    assert np.abs(total - twin(trainer, start, shard, groups, grid)).max() <= 3
    dropping = wrap_module(nn.Sequential(nn.Linear(20, 8), nn.Dropout(0.5), nn.Linear(8, 4)), (20,), 4)
    keys: Any = {"grid": grid, "rng_of": lambda unit: default_rng(unit)}
    sums = [
        clipped_centres(
            make_trainer(dropping, ONE_STEP), dropping.initialise(default_rng(0)), shard, Units.groups(groups), **keys
        )
        for _ in range(2)
    ]
    assert np.array_equal(*sums) and sums[0].any()


def test_wrong_input_is_refused_by_name() -> None:
    net = NETWORKS["logistic"]
    trainer, start, shard = FastTrainer(net, ONE_STEP), start_of(net), records_of(net, 5)
    good = CentreGrid(0.1, 100.0, 6)

    def fails(pattern: str, own: Units | None = None, grid: CentreGrid = good, **keys: Any) -> None:
        own = Units.records(np.arange(5)) if own is None else own
        with pytest.raises(InputError, match=pattern):
            clipped_centres(trainer, start, shard, own, grid, rng_of=in_order, **keys)

    fails(r"rows of units must be in \[0, 5\), got 0 to 5", Units.records(np.array([0, 5])))
    fails("at least one row", Units.groups([np.array([1]), np.empty(0, np.int64)]))
    fails("at most 2\\^30", grid=CentreGrid(0.1, 1e7, 10))
    fails("clip_norm must be", grid=CentreGrid(0.0, 100.0, 6))
    fails("by coordinates or by encode", coordinates=np.arange(3), encode=lambda update: update)
    fails("label_weights must be finite", label_weights=np.array([np.nan, 1], np.float32))
    fails("label_weights must be 2 numbers", label_weights=np.ones(3, np.float32))
