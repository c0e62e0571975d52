"""Mutants of the helper as a process of its own: its account forgets, its keys are another's, strangers hold it up."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

MARKS = "tests/deployment/test_marks.py"
KEYS = "tests/deployment/test_helper_keys.py"
DOOR = "tests/deployment/test_door.py"
INPUT = "tests/deployment/test_count_input.py"
KILLS = "tests/deployment/test_kills.py"
HELPER_KILLED = f"{KILLS}::test_a_run_whose_helper_is_killed_at_every_step_ends_with_two_true_accounts"
SERVER_KILLED = f"{KILLS}::test_a_run_whose_server_is_killed_at_every_step_ends_with_two_true_accounts"

MUTANTS = (
    of(
        "helper-account-rolled-back",
        "an older copy of the account is counted with, and rounds are paid for twice with one charge",
        ("deployment/helper/service.py", "if not self.account.holds(mark.lines, mark.head):", "if not mark.lines:"),
        tests=MARKS,
    ),
    of(
        "helper-account-by-length",
        "an account that was rewritten has as many lines as the true one",
        ("privacy/ledger.py", "self._heads[lines - 1] == head", "bool(head)"),
        tests=MARKS,
    ),
    of(
        "helper-account-deleted",
        "whoever deletes the helper's ledger gives the server a new budget",
        (
            "deployment/helper/service.py",
            "if run and not (ledger.exists() and ledger.stat().st_size):",
            "if run and not run:",
        ),
        tests=MARKS,
    ),
    of(
        "helper-account-of-no-run",
        "an account whose run's name was deleted is taken for another run",
        (
            "deployment/helper/service.py",
            "if account.head[0] > 1 and not run:",
            "if account.head[0] > 1 and not state:",
        ),
        tests=MARKS,
    ),
    of(
        "helper-mark-unsigned",
        "whoever writes the server's folder decides what the helper had counted",
        ("deployment/helper/mark.py", "if not mark.holds(run, self.key):", "if not mark.lines:"),
        tests=MARKS,
    ),
    of(
        "helper-mark-of-any-run",
        "a mark of one run holds in another",
        ("deployment/helper/mark.py", "return _DOMAIN + run + lines", "return _DOMAIN + lines"),
        tests=MARKS,
    ),
    of(
        "helper-mark-stands-still",
        "a helper that writes no line and charges nothing is believed",
        (
            "deployment/helper/mark.py",
            "if before is not None and not again and mark.lines <= before.lines:",
            "if before is not None and not again and mark.lines < 0:",
        ),
        tests=MARKS,
    ),
    of(
        "helper-mark-in-memory",
        "a server that was killed has forgotten how far the helper's account had come",
        ("deployment/helper/mark.py", "_write(self._path(run), text)", "pass"),
        tests=MARKS,
    ),
    of(
        "helper-mark-lost",
        "whoever deletes the mark hides that the account was rolled back",
        ("deployment/server/helper_link.py", "if begun and not known:", "if begun and not setup:"),
        tests=MARKS,
    ),
    of(
        "server-rolled-back",
        "an older copy of the run folder plays rounds that were played",
        ("deployment/server/helper_link.py", "if begun > self.opened:", "if begun < 0:"),
        tests=MARKS,
    ),
    of(
        "helper-rounds-fall",
        "a round before the last one is begun",
        ("federation/aggregation/ballots/account.py", "round_ <= self.last_round:", "round_ in self._rounds:"),
        tests=MARKS,
    ),
    of(
        "helper-secret-leaves",
        "a request carries the key by which seeds are opened, and whoever holds the root key can open them",
        (
            "deployment/helper/keys.py",
            "Registration.make(name, signing, tls, exchange_key(exchange))",
            "Registration.make(name, signing, tls, exchange)",
        ),
        tests=KEYS,
    ),
    of(
        "helper-request-forged",
        "whoever carries a request puts in a key of his own, and opens every ballot",
        (
            "deployment/request.py",
            "if not verify(key, signature, signed):",
            "if not helper and not verify(key, signature, signed):",
        ),
        tests=KEYS,
    ),
    of(
        "helper-is-a-node",
        "a node lets itself in as the helper under another name",
        (
            "deployment/helper/keys.py",
            "    Roster(entries, register.server, register.root, helper=made.entry(register.server_certificate))\n",
            "",
        ),
        tests=KEYS,
    ),
    of(
        "helper-stays-after-revocation",
        "a helper that was revoked counts on",
        (
            "deployment/keys.py",
            "register = replace(register, helper=None, revoked",
            "register = replace(register, revoked",
        ),
        tests=KEYS,
    ),
    of(
        "helper-certificate-lives",
        "the certificate of a revoked helper, or one that it had before, holds",
        ("deployment/keys.py", "for serial in helper.serials)", "for serial in helper.former)"),
        tests=KEYS,
    ),
    of(
        "roster-falls-back",
        "an old roster with a revoked helper is taken again",
        ("deployment/party.py", "if newest[0] > own[0] or", "if newest[0] < 0 or"),
        tests=KEYS,
    ),
    of(
        "door-waits",
        "a stranger who says nothing keeps his place for ever",
        ("deployment/helper/listener.py", "if knock.until <= now]", "if knock.until <= 0]"),
        tests=f"{DOOR}::test_what_is_said_of_strangers_does_not_fill_the_log "
        f"{DOOR}::test_who_does_not_finish_is_turned_away_and_who_is_not_the_server_too",
    ),
    of(
        "door-pushes-out-the-oldest",
        "one address that knocks often pushes out the server",
        ("deployment/helper/listener.py", "if knock.address == most)", "if knock.address)"),
        tests=f"{DOOR}::test_too_many_push_out_the_address_that_knocks_most",
    ),
    of(
        "door-keeps-the-lost-one",
        "a server that lost its power in the middle of a frame waits for two minutes",
        ("deployment/helper/listener.py", "            self._hang_up()\n", ""),
        tests=f"{DOOR}::test_a_new_connection_ends_the_one_before_while_its_frame_is_waited_for",
    ),
    of(
        "door-fills-the-log",
        "whoever knocks fills the helper's disk",
        ("deployment/helper/listener.py", "if len(self._complaints) < _COMPLAINTS:", "if len(self._complaints) >= 0:"),
        tests=f"{DOOR}::test_what_is_said_of_strangers_does_not_fill_the_log",
    ),
    of(
        "helper-goes-on-without-a-disk",
        "a line that was half written is followed by another, and the account is damaged for ever",
        ("deployment/helper/count.py", "if desk.account.broken or type(error) is RunError:", "if not desk.account:"),
        tests=INPUT,
    ),
    of(
        "helper-writes-before-it-listens",
        "a port that is taken leaves a new account behind",
        (
            "deployment/helper/count.py",
            "with _bound(place) as listener:",
            "open_desk(experiment, keys, state, simulated=simulated)[0].account.close()\n"
            "    with _bound(place) as listener:",
        ),
        tests=INPUT,
    ),
    of(
        "server-does-not-wait",
        "a helper that is started anew costs a round, and its charge, for every moment that it takes",
        ("deployment/server/helper_link.py", "if time.monotonic() + pause > until:", "if pause:"),
        tests=MARKS,
    ),
    of(
        "server-keeps-lost-transfers",
        "a new connection goes on with transfers that the helper has forgotten, and its round fails",
        ("federation/aggregation/ballots/count.py", "self._leader.forsake()", "None"),
        tests="tests/federation/ballots/test_remote.py",
    ),
    of(
        "helper-answers-before-it-writes",
        "a helper that is killed has let a share leave that its account knows nothing of",
        (
            "secagg/ballots/helper.py",
            "        self._account.charge(self._count.round)  # before",
            "        if self._count.round % 2:\n            self._account.charge(self._count.round)  # before",
        ),
        tests=HELPER_KILLED,
    ),
    of(
        "server-asks-before-it-charges",
        "a server that is killed has asked for a share that its ledger knows nothing of",
        (
            "federation/aggregation/ballots/count.py",
            "            spend()\n            votes = leader.open(self.coding.leader_noise(round_))\n",
            "            votes = leader.open(self.coding.leader_noise(round_))\n            spend()\n",
        ),
        tests=SERVER_KILLED,
    ),
    of(
        "server-plays-a-round-again",
        "a round that was open when the server was killed is played again",
        ("runs/journal.py", "begun.round > self.done:", "begun.round > self.done + 1:"),
        tests=SERVER_KILLED,
    ),
)
