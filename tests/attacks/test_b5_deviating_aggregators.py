"""B5: an aggregator that deviates by one line, w + D on a victim's rows, reads a whole ballot through the released sum.

Without the comparison of two counts it does, certainly (`without_comparison`, which is how it was). With it the run
ends before anything is opened; what the deviating side holds by then tells nothing but the one bit that it has failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.errors import InputError, SecAggError
from sottovoce.deployment.helper.mark import ComparisonFile
from sottovoce.federation.aggregation.ballots.account import HelperAccount
from sottovoce.federation.aggregation.ballots.process import HelperProcess
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.ledger import verify
from sottovoce.runs.loop import run
from sottovoce.secagg import KeyedEntropy
from sottovoce.secagg.ballots import comparison as comparison_module
from sottovoce.secagg.ballots import helper as helper_module
from sottovoce.secagg.ballots.comparison import Comparison, CountsDifferError
from sottovoce.secagg.ballots.leader import Leader, context_of, new_difference
from sottovoce.secagg.ot import group
from sottovoce.secagg.ot.extension import CHECK_SIZE
from tests.federation.ballots.forked import fork_helpers
from tests.runs.small import small
from tests.secagg.ballots.stage import DOWNLINK, Stage, key, without_base_transfers

LENGTH = 40
VICTIM = 1
HALF = 1 << 15
D = 1 << 13  # the released sum holds 4 D y: half of the range of a word, far above any noise


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_base_transfers(monkeypatch)


class Shifted:
    """The digest of a difference to which a deviating side adds what it guesses that its error has become."""

    def __init__(self, shift: np.ndarray) -> None:
        self._inner, self._shift = new_difference(), shift.astype(np.uint16)

    def update(self, data: bytes) -> None:
        self._inner.update((np.frombuffer(data, np.uint16) + self._shift).tobytes())

    def digest(self) -> bytes:
        return self._inner.digest()


class Trial(Stage):
    """A round in which one side adds `error` to the words of the victim's rows, and `guess` to its difference."""

    def __init__(self, seed: int, deviates: str, error: np.ndarray, guess: np.ndarray | None = None) -> None:
        super().__init__(LENGTH, clients=3, noise=0)
        self.entropy = KeyedEntropy(key(f"clients {seed}"))
        self.leader._entropy = KeyedEntropy(key(f"leader {seed}"))
        self.helper._entropy = KeyedEntropy(key(f"helper {seed}"))
        self.deviates, self.error = deviates, error
        self.shift = np.zeros(LENGTH, np.int64) if guess is None else error * guess
        self.cast = {client: self.votes(1000 * seed + client) for client in range(3)}
        self.messages = {client: self.message(1, client, votes) for client, votes in self.cast.items()}
        self.leader._answer = self.deviating

    def deviating(self, kind: str, payload: bytes) -> bytes:
        if kind == "transfer":
            if self.deviates == "helper":
                self.helper._count.difference = Shifted(self.shift)  # type: ignore[assignment]
            else:
                self.leader._difference = Shifted(self.shift)  # type: ignore[assignment]
        if kind == "words" and self.deviates == "leader":
            payload = self.wrong(payload)
        reply = self.answer(kind, payload)
        if kind == "check" and self.deviates == "helper":
            reply = reply[:CHECK_SIZE] + self.wrong(reply[CHECK_SIZE:])
        return reply

    def wrong(self, words: bytes) -> bytes:
        changed = np.frombuffer(words, np.uint16).reshape(3, LENGTH).copy()
        changed[VICTIM] += self.error.astype(np.uint16)
        return changed.tobytes()

    @property
    def own(self) -> np.ndarray:
        """The other side's bits of the victim, by which errors are multiplied: what the deviating side is after."""
        masked = np.unpackbits(np.frombuffer(self.messages[VICTIM][:5], np.uint8), bitorder="little")
        return masked if self.deviates == "helper" else masked ^ (self.cast[VICTIM] > 0)

    @property
    def asked(self) -> list[str]:
        return [kind for kind, _, _ in self.wire]

    @property
    def honest(self) -> np.ndarray:
        return sum(self.cast.values())  # type: ignore[return-value]


def everywhere(value: int = D) -> np.ndarray:
    return np.full(LENGTH, value)


def at(*places: int, value: int = D) -> np.ndarray:
    error = np.zeros(LENGTH, np.int64)
    error[list(places)] = value
    return error


def without_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count as it was done before: the first count is opened, whatever the second says."""

    def compare(self: Leader) -> None:
        context = context_of(self._session, self._accepted)
        mine = Comparison("leader", self._difference.digest(), context, self._entropy)
        self._proof, _ = mine.proofs(self._ask("compare", mine.offer))
        self._ask("prove", b"")

    monkeypatch.setattr(Leader, "compare", compare)
    monkeypatch.setattr(helper_module.hmac, "compare_digest", lambda *_: True)


def test_without_the_comparison_a_helper_reads_every_bit_of_a_ballot(monkeypatch: pytest.MonkeyPatch) -> None:
    without_comparison(monkeypatch)
    for seed in range(5):
        trial = Trial(seed, "helper", everywhere())
        released = trial.count(1, trial.messages)

        read = np.abs(released) > HALF // 2  # 2^15 away from any honest sum
        np.testing.assert_array_equal(read, trial.own == 1)


@pytest.mark.parametrize("deviates", ["helper", "leader"])
@pytest.mark.parametrize("error", [everywhere(), everywhere(1), everywhere(HALF), at(*range(12), value=HALF), at(3, 5)])
def test_a_deviation_without_a_right_guess_ends_the_run_before_anything_is_opened(
    deviates: str, error: np.ndarray
) -> None:
    ended = 0
    for seed in range(4):
        trial = Trial(seed, deviates, error)
        if not (trial.own * error).any():
            continue  # guessed right: all bits are zero
        with pytest.raises(CountsDifferError, match="the run is over"):
            trial.count(1, trial.messages)
        ended += 1
        assert "open" not in trial.asked
        assert not any(line[0] == "charge" for line in trial.account.log)
        with pytest.raises(CountsDifferError):
            trial.leader.begin(2, [0], DOWNLINK)
    assert ended


@pytest.mark.parametrize("deviates", ["helper", "leader"])
def test_passing_takes_a_right_guess_of_all_bits_and_then_nothing_but_the_honest_votes_is_learned(
    deviates: str,
) -> None:
    """A guess of three bits passes in one case of eight.

    Of 128 tries 16 are expected to pass; less than 2 or more than 36 have a probability below 1e-5.
    """
    passed = 0
    for seed in range(128):
        trial = Trial(seed, deviates, at(0, 7, 19), guess=at(0, 19, value=1))
        right = bool((trial.own[[0, 7, 19]] == [1, 0, 1]).all())
        if not right:
            with pytest.raises(CountsDifferError):
                trial.count(1, trial.messages)
            continue
        passed += 1
        released = trial.count(1, trial.messages)
        known = 4 * trial.shift if deviates == "helper" else 0  # by the guess alone, whatever the ballots were
        np.testing.assert_array_equal((released + known - trial.honest) % (1 << 16), 0)
    assert 2 <= passed <= 36


@pytest.mark.parametrize("value", [HALF, D, 1])
@pytest.mark.parametrize("deviates", ["helper", "leader"])
def test_no_error_passes_more_often_than_its_bits_are_guessed(deviates: str, value: int) -> None:
    """Half of the modulus on ten rows passes by ten right guesses too, and not by a coin.

    A random combination of all coordinates modulo 2^16 would let it pass in every second case. Of 40 tries each passes
    with probability 2^-10: three or more have a probability below 1e-5.
    """
    passed = 0
    for seed in range(40):
        guess = np.full(LENGTH, seed % 2)  # all ones, or all zeros: then its own digest is an honest one
        trial = Trial(seed, deviates, at(*range(10), value=value), guess)
        try:
            trial.count(1, trial.messages)
            passed += 1
        except CountsDifferError:
            pass
    assert passed < 3


def test_a_helper_that_chooses_other_bits_in_the_second_count_is_caught_and_in_both_has_one_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flat = helper_module.flat_bits

    def flipped(*given: Any) -> np.ndarray:
        bits = flat(*given).copy()
        bits.reshape(3, LENGTH)[VICTIM, :20] ^= 1
        return bits

    trial = Trial(1, "helper", at())
    ours, changed = trial.deviating, np.zeros(3 * LENGTH // 8, np.uint8)
    changed[5:7] = 255  # 16 bits of the victim

    def choosing(kind: str, payload: bytes) -> bytes:
        transfers = trial.helper._transfers
        if kind == "transfer" and transfers is not None:
            choose = transfers.receiver.choose
            transfers.receiver.choose = lambda bits, count: choose(bits ^ changed, count)  # type: ignore
        return ours(kind, payload)

    trial.leader._answer = choosing
    with pytest.raises(CountsDifferError):
        trial.count(1, trial.messages)
    again = Trial(1, "helper", at())
    monkeypatch.setattr(helper_module, "flat_bits", flipped)
    changed = again.cast[VICTIM] * np.where(np.arange(LENGTH) < 20, -1, 1)
    np.testing.assert_array_equal(again.count(1, again.messages), again.honest - again.cast[VICTIM] + changed)


def test_a_helper_that_chooses_differently_in_single_columns_is_caught_by_the_leader() -> None:
    trial = Trial(2, "helper", at())
    ours = trial.deviating

    def cheating(kind: str, payload: bytes) -> bytes:
        reply = ours(kind, payload)
        if kind != "transfer":
            return reply
        transfers = trial.leader._transfers
        assert transfers is not None
        column = int(np.flatnonzero(transfers.sender._secret)[0])
        changed = bytearray(reply)
        changed[24 + column * (len(reply) - 24) // 128 + 20] ^= 1
        return bytes(changed)

    trial.leader._answer = cheating
    with pytest.raises(SecAggError, match="not the same in all columns"):
        trial.count(1, trial.messages)
    assert trial.leader._transfers is None


# --- what the deviating side holds when it has failed


def candidates(trial: Trial, rows: int) -> list[tuple[np.ndarray, bytes]]:
    """Return what the other side's digest would be for each case of the victim's first bits: a helper can, offline."""
    own = trial.helpers_difference
    found = []
    for case in product((0, 1), repeat=rows):
        shift = np.zeros(LENGTH, np.int64)
        shift[:rows] = np.array(case) * D
        digest = new_difference()
        digest.update((own + shift.astype(np.uint16)).tobytes())
        found.append((np.array(case), digest.digest()))
    return found


class Watched(Trial):
    """A trial of a helper that keeps its difference, its secret of the comparison and all that it was sent."""

    def __init__(self, seed: int, rows: int) -> None:
        super().__init__(seed, "helper", at(*range(rows)))
        self.helpers_difference = np.zeros(LENGTH, np.uint16)

    def deviating(self, kind: str, payload: bytes) -> bytes:
        reply = super().deviating(kind, payload)
        if kind == "transfer":
            keep = self

            class Kept(Shifted):
                def update(self, data: bytes) -> None:
                    keep.helpers_difference = np.frombuffer(data, np.uint16).copy()
                    super().update(data)

            self.helper._count.difference = Kept(self.shift)  # type: ignore[assignment]
        return reply

    def view(self) -> bytes:
        """All that the leader has sent."""
        return b"".join(payload for _, payload, _ in self.wire)


def matches(trial: Watched, rows: int, context: bytes) -> list[np.ndarray]:
    """Return the cases of the victim's bits of which the helper finds a trace in what it was sent."""
    view, told = trial.view(), []
    for case, digest in candidates(trial, rows):
        element = group.hash_to_element(b"compare", context, digest)
        traces = [digest, element, hashlib.sha256(digest).digest(), hashlib.sha256(context + digest).digest()]
        traces.append(hashlib.sha512(digest).digest())
        if any(trace in view for trace in traces):
            told.append(case)
    return told


def failed(seed: int, rows: int) -> tuple[Watched, bytes]:
    trial = Watched(seed, rows)
    contexts: list[bytes] = []
    real = comparison_module.Comparison.__init__

    def noted(self: Comparison, side: Any, digest: bytes, context: bytes, entropy: Any) -> None:
        contexts.append(context)
        real(self, side, digest, context, entropy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison_module.Comparison, "__init__", noted)
        if (trial.own[:rows] == 0).all():
            trial.count(1, trial.messages)
        else:
            with pytest.raises(CountsDifferError):
                trial.count(1, trial.messages)
    return trial, contexts[0]


def test_a_helper_that_tries_all_cases_offline_finds_no_trace_of_the_right_one() -> None:
    """Eight rows have 256 cases, so that a hash of the difference would tell all eight bits."""
    for seed in range(6):
        trial, context = failed(seed, 8)
        assert matches(trial, 8, context) == []


def test_it_finds_the_right_one_if_the_leader_shows_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = comparison_module.Comparison.__init__

    def shown(self: Comparison, side: Any, digest: bytes, context: bytes, entropy: Any) -> None:
        real(self, side, digest, context, entropy)
        if side == "leader":
            self.offer = group.hash_to_element(b"compare", context, digest)

    monkeypatch.setattr(comparison_module.Comparison, "__init__", shown)
    for seed in range(6):
        trial, context = failed(seed, 8)
        (told,) = matches(trial, 8, context)
        np.testing.assert_array_equal(told, trial.own[:8])


@pytest.mark.parametrize("kind", ["compare", "words", "check", "transfer"])
def test_what_a_helper_was_sent_until_it_failed_is_at_chance_on_the_victims_bits(kind: str) -> None:
    """Each bit of a message is a guess of each of the victim's bits: the best of them is no better than luck.

    60 trials, 64 bits of the message and eight of the ballot: 512 guesses, each right Binomial(60, 1/2) times if
    nothing is told. One that is right, or wrong, 51 times or more has a probability below 2e-5.
    """
    sent, bits = [], []
    for seed in range(60):
        trial, _ = failed(seed, 8)
        payload = next(payload for name, payload, _ in trial.wire if name == kind)
        sent.append(np.unpackbits(np.frombuffer(payload[8:40], np.uint8))[:64])
        bits.append(trial.own[:8])
    agree = np.array(sent)[:, :, None] == np.array(bits)[:, None, :]
    right = agree.sum(axis=0)
    assert np.maximum(right, 60 - right).max() < 51


# --- failures that are called by another name


def plan() -> PrivacyPlan:
    return PrivacyPlan.solve(
        clients=3,
        sample_rate=1.0,
        rounds=9,
        delta=1e-2,
        clip_norm=1.0,
        length=LENGTH,
        noise_by="aggregators",
        noise_multiplier=5.0,
        deployment=True,
    )


@pytest.fixture(scope="module")
def solved() -> PrivacyPlan:
    return plan()


Ending = Callable[[Trial], None]


def hang_up(trial: Trial) -> None:
    """See that the counts differ, and call it a lost connection."""


def restart(trial: Trial) -> None:
    """Begin a session anew, with the same helper."""
    trial.leader._over = None
    trial.leader._begin_session()


def show(trial: Trial) -> None:
    """Show the proof that the helper must find wrong."""
    with pytest.raises(CountsDifferError):
        trial.helper.answer("open", bytes(32))


@pytest.mark.parametrize("ending", [hang_up, restart, show])
def test_a_leader_that_has_seen_that_it_failed_never_gets_another_round(
    ending: Ending, solved: PrivacyPlan, tmp_path: Path
) -> None:
    with HelperAccount.open(tmp_path, solved) as account:
        trial = Trial(3, "leader", everywhere())
        trial.helper = trial.new_helper(account=account)
        with pytest.raises(CountsDifferError):
            trial.count(1, trial.messages)
        ending(trial)
        with pytest.raises(CountsDifferError, match="the run is over"):
            account.check_round(2)
    with HelperAccount.open(tmp_path, solved) as account, pytest.raises(CountsDifferError):  # after kill -9
        account.check_round(2)


def test_a_comparison_that_was_lost_goes_on_with_the_leaders_proof_and_ends_the_run_with_another(
    solved: PrivacyPlan, tmp_path: Path
) -> None:
    right, wrong = b"r" * 32, b"w" * 32
    for name, proof in (("right", right), ("wrong", wrong)):
        folder = tmp_path / name
        folder.mkdir()
        with HelperAccount.open(folder, solved) as account:
            account.reserve(1, [0, 1], counter=5, session="s")
            account.compare(1, b"o" * 32, right)
        with HelperAccount.open(folder, solved) as account:
            pending = account.pending
            assert pending is not None and (pending.round, pending.own) == (1, b"o" * 32)
            if proof == right:
                account.settle(proof)
                account.check_round(2)
            else:
                with pytest.raises(CountsDifferError):
                    account.settle(proof)
        with HelperAccount.open(folder, solved) as account:
            if proof == right:
                account.check_round(2)
                with pytest.raises(SecAggError, match="no comparison"):
                    account.settle(right)
            else:
                with pytest.raises(CountsDifferError):
                    account.check_round(2)


class Noted:
    """What a leader writes down, and what it has asked by then."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.log = trial, list[tuple[str, int, int]]()

    def begin(self, round_: int, own: bytes, expected: bytes) -> None:
        assert len({own, expected}) == 2 and "prove" not in self.trial.asked
        self.log.append(("begin", round_, len(own + expected)))

    def differ(self, round_: int) -> None:
        assert self.trial.asked[-1] == "prove"
        self.log.append(("differ", round_, 0))


def test_a_leader_has_both_proofs_on_disk_before_it_asks_and_a_failure_before_anybody_hears_of_it() -> None:
    for error, guess, expected in ((at(), None, 1), (everywhere(), None, 2)):
        trial = Trial(5, "helper", error, guess)
        trial.leader._record = record = Noted(trial)
        if expected == 1:
            trial.count(1, trial.messages)
        else:
            with pytest.raises(CountsDifferError):
                trial.count(1, trial.messages)
        assert record.log == [("begin", 1, 64), ("differ", 1, 0)][:expected]


def test_a_server_shows_its_proof_to_a_helper_that_has_shown_the_right_one_and_ends_its_run_else(
    tmp_path: Path,
) -> None:
    file = ComparisonFile(tmp_path / "state", bytes(16))
    own, expected = b"o" * 32, b"e" * 32
    file.check()
    with pytest.raises(CountsDifferError, match="has another"):
        file.settle(1, expected)
    file.begin(4, own, expected)
    with pytest.raises(CountsDifferError, match="has another"):
        file.settle(3, expected)
    assert file.settle(4, expected) == own
    file.check()

    with pytest.raises(CountsDifferError, match="counts of its ballots differ"):
        file.settle(4, own)
    for attempt in (file, ComparisonFile(tmp_path / "state", bytes(16))):
        with pytest.raises(CountsDifferError, match="round 4"):
            attempt.check()
        with pytest.raises(CountsDifferError, match="round 4"):
            attempt.settle(4, expected)
    ComparisonFile(tmp_path / "state", b"another run's id").check()
    file._path.write_text('{"round": 4}')
    with pytest.raises(InputError, match="is damaged"):
        file.check()


def test_a_proof_holds_for_its_side_its_offers_and_its_context_alone() -> None:
    digest, entropy = key("digest"), KeyedEntropy(key("e"))

    def both(ours: bytes, theirs: bytes) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
        leader = Comparison("leader", digest, ours, entropy)
        helper = Comparison("helper", digest, theirs, entropy)
        offer = leader.offer
        return leader.proofs(helper.offer), helper.proofs(offer)

    (own, expected), (helpers, wanted) = both(b"one", b"one")
    assert (own, expected) == (wanted, helpers) and own != helpers  # what one shows cannot be shown back
    (_, expected), (helpers, _) = both(b"one", b"another")
    assert expected != helpers
    first, second = both(b"one", b"one")[0], both(b"one", b"one")[0]
    assert not set(first) & set(second)  # new for every comparison
    once = Comparison("leader", digest, b"one", entropy)
    once.proofs(once.offer)
    with pytest.raises(SecAggError, match="made once"):
        once.proofs(once.offer)


@pytest.mark.parametrize("round_", [1, 2])
def test_a_run_whose_helper_deviates_ends_with_exit_code_3_before_the_round_is_charged(
    round_: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_helpers(monkeypatch)
    answer, checks = HelperProcess.answer, [0]

    def deviating(process: HelperProcess, kind: str, payload: bytes) -> bytes:
        reply = answer(process, kind, payload)
        checks[0] += kind == "check"
        if kind != "check" or checks[0] < round_:
            return reply
        words = np.frombuffer(reply[CHECK_SIZE:], np.uint16) + np.uint16(D)
        return reply[:CHECK_SIZE] + words.tobytes()

    monkeypatch.setattr(HelperProcess, "answer", deviating)
    private = {"noise_multiplier": 5.0, "delta": 0.01, "clip_norm": 1.0}
    with pytest.raises(CountsDifferError, match=f"round {round_}: the two counts") as raised:
        run(small(privacy=private, aggregation={"secure": "ballot"}, cohort={"sample_rate": 1}), tmp_path / "run")

    assert raised.value.exit_code == 3
    assert list(verify(tmp_path / "run" / "ledger.jsonl").charged) == list(range(1, round_))
    assert list(verify(tmp_path / "run" / "helper-ledger.jsonl").charged) == list(range(1, round_))
    assert not (tmp_path / "run" / "summary.json").exists()
