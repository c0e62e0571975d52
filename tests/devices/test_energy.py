from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.devices import Device, Work, joules, known, profile, relay_joules, seconds, sessions

NAMES = st.sampled_from(known())
SIZES = st.floats(0, 1e7)


def test_one_packet_on_lte_of_2012_costs_a_session() -> None:
    one = joules(profile("phone-lte-2012"), Work(bytes_up=1))

    assert one.radio.default == pytest.approx(12.76, rel=1e-3)
    assert one.radio.default == pytest.approx(0.26 * 1.21 + 11.576 * 1.06, rel=0.02)  # promotion and tail


@pytest.mark.parametrize(
    ("name", "expected"), [("phone-lte-2012", 8e6 * (438.39 + 214.67) * 1e-9), ("phone-lte", 8e6 * 129.32e-9)]
)
def test_a_megabyte_up_costs_slope_and_base_power(name: str, expected: float) -> None:
    assert joules(profile(name), Work(bytes_up=1e6)).radio_bytes.default == pytest.approx(expected, rel=1e-4)


def test_a_dense_round_on_lte_costs_twelve_joules() -> None:
    dense = joules(profile("phone-lte"), Work(6.65e6, 6.65e6, gflop=3.6))

    assert dense.total.default == pytest.approx(12.1, abs=0.05)
    assert dense.radio_sessions.default == pytest.approx(2.1)
    assert dense.training.default == pytest.approx(1.8)


def test_wifi_with_208_kilobytes_both_ways() -> None:
    assert joules(profile("phone-wifi"), Work(208e3, 208e3)).radio.default == pytest.approx(0.0906, rel=1e-3)


def test_narrow_band_with_small_messages_pays_two_sessions() -> None:
    work = Work(13.5e3, 13.5e3, gflop=3.6)  # training takes ten minutes, so the radio wakes up twice

    assert sessions(profile("sensor-nbiot"), work) == 2
    assert joules(profile("sensor-nbiot"), work).radio.default == pytest.approx(2.15, abs=0.005)


def test_lorawan_counts_frames() -> None:
    assert joules(profile("sensor-lorawan"), Work(bytes_up=13_500)).radio.default == pytest.approx(7.0, abs=0.05)


@pytest.mark.parametrize(
    ("name", "size", "radio", "training"),
    [
        ("phone-5g", 6.65e6, 8.27, 1.8),
        ("phone-5g-mmwave", 6.65e6, 15.4, 1.8),
        ("wearable-ble", 208e3, 0.246, 2.9),
        ("sensor-nbiot", 208e3, 27.4, 6.2),
        ("sensor-lorawan", 33e3, 23.0, 6.2),
        ("sensor-lorawan-dr0", 13.5e3, 322, 6.2),
        ("hospital-fixed", 6.65e6, 0.213, 0.72),
        ("pi-ethernet", 6.65e6, 0.48, 2.9),
    ],
)
def test_the_worked_example_holds(name: str, size: float, radio: float, training: float) -> None:
    cost = joules(profile(name), Work(size, size, gflop=3.6))

    assert cost.radio.default == pytest.approx(radio, rel=0.01)
    assert cost.training.default == pytest.approx(training, rel=0.01)


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("phone-lte", 6.65e6, 8.2),
        ("phone-wifi", 208e3, 0.83),
        ("wearable-ble", 6.65e6, 308),
        ("sensor-nbiot", 33e3, 592),
    ],
)
def test_seconds_are_transfer_and_training(name: str, size: float, expected: float) -> None:
    assert seconds(profile(name), Work(size, size, 3.6, exchanges=0)) == pytest.approx(expected, rel=0.02)


def test_each_exchange_takes_a_round_trip() -> None:
    device = profile("phone-lte")

    assert seconds(device, Work(exchanges=5)) - seconds(device, Work(exchanges=1)) == pytest.approx(4 * 0.09)


@pytest.mark.parametrize(("phases", "expected"), [(1, 2.1), (2, 4.2), (4, 8.4)])
def test_phases_that_are_far_apart_pay_a_tail_each(phases: int, expected: float) -> None:
    work = Work(13.5e3, 13.5e3, exchanges=phases, gaps=(11.0,) * (phases - 1))

    assert joules(profile("phone-lte"), work).radio_sessions.default == pytest.approx(expected)


def test_a_short_gap_costs_the_power_of_the_tail() -> None:
    gap = joules(profile("phone-lte"), Work(1, 1, gaps=(5.0,)))

    assert gap.radio_sessions.default == pytest.approx(2.1 + 5 * 0.178)


def test_a_radio_never_draws_more_than_its_cap() -> None:
    slow = profile("phone-wifi-2012")
    fast = replace(slow, link=replace(slow.link, up_mbps=26.0))  # the law of 2012 would claim 7.5 W here

    assert joules(fast, Work(bytes_up=1e6)).radio_bytes.default == pytest.approx(2.5 * 8 / 26)


def test_a_watch_makes_its_phone_talk_too() -> None:
    extra = relay_joules(profile("wearable-ble"), Work(208e3, 208e3, gflop=3.6))

    assert extra is not None
    assert extra.radio.default == pytest.approx(0.0906, rel=1e-3)
    assert extra.training.default == 0
    assert relay_joules(profile("phone-wifi"), Work(1)) is None


def test_who_says_nothing_wakes_no_radio() -> None:
    assert joules(profile("phone-lte"), Work(gflop=1)).radio.high == 0


@given(NAMES, SIZES, SIZES, st.floats(0, 100), st.lists(st.floats(0, 30), max_size=5))
def test_more_work_never_costs_less(name: str, up: float, down: float, gflop: float, gaps: list[float]) -> None:
    device = profile(name)
    cost = joules(device, Work(up, down, gflop, gaps=tuple(gaps))).total

    for more in (
        Work(up + 1000, down, gflop, gaps=tuple(gaps)),
        Work(up, down + 1000, gflop, gaps=tuple(gaps)),
        Work(up, down, gflop + 1, gaps=tuple(gaps)),
        Work(up, down, gflop, gaps=(*gaps, 31.0)),
    ):
        larger = joules(device, more).total
        assert larger.low >= cost.low
        assert larger.default >= cost.default
        assert larger.high >= cost.high


@given(NAMES, SIZES, SIZES, st.floats(0, 100))
def test_the_interval_holds_the_default(name: str, up: float, down: float, gflop: float) -> None:
    total = joules(profile(name), Work(up, down, gflop, gaps=(0.1,))).total

    assert total.low <= total.default <= total.high


@given(NAMES, st.lists(st.tuples(SIZES, SIZES, st.floats(0, 100)), min_size=1, max_size=5))
def test_joules_add_up_over_rounds(name: str, rounds: list[tuple[float, float, float]]) -> None:
    costs = [joules(profile(name), Work(*one)) for one in rounds]
    whole = sum(costs[1:], costs[0])

    assert whole.total.default == pytest.approx(sum(cost.total.default for cost in costs))
    assert whole.radio.default + whole.training.default == pytest.approx(whole.total.default)
    assert (costs[0] * 3).total.high == pytest.approx((costs[0] + costs[0] + costs[0]).total.high)


@given(NAMES.filter(lambda name: profile(name).link.frame is None), SIZES, SIZES)
def test_bytes_cost_the_same_in_one_message_or_two(name: str, one: float, other: float) -> None:
    def bytes_of(size: float) -> float:
        return joules(profile(name), Work(bytes_up=size)).radio_bytes.default

    assert bytes_of(one) + bytes_of(other) == pytest.approx(bytes_of(one + other))


@pytest.mark.parametrize("work", [{"bytes_up": -1}, {"gflop": float("nan")}, {"gaps": (-1.0,)}])
def test_impossible_work_is_refused(work: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be at least 0"):
        Work(**work)  # type: ignore[arg-type]


def test_a_device_is_a_value() -> None:
    assert isinstance(profile("phone-lte"), Device)
    assert profile("phone-lte") == profile("phone-lte")
