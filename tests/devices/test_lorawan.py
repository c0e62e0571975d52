import pytest

from sottovoce.devices import profile
from sottovoce.devices.lorawan import frames, seconds_down, seconds_up, time_on_air


@pytest.mark.parametrize(
    ("payload", "factor", "expected"), [(255, 7, 0.3996), (64, 12, 2.7935), (128, 9, 0.6769), (13, 7, 0.0463)]
)
def test_time_on_air_is_that_of_the_published_calculators(payload: int, factor: int, expected: float) -> None:
    assert time_on_air(payload, factor, 125_000) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "size", "count", "hours"),
    [
        ("sensor-lorawan", 13_500, 56, 37 / 60),
        ("sensor-lorawan", 6_650_000, 27_480, 12.7 * 24),
        ("sensor-lorawan-dr3", 208_000, 1_809, 34),
        ("sensor-lorawan-dr0", 13_500, 265, 20.6),
    ],
)
def test_the_duty_cycle_sets_the_time_of_an_upload(name: str, size: int, count: int, hours: float) -> None:
    frame = profile(name).link.frame
    assert frame is not None

    assert frames(frame, size) == count
    assert seconds_up(frame, size) / 3600 == pytest.approx(hours, rel=0.01)


def test_a_download_waits_for_the_slower_of_the_two_duty_cycles() -> None:
    frame = profile("sensor-lorawan").link.frame
    assert frame is not None

    # DR5: 4.6 s for the empty uplink at 1 %, 4.0 s for the full downlink at 10 %
    assert seconds_down(frame, 242) == pytest.approx(0.0463 / 0.01, rel=0.01)


def test_nothing_takes_no_frame() -> None:
    frame = profile("sensor-lorawan").link.frame
    assert frame is not None

    assert frames(frame, 0) == 0
    assert frames(frame, 1) == 1
    assert frames(frame, 243) == 2
