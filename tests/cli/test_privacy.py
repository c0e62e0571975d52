"""Ask the calculator as a privacy engineer does."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Shell, environment

PAPERS = ("privacy", "--sample-rate", "1/60", "--rounds", "200", "--delta", "1e-5")


@pytest.mark.parametrize(("accountant", "noise"), [("pld", 1.2244), ("rdp", 1.3419), ("moments", 1.5406)])
def test_epsilon_one_needs_the_known_noise(shell: Shell, accountant: str, noise: float) -> None:
    told = shell(*PAPERS, "--epsilon", "1", "--accountant", accountant, "--json").json()

    assert list(told) == [
        "accountant",
        "sampling",
        "sample_rate",
        "rounds",
        "delta",
        "noise_multiplier",
        "epsilon",
        "epsilon_server",
        "max_participations",
        "threshold",
    ]
    assert round(told["noise_multiplier"], 4) == pytest.approx(noise, abs=1e-4)
    assert told["epsilon"] <= 1


def test_a_threshold_changes_the_servers_epsilon_alone(shell: Shell) -> None:
    keys = (*PAPERS, "--noise-multiplier", "1.2244", "--json")
    everyone, two_thirds = shell(*keys, "--threshold", "1").json(), shell(*keys).json()  # 2/3, as a run has

    assert everyone["epsilon_server"] == pytest.approx(16.28, abs=0.01)
    assert two_thirds["epsilon_server"] == pytest.approx(21.2, abs=0.04)
    assert two_thirds["epsilon"] == everyone["epsilon"]


def test_fixed_size_sampling_is_charged_truthfully(shell: Shell) -> None:
    told = shell(*PAPERS, "--noise-multiplier", "1.54", "--sampling", "fixed", "--json").json()

    assert told["epsilon"] == pytest.approx(3.097, abs=5e-4)


def test_people_read_all_digits_and_which_adversary_is_meant(shell: Shell) -> None:
    outcome = shell(*PAPERS, "--epsilon", "1")

    assert "1.2244" in outcome.out and "epsilon_server" in outcome.out
    assert "against the server" in outcome.err


def test_the_plot_is_a_page_a_picture_or_both(shell: Shell, here: Path) -> None:
    outcome = shell(*PAPERS, "--epsilon", "1", "--html", "plots/epsilon.html", "--png", "plots/epsilon.png")

    assert outcome.code == 0
    assert "epsilon, all rounds so far" in (here / "plots/epsilon.html").read_text("utf-8")
    picture = (here / "plots/epsilon.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n") and picture.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", picture[16:24])
    assert width > height > 400
    assert sorted(path.name for path in (here / "plots").iterdir()) == ["epsilon.html", "epsilon.png"]


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_a_plot_that_cannot_be_written_is_said(shell: Shell, here: Path, option: str) -> None:
    outcome = shell(*PAPERS, "--epsilon", "1", option, str(here))

    assert (outcome.code, outcome.out) == (2, "")
    assert f"{option} {here} cannot be written: it is a folder; choose another file" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--epsilon", "0"), "epsilon must be finite and above 0, got 0"),
        (("--epsilon", "-1"), "epsilon must be finite and above 0, got -1"),
        (("--noise-multiplier", "0"), "noise_multiplier must be finite and above 0, got 0"),
        (("--noise-multiplier", "1e-30"), "noise_multiplier must be at least 0.001, got 1e-30"),
        (("--epsilon", "1", "--noise-multiplier", "1"), "give either noise_multiplier or epsilon"),
        ((), "give either noise_multiplier or epsilon"),
        (("--epsilon", "1", "--delta", "0"), "delta must be in (0, 1), got 0"),
        (("--epsilon", "1", "--delta", "1"), "delta must be"),
        (("--epsilon", "1", "--rounds", "0"), "rounds must be in [1, 1e+07], got 0"),
        (("--epsilon", "1", "--sample-rate", "2"), "sample_rate must be"),
        (("--epsilon", "1", "--sample-rate", "1/0"), "--sample-rate must be a number or a fraction"),
        (("--epsilon", "1", "--accountant", "plt"), "pld"),
        (("--epsilon", "1", "--sampling", "poison"), "poisson"),
        (("--epsilon", "nan"), "epsilon must be"),
        (("--noise-multiplier", "nan"), "noise_multiplier must be"),
        (("--epsilon", "inf"), "epsilon must be"),
        (("--noise-multiplier", "inf"), "noise_multiplier must be"),
    ],
)
def test_bad_input_is_one_clear_sentence(shell: Shell, arguments: tuple[str, ...], reason: str) -> None:
    outcome = shell(*PAPERS, *arguments)

    assert outcome.code in (2, 3)
    assert outcome.out == "" and outcome.err.count("\n") == 1
    assert reason in outcome.err


def test_the_accountant_behind_is_silent() -> None:
    """dp-accounting warns through absl, of what is never unsafe; a user's stderr is not the place."""
    script = (
        "from sottovoce.privacy import calculate\n"
        "calculate(sample_rate=0.5, rounds=2, delta=1e-5, noise_multiplier=1.0, accountant='rdp')\n"
        "from absl import logging\nlogging.warning('an order was left out')\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True)

    assert out.stderr == ""


RECORDS = ("privacy", "--unit", "record", "--units", "30000", "--rounds", "80", "--threshold", "4")


def test_records_of_five_sites_have_three_epsilons(shell: Shell) -> None:
    told = shell(*RECORDS, "--epsilon-server", "1", "--json").json()

    assert 0.995 < told["epsilon_server"] <= 1
    assert told["epsilon"] < told["epsilon_server"] == told["epsilon_site"]
    assert told["noise_multiplier"] == pytest.approx(3.731 * 80**0.5 / 0.8**0.5, rel=5e-3)
    assert (told["threshold"], told["units"], told["sites"]) == (4, 30_000, 5)


def test_colluding_sites_cost_and_coins_of_units_amplify(shell: Shell) -> None:
    keys = ("privacy", "--unit", "person", "--units", "30000", "--rounds", "400", "--noise-multiplier", "3.874")
    few = shell(*keys, "--unit-rate", "1/20", "--threshold", "4", "--json").json()
    alone = shell(*RECORDS, "--epsilon-server", "1", "--colluders", "4", "--json").json()

    assert few["epsilon"] == pytest.approx(1.000, abs=2e-3)
    assert few["epsilon_server"] == pytest.approx(1.139, abs=2e-3)
    assert alone["noise_by"] == "each site by itself"
    assert alone["epsilon"] == alone["epsilon_server"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--rounds", "4", "--epsilon", "1"), 2, "--sample-rate is missing"),
        (("--rounds", "4", "--epsilon", "1", "--unit", "record"), 2, "--units is missing"),
        (("--rounds", "4", "--epsilon", "1", "--unit", "patient", "--units", "9"), 2, "--unit has no 'patient'"),
        ((*RECORDS[1:], "--epsilon", "1", "--sample-rate", "1/2"), 2, "amplifies nothing"),
        ((*RECORDS[1:], "--epsilon", "1", "--unit-rate", "1.5"), 2, "unit_rate must be in"),
        ((*RECORDS[1:], "--epsilon", "1", "--delta", "0.01"), 3, "1 / units"),
        (RECORDS[1:], 2, "give either noise_multiplier or epsilon"),
        ((*RECORDS[1:], "--epsilon", "1", "--threshold", "6"), 2, "at most the 5 sites"),
    ],
)
def test_wrong_questions_about_units_are_one_sentence(
    shell: Shell, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    outcome = shell("privacy", *arguments)

    assert outcome.code == code
    assert sentence in outcome.err
