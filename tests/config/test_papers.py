"""The papers' cost formula against cells that their tables print."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sottovoce.federation.cohort import Cohort
from sottovoce.privacy import PrivacyPlan
from sottovoce.runs.summary import paper_cost, paper_sign_bits
from sottovoce.schemes import make

FASHION, MEDICAL, CIFAR, IMDB = 1_663_370, 1_496_601, 1_369_738, 402_701
HUNDRED_OF = {6000: Fraction(1, 60), 5010: Fraction(100, 5010), 5011: Fraction(100, 5011), 1000: Fraction(1, 10)}


def cost(name: str, ratio: float | None, dim: int, clients: int, rounds: int) -> tuple[float, float]:
    scheme = make(name, **({} if ratio is None else {"ratio": ratio})).bind(dim)
    rate = Fraction(1) if scheme.everyone else HUNDRED_OF[clients]
    return paper_cost(scheme, Cohort(clients=clients, sample_rate=rate), None, rounds)


# Tables in kilobytes; the thesis cuts some cells off instead of rounding them.
@pytest.mark.parametrize(
    ("name", "ratio", "dim", "clients", "round_", "down", "up"),
    [
        ("fl-std", None, FASHION, 6000, 200, 22178.27, 22178.27),  # Tab. 4.4
        ("fl-sign", None, FASHION, 6000, 197, 21845.59, 682.67),
        ("fl-basic", 0.005, FASHION, 6000, 193, 21402.03, 107.0),
        ("fl-basic", 0.1, FASHION, 6000, 196, 21734.70, 2173.47),
        ("fl-cs", 0.005, FASHION, 6000, 185, 20514.9, 102.56),
        ("fl-cs", 0.1, FASHION, 6000, 182, 20182.22, 2018.22),
        ("fl-top", 0.005, FASHION, 6000, 200, 110.88, 110.88),
        ("fl-top", 0.1, FASHION, 6000, 199, 2206.74, 2206.74),
        ("fl-std", None, MEDICAL, 5010, 99, 11829.42, 11829.42),  # Tab. 4.5
        ("fl-sign", None, MEDICAL, 5010, 68, 8125.26, 253.91),
        ("fl-cs", 0.05, MEDICAL, 5010, 98, 11709.93, 585.5),
        ("fl-top", 0.001, MEDICAL, 5010, 68, 8.12, 8.12),
        ("fl-top", 0.1, MEDICAL, 5010, 90, 1075.40, 1075.40),
        ("fl-basic", 0.005, FASHION, 6000, 200, 22178.27, 110.88),  # Tab. 5.5, private: floats have 32 bits
        ("fl-top", 0.05, FASHION, 6000, 152, 842.77, 842.77),
        ("fl-cs", 0.1, MEDICAL, 5010, 96, 11470.95, 1147.09),  # Tab. 5.6
    ],
)
def test_costs_both_ways_are_those_of_tables_4_4_to_5_6(
    name: str, ratio: float | None, dim: int, clients: int, round_: int, down: float, up: float
) -> None:
    assert cost(name, ratio, dim, clients, round_) == pytest.approx((up * 1e3, down * 1e3), rel=1e-3, abs=11)


@pytest.mark.parametrize(
    ("name", "ratio", "dim", "clients", "round_", "megabit"),
    [
        ("fl-rnd", 0.05, FASHION, 6000, 192, 8.52),  # Tab. 4.2
        ("fl-freq", 0.1, FASHION, 6000, 197, 17.48),
        ("fl-cs", 0.2, FASHION, 6000, 193, 34.24),
        ("fl-std", None, FASHION, 6000, 191, 169.44),
        ("sign-sgd", None, FASHION, 6000, 200, 332.67),
        ("fl-rnd", 0.05, MEDICAL, 5011, 99, 4.73),  # Tab. 4.3
        ("fl-freq", 0.2, MEDICAL, 5011, 100, 19.11),
        ("fl-std", None, MEDICAL, 5011, 99, 94.62),
        ("sign-sgd", None, MEDICAL, 5011, 39, 58.37),
    ],
)
def test_costs_up_are_those_of_tables_4_2_and_4_3(
    name: str, ratio: float | None, dim: int, clients: int, round_: int, megabit: float
) -> None:
    up, down = cost(name, ratio, dim, clients, round_)

    assert up * 8 / 1e6 == pytest.approx(megabit, abs=0.006)
    if name == "sign-sgd":
        assert down == up


@pytest.mark.parametrize(
    ("name", "dim", "round_", "megabyte"),
    [
        ("fl-std", CIFAR, 375, 205.46),
        ("fl-sign", CIFAR, 386, 6.61),
        ("fl-std", FASHION, 90, 59.88),
        ("fl-sign", FASHION, 68, 1.41),
        ("fl-std", IMDB, 84, 13.53),
        ("fl-sign", IMDB, 91, 0.46),
    ],
)
def test_costs_up_are_those_of_table_4_1(name: str, dim: int, round_: int, megabyte: float) -> None:
    assert cost(name, None, dim, 1000, round_)[0] / 1e6 == pytest.approx(megabyte, abs=0.006)


@pytest.mark.parametrize(
    ("sigma", "dim", "clients", "round_", "down", "up"),
    [
        (1.54, FASHION, 6000, 187, 20736.68, 14256.47),  # Tab. 5.5
        (1.49, MEDICAL, 5010, 97, 11590.44, 7968.43),  # Tab. 5.6
    ],
)
def test_fl_sign_dp_costs_22_bits_a_sign_as_tables_5_5_and_5_6_print(
    sigma: float, dim: int, clients: int, round_: int, down: float, up: float
) -> None:
    scheme = make("fl-sign").bind(dim)
    cohort = Cohort(clients=clients, sample_rate=HUNDRED_OF[clients])
    plan = PrivacyPlan.solve(
        clients=clients,
        sample_rate=float(cohort.sample_rate),
        rounds=round_,
        delta=1e-5,
        length=dim,
        noise_multiplier=sigma,
        accountant="moments",
        form="signs",
    )

    assert paper_cost(scheme, cohort, plan, round_) == pytest.approx((up * 1e3, down * 1e3), rel=1e-5)


@pytest.mark.parametrize(("sigma", "bits"), [(1.5406, 22), (1.0844, 21), (0.8100, 21)])
def test_a_noisy_sign_has_the_bits_of_tables_5_1_and_5_2(sigma: float, bits: int) -> None:
    """Epsilon 1, 2 and 4 by the papers' accountant."""
    assert paper_sign_bits(FASHION, sigma, 100) == bits
