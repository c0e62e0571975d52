from __future__ import annotations

import subprocess
import sys

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

    monkeypatch.setattr("sottovoce.cli.schemes._describe", fail)
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
        "print([name for name in ('torch', 'numba', 'scipy', 'plotly', 'numpy', 'pydantic') if name in sys.modules])"
    )

    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment())

    assert out.stdout.splitlines()[-1] == "[]"


def test_a_reader_who_leaves_early_is_no_error() -> None:
    # Nobody will ever read: the pipe is closed before the command writes.
    command = subprocess.Popen(
        [*COMMAND, "data", "path"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    if command.stdout is None or command.stderr is None:
        pytest.fail("no pipes")
    command.stdout.close()

    assert command.stderr.read() == ""
    assert command.wait() == 0


def test_a_terminal_without_the_right_letters_is_no_error() -> None:
    out = subprocess.run(
        [*COMMAND, "schemes"], capture_output=True, check=True, env=environment(PYTHONIOENCODING="ascii")
    )

    assert b"fl-top" in out.stdout
