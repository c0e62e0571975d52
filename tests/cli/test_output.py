from __future__ import annotations

import time

import pytest

from sottovoce.cli import output


def test_long_work_is_said_to_go_on_and_short_work_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with output.waiting("thinking"):
        pass
    assert capfd.readouterr() == ("", "")

    with output.waiting("thinking"):
        time.sleep(2.3)

    assert capfd.readouterr() == ("", "thinking, 2 s so far\n")


def test_a_failure_goes_through(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), output.waiting("thinking"):
        raise ValueError("no")
