from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sottovoce
from sottovoce.cli import main
from sottovoce.core.files import replace_file
from sottovoce.runs.folder import read_rounds, read_summary

from .conftest import COMMAND, Shell, environment, process


def test_a_full_disk_names_the_file_and_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left") as told:
            replace_file(tmp_path / "mark", b"1")
        patch.setattr("sottovoce.config.experiment.load", lambda *_: replace_file(tmp_path / "mark", b"1"))
        assert main(["plan", "any.toml"]) == 4

    assert told.value.filename == str(tmp_path / "mark") and not list(tmp_path.iterdir())
    words = f"{tmp_path / 'mark'}: No space left on device; make room there, and start the same command again"
    assert words in capsys.readouterr().err


def test_a_config_that_was_cut_is_damaged(shell: Shell, tmp_path: Path) -> None:
    file, out = tmp_path / "run.toml", tmp_path / "out"
    file.write_text('[data]\nsource = "digits"\nclients = 4\n[cohort]\nsample_rate = 1\n[experiment]\nrounds = 1\n')
    assert shell("run", str(file), "--out", str(out)).code == 0
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text[: len(text) // 2].rstrip("\n"))

    again = shell("run", str(file), "--out", str(out), "--resume")

    assert again.code == 2 and "config.toml is damaged" in again.err and "begin another run" in again.err


def test_a_run_prints_a_table_to_stdout_and_a_line_for_each_evaluation_to_stderr(shell: Shell, here: Path) -> None:
    outcome = shell("run", "small.toml", "--out", "out")

    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == ["trainer", "round 2 of 6", "round 4 of 6", "round 6 of 6"]
    assert "accuracy 0." in lines[1] and " up, " in lines[1] and " left" in lines[1]
    assert lines[-1] == "the run is in out"
    summary = read_summary(here / "out")
    assert summary is not None
    assert f"{summary['accuracy_best']:.4f} ({summary['best_round']})" in outcome.out
    assert "fl-std" in outcome.out and "∞" in outcome.out
    assert re.search(r"best round chosen by +accuracy\n", outcome.out)


def test_a_private_run_prints_no_time_and_the_epsilon_to_quote(shell: Shell, here: Path) -> None:
    private = ["privacy.noise_multiplier=2", "privacy.delta=0.01", "privacy.clip_norm=1", "privacy.accountant=rdp"]
    outcome = shell("run", "small.toml", "--out", "out", *(word for key in private for word in ("--set", key)))

    assert outcome.code == 0
    summary = read_summary(here / "out")
    assert summary is not None
    assert summary["seconds"] is None
    assert re.search(r"time +—\n", outcome.out)
    assert "an odometer reading, no guarantee: quote epsilon" in outcome.out


def test_folders_of_runs_without_privacy_number_themselves_and_resume_takes_the_last(shell: Shell, here: Path) -> None:
    short = ["run", "small.toml", "--quiet", "--set", "experiment.rounds=2"]
    outcomes = [shell(*short) for _ in range(3)]

    assert [outcome.code for outcome in outcomes] == [0, 0, 0]
    assert sorted(folder.name for folder in (here / "runs").iterdir()) == ["small", "small-2", "small-3"]
    assert "small-3 is finished already" in shell(*short[:2], *short[3:], "--resume").err


def test_a_second_private_run_says_what_it_adds_and_needs_again(shell: Shell, here: Path) -> None:
    keys = ["noise_multiplier=2", "delta=0.01", "clip_norm=1", "accountant=rdp"]
    private = ["run", "small.toml", *(word for key in keys for word in ("--set", f"privacy.{key}"))]
    assert shell(*private).code == 0
    first = read_summary(here / "runs" / "small")
    assert first is not None

    refused = shell(*private)

    assert refused.code == 3
    together = re.search(r"together (\S+) and (\S+) at delta 0.02", refused.err)
    assert together is not None
    assert float(together[1]) == pytest.approx(2 * first["epsilon"], rel=1e-3)
    assert float(together[2]) == pytest.approx(2 * first["epsilon_server"], rel=1e-3)
    assert "Add --again" in refused.err
    assert [folder.name for folder in (here / "runs").iterdir()] == ["small"]
    assert shell(*private, "--again").code == 0
    assert (here / "runs" / "small-2" / "summary.json").exists()


def test_json_is_the_summary_and_quiet_is_quiet(shell: Shell, here: Path) -> None:
    outcome = shell("run", "small.toml", "--quiet", "--json", "--set", "experiment.name=other", "--workers", "1")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json() == read_summary(here / "runs" / "other")


def test_a_run_says_once_which_trainer_it_took_and_why(shell: Shell, here: Path) -> None:
    outcome = shell("run", "small.toml", "--out", "out", "--set", "client.trainer=torch")

    told = json.loads((here / "out" / "environment.json").read_text())
    assert (told["trainer"], told["trainer_reason"]) == ("torch", "the experiment asks for it")
    assert outcome.err.count("trainer") == 1
    assert "trainer: torch (the experiment asks for it)\n" in outcome.err


def test_without_kernels_a_run_says_once_that_torch_trains_and_why(here: Path) -> None:
    """Run a copy of the package in which no library was built, as on a machine without a compiler."""
    package = Path(sottovoce.__file__).parent
    shutil.copytree(package, here / "copy" / "sottovoce", ignore=shutil.ignore_patterns("*.so", "__pycache__"))

    out = subprocess.run(
        [*COMMAND, "run", "small.toml", "--out", "out"],
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=str(here / "copy")),
        check=True,
    )

    reason = "the kernels were not built: no C compiler when sottovoce was installed"
    assert out.stderr.splitlines()[0] == f"trainer: torch ({reason})"
    assert out.stderr.count("kernels") == 1
    told = json.loads((here / "out" / "environment.json").read_text())
    assert (told["trainer"], told["trainer_reason"]) == ("torch", reason)


def test_a_warning_is_one_line_on_stderr_even_when_quiet(shell: Shell, here: Path) -> None:
    np.savez(
        here / "mine.npz",
        x_train=np.ones((40, 3), np.float32),
        y_train=np.zeros(40, np.int64),
        x_test=np.ones((4, 3), np.float32),
        y_test=np.array([0, 1, 0, 1]),
    )

    outcome = shell("run", "small.toml", "--set", "data.source=mine.npz", "--quiet", "--json")

    assert outcome.code == 0
    assert outcome.err == (
        "warning: mine.npz: every train record has label 0, so there is nothing to learn to tell apart\n"
    )


def test_a_finished_run_is_not_run_again(shell: Shell, finished: Path) -> None:
    source = str(finished.parent / "small.toml")

    assert shell("run", source, "--out", str(finished)).code == 2
    outcome = shell("run", source, "--out", str(finished), "--resume")

    assert outcome.code == 0
    assert "finished already" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.toml"], "no experiment file nothing.toml"),
        (["small.toml", "--set", "scheme.name=fl-tpo"], "did you mean 'fl-top'?"),
        (["small.toml", "--set", "client.local_step=3"], "did you mean 'local_steps'?"),
        (["small.toml", "--set", "rounds=3"], "table.key=value"),
        (["small.toml", "--set", "cohort.sample_rate=2"], "(0, 1]"),
        (["small.toml", "--set", "data.source=digit"], "did you mean 'digits'?"),
        (["small.toml", "--set", "data.clients=99999"], "99999"),
        (["small.toml", "--out", "small.toml"], "is a file"),
    ],
)
def test_bad_input_exits_2_with_one_sentence_and_leaves_nothing(
    shell: Shell, here: Path, arguments: list[str], words: str
) -> None:
    outcome = shell("run", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert words in outcome.err
    assert [file.name for file in here.iterdir()] == ["small.toml"]


def test_ctrl_c_leaves_a_run_that_the_printed_command_finishes(here: Path) -> None:
    # 1500 steps a client: slow enough that the signal finds the run at work on any machine.
    wanted = ["small.toml", "--set", "experiment.rounds=40", "--set", "client.local_steps=1500", "--out", "my runs/x"]
    folder = here / "my runs" / "x"
    command = process("run", *wanted)
    if command.stderr is None:
        pytest.fail("no pipe")
    assert command.stderr.readline().startswith("trainer: ")
    assert command.stderr.readline().startswith("round 2 of 40")

    os.killpg(command.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = command.communicate(timeout=30)

    assert (command.returncode, out) == (4, "")
    assert "Traceback" not in err
    told, _, again = err.splitlines()[-1].partition("; go on with: ")
    assert told.startswith("interrupted after round ")
    assert again == shlex.join(["sottovoce", "run", *wanted, "--resume"])
    assert len(read_rounds(folder)) >= 2
    assert read_summary(folder) is None

    words = [*shlex.split(again)[1:], "--quiet", "--json"]
    resumed = subprocess.run([*COMMAND, *words], capture_output=True, text=True, env=environment(), check=False)

    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert json.loads(resumed.stdout) == read_summary(folder)
    assert [record["round"] for record in read_rounds(folder)] == list(range(1, 41))
