"""FL-ONCE: what a message is, how long it is, and which model the server makes of the sum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError, WireError
from sottovoce.core.vectors import Layout
from sottovoce.schemes.once import Moments, Once

RNG = np.random.default_rng


def bound(features: int = 6, outputs: int = 3, **keys: Any) -> Once:
    layout = Layout((("1.kernel", (features, outputs)), ("1.bias", (outputs,))))
    return Once(**keys).fit(layout).bind(layout.dim)


def records(count: int = 40, features: int = 6, classes: int = 3, seed: int = 0) -> tuple[Any, Any]:
    rng = RNG(seed)
    y = rng.integers(0, classes, count)
    centres = rng.standard_normal((classes, features))
    return (centres[y] + 0.3 * rng.standard_normal((count, features))).astype(np.float32), y


def slow_model(x: Any, y: Any, classes: int, ridge: float, gain: float) -> Any:
    """Solve the normal equations of all records at once, by loops."""
    d = x.shape[1]
    a, b = np.zeros((d, d)), np.zeros((d, classes))
    for record, label in zip(x.astype(np.float64), y, strict=True):
        direction = record / math.sqrt(sum(value * value for value in record))
        target = np.array([(label == c) - 1 / classes for c in range(classes)])
        a += np.outer(direction, direction) / len(x)
        b += np.outer(direction, target) / len(x)
    weights = np.linalg.solve(a + ridge * np.trace(a) / d * np.eye(d), b)
    return gain * np.concatenate([weights.ravel(), np.zeros(classes)])


def test_the_mean_of_the_clients_messages_gives_the_ridge_regression_of_all_their_records() -> None:
    scheme = bound()
    x, y = records(40)
    messages = [scheme.statistics(x[k::4], y[k::4]) for k in range(4)]

    params = scheme.decode(np.mean(messages, axis=0), {}, 0, RNG())["params"]

    assert params == pytest.approx(slow_model(x, y, 3, scheme.ridge, scheme.gain), rel=1e-4, abs=1e-5)


def test_a_message_is_as_long_as_its_moments_and_gives_them_back() -> None:
    scheme = bound()
    rng = RNG(1)
    a = rng.standard_normal((6, 6))
    moments = Moments(a + a.T, rng.standard_normal((6, 3)))

    message = scheme.pack(moments)

    assert len(message) == scheme.length == 21 + 18
    found = scheme.unpack(message)
    assert np.linalg.norm(message) == pytest.approx(math.hypot(np.linalg.norm(moments.a), np.linalg.norm(moments.b)))
    assert found.a == pytest.approx(moments.a, abs=1e-6) and found.b == pytest.approx(moments.b, abs=1e-6)
    assert found.means is None


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 12),
    features=st.integers(1, 9),
    outputs=st.sampled_from([1, 3]),
    scale=st.floats(1e-3, 1e3),
    record_norm=st.none() | st.floats(0.1, 10),
    seed=st.integers(0, 2**32),
)
def test_no_message_is_shorter_than_the_public_norm_and_none_is_longer_than_two(
    count: int, features: int, outputs: int, scale: float, record_norm: float | None, seed: int
) -> None:
    scheme = bound(features, outputs, record_norm=record_norm)
    x, y = records(count, features, max(2, outputs), seed)

    norm = np.linalg.norm(scheme.statistics(x * np.float32(scale), y).astype(np.float64))

    assert scheme.public_norm * (1 - 1e-5) <= norm <= math.sqrt(2)


def test_the_scale_of_the_clip_norm_cancels_out_of_the_model() -> None:
    scheme = bound()
    x, y = records()
    message = scheme.statistics(x, y)
    noisy = message + RNG(2).normal(0, 0.01, len(message)).astype(np.float32)

    one, tenth = (
        scheme.with_noise(0.01 * scale).decode(noisy * np.float32(scale), {}, 0, RNG())["params"] for scale in (1, 0.1)
    )

    assert tenth == pytest.approx(one, rel=1e-4, abs=1e-5)


def test_an_eigenvalue_counts_as_the_root_of_its_square_and_that_of_the_noise() -> None:
    scheme = bound(features=2, outputs=1, ridge=0.0, gain=1.0).with_noise(0.2)
    tau = 0.2 * math.sqrt(3 / 2)

    params = scheme.decode(scheme.pack(Moments(np.diag([0.4, -0.1]), np.array([[0.3], [0.6]]))), {}, 0, RNG())["params"]

    assert params == pytest.approx([0.3 / math.hypot(0.4, tau), 0.6 / tau, 0], rel=1e-6)


def test_tau_is_the_root_mean_square_of_the_eigenvalues_of_noise() -> None:
    """The mean over 200 matrices of 30 squared eigenvalues is within 2 %: five standard deviations, 6e-7."""
    size, scheme = 30, bound(features=30, outputs=1)
    triangle = size * (size + 1) // 2
    rng = RNG(3)
    squares = []
    for _ in range(200):
        noise = np.zeros(scheme.length, np.float32)
        noise[:triangle] = rng.standard_normal(triangle)
        squares.append(np.mean(np.linalg.eigvalsh(scheme.unpack(noise).a) ** 2))

    assert np.mean(squares) == pytest.approx((size + 1) / 2, rel=0.02)


def test_without_a_record_norm_only_directions_count() -> None:
    scheme = bound()
    x, y = records()
    lengths = RNG(4).uniform(0.1, 50, (len(x), 1)).astype(np.float32)

    assert scheme.statistics(x * lengths, y) == pytest.approx(scheme.statistics(x, y), abs=1e-6)


def test_an_empty_record_adds_nothing_and_is_no_error() -> None:
    scheme = bound()
    x, y = records(2)
    padded = np.concatenate([x, np.zeros_like(x)])

    assert scheme.statistics(padded, np.tile(y, 2)) == pytest.approx(scheme.statistics(x, y) / 2, abs=1e-7)
    assert not scheme.statistics(x[:0], y[:0]).any()


def slow_centred_model(shards: list[tuple[Any, Any]], norm: float, ridge: float) -> tuple[Any, Any]:
    """Solve about each client's own means, by loops over records, and set the bias by the means of all."""
    a, b = np.zeros((6, 6)), np.zeros((6, 3))
    all_x, all_t = [], []
    for x, y in shards:
        scaled = [record / norm * min(1.0, norm / np.linalg.norm(record)) for record in x.astype(np.float64)]
        targets = [np.eye(3)[label] - 1 / 3 for label in y]
        for record, target in zip(scaled, targets, strict=True):
            dx, dt = record - np.mean(scaled, axis=0), target - np.mean(targets, axis=0)
            a += np.outer(dx, dx) / len(x) / len(shards)
            b += np.outer(dx, dt) / len(x) / len(shards)
        all_x += scaled
        all_t += targets
    kernel = np.linalg.solve(a + ridge * np.trace(a) / 6 * np.eye(6), b)
    return kernel / norm, np.mean(all_t, axis=0) - np.mean(all_x, axis=0) @ kernel


@pytest.mark.parametrize("clip", [1.0, 0.05])
def test_with_a_record_norm_moments_are_about_the_clients_means_and_the_model_has_a_bias(clip: float) -> None:
    scheme = bound(record_norm=2.0, gain=1.0)
    x, y = records(40)
    x += 1  # a mean that an origin would see
    shards = [(x[k::4], y[k::4]) for k in range(4)]
    messages = [clip * scheme.statistics(*shard) for shard in shards]

    params = scheme.decode(np.mean(messages, axis=0), {}, 0, RNG())["params"].astype(np.float64)
    kernel, bias = slow_centred_model(shards, 2.0, scheme.ridge)

    assert np.any(np.linalg.norm(x, axis=1) > 2) and np.any(np.linalg.norm(x, axis=1) < 2)
    assert params[:18].reshape(6, 3) == pytest.approx(kernel, rel=1e-3, abs=1e-4)
    assert params[18:] == pytest.approx(bias, rel=1e-3, abs=1e-4)
    assert np.abs(bias).max() > 0.01


def test_a_bias_is_not_blown_up_by_a_sum_that_drowned() -> None:
    scheme = bound(record_norm=2.0, gain=1.0).with_noise(1.0)
    message = np.zeros(scheme.length, np.float32)
    message[-4:] = [0.1, 0.1, 0.1, -0.01]  # the means of t, and less than nobody

    assert np.abs(scheme.decode(message, {}, 0, RNG())["params"][18:]).max() <= 1 / (scheme.public_norm / 4)


def test_two_classes_with_one_output_are_told_apart_by_its_sign() -> None:
    scheme = bound(outputs=1)
    x, y = records(classes=2)
    params = scheme.decode(scheme.statistics(x, y), {}, 0, RNG())["params"]

    assert np.mean((x @ params[:6] > 0) == (y == 1)) > 0.9


def test_a_sum_of_nothing_gives_a_model_of_zeros() -> None:
    assert not bound().decode(np.zeros(39, np.float32), {}, 0, RNG())["params"].any()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            (("1.kernel", (6, 4)), ("1.bias", (4,)), ("2.kernel", (4, 3)), ("2.bias", (3,))),
            'name = "logistic"',
        ),
        ((("weight", (3, 6)), ("bias", (3,))), "one linear layer"),
        ((("0.kernel", (5, 5, 1, 8)), ("0.bias", (8,))), "one linear layer"),
        ((("1.kernel", (5000, 10)), ("1.bias", (10,))), "at most 4096, got 5000"),
    ],
)
def test_a_model_that_cannot_be_solved_for_is_refused(tensors: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Once().fit(Layout(tensors))


def test_clients_are_told_nothing_and_take_nothing() -> None:
    scheme = bound()

    assert scheme.downlink({"params": np.zeros(21, np.float32)}, 0) == b""
    with pytest.raises(WireError, match="empty downlink, got 1 bytes"):
        scheme.receive(b"x", {})


@pytest.mark.parametrize("keys", [{"record_norm": 0.0}, {"ridge": -1.0}, {"gain": 0.0}, {"gain": math.inf}])
def test_keys_out_of_range_are_refused(keys: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(keys))):
        Once(**keys)
