"""Private runs as a user has them: real workers, real folders, real kills."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.core.errors import ConfigError, InputError, PrivacyError, SottovoceError
from sottovoce.runs.folder import read_operator, read_rounds, read_summary
from sottovoce.runs.loop import run
from tests.runs.small import small

Tables = dict[str, dict[str, Any]]

ROOT = Path(__file__).parents[2]
PRIVACY = {"epsilon": 8.0, "delta": 1e-2, "clip_norm": 0.5}
SLICED = {**PRIVACY, "unsafe_public": True}  # digits have no public twin
TWINS: dict[str, Tables] = {
    "fl-std": {"privacy": PRIVACY},
    "fl-sign": {"privacy": {"epsilon": 8.0, "delta": 1e-2}},
    "fl-cs": {"scheme": {"chunks": 5}, "privacy": PRIVACY},
    "fl-top": {"privacy": SLICED},
}
VOTED: Tables = {"scheme": {"name": "fl-top", "ratio": 0.1}, "privacy": {**PRIVACY, "vote_noise_multiplier": 1.5}}


def tables(*several: Tables) -> Tables:
    """Merge tables; one worker is enough, and quicker to start."""
    merged: Tables = {"engine": {"workers": 1}}
    for each in several:
        for name, table in each.items():
            merged[name] = {**merged.get(name, {}), **table}
    return merged


class Run(NamedTuple):
    path: Path
    summary: dict[str, Any]

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "ledger.jsonl").read_text().splitlines()]

    @property
    def charges(self) -> list[int]:
        return [entry["round"] for entry in self.ledger if entry["kind"] == "charge"]

    @property
    def story(self) -> list[dict[str, Any]]:
        return read_rounds(self.path)

    @property
    def operator(self) -> list[dict[str, Any]]:
        """Return what only the operator sees, without what a clock decides."""
        return [{key: value for key, value in line.items() if key != "seconds"} for line in read_operator(self.path)]

    @property
    def model(self) -> dict[str, Any]:
        with np.load(self.path / "model.npz") as arrays:
            return {name: arrays[name] for name in arrays.files}


Runner = Callable[..., Run]


def same_model(one: Run, other: Run) -> bool:
    return all(np.array_equal(one.model[name], other.model[name]) for name in one.model)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Play each experiment once, however many tests look at it."""
    known: dict[str, Run] = {}

    def play(*several: Tables) -> Run:
        wanted = tables(*several)
        key = json.dumps(wanted, sort_keys=True)
        if key not in known:
            path = tmp_path_factory.mktemp("private") / "run"
            known[key] = Run(path, run(small(**wanted), path))
        return known[key]

    yield play


def unfinished(done: Run, path: Path) -> Path:
    """Copy a run as it was before its summary."""
    shutil.copytree(done.path, path)
    (path / "summary.json").unlink()
    return path


@pytest.mark.parametrize("scheme", TWINS)
def test_a_private_twin_spends_what_was_planned(played: Runner, scheme: str) -> None:
    done = played({"scheme": {"name": scheme}}, TWINS[scheme])
    summary = done.summary

    assert summary["private"]
    assert summary["secure"] == "ideal"
    assert summary["weighting"] == "equal"
    assert 7.99 < summary["epsilon"] <= 8.0
    assert summary["epsilon_server"] > summary["epsilon"]
    assert summary["delta"] == 1e-2
    assert summary["noise_multiplier"] > 0
    assert 1 < summary["bits_per_coordinate"] < 32
    assert summary["note"] == summary["privacy"]["note"] == "simulated: not private"
    assert not summary["budget_spent"]
    assert summary["votes"] > 1
    assert not summary["stopped_early"]
    assert summary == read_summary(done.path)


@pytest.mark.parametrize("scheme", TWINS)
def test_the_ledger_has_one_charge_a_round_and_the_reading_grows_with_it(played: Runner, scheme: str) -> None:
    done = played({"scheme": {"name": scheme}}, TWINS[scheme])
    spent = [record["epsilon_spent"] for record in done.story]

    assert done.charges == [1, 2, 3, 4, 5, 6]
    assert spent == sorted(set(spent)), "every round costs something"
    assert spent[-1] == done.summary["epsilon_spent"] == done.summary["epsilon"]
    assert {record["epsilon"] for record in done.story} == {done.summary["epsilon"]}


def test_words_take_their_bits_on_the_wire_and_no_more(played: Runner) -> None:
    summary = played({"scheme": {"name": "fl-std"}}, TWINS["fl-std"]).summary

    packed = -(-summary["message_length"] * summary["bits_per_coordinate"] // 8)
    assert 0 <= summary["bytes_up_per_client_round"] - packed <= 64


def test_a_budget_below_the_noise_ends_the_run_cleanly_and_early(played: Runner) -> None:
    noise = {"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}
    solved = protect(gather(small(**tables({"privacy": noise})))).plan
    assert solved is not None
    budget = 1.001 * solved.epsilon_after(3)

    done = played({"privacy": {**noise, "epsilon": budget}})

    assert done.summary["rounds"] == 3
    assert done.summary["rounds_planned"] == 6
    assert done.summary["budget_spent"]
    assert done.summary["stopped_early"]
    assert done.charges == [1, 2, 3]
    assert 0.99 * budget < done.summary["epsilon"] <= budget
    assert "accuracy" in done.story[-1], "the last affordable round is evaluated"
    assert run(small(**tables({"privacy": {**noise, "epsilon": budget}})), done.path, resume=True) == done.summary


def test_adaptive_clipping_follows_the_norms_within_the_budget(played: Runner) -> None:
    done = played({"privacy": {"epsilon": 8.0, "delta": 1e-2, "clipping": "adaptive", "count_stddev": 3.0}})
    norms = [record["clip_norm"] for record in done.story]

    assert len(set(norms)) > 3, "it moves with the counts; a noisy count can say that S is right"
    assert done.charges == [1, 2, 3, 4, 5, 6]
    assert done.summary["epsilon"] <= 8.0
    # One word more a client, for the count.
    packed = -(-(done.summary["message_length"] + 1) * done.summary["bits_per_coordinate"] // 8)
    assert 0 <= done.summary["bytes_up_per_client_round"] - packed <= 64


def test_public_clipping_takes_the_norm_of_records_that_nobody_owns(played: Runner) -> None:
    public = {
        "scheme": {"public_samples": 140},
        "privacy": {"epsilon": 8.0, "delta": 1e-2, "clipping": "public", "unsafe_public": True},
    }
    done = played(public)

    assert done.summary["public"] == "140 records set aside from digits"
    assert done.summary["privacy"]["clipping"] == "public"
    assert 0.01 < done.summary["privacy"]["clip_norm"] < 10


def test_a_client_that_is_not_finite_sends_noise_and_nothing_tells_it_from_the_others(
    tmp_path: Path, played: Runner
) -> None:
    """With threshold 1 everybody is needed: a client that refused would abort its rounds, for all to see."""
    rng = np.random.default_rng(0)
    x = rng.random((200, 8), np.float32)
    x[17] = 3e38  # its owner diverges in the second step: inf - inf in its softmax
    y = rng.integers(0, 3, 200)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=rng.random((50, 8), np.float32), y_test=y[:50])

    own = {"data": {"source": str(tmp_path / "own.npz"), "classes": 3}, "aggregation": {"threshold": 1}}
    done = played({**own, "privacy": PRIVACY})

    assert done.summary["aborted_rounds"] == 0
    assert not any({"reason", "failures"} & record.keys() for record in done.operator)
    assert done.charges == [record["round"] for record in done.story]
    with np.load(done.path / "model.npz") as model:
        assert all(np.isfinite(model[name]).all() for name in model.files)


def test_a_run_whose_last_rounds_were_aborted_can_be_resumed(tmp_path: Path, played: Runner) -> None:
    leave = {"devices": {"leave": [[round_, client, "mask"] for round_ in (5, 6) for client in range(20)]}}
    done = played({"privacy": PRIVACY}, leave)
    assert done.charges == [1, 2, 3, 4]

    path = unfinished(done, tmp_path / "run")

    assert run(small(**tables({"privacy": PRIVACY}, leave)), path, resume=True) == done.summary


# The vote.


def test_clients_vote_for_the_coordinates_and_the_vote_is_paid_from_the_budget(played: Runner) -> None:
    done = played(VOTED)
    summary = done.summary
    plain = played(
        {"scheme": {"name": "fl-top", "ratio": 0.1}, "privacy": SLICED, "experiment": {"rounds": 6}},
    ).summary

    assert done.charges == [0, 1, 2, 3, 4, 5, 6]
    assert 7.99 < summary["epsilon"] <= 8.0
    assert summary["noise_multiplier"] > plain["noise_multiplier"], "the rounds get what the vote leaves"
    assert summary["vote"]["noise_multiplier"] == 1.5
    assert 0 < summary["vote"]["epsilon"] < done.story[0]["epsilon_spent"]
    assert "private vote" in summary["vote"]["note"]
    assert "public" not in summary
    assert "vote" not in plain


def test_the_bytes_of_the_vote_are_counted_apart(played: Runner) -> None:
    summary = played(VOTED).summary

    each = 24 + -(-summary["dim"] * summary["vote"]["bits_per_coordinate"] // 8)
    assert summary["bytes_vote_up_total"] == summary["expected_cohort"] * each
    assert summary["bytes_vote_down_total"] == summary["expected_cohort"] * 32
    assert summary["bytes_up_total"] == sum(record["bytes_up"] for record in played(VOTED).story)
    vote = played(VOTED).operator[0]
    assert vote["round"] == 0
    assert vote["senders"] == vote["cohort"] > 0
    assert (vote["bytes_up"], vote["bytes_down"]) == (vote["senders"] * each, vote["cohort"] * 32)


def test_no_record_is_set_aside_for_a_vote() -> None:
    public = gather(small(scheme={"name": "fl-top"}, privacy=SLICED))
    voted = gather(small(**VOTED))

    assert "public" not in voted.splits
    assert len(voted.dataset.y_train) == len(public.dataset.y_train) + 10


def test_a_vote_under_masks_elects_what_the_ideal_sum_elects(played: Runner) -> None:
    ideal = played(VOTED, {"aggregation": {"threshold": 1, "secure": "ideal"}})
    real = played(VOTED, {"aggregation": {"threshold": 1, "secure": "real"}})

    assert same_model(ideal, real)
    assert real.charges == ideal.charges
    assert real.summary["bytes_vote_up_total"] > ideal.summary["bytes_vote_up_total"]


# Kills and lost ledgers.

SCRIPT = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from sottovoce.runs.loop import run
from sottovoce.privacy import Ledger
from tests.runs.small import small

charge = Ledger.charge

def charge_and_die(self, round_):
    charge(self, round_)
    if round_ == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

Ledger.charge = charge_and_die
run(small(**json.loads(sys.argv[2])), sys.argv[3], resume=True)
"""


def test_a_run_killed_between_charge_and_release_is_resumed_without_a_second_charge(
    tmp_path: Path, played: Runner
) -> None:
    whole = played(VOTED)
    path = tmp_path / "cut"
    for round_, charges in ((0, [0]), (5, [0, 1, 2, 3, 4, 5])):
        command = [sys.executable, "-c", SCRIPT, str(ROOT), json.dumps(tables(VOTED)), str(path), str(round_)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert Run(path, {}).charges == charges, "the charge was on disk before the sum could be opened"
        assert read_summary(path) is None

    cut = Run(path, run(small(**tables(VOTED)), path, resume=True))

    assert same_model(whole, cut)
    assert cut.story == whole.story
    assert cut.operator == whole.operator
    assert [record["round"] for record in cut.operator] == list(range(7)), "the vote, then each round, once"
    assert (path / "model-best.npz").read_bytes() == (whole.path / "model-best.npz").read_bytes()
    assert (path / "ledger.jsonl").read_bytes() == (whole.path / "ledger.jsonl").read_bytes()
    assert cut.summary == whole.summary


@pytest.mark.parametrize(("kept", "highest"), [(0, 0), (1, 0), (2, 0), (3, 1), (8, 3)])
def test_a_ledger_that_knows_less_than_the_checkpoint_is_refused(
    tmp_path: Path, played: Runner, kept: int, highest: int
) -> None:
    path = unfinished(played({"scheme": {"name": "fl-std"}}, TWINS["fl-std"]), tmp_path / "run")
    lines = (path / "ledger.jsonl").read_text().splitlines(keepends=True)
    (path / "ledger.jsonl").unlink()
    if kept:
        (path / "ledger.jsonl").write_text("".join(lines[:kept]))
    before = (path / "rounds.jsonl").read_bytes()

    with pytest.raises(PrivacyError, match=rf"at round 6, but ledger.jsonl has charged rounds up to {highest}"):
        run(small(**tables({"scheme": {"name": "fl-std"}}, TWINS["fl-std"])), path, resume=True)

    assert PrivacyError.exit_code == 3
    assert (path / "rounds.jsonl").read_bytes() == before


# Refusals.


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"aggregation": {"weighting": "records"}}, PrivacyError, "weighs every client equally"),
        ({"aggregation": {"secure": "none"}}, PrivacyError, "sees single messages"),
        ({"privacy": {"delta": 0.1}}, PrivacyError, "delta must be below 1 / clients = 0.05, got 0.1"),
        ({"privacy": {"delta": 0.0}}, InputError, r"delta must be in \(0, 1\)"),
        ({"scheme": {"name": "sign-sgd"}, "cohort": {"sample_rate": 1}}, PrivacyError, "sign-sgd has no private twin"),
        ({"privacy": {"epsilon": 0.0}}, InputError, r"epsilon must be in \[0.001, 10000\], got 0"),
        ({"privacy": {"epsilon": -1.0}}, InputError, r"epsilon must be in \[0.001, 10000\], got -1"),
        ({"privacy": {"clip_norm": None}}, InputError, r"\[privacy\] clip_norm is missing"),
        ({"privacy": {"epsilon": None}}, InputError, "needs epsilon, epsilon_server or noise_multiplier"),
        ({"privacy": {"clipping": "private"}}, PrivacyError, "is not private; use fixed, public or adaptive"),
        ({"privacy": {"epsilon": 0.1, "noise_multiplier": 0.5}}, PrivacyError, "epsilon must be at least .* one round"),
        ({"privacy": {"clipping": "adaptive", "count_stddev": 0.1}}, PrivacyError, "the count alone would spend"),
        ({"privacy": {"vote_noise_multiplier": 1.0}}, ConfigError, "fl-std does not"),
        (
            {"scheme": {"name": "fl-top"}, "privacy": {"vote_noise_multiplier": 0.0}},
            ConfigError,
            "vote_noise_multiplier",
        ),
        (
            {"scheme": {"name": "fl-top"}, "privacy": {"vote_noise_multiplier": 0.3}},
            PrivacyError,
            "the vote alone costs",
        ),
        (
            {"scheme": {"name": "fl-top", "public": "mnist"}, "privacy": {"vote_noise_multiplier": 1.0}},
            ConfigError,
            r"remove it or \[scheme\] public",
        ),
        (
            {"scheme": {"name": "fl-top"}, "privacy": {"vote_noise_multiplier": 1.0, "clipping": "public"}},
            ConfigError,
            "no public data to clip by",
        ),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
def test_what_cannot_be_private_is_refused_before_there_is_a_folder(
    tmp_path: Path, change: Tables, error: type[SottovoceError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as caught:
        run(small(**tables({"privacy": PRIVACY}, change)), tmp_path / "run")

    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("forged", ["draws", "draws_salt"])
def test_a_checkpoint_whose_draws_were_changed_is_refused(tmp_path: Path, played: Runner, forged: str) -> None:
    """With zeroed draws nobody would reach the participation cap again."""
    path = unfinished(played({"privacy": PRIVACY}), tmp_path / "run")
    checkpoint = path / "checkpoint" / "state.npz"
    with np.load(checkpoint) as arrays:
        state = dict(arrays)
    assert state["draws"].any()
    np.savez(checkpoint, **{**state, forged: np.zeros_like(state[forged])})

    with pytest.raises(PrivacyError, match=r"the checkpoint of round 6 counts other draws than ledger\.jsonl"):
        run(small(**tables({"privacy": PRIVACY})), path, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": {"name": "fl-top"}},
        {"scheme": {"name": "fl-top", "public": "digits"}},
        {"scheme": {"name": "fl-top-bis"}},
        {"privacy": {"clipping": "public", "clip_norm": None}},
    ],
    ids=str,
)
def test_the_clients_own_records_are_not_public(tmp_path: Path, change: Tables) -> None:
    with pytest.raises(PrivacyError, match="is not public: epsilon would not cover it; name a data set in") as caught:
        run(small(**tables({"privacy": PRIVACY}, change)), tmp_path / "run")

    assert caught.value.exit_code == 3
    assert "[privacy] unsafe_public = true" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_records_taken_as_public_all_the_same_are_named_unsafe(played: Runner) -> None:
    done = played({"scheme": {"name": "fl-top"}}, TWINS["fl-top"])

    assert done.summary["privacy"]["unsafe"] == ["unsafe_public"]


def test_ideal_and_real_plan_the_same_noise_and_need_no_other_key(played: Runner) -> None:
    ideal, real = (played({"privacy": PRIVACY, "aggregation": {"secure": secure}}) for secure in ("ideal", "real"))

    assert ideal.summary["privacy"] == real.summary["privacy"]
    assert ideal.summary["privacy"]["threshold"] == pytest.approx(2 / 3)
    assert same_model(ideal, real)
