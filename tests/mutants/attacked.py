"""Mutants of secret ballots that an attacker asked for: what a side believes the other, and what is sent to whom."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

COUNT = "tests/secagg/ballots/test_count.py"
SECRETS = "tests/secagg/ballots/test_secrets.py"
LYING = "tests/secagg/ballots/test_lying_leader.py"
CODING = "tests/federation/ballots/test_coding.py"
CASTING = "tests/federation/ballots/test_casting.py"
ACCOUNT = "tests/federation/ballots/test_account.py"
PLAN = "tests/privacy/test_ballot_plan.py"
BASE = "tests/secagg/ot/test_base.py"
OT = "tests/secagg/ot/test_extension.py"
RESUMED = (
    "tests/runs/test_ballots.py::test_a_run_is_not_resumed_with_an_account_of_the_helper_that_does_not_know_its_rounds"
)

MUTANTS = (
    of(
        "ballot-bare-hash",
        "the helper, who knows the pad, gets a hash of the masked ballot, and is certain of every ballot it suspects",
        (
            "secagg/ballots/message.py",
            '"sottovoce masked ballot" + blind + masked',
            '"sottovoce masked ballot" + masked',
        ),
        tests=SECRETS,
    ),
    of(
        "ballot-blind-of-zeros",
        "the blind is there and everybody knows it",
        ("secagg/ballots/message.py", "entropy(_SEED), entropy(BLIND)", "entropy(_SEED), bytes(BLIND)"),
        tests=SECRETS,
    ),
    of(
        "ballot-vote-not-signed",
        "who carries a message may turn votes around, and the leader forwards it",
        ("secagg/ballots/message.py", 'b"cast" + context + commitment + ephemeral', 'b"cast" + context + ephemeral'),
        tests=COUNT,
    ),
    of(
        "ballot-context-without-client",
        "a ballot of one client counts for another one whose key signs it",
        ("secagg/ballots/terms.py", ' + client.to_bytes(8, "little") + downlink', " + downlink"),
        tests=LYING,
    ),
    of(
        "ballot-helper-believes-the-leader",
        "the helper opens seeds that no client signed: a leader makes up all ballots but one, in clients' names",
        ("secagg/ballots/helper.py", "        envelope.check(self.terms, round_, downlink, registered)\n", ""),
        tests=LYING,
    ),
    of(
        "ballot-helper-opens-one",
        "a leader that leaves out the check of its own has a single ballot opened",
        ("secagg/ballots/helper.py", "        self.terms.check_number(len(self._count.accepted))\n", ""),
        tests=LYING,
    ),
    of(
        "ballot-round-again",
        "the helper plays a round that its account refuses",
        ("secagg/ballots/helper.py", "        self._account.check_round(round_)\n", ""),
        tests=LYING,
    ),
    of(
        "ballot-anybody-confirms",
        "ballots are counted that the leader did not agree to",
        (
            "secagg/ballots/helper.py",
            "if not verify(self.terms.leader_key, payload, self._digest())",
            "if False",
        ),
        tests=LYING,
    ),
    of(
        "ballot-anybody-greets",
        "transfers begin with whoever calls",
        (
            "secagg/ballots/helper.py",
            'if not verify(self.terms.leader_key, signature, b"hello" + hello)',
            "if False",
        ),
        tests=LYING,
    ),
    of(
        "ballot-transfers-after-an-error",
        "the leader goes on with rows that the helper may have used up",
        ("secagg/ballots/leader.py", "            self._transfers = None  # rows may", "            pass  # rows may"),
        tests=LYING,
    ),
    of(
        "ballot-helper-goes-on-after-a-failed-check",
        "a leader whose guess was wrong tries again in the same session",
        (
            "secagg/ballots/helper.py",
            "        if begun or self._transfers is None or kind ==",
            "        if self._transfers is None or kind ==",
        ),
        ("secagg/ot/extension.py", "        if self._dead:\n", "        if False:\n"),
        tests=LYING,
    ),
    of(
        "ballot-check-at-zero",
        "the point of the check is known, and a leader chooses differently where it does not look",
        ("secagg/ot/extension.py", "self._point = self._entropy(POINT_SIZE)", "self._point = bytes(POINT_SIZE)"),
        tests=OT,
    ),
    of(
        "ballot-base-keys-of-no-session",
        "base transfers that are replayed give the keys of another session",
        ("secagg/ot/base.py", '(b"mask", session, ', '(b"mask", '),
        (
            "secagg/ot/base.py",
            'return session + index.to_bytes(4, "little") + offer',
            'return index.to_bytes(4, "little") + offer',
        ),
        tests=BASE,
    ),
    of(
        "ballot-base-mask-of-no-place",
        "both elements of a base transfer have one mask, and a receiver may know both keys",
        (
            "secagg/ot/base.py",
            "bytes([place]), other)",
            "bytes(32))",
        ),
        tests=BASE,
    ),
    of(
        "ballot-noise-narrower-than-rounding",
        "the rounding is taken out of the noise that is charged",
        ("privacy/plan/ballots.py", " / 2 + ROUNDING**2", " / 2"),
        tests=PLAN,
    ),
    of(
        "ballot-words-without-room-for-votes",
        "words hold the noise, and not the votes beside it",
        ("privacy/plan/ballots.py", "needed = shares.cap + TAIL", "needed = TAIL"),
        tests=PLAN,
    ),
    of(
        "ballot-cast-twice",
        "a client casts two ballots in a round, from two models, and the difference shows",
        (
            "federation/client.py",
            "        state.mark.before_mask(heard.round)  # last",
            "        # last",
        ),
        tests=CASTING,
    ),
    of(
        "ballot-cast-too-often",
        "a client believes leader and helper about how often it may take part",
        ("federation/client.py", "        terms.check_participation(state.participations)\n", ""),
        tests=CASTING,
    ),
    of(
        "ballot-counted-once-more",
        "a client is counted in one round more than epsilon_server is charged for",
        (
            "federation/aggregation/ballots/account.py",
            "self.participations(client, round_) < self._most",
            "self.participations(client, round_) <= self._most",
        ),
        tests=ACCOUNT,
    ),
    of(
        "ledger-goes-on-after-half-a-line",
        "a disk that was full for a moment breaks the chain, and locks everybody out of the account",
        (
            "privacy/ledger.py",
            "            with suppress(OSError):\n                self._file.close()\n",
            "",
        ),
        tests="tests/privacy/test_ledger.py",
    ),
    of(
        "ballot-helper-broken-by-ctrl-c",
        "a Ctrl-C at the leader breaks the helper in the middle of its ledger",
        ("federation/aggregation/ballots/process.py", "signal.SIG_IGN", "signal.default_int_handler"),
        tests="tests/federation/ballots/test_process.py",
    ),
    of(
        "ballot-account-behind",
        "a run that is resumed with an empty account counts every client anew",
        ("federation/aggregation/ballots/account.py", "account._ledger.check_checkpoint(played)", "str(played)"),
        tests=RESUMED,
    ),
)
