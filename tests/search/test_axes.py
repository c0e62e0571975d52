"""The `[tune]` table: which keys are searched, and which values are tried."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runs.small import small

from sottovoce.config.experiment import Experiment, parse, with_settings
from sottovoce.core.errors import ConfigError
from sottovoce.search.axes import Axis, read_axes

PRIVATE = {"epsilon": 8.0, "delta": 1e-3, "clip_norm": 0.4}


def asked(tune: dict[str, Any], **tables: Any) -> dict[str, tuple[Any, ...]]:
    return {axis.name: axis.values for axis in read_axes(small(tune=tune, **tables))}


def usual(**tables: Any) -> dict[str, tuple[Any, ...]]:
    return {axis.name: axis.values for axis in read_axes(small(**tables))}


def test_lists_are_taken_as_they_are_and_equal_values_once() -> None:
    tune = {"client": {"client_lr": [0.5, 1, 1.0, 0.25]}, "server": {"schedule": ["linear", "constant"]}}

    assert asked(tune) == {"client.client_lr": (0.5, 1, 0.25), "server.schedule": ("linear", "constant")}


@pytest.mark.parametrize(
    ("told", "values"),
    [
        ({"from": 0.5, "to": 4.0, "steps": 4, "scale": "log"}, (0.5, 1.0, 2.0, 4.0)),
        ({"from": 0.0, "to": 0.9, "steps": 4}, (0.0, 0.3, 0.6, 0.9)),
        ({"from": 20, "to": 200, "steps": 3, "scale": "log"}, (20, 63, 200)),
        ({"from": 1, "to": 3, "steps": 9}, (1, 2, 3)),
        ({"from": 1, "to": 3.0, "steps": 2}, (1.0, 3.0)),
    ],
)
def test_a_range_has_both_its_ends_and_whole_numbers_if_both_are_whole(told: Any, values: tuple[Any, ...]) -> None:
    (made,) = asked({"client": {"local_steps": told}}).values()

    assert made == values
    assert [type(value) for value in made] == [type(value) for value in values]


def test_a_key_inside_an_inline_table_is_one_axis() -> None:
    tune = {"devices": {"dropout": {"mask": [0.1]}}}
    (axis,) = [axis for table, keys in tune.items() for axis in _inner(table, keys)]

    assert (axis.path, axis.values) == (("devices", "dropout", "mask"), (0.1,))


def _inner(table: str, keys: dict[str, Any]) -> list[Axis]:
    from sottovoce.search.axes import _axes

    return list(_axes((table,), keys))


@pytest.mark.parametrize(
    ("tune", "reason"),
    [
        ({"client": {"clientlr": [1.0]}}, r"\[tune\] client has no key 'clientlr'; did you mean 'client_lr'\?"),
        ({"clients": {"client_lr": [1.0]}}, r"\[tune\] has no table 'clients'; did you mean 'client'\?"),
        ({"scheme": {"ration": [0.1]}}, r"\[tune\] scheme has no key 'ration'"),
        ({"client": {"client_lr": []}}, r"\[tune\] client\.client_lr is an empty list; give the values to try"),
        ({"client": {"client_lr": 1.0}}, r"client\.client_lr must be a list or a range such as .*, got 1\.0"),
        ({"client": {}}, r"\[tune\] names no key"),
        ({"client": {"client_lr": {"from": 1.0, "too": 2.0}}}, r"a range has no key 'too'; did you mean 'to'\?"),
        ({"client": {"client_lr": {"from": 1.0, "to": 2.0}}}, r"needs from, to and steps, and lacks steps"),
        ({"client": {"client_lr": {"from": 2.0, "to": 1.0, "steps": 3}}}, r"from must be a number below to"),
        ({"client": {"client_lr": {"from": 1.0, "to": float("inf"), "steps": 3}}}, r"from must be a number below to"),
        ({"client": {"client_lr": {"from": "a", "to": 1.0, "steps": 3}}}, r'got from = "a" and to = 1\.0'),
        (
            {"client": {"client_lr": {"from": 1.0, "to": 2.0, "steps": 1}}},
            r"steps must be a whole number in \[2, 100\]",
        ),
        (
            {"client": {"client_lr": {"from": 0.0, "to": 2.0, "steps": 3, "scale": "log"}}},
            r'scale = "log" needs from above 0, got 0\.0',
        ),
        (
            {"client": {"client_lr": {"from": 1.0, "to": 2.0, "steps": 3, "scale": "lin"}}},
            r'scale must be "linear" or "log", got "lin"',
        ),
    ],
)
def test_a_wrong_tune_table_is_one_sentence(tune: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        asked(tune)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("privacy", "epsilon"),
        ("privacy", "delta"),
        ("privacy", "noise_multiplier"),
        ("privacy", "epsilon_server"),
        ("privacy", "max_participations"),
        ("privacy", "unsafe_public"),
        ("cohort", "sample_rate"),
        ("data", "clients"),
        ("data", "source"),
        ("aggregation", "colluders"),
        ("devices", "dropout"),
        ("experiment", "seed"),
        ("experiment", "chosen_on"),
        ("engine", "workers"),
        ("threat", "fraction"),
    ],
)
def test_what_decides_the_promise_is_not_for_tuning(table: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[tune\] {table}\.{key} is not for tuning"):
        asked({table: {key: [1]}}, privacy=PRIVATE)


def test_a_scheme_is_not_for_tuning_and_a_clip_norm_only_in_a_private_run() -> None:
    with pytest.raises(ConfigError, match="tune each scheme with a file of its own"):
        asked({"scheme": {"name": ["fl-std", "fl-top"]}})
    with pytest.raises(ConfigError, match=r"privacy\.clip_norm is for a private run"):
        asked({"privacy": {"clip_norm": [1.0]}})


def test_without_a_table_the_norm_and_both_rates_are_searched_around_the_files_own() -> None:
    rates = (0.025, 0.05, 0.1, 0.2, 0.4)

    assert usual() == {"client.client_lr": rates, "server.lr": (0.25, 0.5, 1.0, 2.0, 4.0)}
    private = usual(privacy=PRIVATE, scheme={"name": "fl-rnd", "ratio": 0.5})
    assert private["privacy.clip_norm"] == (0.1, 0.2, 0.4, 0.8, 1.6)
    assert list(private) == ["privacy.clip_norm", "client.client_lr", "server.lr"]
    assert usual(privacy={"epsilon": 8.0, "delta": 1e-3})["privacy.clip_norm"] == (0.1, 0.3, 1.0, 3.0, 10.0)
    assert "privacy.clip_norm" not in usual(privacy={**PRIVATE, "clipping": "adaptive"})


def test_a_scheme_with_a_step_of_its_own_is_searched_by_it_and_signs_have_no_norm() -> None:
    sign = {"epsilon": 8.0, "delta": 1e-3}
    assert list(usual(scheme={"name": "fl-sign"}, privacy=sign)) == ["client.client_lr", "scheme.server_lr"]
    assert usual(scheme={"name": "sign-sgd"}, cohort={"sample_rate": 1}) == {
        "scheme.server_lr": (0.00025, 0.0005, 0.001, 0.002, 0.004)
    }


def test_a_search_starts_at_the_value_next_to_the_files_own() -> None:
    rate = Axis(("client", "client_lr"), (0.01, 0.1, 1.0))

    assert [rate.nearest(value) for value in (0.1, 0.02, 0.5, 99.0)] == [1, 0, 2, 2]
    assert Axis(("server", "momentum"), (0.0, 0.5, 0.9)).nearest(0.8) == 2
    assert Axis(("server", "schedule"), ("linear", "cosine", "constant")).nearest("constant") == 2
    assert Axis(("privacy", "clip_norm"), (0.1, 0.2, 0.4)).nearest(None) == 1


def test_settings_are_put_into_a_copy_of_the_tables() -> None:
    tables = {"client": {"client_lr": 0.1}, "devices": {"dropout": {"mask": 0.1}}}

    changed = with_settings(
        tables, {("client", "client_lr"): 0.5, ("server", "lr"): 2.0, ("devices", "dropout", "share"): 0.2}
    )

    assert changed == {
        "client": {"client_lr": 0.5},
        "devices": {"dropout": {"mask": 0.1, "share": 0.2}},
        "server": {"lr": 2.0},
    }
    assert tables == {"client": {"client_lr": 0.1}, "devices": {"dropout": {"mask": 0.1}}}


def test_a_run_does_not_see_the_table() -> None:
    told: Experiment = small(tune={"client": {"client_lr": [1.0]}})

    assert "tune" not in told.tables()
    assert parse(told.tables()).identity() == small().identity()
