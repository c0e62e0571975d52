from __future__ import annotations

import io

import pytest

from sottovoce.cli.progress import Bar, Lines, TimeLeft


def test_time_left_is_reckoned_from_rounds_that_were_really_played() -> None:
    moments = iter([0.0, 0.001, 0.002, 2.002, 4.002])
    clock = TimeLeft(10, now=lambda: next(moments))

    # Three old rounds come at once from a resumed run, then two are played in two seconds each.
    left = [clock.tick({"round": round_, "seconds": 1.5}) for round_ in range(1, 6)]

    assert left[:3] == [None, None, None]
    assert left[3] == pytest.approx(6 * 2.0)
    assert left[4] == pytest.approx(5 * 2.0)


def test_a_resumed_server_counts_neither_void_rounds_nor_its_wait_for_nodes() -> None:
    moments = iter([0.0, 0.00001, 900.0, 902.0])
    clock = TimeLeft(10, now=lambda: next(moments))

    left = [clock.tick({"round": 1, "seconds": 2.0}), clock.tick({"round": 2, "seconds": 0.0, "void": True})]
    left += [clock.tick({"round": round_, "seconds": 2.0}) for round_ in (3, 4)]

    assert left[:2] == [None, None]
    assert left[2] == pytest.approx(7 * 4.0) and left[3] == pytest.approx(6 * 3.0)


def test_a_line_says_what_went_wrong_even_between_evaluations(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(named=True)
    lines.start("a", 10)

    lines.show("a", {"round": 1, "bytes_up": 1000, "bytes_down": 10, "seconds": 1.0})
    lines.show("a", {"round": 2, "bytes_up": 1000, "bytes_down": 10, "seconds": 1.0, "failures": {"3": "diverged"}})
    lines.show("a", {"round": 3, "bytes_up": 1000, "bytes_down": 10, "seconds": 1.0, "accuracy": None})

    assert [line.partition(", 0")[0] for line in capsys.readouterr().err.splitlines()] == [
        "a: round 2 of 10: 2.00 kB up, 20 B down, 1 client failed",
        "a: round 3 of 10: accuracy —, 3.00 kB up, 30 B down",
    ]


def test_a_run_goes_on_when_nobody_reads_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Closed())
    lines = Lines(named=False)
    lines.start("a", 10)

    lines.show("a", {"round": 1, "bytes_up": 1, "bytes_down": 1, "seconds": 1.0, "accuracy": 0.5})


def test_on_80_columns_a_long_name_is_folded_and_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", io.StringIO())
    name = "fl-std-epsilon-8.0-client_lr-0.215"
    bar = Bar(named=True)
    bar.start(name, 100)
    bar.show(name, {"round": 100, "bytes_up": 36_800_000, "bytes_down": 1, "seconds": 1.0, "accuracy": 0.9582})

    with bar._bars.console.capture() as captured:
        bar._bars.console.print(bar._bars.get_renderable())

    drawn = captured.get()
    assert "round 100/100 accuracy 0.9582 36.8 MB up done" in drawn
    assert "…" not in drawn
    assert "".join(line[:24].split("━")[0].strip() for line in drawn.splitlines()) == name


def test_progress_of_a_private_run_shows_nothing_that_tells_the_size_of_a_cohort(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two cohorts, of 18 and of 9 clients, look the same."""
    shown = []
    for clients in (18, 9):
        lines = Lines(named=False)
        lines.start("a", 2)
        told = {"cohort": clients, "bytes_up": 451 * clients, "bytes_down": 1296 * clients, "epsilon": 0.5}
        lines.show(
            "a", {"round": 1, **told, "aborted": True, "reason": f"{clients} messages", "failures": {"3": "left"}}
        )
        lines.show("a", {"round": 2, **told, "accuracy": 0.5, "failures": dict.fromkeys("ab", "left")})
        shown.append(capsys.readouterr().err)

    assert shown[0] == shown[1]
    assert shown[0].splitlines() == [
        "round 1 of 2: aborted, operator.jsonl says why",
        "round 2 of 2: accuracy 0.5000",
    ]
