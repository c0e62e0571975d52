"""Private runs on a front's features that say nothing of how to train: what follows from N and the features' length."""

from __future__ import annotations

from typing import Any

import pytest

from sottovoce.config.experiment import parse, with_settings

FIRST: dict[str, Any] = {
    "data": {"source": "digits", "clients": 100},
    "model": {"name": "logistic", "front": "scattering"},
    "privacy": {"epsilon": 4.0, "delta": 1e-3},
}


def test_a_file_that_says_nothing_of_training_gets_the_rules() -> None:
    made = parse(FIRST)

    assert (made.experiment.rounds, made.cohort.sample_rate, made.client.local_steps) == (20, 1, 5)
    assert (made.client.client_lr, made.server.lr, made.server.average) == (2.88, "auto", 0.8)
    assert made.privacy is not None and made.privacy.clip_norm == 0.3
    assert parse(made.tables()).tables() == made.tables()


def test_what_the_file_says_stays() -> None:
    made = parse(with_settings(FIRST, {("experiment", "rounds"): 7, ("server", "momentum"): 0.0}))

    assert (made.experiment.rounds, made.server.momentum, made.server.lr) == (7, 0.0, "auto")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("privacy", "clip_norm"), 0.6),
        (("privacy", "clipping"), "adaptive"),
        (("client", "client_lr"), 0.1),
        (("server", "lr"), 2.0),
        (("model", "front"), "none"),
        (("scheme", "name"), "fl-sign"),
        (("privacy", "unit"), "record"),
    ],
)
def test_who_chooses_a_rate_or_a_clip_norm_chooses_all(key: tuple[str, str], value: object) -> None:
    made = parse(with_settings(FIRST, {key: value}))

    assert made.experiment.rounds == 100 and made.client.client_lr != 2.88


def test_a_run_that_is_not_private_is_as_ever() -> None:
    made = parse({name: table for name, table in FIRST.items() if name != "privacy"})

    assert (made.experiment.rounds, made.server.lr) == (100, 1.0)
