from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.core.errors import InputError
from sottovoce.core.streams import Streams
from sottovoce.core.wire import Traffic
from sottovoce.devices import Work, joules, profile, seconds
from sottovoce.devices.clock import Cause, Clock, RoundTime, Rules, online
from sottovoce.devices.cost import expected_round, expected_slowest
from sottovoce.devices.population import Population, uniforms

MIX = {"phone-lte": 0.3, "phone-wifi": 0.5, "sensor-lorawan": 0.2}
CALM = Rules(failures=False)
SECURE = {
    "advertise": Traffic(100, 1000),
    "share": Traffic(5000, 4000),
    "mask": Traffic(20_000, 5000),
    "consistency": Traffic(100, 100),
    "unmask": Traffic(3000, 50),
}


def clock_of(
    mix: str | Mapping[str, float] = "phone-lte",
    rules: Rules = CALM,
    *,
    gflop: float = 3.6,
    up: float = 20_000,
    **more: object,
) -> Clock:
    population = Population.of(mix, Streams(5), **more)  # type: ignore[arg-type]
    answers = {"train": up} | {phase: sizes.up for phase, sizes in SECURE.items()}
    return Clock(population, lambda clients: np.full(len(clients), gflop), answers, rules)


def play(clock: Clock, clients: list[int], round_: int = 1, up: int = 20_000, down: int = 40_000) -> RoundTime:
    """Play a round of one phase."""
    playing = clock.begin(round_, clients)
    asked = dict.fromkeys(clients, down)
    lost = playing.lost("train", asked)
    playing.passed("train", asked, {client: up for client in clients if client not in lost})
    return playing.end()


def play_phases(clock: Clock, clients: list[int]) -> RoundTime:
    playing = clock.begin(1, clients)
    there = clients
    for phase, sizes in SECURE.items():
        asked = {client: int(sizes.down) for client in there}
        lost = playing.lost(phase, asked)
        there = [client for client in there if client not in lost]
        playing.passed(phase, asked, {client: int(sizes.up) for client in there})
    return playing.end()


def test_a_client_has_the_same_device_in_any_company() -> None:
    population = Population.of(MIX, Streams(5))
    alone = population.fleet(np.array([77]))
    among = population.fleet(np.arange(100))

    assert alone.up_mbps[0] == among.up_mbps[77]
    assert alone.kinds[0] == among.kinds[77]


def test_a_mix_has_its_shares_and_rates_their_medians() -> None:
    # False alarm: 5 standard errors of 100,000 clients, below 1e-6 each.
    population = Population.of(MIX, Streams(5))
    fleet = population.fleet(np.arange(100_000))

    for kind, share in enumerate(MIX.values()):
        assert np.mean(fleet.kinds == kind) == pytest.approx(share, abs=5 * (share / 1e5) ** 0.5)
    lte = fleet.up_mbps[fleet.kinds == 0]
    assert np.mean(lte < 9) == pytest.approx(0.5, abs=0.015)
    assert np.log(lte).std() == pytest.approx(0.84, rel=0.03)


def test_uniforms_of_neighbours_are_not_alike() -> None:
    # False alarm below 1e-6: correlations of 10^5 pairs have a standard error of 0.0032.
    clients = np.arange(100_000)
    some, other = uniforms([1, 2], clients)

    assert abs(np.corrcoef(some[:-1], some[1:])[0, 1]) < 0.016
    assert abs(np.corrcoef(some, other)[0, 1]) < 0.016
    assert some.mean() == pytest.approx(0.5, abs=0.005)


def test_median_rates_are_the_profile() -> None:
    assert Population.of("phone-lte", Streams(5), drawn=False).device(3) == profile("phone-lte")


@pytest.mark.parametrize(
    ("mix", "words"),
    [
        ({"phone-lte": 0.3, "phone-wifi": 0.6}, "must sum to 1, got 0.9"),
        ({"phone-lte": 1.5, "phone-wifi": -0.5}, r"must be in \(0, 1\], got 1.5"),
        ({}, "at least one"),
        ({"phone-wify": 1.0}, "did you mean 'phone-wifi'"),
    ],
)
def test_an_impossible_mix_is_refused(mix: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Population.of(mix, Streams(1))


def test_one_round_costs_what_the_formula_says_for_each_device() -> None:
    clock, clients = clock_of(MIX), list(range(40))
    work = Work(20_000, 40_000, 3.6)

    found = play(clock, clients)

    devices = [clock.population.device(client) for client in clients]
    each = [joules(device, work) for device in devices]
    assert found.seconds == pytest.approx(max(seconds(device, work) for device in devices))
    assert found.joules is not None
    for part in ("radio_bytes", "radio_sessions", "training", "total"):
        for bound in ("low", "default", "high"):
            expected = np.mean([getattr(getattr(one, part), bound) for one in each])
            assert getattr(getattr(found.joules, part), bound) == pytest.approx(expected)


def test_phases_wait_for_the_slowest_and_their_silences_are_charged() -> None:
    clock = clock_of("phone-lte", drawn=False)
    slow = replace(clock, rules=replace(CALM, latency={1: (10.0, 10.0)}))

    found = play_phases(slow, [0, 1])

    one = profile("phone-lte")
    parts = [Work(sizes.up, sizes.down, 3.6 if phase == "mask" else 0.0) for phase, sizes in SECURE.items()]
    waits = sum(seconds(one, part) for part in parts)
    assert found.seconds == pytest.approx(5 * 20 + waits - 5 * 0.09)
    fast = sum((joules(one, part) for part in parts[1:]), joules(one, parts[0]))  # silent for 20 s between all phases
    lame = joules(one, Work(sum(p.bytes_up for p in parts), sum(p.bytes_down for p in parts), 3.6))
    assert found.joules is not None
    assert found.joules.total.default == pytest.approx((fast.total.default + lame.total.default) / 2)


def test_who_is_late_is_lost_and_the_server_waits_for_the_deadline() -> None:
    clock = clock_of()
    clients = list(range(50))
    times = [seconds(clock.population.device(client), Work(20_000, 40_000, 3.6)) for client in clients]
    deadline = float(np.median(times))

    found = play(replace(clock, rules=replace(CALM, deadline=deadline)), clients)

    assert found.lost == {c: Cause.DEADLINE for c, taken in zip(clients, times, strict=True) if taken > deadline}
    assert found.seconds == deadline


def test_nobody_is_waited_for_longer_than_it_takes() -> None:
    clock = clock_of()

    assert play(replace(clock, rules=replace(CALM, deadline=1e6)), [1, 2]).seconds == play(clock, [1, 2]).seconds


def test_the_fastest_of_those_invited_are_enough() -> None:
    clock = clock_of()
    clients = list(range(13))
    times = {client: seconds(clock.population.device(client), Work(20_000, 40_000, 3.6)) for client in clients}

    found = play(replace(clock, rules=replace(CALM, target=10)), clients)

    slowest = sorted(clients, key=times.__getitem__)[10:]
    assert found.lost == dict.fromkeys(slowest, Cause.SURPLUS)
    assert found.seconds == pytest.approx(sorted(times.values())[9])
    assert found.causes() == {"surplus": 3}


def test_links_and_devices_fail_as_often_as_their_profile_says() -> None:
    # False alarm: 5 standard errors of 20,000 draws, below 1e-6.
    found = play(clock_of(rules=Rules()), list(range(20_000))).causes()

    assert found["availability"] / 20_000 == pytest.approx(0.08, abs=0.01)
    assert found["link"] / 20_000 == pytest.approx(0.0199 * 0.92, abs=0.005)


def test_by_night_more_phones_are_there_than_by_day() -> None:
    # False alarm: 5 standard errors of 20,000 draws, below 1e-6.
    rules = Rules(daily=True)
    clock = replace(clock_of(rules=rules), period=12 * 3600.0)
    there = [20_000 - len(play(clock, list(range(20_000)), round_=round_).lost) for round_ in (1, 2, 3)]

    night, day, next_night = there
    assert night / day == pytest.approx(3.16, rel=0.15)  # 4 : 1 at two o'clock; here at midnight and noon
    assert next_night == pytest.approx(night, rel=0.05)
    ratio = online(np.array([0.2]), np.array([4.0]), 2.0) / online(np.array([0.2]), np.array([4.0]), 14.0)
    assert ratio[0] == pytest.approx(4)


def test_privacyfl_example_of_latencies() -> None:
    """Its shipped example: 0.1 s for every pair, 2.0 s for one client, 0.3 s from another to the server."""
    ways = dict.fromkeys(range(3), (0.1, 0.1)) | {0: (0.3, 0.1), 1: (2.0, 2.0)}
    clock = clock_of("hospital-fixed", replace(CALM, latency=ways), gflop=0, drawn=False)

    assert play(clock, [0, 2], up=0, down=0).seconds == pytest.approx(0.4)
    assert play(clock, [0, 1, 2], up=0, down=0).seconds == pytest.approx(4.0, rel=1e-3)


def test_one_way_alone_can_be_given() -> None:
    clock = clock_of("phone-lte", replace(CALM, latency={0: (1.0, None)}), gflop=0, drawn=False, up=0)

    assert play(clock, [0], up=0, down=0).seconds == pytest.approx(1.045)


def test_the_clock_is_not_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = play(clock_of(rules=Rules()), list(range(30)))
    for name in ("time", "perf_counter", "monotonic", "process_time"):
        monkeypatch.setattr(time, name, lambda: pytest.fail("looked at the host's clock"))

    assert play(clock_of(rules=Rules()), list(range(30))) == before


def test_lost_clients_do_not_depend_on_who_else_is_asked() -> None:
    clock = clock_of(rules=Rules())
    all_of_them = play(clock, list(range(200))).lost

    assert play(clock, list(range(100))).lost == {c: cause for c, cause in all_of_them.items() if c < 100}


def test_devices_that_are_looked_up_are_those_that_are_worked_out() -> None:
    clock, clients = clock_of(MIX, Rules(deadline=100.0)), [3, 17, 40, 41]

    assert play(replace(clock, clients=50), clients) == play(clock, clients)


def test_phases_may_ask_in_any_order() -> None:
    clock, clients = clock_of(MIX), [0, 1, 2, 3]
    sizes = {client: 1000 * (client + 1) for client in clients}
    found = []
    for order in (clients, clients[::-1]):
        playing = clock.begin(1, clients)
        playing.passed("train", {client: sizes[client] for client in order}, dict.fromkeys(order, 500))
        found.append(playing.end())

    assert found[0].seconds == found[1].seconds
    assert found[0].joules is not None
    assert found[1].joules is not None
    assert found[0].joules.total.default == pytest.approx(found[1].joules.total.default)


def test_a_round_of_nobody_takes_no_time() -> None:
    assert play(clock_of(), []) == RoundTime(0.0, None, {})


@pytest.mark.parametrize("rules", [CALM, Rules(), Rules(deadline=1.5), Rules(deadline=30.0)])
def test_expected_values_are_the_averages_of_many_rounds(rules: Rules) -> None:
    # False alarm: 5 standard errors, below 1e-6.
    clock, clients, rate, rng = clock_of(rules=rules), 60, 0.2, np.random.default_rng(3)
    rounds = [
        play(clock, np.flatnonzero(rng.random(clients) < rate).tolist(), round_=number) for number in range(1, 601)
    ]
    taken = np.array([one.seconds for one in rounds])

    expected = expected_round(clock, {"train": Traffic(20_000, 40_000)}, clients=clients, cohort=clients * rate)

    assert expected.seconds == pytest.approx(taken.mean(), abs=5 * taken.std() / 600**0.5 + 1e-9)


def test_the_expected_slowest_is_the_sum_over_all_cohorts() -> None:
    """Compare with the slow twin: every cohort, and everyone missing or not, with its chance."""
    times, missing, rate = np.array([1.0, 2.0, 5.0]), np.array([0.1, 0.5, 0.2]), 0.3
    for deadline in (None, 9.0):
        total = 0.0
        for states in np.ndindex(3, 3, 3):  # not drawn, missing, there
            chances = [(1 - rate, rate * m, rate * (1 - m))[state] for state, m in zip(states, missing, strict=True)]
            slowest = max((t for t, state in zip(times, states, strict=True) if state == 2), default=0.0)
            waits = deadline is not None and 1 in states
            total += float(np.prod(chances)) * (deadline if waits and deadline is not None else slowest)
        assert expected_slowest(times, missing, rate, 1.0, deadline) == pytest.approx(total)


def test_a_large_population_is_represented_by_some_of_it() -> None:
    clock = clock_of()
    phases = {"train": Traffic(20_000, 40_000)}
    some = expected_round(clock, phases, clients=20_000, cohort=100)
    many = expected_round(clock, phases, clients=10**9, cohort=100)

    assert many.seconds == pytest.approx(some.seconds, rel=0.1)
    assert many.joules.total.default == pytest.approx(some.joules.total.default, rel=0.05)


def test_expected_joules_are_those_of_the_average_client() -> None:
    clock = clock_of(drawn=False)
    found = expected_round(clock, {"train": Traffic(20_000, 40_000)}, clients=50, cohort=5)

    assert found.joules.total == joules(profile("phone-lte"), Work(20_000, 40_000, 3.6)).total
    assert found.lost == 0
