"""Simulations from Python: the same run as that of an experiment file, with objects in place of names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sottovoce as sv
from sottovoce.api.callbacks import ProgressLine
from sottovoce.data import load
from sottovoce.models import network
from sottovoce.privacy.ledger import verify
from sottovoce.schemes import make
from tests.api.small import WORDS, blobs, simulate

X, Y = blobs()
PRIVATE = {"epsilon": 8.0, "delta": 1e-3, "accountant": "rdp"}


def same_model(one: sv.Result, two: sv.Result) -> bool:
    return (one.folder / "model.npz").read_bytes() == (two.folder / "model.npz").read_bytes()


def test_a_simulation_is_the_run_of_the_same_experiment_file(tmp_path: Path) -> None:
    tables = {
        "experiment": {"rounds": 3, "seed": 4},
        "data": {"source": "digits", "clients": 6},
        "model": {"name": "logistic"},
        "client": {"client_lr": 0.5},
        "cohort": {"sample_rate": 1},
        "engine": {"workers": 1},
        "scheme": {"name": "fl-rnd", "ratio": 0.1},
    }

    simulated = simulate("digits", scheme=("fl-rnd", {"ratio": 0.1}), seed=4)

    from_file = sv.run(sv.parse(tables), tmp_path / "run")
    assert same_model(simulated, from_file)
    assert simulated.config == from_file.config
    times = ("seconds",)
    assert {k: v for k, v in simulated.summary.items() if k not in times} == {
        k: v for k, v in from_file.summary.items() if k not in times
    }


def test_a_network_and_a_scheme_as_objects_play_like_their_names() -> None:
    digits = load("digits")
    built = network("logistic", digits.shape, digits.classes, input_scale=digits.input_scale)

    named = simulate("digits", scheme=("fl-rnd", {"ratio": 0.1}))
    given = simulate(digits, built, scheme=make("fl-rnd", ratio=0.1))

    assert same_model(named, given)
    assert given.config["scheme"] == named.config["scheme"]


def test_owners_are_the_clients_unless_another_number_is_given() -> None:
    owners = np.array([f"ward {number % 7}" for number in range(90)])

    assert simulate((X, Y), id=owners, partition="by-id", clients=None, rounds=1)["clients"] == 7
    assert simulate((X, Y), clients=None, rounds=1)["clients"] == 72


def test_a_simulation_that_fails_leaves_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(record: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate((X, Y), callbacks=fail)
    assert not list(tmp_path.glob("sottovoce-*"))


def test_words_in_words_out() -> None:
    result = simulate((X, WORDS[Y]), rounds=8)

    assert result["accuracy_final"] > 0.9
    assert result.classes == ("bénigne", "maligne", "unclear")
    assert (result.predict(X) == WORDS[Y]).mean() > 0.9
    assert set(result.predict_scores(X[:3]).sum(1).round(6)) == {1.0}
    assert "a fifth of the records" in result["test_data"]


def test_a_list_of_clients_plays_as_it_is_dealt_and_also_gives_public_records() -> None:
    parts = [(X[client::9], Y[client::9]) for client in range(9)]

    result = simulate(parts, clients=None, rounds=2)
    top = simulate(parts, clients=None, rounds=2, scheme=("fl-top", {"ratio": 0.5}))

    assert result["clients"] == top["clients"] == 9
    assert "10 records set aside" in top["public"]


def test_a_private_simulation_needs_no_more_than_an_epsilon(tmp_path: Path) -> None:
    result = simulate(
        (X, Y), "mlp", scheme=("fl-top", {"ratio": 0.1}), privacy=sv.Privacy(**PRIVATE), hidden=8, classes=3
    )

    assert result["epsilon"] <= 8
    assert result["vote"]["epsilon"] <= 2
    assert result.config["privacy"]["clipping"] == "adaptive"
    charged, problem = verify(result.save(tmp_path / "kept") / "ledger.jsonl")
    assert problem is None and len(charged) >= 3


def test_what_privacy_says_is_not_changed() -> None:
    fixed = sv.Privacy(noise_multiplier=1.0, clip_norm=0.5, delta=1e-3, accountant="rdp")

    result = simulate((X, Y), privacy=fixed, rounds=1, classes=3)

    assert result.config["privacy"]["clipping"] == "fixed"
    assert "vote_noise_multiplier" not in result.config["privacy"]


class Watcher:
    """Callback that keeps what it hears, and has seen enough after some rounds."""

    def __init__(self, enough: int = 99) -> None:
        self.told: list[Any] = []
        self.enough = enough

    def on_start(self, config: dict[str, Any]) -> None:
        self.told.append(config["experiment"]["rounds"])

    def on_round(self, record: dict[str, Any], state: dict[str, Any]) -> None:
        self.told.append((record["round"], float(np.linalg.norm(state["params"]))))
        if record["round"] == self.enough:
            raise sv.Stop

    def on_end(self, summary: dict[str, Any]) -> None:
        self.told.append(summary["rounds"])


class Old:
    """Callback that takes the record alone."""

    rounds = 0

    def on_round(self, record: dict[str, Any]) -> None:
        self.rounds += 1


def test_callbacks_see_start_rounds_with_their_state_and_end_and_may_stop_the_run() -> None:
    watcher, old, seen = Watcher(enough=2), Old(), []

    result = simulate((X, Y), rounds=5, callbacks=[watcher, old, seen.append, lambda record, state: seen.append(state)])

    assert watcher.told[0] == 5 and watcher.told[-1] == 2
    assert [round_ for round_, _ in watcher.told[1:-1]] == [1, 2]
    assert watcher.told[2][1] == pytest.approx(float(np.linalg.norm(np.concatenate([
        tensor.ravel() for tensor in result.model.values()
    ]))))  # fmt: skip
    assert old.rounds == 2 and len(seen) == 4
    assert result["stopped_early"] and len(result.rounds) == 2


def test_a_run_that_a_callback_stops_ends_with_the_model_of_a_shorter_run() -> None:
    stopped = simulate((X, Y), rounds=5, callbacks=Watcher(enough=2))

    assert same_model(stopped, simulate((X, Y), rounds=2))


def test_a_torch_module_comes_back_with_its_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.ReLU(), nn.Linear(8, 3))
    before = module[0].weight.detach().clone()

    result = simulate((X, Y), module, rounds=8)

    with torch.no_grad():
        logits = result.model(torch.tensor(X, dtype=torch.float32))
    assert np.array_equal(logits.argmax(1).numpy(), result.predict(X))
    assert result["accuracy_final"] > 0.9
    assert torch.equal(module[0].weight, before)
    assert result["bytes_setup_per_client"] >= 4 * result["dim"]  # w_0 travels: no seed tells it
    saved = result.save(tmp_path / "run")
    again = sv.result(saved, model=module)
    assert np.allclose(again.predict_scores(X), result.predict_scores(X))
    assert again.predict(X[:5]).tolist() == result.predict(X[:5]).tolist()
    assert sv.result(saved).model["0.weight"].shape == (8, 4)
    with pytest.raises(sv.InputError, match=r"weights of a Sequential, not its code; .*model="):
        sv.result(saved).predict(X)


def test_a_module_for_images_reads_channels_first_and_last() -> None:
    rng = np.random.default_rng(1)
    images, labels = rng.normal(size=(60, 1, 6, 6)).astype(np.float32), np.arange(60) % 2
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 2))

    first = simulate((images, labels), module, rounds=1)
    last = simulate((np.moveaxis(images, 1, 3), labels), module, rounds=1)

    assert np.allclose(first.model[0].weight.detach(), last.model[0].weight.detach(), atol=1e-6)


SCRIPT = """
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import sottovoce as sv

@dataclass(frozen=True, eq=False, kw_only=True)
class Halved(sv.Scheme):
    name: ClassVar[str] = "halved"
    paper: ClassVar[str] = "none"
    saves: ClassVar[str] = "nothing"
    part: float = 0.5
    def encode(self, update, seed, rng):
        return update * np.float32(self.part)
    def decode(self, mean, state, seed, rng):
        return {"params": state["params"] + mean / np.float32(self.part)}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, number):
        return torch.arange(4.0) * (number % 2), number % 2

class Count:
    rounds = 0
    def on_round(self, record, state):
        self.rounds += 1

count = Count()
result = sv.simulate(Items(), Net(), Halved(), clients=4, rounds=2, sample_rate=1, workers=1, callbacks=[count])
print(result["scheme"], result.config["scheme"]["part"], count.rounds, type(result.model).__name__)
"""


@pytest.mark.parametrize("where", ["-c", "script"])
def test_classes_of_the_user_may_live_in_the_main_program_without_a_guard(where: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-c", SCRIPT] if where == "-c" else [sys.executable, "script.py"]

    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert told.stdout.split() == ["halved", "0.5", "2", "Net"], told.stderr


def test_malicious_clients_are_a_table_as_in_a_file() -> None:
    result = simulate(blobs(), threat={"attack": "sign-inversion", "fraction": 0.2})

    assert result["attack"] == "sign-inversion"
    with pytest.raises(sv.InputError, match="did you mean 'fraction'"):
        simulate(blobs(), threat={"attack": "sign-inversion", "fractions": 0.2})


def test_progress_is_one_line_that_is_written_after_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(100))
    line = ProgressLine(now=lambda: float(next(clock)))

    line.on_start({"experiment": {"rounds": 4}})
    for round_ in range(1, 5):
        line.on_round({"round": round_, "accuracy": round_ / 10}, {})
    line.on_end({})

    assert "round 1" not in (told := capsys.readouterr().err)
    assert told.split("\r")[1:3] == [
        "round 2 of 4, accuracy 0.2000, 2 s left",
        "round 3 of 4, accuracy 0.3000, 1 s left",
    ]
    assert told.endswith("4 rounds, accuracy 0.4000, 5 s" + " " * 9 + "\n")


@pytest.mark.parametrize("verbose", [True, False])
def test_verbose_is_silent_about_what_takes_no_time(verbose: bool, capsys: pytest.CaptureFixture[str]) -> None:
    simulate((X, Y), verbose=verbose)

    assert "round" not in capsys.readouterr().err
