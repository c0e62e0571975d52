from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sottovoce.checks.twin import TwinAccount
from sottovoce.core.errors import PrivacyError, RunError
from sottovoce.core.streams import Seeds
from sottovoce.federation.aggregation.aggregator import Total
from sottovoce.federation.aggregation.direct import Direct
from sottovoce.federation.coding import Clear, Coding, Opened, Private, Terms
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engine import Request
from sottovoce.federation.optimise import ServerStep
from sottovoce.federation.round import RoundResult, Server, _check_alive, draws_commitment, server_round
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes import make
from tests.federation.driven import GoneError, constant, drive, sending

DIM = 8
CLIENTS = 20
NUMBERED = constant(DIM)


def start() -> NDArray[np.float32]:
    return np.zeros(DIM, np.float32)


def plain(rate: str = "1/2", **keys: Any) -> tuple[Server, Coding]:
    cohort = Cohort(CLIENTS, Fraction(rate))
    coding = Clear("floats", DIM, cohort.most)
    aggregator = Direct(coding, lambda asked: min(asked, 1))
    return Server(make("fl-std").bind(DIM), cohort, aggregator, Seeds(1).server, **keys), coding


def private(rate: str = "1/2", **keys: Any) -> tuple[Server, Private]:
    cohort = Cohort(CLIENTS, Fraction(rate))
    plan = PrivacyPlan.solve(
        **{
            "clients": CLIENTS,
            "sample_rate": float(Fraction(rate)),
            "rounds": 10,
            "delta": 1e-2,
            "noise_multiplier": 1.0,
            "clip_norm": 0.5,
            "length": DIM,
            "accountant": "rdp",
            **keys,
        }
    )
    coding = Private(plan, Seeds(1))
    server = Server(
        make("fl-std").bind(DIM),
        cohort,
        Direct(coding, plan.shares.survivors),
        Seeds(1).server,
        ServerStep(),
        plan,
        TwinAccount(),
    )
    return server, coding


def played(
    server: Server, coding: Coding, message: Callable[[int], NDArray[Any]] = NUMBERED, round_: int = 1
) -> RoundResult:
    return drive(server_round(server, server.init(start()), round_), sending(coding, message))


def empty_round(server: Server) -> int:
    """Return a round whose cohort has nobody in it."""
    return next(round_ for round_ in range(1, 1000) if not server.draw(server.init(start()), round_)[0])


def test_the_sum_is_divided_by_the_expected_cohort_and_not_by_the_drawn_one() -> None:
    server, coding = plain()
    sizes = set()
    for round_ in range(1, 6):
        cohort, _ = server.draw({}, round_)

        result = played(server, coding, round_=round_)

        sizes.add(result.cohort)
        assert result.cohort == result.total.senders == len(cohort)
        assert np.allclose(result.state["params"], sum(client + 1 for client in cohort) / 10)
    assert sizes != {10}


def test_a_failed_client_is_reported_and_the_others_count() -> None:
    server, coding = plain()
    cohort, _ = server.draw({}, 1)
    broken = cohort[0]

    def message(client: int) -> NDArray[np.float32]:
        return np.full(DIM, np.nan if client == broken else 1.0, np.float32)

    result = played(server, coding, message)

    assert list(result.total.failures) == [broken]
    assert "not finite" in result.total.failures[broken]
    assert result.total.senders == len(cohort) - 1
    assert np.allclose(result.state["params"], (len(cohort) - 1) / 10)


def test_bytes_are_those_that_were_sent_and_received() -> None:
    server, coding = plain()
    cohort, _ = server.draw({}, 1)

    result = played(server, coding)

    assert result.total.bytes_up == result.total.bytes_down == len(cohort) * (24 + 4 * DIM)
    assert result.total.phases == {"train": (result.total.bytes_up, result.total.bytes_down)}


def test_a_round_in_which_everyone_fails_stops_the_run() -> None:
    server, coding = plain()

    with pytest.raises(RunError, match=r"round 1: no client sent an update; client .* lower client_lr"):
        played(server, coding, lambda client: np.full(DIM, np.nan, np.float32))


def test_a_round_that_everyone_left_is_aborted_and_changes_nothing() -> None:
    server, _ = plain()

    def leave(request: Request, client: int) -> bytes:
        raise GoneError

    result = drive(server_round(server, server.init(start()), 1), leave)

    assert result.total.values is None
    assert "0 messages, but 1 are needed; nothing was released" in str(result.total.reason)
    assert np.array_equal(result.state["params"], start())


def test_an_empty_cohort_changes_nothing_without_privacy() -> None:
    server, coding = plain("1/20")

    result = played(server, coding, round_=empty_round(server))

    assert result.cohort == 0
    assert np.array_equal(result.state["params"], start())


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_model_that_is_no_longer_finite_stops_the_run() -> None:
    server, coding = plain(step=ServerStep(lr=1e38))

    with pytest.raises(RunError, match="no longer finite; lower client_lr or server_lr"):
        played(server, coding)


def test_a_private_round_tells_its_terms_and_draws_as_it_is_charged() -> None:
    server, coding = private()
    told: list[Terms] = []
    clients = sending(coding, NUMBERED)

    def answer(request: Request, client: int) -> bytes:
        told.append(Terms.split(request.payloads[client])[1])
        return clients(request, client)

    state = server.init(start())
    cohort, drawn = server.draw(state, 1)
    result = drive(server_round(server, state, 1), answer)

    assert set(told) == {Terms(len(cohort), 0.5)}
    assert np.array_equal(result.state["draws"], drawn["draws"])
    assert np.flatnonzero(result.state["draws"]).tolist() == cohort


def test_a_private_empty_cohort_releases_noise_like_any_other_and_is_charged() -> None:
    book = TwinAccount()
    server, coding = private("1/20")
    server = server.with_account(book)
    round_ = empty_round(server)

    result = played(server, coding, round_=round_)

    assert result.cohort == result.total.senders == 0
    assert book.charged == [round_]
    assert result.total.values is not None
    assert 0 < np.abs(result.total.values).max() < 7 * coding.plan.stddev()
    assert not np.array_equal(result.state["params"], start())


def test_an_aborted_private_round_changes_nothing_but_the_draws_and_is_not_charged() -> None:
    book = TwinAccount()
    server, coding = private(threshold=1.0)
    server = server.with_account(book)
    state = server.init(start())
    broken = server.draw(state, 1)[0][0]

    def message(client: int) -> NDArray[np.float32]:
        return np.full(DIM, np.nan if client == broken else 1.0, np.float32)

    result = drive(server_round(server, state, 1), sending(coding, message))

    assert result.total.values is None
    assert "are needed; nothing was released" in str(result.total.reason)
    assert list(result.total.failures) == [broken]
    assert book.charged == []
    changed = {name for name in result.state if not np.array_equal(result.state[name], state[name])}
    assert changed == {"draws"}
    assert result.state.keys() == state.keys()


def test_a_round_above_the_threshold_survives_dropouts() -> None:
    server, coding = private(threshold=0.6)
    gone = server.draw(server.init(start()), 1)[0][0]
    clients = sending(coding, NUMBERED)

    def answer(request: Request, client: int) -> bytes:
        if client == gone:
            raise GoneError
        return clients(request, client)

    result = drive(server_round(server, server.init(start()), 1), answer)

    assert result.total.reason is None
    assert result.total.senders == result.cohort - 1


@dataclass(frozen=True)
class Spy:
    """Note when the sum is opened."""

    coding: Private
    story: list[str] = field(default_factory=list)

    @property
    def fold(self) -> Any:
        return self.coding.fold

    @property
    def bits(self) -> int:
        return self.coding.bits

    def words(self, message: Any, terms: Terms, round_: int, client: int) -> Any:
        return self.coding.words(message, terms, round_, client)

    def pack(self, words: Any) -> bytes:
        return self.coding.pack(words)

    def open(self, total: Any, terms: Terms, senders: int, round_: int) -> Opened:
        self.story.append("opened")
        return self.coding.open(total, terms, senders, round_)


def spied(charge: Callable[[int], None], spy: Spy) -> Server:
    server, _ = private()
    aggregator = Direct(spy, spy.coding.plan.shares.survivors)
    return Server(
        server.scheme, server.cohort, aggregator, server.streams, server.step, spy.coding.plan, TwinAccount(charge)
    )


def test_a_round_is_charged_before_its_sum_is_opened() -> None:
    spy = Spy(private()[1])
    server = spied(lambda round_: spy.story.append(f"charged {round_}"), spy)

    played(server, spy.coding, round_=3)

    assert spy.story == ["charged 3", "opened"]


def test_a_charge_that_is_refused_opens_nothing() -> None:
    def refuse(round_: int) -> None:
        raise PrivacyError("round 3 would exceed the budget")

    spy = Spy(private()[1])

    with pytest.raises(PrivacyError, match="exceed the budget"):
        played(spied(refuse, spy), spy.coding, round_=3)
    assert spy.story == []


def test_adaptive_clipping_carries_its_norm_to_the_next_round() -> None:
    server, coding = private(clipping="adaptive", clip_norm=1.0, count_stddev=2.0)
    tiny = sending(coding, lambda client: np.full(DIM, 1e-6, np.float32))
    state = server.init(start())
    norms = []
    for round_ in range(1, 21):
        state = drive(server_round(server, state, round_), tiny).state
        norms.append(float(state["clip_norm"]))

    assert norms[-1] < 0.5, "every norm is below it, so it falls"
    assert len(set(norms)) == 20


def test_a_plan_without_a_ledger_does_not_play() -> None:
    server, _ = private()
    asked: list[int] = []

    def answer(request: Request, client: int) -> bytes:
        asked.append(client)
        return b""

    with pytest.raises(PrivacyError, match="round 1: a private round needs a ledger, and this server has none"):
        drive(server_round(replace(server, account=None), server.init(start()), 1), answer)
    assert asked == []


def test_draws_are_recorded_before_anybody_is_asked_and_tell_nobody() -> None:
    server, coding = private()
    book = TwinAccount()
    server = server.with_account(book)
    recorded: list[dict[int, str]] = []

    def answer(request: Request, client: int) -> bytes:
        recorded.append(dict(book.draws))
        return sending(coding, NUMBERED)(request, client)

    result = drive(server_round(server, server.init(start()), 1), answer)

    assert recorded[0] == {1: draws_commitment(result.state)}
    # Twenty clients: without the salt, all 2^20 cohorts could be tried.
    unsalted = {**result.state, "draws_salt": np.zeros(32, np.uint8)}
    assert draws_commitment(unsalted) != draws_commitment(result.state)


@pytest.mark.parametrize(("named", "told"), [(True, "client 7: "), (False, "one of them: ")])
def test_a_round_in_which_everyone_fails_names_a_client_only_if_nothing_is_secret(named: bool, told: str) -> None:
    total = Total(failures={7: "the update is not finite", 9: "the update is not finite"})

    with pytest.raises(RunError, match=f"no client sent an update; {told}"):
        _check_alive(1, [7, 9], total, named=named)
