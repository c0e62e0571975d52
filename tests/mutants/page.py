"""Mutants of the page: a secret that gets out, a run that looks better or cheaper than its folder says."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

WATCH = "tests/report/test_watch.py"
STATUS = "tests/deployment/test_status.py"
TRADE = "tests/report/test_trade.py"
ROUNDS = "tests/report/test_rounds.py"
NEWER = "tests/report/test_newer.py"
BROWSER = "tests/report/test_browser.py"

MUTANTS = (
    of(
        "watch-tells-when-the-operator-writes",
        "the state that is served changes with the operator's files",
        ("report/watch.py", '"audit.json", "model-best.npz")', '"audit.json", "operator.jsonl")'),
        tests=WATCH + "::test_what_only_the_operator_may_see_does_not_change_the_state",
    ),
    of(
        "watch-answers-any-name",
        "a foreign page points its name at this machine and reads the report",
        ("core/pages.py", 'if not self.server.knows(self.headers.get("Host")):', "if False:"),
        tests=WATCH + "::test_a_foreign_name_and_other_methods_are_refused",
    ),
    of(
        "watch-on-another-address",
        "the report of a private run is open to more than this machine's own user",
        ("report/watch.py", 'PagePlace("127.0.0.1", 0)', 'PagePlace("127.0.0.2", 0)'),
        tests=WATCH + "::test_a_foreign_name_and_other_methods_are_refused",
    ),
    of(
        "status-file-for-everybody",
        "who took part in which round is readable by every user of the server",
        ("deployment/status.py", "os.O_TRUNC, PRIVATE)", "os.O_TRUNC, 0o644)"),
        tests=STATUS + "::test_the_file_is_its_owners_alone_and_holds_the_last_word",
    ),
    of(
        "status-page-may-send",
        "the page with the cohort may ask and tell other machines",
        ("deployment/status.py", "f\"default-src 'none'; ", 'f"default-src *; '),
        tests=STATUS + "::test_addresses_are_few_read_only_and_for_this_machine",
    ),
    of(
        "covered-rounds-have-a-quorum",
        "the operator sees no difference between a round of noise alone and one that taught something",
        ("deployment/status.py", 'not record.get("reason") and not record.get("aborted")', 'not record.get("aborted")'),
        tests=STATUS + "::test_a_round_with_a_reason_had_no_quorum_though_its_sum_was_covered_by_noise",
    ),
    of(
        "one-typo-switches-off-nodes",
        "a typo in the server's file ends every node for good",
        ("deployment/node/node.py", "if not self._stays:", "if True:"),
        tests="tests/deployment/test_node.py::test_a_node_that_stays_outlives_refusals_says_them_once_and_joins_the_right_run",
    ),
    of(
        "last-word-gone",
        "the log says of a node that is back that it is gone",
        ("federation/engines/mqtt/engine.py", "(node.said_gone or node.lines.take())", "node.lines.take()"),
        ("federation/engines/mqtt/engine.py", "and node.lines.take(2.0):", "and node.lines.take():"),
        tests="tests/attacks/test_b3_log.py",
    ),
    of(
        "clones-are-welcome",
        "a stolen key takes part beside its owner, and nobody hears of it",
        ("federation/engines/mqtt/engine.py", "node.cloned or back", "node.cloned"),
        tests="tests/attacks/test_b3_log.py",
    ),
    of(
        "page-may-send",
        "the page may ask and tell other machines",
        ("report/html.py", "\"default-src 'none'; ", '"default-src *; '),
        tests=BROWSER + "::test_nothing_is_loaded_and_a_request_is_refused_by_the_page_itself",
    ),
    of(
        "best-round-at-the-price-of-all",
        "the quality of a lucky round is shown for the price of the whole run",
        ("report/trade.py", 'finite(record.get(f"{metric}_final"))', 'finite(record.get(f"{metric}_best"))'),
        tests=TRADE,
    ),
    of(
        "broken-run-on-the-front",
        "a run that diverged is drawn as if its last accuracy were worth something",
        ("report/trade.py", "quality is not None and not diverged(record)", "quality is not None"),
        tests=TRADE,
    ),
    of(
        "beaten-runs-on-the-front",
        "the line of runs that no other beats has runs that are beaten",
        ("report/trade.py", "point.quality > best[-1].quality", "point.quality >= best[-1].quality"),
        tests=TRADE,
    ),
    of(
        "less-private-looks-more-private",
        "the larger epsilon has the larger mark",
        ("report/trade.py", "(high - math.log(point.epsilon)) / span", "(math.log(point.epsilon) - low) / span"),
        tests=TRADE,
    ),
    of(
        "vote-costs-nothing",
        "the bytes of the vote are missing from a client's bytes",
        ("report/phases.py", 'PhaseBytes("vote", way, ', 'PhaseBytes("vote", way, 0 * '),
        tests=TRADE,
    ),
    of(
        "spent-epsilon-is-rounded-down",
        "the figure promises more than was proven",
        ("report/rounds.py", 'float(epsilon(record["epsilon_spent"]))', "float(f\"{record['epsilon_spent']:.4g}\")"),
        tests=ROUNDS,
    ),
    of(
        "panels-on-different-scales",
        "panels that are to be compared have axes of their own",
        ("report/rounds.py", "    _fix_axes(figure)\n    across", "    across"),
        tests=ROUNDS,
    ),
    of(
        "newer-is-silent",
        "a folder of a newer version is shown as if every key meant what it did",
        ("report/newer.py", "_numbers(made) > _numbers(ours)", "_numbers(made) < []"),
        tests=NEWER,
    ),
    of(
        "formula-in-a-cell",
        "a run's name is run as a formula by a spreadsheet",
        ("report/page.js", 'text = "\'" + text;', "text = text;"),
        tests=BROWSER + "::test_a_csv_has_every_point_and_no_cell_is_run_by_a_spreadsheet",
    ),
    of(
        "unknown-sorts-first",
        "a damaged run stands at the top of a sorted table as the cheapest",
        ("report/page.js", "(a === null) - (b === null)", "(b === null) - (a === null)"),
        tests=BROWSER + "::test_a_table_is_sorted_by_value_with_the_unknown_last_and_filtered_by_words",
    ),
)
