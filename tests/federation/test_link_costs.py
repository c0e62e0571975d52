"""What a link carries for a round, and whether that ends in time."""

from __future__ import annotations

import pytest

from sottovoce.core.errors import InputError
from sottovoce.core.wire import Traffic
from sottovoce.federation.engines.mqtt.carrier import DeclaredLink
from sottovoce.federation.link_costs import carried, carried_in_round, check_link, on_link

PHASES = {"advertise": Traffic(200, 30_000), "mask": Traffic(20_000, 1000), "unmask": Traffic(300, 300)}
TIMES = {"phase_timeout": 60.0, "train_timeout": 600.0}


def test_messages_weigh_more_than_their_payloads() -> None:
    assert carried(10_000, 2) == 10_600 + 640
    assert carried_in_round({"train": Traffic(700, 300)}) == 1060 + 640


def test_the_model_has_time_of_its_own_before_a_short_phase() -> None:
    link = DeclaredLink.parse("5 kbit/s, 1 s")

    told = on_link(PHASES, link, **TIMES)

    assert not told.misfits
    assert told.seconds == pytest.approx(carried_in_round(PHASES) / 625 + 3, rel=1e-3)


@pytest.mark.parametrize(
    ("link", "times", "words"),
    [
        ("1 kbit/s, 1 s", TIMES | {"train_timeout": 100.0}, "mask takes 184 s and train_timeout is 100 s"),
        ("64 kbit/s, 1 s, 70 s down", TIMES, "advertise takes 76 s and phase_timeout is 60 s"),
        ("1 kbit/s", TIMES | {"train_timeout": 200.0}, "the request of advertise travels 257 s"),
    ],
)
def test_what_cannot_end_in_time_is_refused_before_the_run(link: str, times: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_link(PHASES, DeclaredLink.parse(link), **times)


def test_a_link_that_breaks_is_advised_to_count_ballots(caplog: pytest.LogCaptureFixture) -> None:
    check_link(PHASES, DeclaredLink.parse("64 kbit/s, 1 s, 40 s down"), **TIMES)
    check_link({"train": Traffic(1000, 1000)}, DeclaredLink.parse("64 kbit/s, 1 s, 40 s down"), **TIMES)

    assert [record.message.count('secure = "ballot"') for record in caplog.records] == [1]


@pytest.mark.parametrize("text", ["", "fast", "0 kbit/s", "20 kbyte/s", "20 kbit/s, 1 s, 40 s up", "1.2.3 kbit/s"])
def test_a_link_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="slowest_link must be such as"):
        DeclaredLink.parse(text)


def test_links_are_read() -> None:
    assert DeclaredLink.parse("5 kbit/s") == (625.0, 0.0, 0.0)
    assert DeclaredLink.parse("1.5Mbit/s,250 ms") == (187500.0, 0.25, 0.0)
