"""Mutants of the helper elsewhere: it would answer strangers, count for many runs, or be asked before a charge."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

KEYS = "tests/deployment/test_helper_keys.py"
COUNT = "tests/deployment/test_count.py"
ANSWERS = f"{COUNT}::test_the_helper_answers_the_server_of_its_roster_about_its_own_file_and_nobody_else"
KILLED = f"{COUNT}::test_a_helper_that_is_killed_and_comes_back_counts_on_with_the_same_account"

MUTANTS = (
    of(
        "count-helper-is-the-leader",
        "one institution has both aggregators' keys, and opens every ballot",
        ("deployment/roster.py", "if key == self.key:", "if key is None:"),
        tests=KEYS,
    ),
    of(
        "count-answers-anybody",
        "whoever has a certificate of the federation speaks to the helper",
        ("deployment/helper/listener.py", "if peer_print(connection) != self._leader:", "if not self._leader:"),
        tests=ANSWERS,
    ),
    of(
        "count-for-every-run",
        "a server that begins again and again is counted for each time",
        ("deployment/helper/service.py", 'if self.run not in ("", run.hex()):', "if not run:"),
        tests=ANSWERS,
    ),
    of(
        "count-other-files",
        "the helper counts under another plan than the server",
        ("deployment/helper/service.py", "if payload != self._greeting:", "if not payload:"),
        tests=ANSWERS,
    ),
    of(
        "count-frames-without-end",
        "one frame fills the helper's memory",
        ("deployment/helper/frames.py", "if size > most:", "if size < 0:"),
        tests=f"{COUNT}::test_a_frame_that_is_too_long_is_refused_by_its_head",
    ),
    of(
        "count-old-transfers",
        "a new connection goes on with the transfers of the one before",
        ("deployment/helper/service.py", 'self._step < (2 if kind == "hello" else 3)', "self._step < 2"),
        tests=ANSWERS,
    ),
    of(
        "count-ballots-of-any-run",
        "a ballot of one run is counted in another",
        ("federation/aggregation/ballots/count.py", "replace(knowledge.ballot, session=run)", "knowledge.ballot"),
        tests=f"{COUNT}::test_a_ballot_holds_for_one_run",
    ),
    of(
        "count-node-is-not-charged",
        "a ballot leaves a node that its ledger knows nothing of",
        ("deployment/node/node.py", '"train" if seat.client.knowledge.ballot is not None else CHARGED', "CHARGED"),
        tests=KILLED,
    ),
    of(
        "count-failures-show",
        "everybody sees that a round failed, and what it says of its cohort is not charged for",
        (
            "federation/aggregation/ballots/count.py",
            "if total.values is None and self.covers:",
            "if total.values is None and None:",
        ),
        tests=KILLED,
    ),
    of(
        "count-address-in-the-digest",
        "nodes without the helper's address cannot take part",
        ("config/experiment.py", 'tables["aggregation"].pop("helper", None)', 'tables["aggregation"].get("helper")'),
        tests=f"{COUNT}::test_an_address_of_a_helper_is_for_ballots_and_changes_no_digest",
    ),
)
