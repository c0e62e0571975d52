"""`sottovoce.Privacy`: the keys of `[privacy]`, and what `simulate` fills in."""

from __future__ import annotations

import inspect
import tomllib
from typing import Any

import pytest

import sottovoce as sv
from sottovoce.api.privacy import filled
from sottovoce.config import tables
from sottovoce.privacy.accounting.calculator import calculate
from sottovoce.schemes import make
from tests.api.small import blobs, simulate


def test_privacy_has_the_keys_and_defaults_of_the_table() -> None:
    assert (
        set(sv.Privacy.model_fields)
        == set(tables.PrivacyTable.model_fields)
        == set(inspect.signature(sv.Privacy).parameters)
    )
    assert sv.Privacy().model_dump() == tables.PrivacyTable().model_dump()


@pytest.mark.parametrize(
    "keys", [{"epsilom": 1.0}, {"epsilon": "much"}, {"clipping": "fix"}, {"vote_noise_multiplier": 0.0}]
)
def test_errors_are_those_of_the_experiment_file(keys: dict[str, Any]) -> None:
    with pytest.raises(sv.ConfigError) as from_file:
        sv.parse({"privacy": keys}, where="Privacy")

    with pytest.raises(sv.ConfigError) as told:
        sv.Privacy(**keys)

    assert str(told.value) == str(from_file.value)


def test_privacy_cannot_be_changed() -> None:
    promise = sv.Privacy(epsilon=1)

    with pytest.raises(Exception, match="frozen"):
        promise.epsilon = 2.0  # type: ignore[misc]


def experiment(scheme: str, public: str | None = None, clients: int = 100) -> sv.Experiment:
    named = {"name": scheme} | ({} if public is None else {"public": public})
    return sv.parse({"scheme": named, "data": {"clients": clients}})


def test_a_small_federation_adapts_by_a_count_that_leaves_the_updates_their_budget() -> None:
    few = filled(sv.Privacy(epsilon=1), make("fl-std"), experiment("fl-std"))
    many = filled(sv.Privacy(epsilon=1), make("fl-std"), experiment("fl-std", clients=6000))

    noise = calculate(sample_rate=0.1, rounds=100, delta=1e-5, epsilon=1.0)["noise_multiplier"]
    assert few["count_stddev"] > 0.9 * noise
    assert "count_stddev" not in many


def test_what_is_filled_in_reads_back_as_the_same_table() -> None:
    table = filled(sv.Privacy(epsilon=1), make("fl-top"), experiment("fl-top"))

    assert tomllib.loads('epsilon = 1.0\nclipping = "adaptive"').items() <= table.items()
    assert sv.parse({"privacy": table, "scheme": {"name": "fl-top"}}).privacy is not None


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_the_vote_costs_no_more_than_a_quarter_of_epsilon(epsilon: float) -> None:
    table = filled(sv.Privacy(epsilon=epsilon), make("fl-top"), experiment("fl-top"))

    cost = calculate(sample_rate=0.1, rounds=1, delta=1e-5, noise_multiplier=table["vote_noise_multiplier"])
    assert cost["epsilon"] <= epsilon / 4


@pytest.mark.parametrize(
    ("privacy", "scheme", "public"),
    [
        (sv.Privacy(epsilon=1, clip_norm=0.5), "fl-std", None),
        (sv.Privacy(epsilon=1, clip_norm=0.5), "fl-top", "mnist"),
        (sv.Privacy(epsilon=1, clip_norm=0.5, vote_noise_multiplier=2.0), "fl-top", None),
        (sv.Privacy(epsilon=1), "fl-sign", None),
    ],
)
def test_nothing_is_filled_in_where_nothing_is_missing(privacy: sv.Privacy, scheme: str, public: str | None) -> None:
    assert filled(privacy, make(scheme), experiment(scheme, public)) == privacy.model_dump(exclude_unset=True)


def test_clients_of_simulate_cast_ballots_and_nothing_is_filled_in_that_ballots_do_not_have() -> None:
    private = {"noise_multiplier": 1.0, "delta": 1e-3}
    keys: dict[str, Any] = {"secure": "ideal-ballot", "classes": [0, 1, 2]}

    told = simulate(blobs(), privacy={**private, "clip_norm": 1.0}, ballot="sign", **keys).summary

    assert (told["secure"], told["ballot"], told["votes"]) == ("ideal-ballot", "sign", 1.0)
    with pytest.raises(sv.InputError, match=r'clip_norm is missing; set it, or clipping = "public"$'):
        simulate(blobs(), privacy=private, **keys)
    with pytest.raises(sv.ConfigError, match='ballot must be "sign", "stochastic" or "rotated", got "nope"'):
        simulate(blobs(), privacy=private, ballot="nope", **keys)
