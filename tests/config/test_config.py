from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sottovoce.config.experiment import load, parse, to_toml
from sottovoce.core.errors import ConfigError, InputError

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.name)
def test_every_shipped_file_is_valid(path: Path) -> None:
    assert load(path).experiment.name == path.stem


@pytest.mark.parametrize("name", ["fl-std", "fl-sign", "fl-cs", "fl-top", "fl-rnd", "fl-freq", "fl-basic", "fl-bas-3"])
def test_every_scheme_runs_with_its_name_alone(name: str) -> None:
    assert parse({"scheme": {"name": name}}).make_scheme().name == name


def test_a_file_survives_being_written_and_read(tmp_path: Path) -> None:
    experiment = load(EXPERIMENTS / "fashion-std.toml", ["scheme.name=fl-top", "scheme.ratio=0.005"])
    path = tmp_path / "copy.toml"
    path.write_text(to_toml(experiment.tables()), encoding="utf-8")

    again = load(path)

    assert again.tables() == experiment.tables()
    assert again.identity() == experiment.identity()
    assert again.cohort.sample_rate == Fraction(1, 60)


@pytest.mark.parametrize(
    ("change", "place", "value"),
    [
        ("experiment.rounds=7", ("experiment", "rounds"), 7),
        ("cohort.sample_rate=1/3", ("cohort", "sample_rate"), Fraction(1, 3)),
        ("cohort.sample_rate=0.25", ("cohort", "sample_rate"), Fraction(1, 4)),
        ("data.partition=dirichlet", ("data", "partition"), "dirichlet"),
        ('client.batch_size="all"', ("client", "batch_size"), "all"),
        ("client.batch_size=all", ("client", "batch_size"), "all"),
        ("client.balanced=true", ("client", "balanced"), True),
    ],
)
def test_every_key_can_be_set(change: str, place: tuple[str, str], value: Any) -> None:
    experiment = load(EXPERIMENTS / "quickstart.toml", [change])

    assert getattr(getattr(experiment, place[0]), place[1]) == value


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("client.local_step=5", r"\[client\] has no key 'local_step'; did you mean 'local_steps'\?"),
        ("clients.local_steps=5", r"no table \[clients\]; did you mean \[client\]"),
        ("scheme.name=fl-topp", "did you mean 'fl-top'"),
        ("scheme.ration=0.1", "'ration'"),
        ("cohort.sample_rate=2", r"sample_rate must be in \(0, 1\], got 2"),
        ("cohort.sample_rate=0", r"sample_rate must be in \(0, 1\], got 0"),
        ("cohort.sample_rate=1/0", "must be a number or a fraction"),
        ("cohort.sample_rate=often", "must be a number or a fraction"),
        ("experiment.rounds=0", r"\[experiment\] rounds must be at least 1, got 0"),
        ("experiment.rounds=2.5", r"\[experiment\] rounds must be a whole number, got 2.5"),
        ("experiment.rounds=true", r"\[experiment\] rounds must be a whole number, got true"),
        (
            'experiment.name="../up"',
            r"\[experiment\] name must have only letters, digits, '\.', .*\.\./up",
        ),
        ('experiment.name="a b"', r"\[experiment\] name must have only letters, digits, .* got \"a b\""),
        ("experiment.name=3", r"\[experiment\] name must be a text, got 3"),
        ("experiment.seed=-1", r"\[experiment\] seed must be in \[0, 2\^63\), got -1"),
        ("data.held_out=1", r"\[data\] held_out must be in \[0, 1\), got 1"),
        ("client.batch_size=some", r'\[client\] batch_size must be a whole number or "all", got "some"'),
        ("client.batch_size=0", r"\[client\] batch_size must be at least 1, got 0"),
        ("client.balanced=1", r"\[client\] balanced must be true or false or .down-sampling.* got 1"),
        ("client.client_lr=inf", r"\[client\] client_lr must be finite, got inf"),
        ("client.optimizer=adamm", r'optimizer must be "sgd" or "adam", got "adamm"; did you mean "adam"\?'),
        ("data.source=[1]", r"\[data\] source must be a text or a list of texts, got \[1\]"),
        ("data.clients={a = 1}", r'\[data\] clients must be a whole number, got \{"a": 1\}'),
        ("devices.dropout=often", r"\[devices\] dropout must be a number or a table of numbers, got"),
        ("devices.leave=3", r"\[devices\] leave must be a list of lists, got 3"),
        ("devices.leave=[3]", r"\[devices\] leave \(place 0\) must be a list of lists, got 3"),
        ("cohort.cap=none", r"\[cohort\] cap must be a whole number, got"),
        ("privacy.epsilon=0", r"\[privacy\] epsilon must be in \[0\.001, 10000\], got 0"),
        ("aggregation.graph_colluders=2", r"\[aggregation\] graph_colluders must be in \[0, 1\], got 2"),
        ("scheme.keys={ratio = 0.1}", "has no key 'keys'"),
        ("sweep.scheme=3", r"--set wants sweep\.table\.key=\[values\], got 'sweep\.scheme=3'"),
        ("sweep.scheme.name=[3]", r"\[sweep\] scheme\.name must be a list of schemes such as .*, got 3"),
        ("sweep.schema.name=[3]", r"\[sweep\] has no table 'schema'; did you mean 'scheme'\?"),
        ("sweep.scheme.ration=[0.1]", r"\[sweep\] scheme has no key 'ration'"),
        ("sweep.client.clientlr=[0.1]", r"\[sweep\] client has no key 'clientlr'; did you mean 'client_lr'\?"),
        ("client.client_lr=0", r"\[client\] client_lr must be above 0, got 0"),
        ("client.client_lr=nan", r"\[client\] client_lr must be"),
        ("data.partition=random", r"\[data\] partition must be"),
        ("experiment.patience=3", "held_out is 0; set it"),
        ("nonsense", "--set wants table.key=value"),
        ("scheme.name=sign-sgd", "needs every client in every round"),
    ],
)
def test_bad_input_is_one_clear_sentence(change: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        load(EXPERIMENTS / "quickstart.toml", [change])

    assert "\n" not in str(caught.value)
    for leak in ("Input should", "should match", "valid ", "Value error"):
        assert leak not in str(caught.value)


@pytest.mark.parametrize("sweep", [3, {"scheme": 3}, {"scheme": ["fl-std"]}])
def test_a_sweep_that_is_no_table_of_lists_is_refused(sweep: Any) -> None:
    with pytest.raises(ConfigError, match=r"sweep\]? .*must (be a table|name a key)"):
        parse({"sweep": sweep})


def test_a_set_into_a_sweep_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("sweep = 3\n", encoding="utf-8")

    with pytest.raises(ConfigError, match="sweep is not a table"):
        load(tmp_path / "odd.toml", ["sweep.scheme.name=[3]"])


def test_a_sweep_may_hold_a_key_that_only_some_of_its_schemes_have() -> None:
    swept = parse({"sweep": {"scheme": {"name": ["fl-std", "fl-top"], "ratio": [0.1]}}})

    assert swept.sweep["scheme"]["ratio"] == [0.1]


def test_ratios_outside_their_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"ratio must be in \(0, 1\], got 3"):
        parse({"scheme": {"name": "fl-top", "ratio": 3}})


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no experiment file .*nowhere.toml"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "broken.toml").write_text("[experiment\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken.toml: not TOML"):
        load(tmp_path / "broken.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "binary.toml")


@pytest.mark.parametrize("entry", [[7, 1, "mask"], [-1, 1, "mask"], [1, -1, "mask"], [1, 100, "mask"]])
def test_a_client_that_could_never_leave_is_said(entry: list[Any]) -> None:
    with pytest.raises(InputError, match=r"\[devices\] leave .* never happens: rounds are 1 to 6"):
        parse({"experiment": {"rounds": 6}, "devices": {"leave": [entry]}})
