from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from sottovoce.cli import app as room
from sottovoce.core.errors import PrivacyError, RunError

from .conftest import COMMAND, Shell, environment


def test_alone_it_prints_help(shell: Shell) -> None:
    outcome = shell()

    assert outcome.code == 0
    assert "Usage: sottovoce" in outcome.out
    assert outcome.err == ""


def test_it_knows_its_version(shell: Shell) -> None:
    outcome = shell("--version")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("sottovoce ")


def _commands() -> list[list[str]]:
    group = typer.main.get_command(room.app)
    names = [[name] for name in group.commands]  # type: ignore[attr-defined]
    return [*names, ["data", "fetch"], ["data", "path"]]


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_every_command_has_help_an_example_and_json(shell: Shell, command: list[str]) -> None:
    outcome = shell(*command, "--help")

    assert outcome.code == 0
    assert "Example: sottovoce" in outcome.out
    assert "--json" in outcome.out


@pytest.mark.parametrize(
    "arguments", [["rnu"], ["run"], ["run", "--colour"], ["run", "x", "--workers", "-1"], ["report"]]
)
def test_usage_errors_exit_2_with_one_sentence_and_a_way_out(shell: Shell, arguments: list[str]) -> None:
    outcome = shell(*arguments)

    first, second = outcome.err.splitlines()
    assert (outcome.code, outcome.out) == (2, "")
    assert first.startswith("error: ")
    assert second.startswith("try: sottovoce") and second.endswith("--help")


def test_a_command_that_is_nearly_right_is_suggested_once(shell: Shell) -> None:
    assert shell("rnu").err.count("run") == 1


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (PrivacyError("epsilon must be above 0, got 0"), 3, ["error: epsilon must be above 0, got 0"]),
        (RunError("worker 0 was killed"), 4, ["error: worker 0 was killed"]),
        (
            RunError("a worker failed:\nTraceback\n  File x\nValueError: no\n"),
            4,
            ["error: a worker failed: ValueError: no"],
        ),
        (ZeroDivisionError("division by zero"), 4, ["error: ZeroDivisionError: division by zero"]),
        (KeyboardInterrupt(), 4, ["error: interrupted"]),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, lines: list[str]
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("sottovoce.cli.commands.schemes._describe", fail)
    monkeypatch.delenv("SOTTOVOCE_DEBUG", raising=False)

    outcome = shell("schemes", "fl-std")

    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.splitlines()[:1] == lines
    assert "Traceback" not in outcome.err
    bug = isinstance(error, ZeroDivisionError) or "\n" in str(error)
    assert ("SOTTOVOCE_DEBUG=1" in outcome.err) == bug

    monkeypatch.setenv("SOTTOVOCE_DEBUG", "1")
    assert isinstance(error, KeyboardInterrupt) or "Traceback" in shell("schemes", "fl-std").err


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom sottovoce.cli import main\nmain(['--help'])\n"
        "print([name for name in ('torch', 'scipy', 'plotly', 'numpy', 'pydantic') if name in sys.modules])"
    )

    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment())

    assert out.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["data", "path"], ["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_a_reader_who_leaves_early_is_no_error(arguments: list[str]) -> None:
    # Nobody will ever read: the pipe is closed before the command writes.
    command = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    if command.stdout is None or command.stderr is None:
        pytest.fail("no pipes")
    command.stdout.close()

    assert command.stderr.read() == ""
    assert command.wait() == 0


def test_a_pipe_that_head_closed_is_no_error() -> None:
    line = f"set -o pipefail; {shlex.join(COMMAND)} --help | head -1"
    out = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment(), check=False)

    assert (out.returncode, out.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["data", "path"], ["--help"], ["--version"]], ids=" ".join)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_stdout_is_said_in_one_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        out = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )

    assert (out.returncode, out.stderr) == (4, "error: No space left on device\n")


def test_a_closed_stdout_is_said_in_one_sentence() -> None:
    line = f"{shlex.join(COMMAND)} data path >&-"
    out = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment(), check=False)

    assert (out.returncode, out.stderr) == (4, "error: the answer cannot be printed: stdout is closed\n")


@pytest.mark.parametrize(
    ("typed", "answers"),
    [("sottovoce pri", ["privacy"]), ("sottovoce data f", ["fetch"]), ("sottovoce run x --qui", ["--quiet"])],
)
def test_completion_answers_and_says_nothing_else(typed: str, answers: list[str]) -> None:
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_SOTTOVOCE_COMPLETE": "complete_bash"}
    out = subprocess.run(COMMAND, capture_output=True, text=True, env=environment(**asked), check=False)

    assert (out.returncode, out.stdout.split(), out.stderr) == (0, answers, "")


def test_a_completion_that_cannot_be_understood_exits_2() -> None:
    asked = environment(_SOTTOVOCE_COMPLETE="nonsense")
    out = subprocess.run(COMMAND, capture_output=True, text=True, env=asked, check=False)

    assert (out.returncode, out.stdout) == (2, "")


def test_a_terminal_without_the_right_letters_is_no_error() -> None:
    out = subprocess.run(
        [*COMMAND, "schemes"], capture_output=True, check=True, env=environment(PYTHONIOENCODING="ascii")
    )

    assert b"fl-top" in out.stdout


@pytest.mark.parametrize(
    ("command", "code"),
    [(("run", "nothing.toml"), 2), (("plan", "--solv"), 2), (("ledger", "show", "nothing"), 2)],
)
def test_with_json_a_failure_is_one_document_on_stdout_and_a_sentence_on_stderr(
    shell: Shell, command: tuple[str, ...], code: int
) -> None:
    outcome = shell(*command, "--json")

    assert (outcome.code, outcome.json()["exit_code"]) == (code, code)
    assert outcome.err.startswith(f"error: {outcome.json()['error']}")
    assert shell(*command).out == ""


@pytest.mark.parametrize("group", ["keys", "study", "infer", "ledger"])
def test_a_group_of_commands_alone_shows_its_help(shell: Shell, group: str) -> None:
    outcome = shell(group)

    assert outcome.code == 0 and "Usage" in outcome.out and "error" not in outcome.err
