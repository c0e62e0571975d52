"""Mutants of what others may send us: memory, rounds and terminals would be at the disposal of one liar."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

MEMORY = "tests/attacks/test_b3_memory.py"
WORDS = "tests/attacks/test_b7_what_others_send.py"

AGENT = "tests/deployment/test_agent.py"

MUTANTS = (
    of(
        "offers-name-code",
        "a server lets an agent import and call what it likes",
        ("deployment/offer.py", "if _CODE.fullmatch(text):", "if False:"),
        tests=f"{AGENT}::test_an_offered_experiment_names_no_code_and_no_file_of_the_machine",
    ),
    of(
        "offers-write-anywhere",
        "a server writes a file of its choice on an agent's machine",
        ("deployment/offer.py", 'return plain_path(name) and name.endswith(".toml")', 'return name.endswith("l")'),
        tests=f"{AGENT}::test_an_offered_experiment_names_no_code_and_no_file_of_the_machine",
    ),
    of(
        "agents-take-older-rosters",
        "an old roster, with a node that was revoked, comes back by the broker",
        ("deployment/offer.py", "if roster.revision < current.revision:", "if False:"),
        tests=f"{AGENT}::test_a_roster_and_a_certificate_are_taken_if_the_root_signed_them_and_they_are_newer",
    ),
    of(
        "agents-take-foreign-certificates",
        "a certificate that the roster does not name takes an agent's place",
        ("deployment/offer.py", "        _check_certificate(offer.certificate, identity, entry)\n", ""),
        tests=f"{AGENT}::test_what_the_root_did_not_sign_changes_nothing",
    ),
    of(
        "anybody-renews",
        "a request for a certificate in another node's name reaches the holder of the root key",
        ("deployment/offer.py", "if (request.name, request.key) != (entry.name, entry.key):", "if False:"),
        tests=f"{AGENT}::test_a_certificate_is_renewed_by_a_request_of_the_nodes_own_key_alone",
    ),
    of(
        "every-greeting-is-welcomed",
        "one node that repeats a greeting of 600 bytes fills the server's memory and the broker's",
        (
            "federation/engines/mqtt/engine.py",
            "!= node.answered:\n            return True",
            "!= ():\n            return True",
        ),
        ("federation/engines/mqtt/engine.py", "self.left -= cost", "self.left -= 0.0"),
        tests=MEMORY,
    ),
    of(
        "made-up-lives-are-welcomed",
        "a node that makes up a new life in each greeting is sent the set-up as often as it likes",
        ("federation/engines/mqtt/engine.py", "self.left -= cost", "self.left -= 0.0"),
        tests=MEMORY,
    ),
    of(
        "a-line-for-every-greeting",
        "a node that comes and goes without end fills the disk of the server's log",
        ("federation/engines/mqtt/engine.py", "if not self._over and node.lines.take(2.0):", "if not self._over:"),
        tests="tests/attacks/test_b3_log.py",
    ),
    of(
        "dealer-buys-any-work",
        "a client that deals wrong shares holds the server up for 39 seconds a round",
        ("secagg/shamir.py", "* threshold**2 > _MOST_WORK", "> 10_000"),
        tests="tests/attacks/test_b4_decoder_work.py",
    ),
    of(
        "queue-without-end-for-one-node",
        "what waits for one receiver grows until the server's memory is full",
        ("federation/engines/mqtt/transport.py", "if ahead and ahead +", "if False and ahead +"),
        tests=MEMORY,
    ),
    of(
        "window-without-end",
        "a broker that acknowledges nothing fills the server's memory",
        (
            "federation/engines/mqtt/transport.py",
            "<= 0:\n                    return False",
            "<= 0:\n                    break",
        ),
        tests=MEMORY,
    ),
    of(
        "replayed-requests-are-answered",
        "a broker that replays one signed request makes a node send its vector without end",
        ("deployment/node/node.py", "elif stored.sent >= REPEATS:", "elif False:"),
        tests=MEMORY,
    ),
    of(
        "inbox-without-end",
        "whoever sends to a node while it trains fills its memory",
        ("deployment/node/join.py", "if self.waiting and self.waiting +", "if False and self.waiting +"),
        tests=MEMORY,
    ),
    of(
        "ballot-marked-before-it-is-cast",
        "a request that must be refused uses up a round number for ever",
        ("federation/client.py", "message = cast(", "state.mark.before_mask(heard.round)\n        message = cast("),
        (
            "federation/client.py",
            "        state.mark.before_mask(heard.round)  # last, as it cannot be undone; nothing has left yet\n",
            "",
        ),
        tests=WORDS,
    ),
    of(
        "rounds-remembered-before-they-are-checked",
        "one request for round 2^32 is the last that a node answers",
        ("deployment/node/node.py", "self._check_round(seat, came.round)", "pass"),
        tests=WORDS,
    ),
    of(
        "ballot-rounds-without-end",
        "a ballot node takes a number beyond the plan for a round, and rounds only rise",
        ("federation/client.py", "            self.ballot.check_round(round_)", "            pass"),
        ("federation/client.py", "round_ > self.last_round:", "False:"),
        tests=WORDS,
    ),
    of(
        "json-of-any-depth",
        "a stack as deep as somebody likes, where the interpreter does not count its own",
        ("core/remote.py", "if level > DEPTH:", "if False:"),
        tests=WORDS,
    ),
    of(
        "brackets-hidden-in-texts",
        "closing brackets in texts hide the depth of what follows",
        ("core/remote.py", """rb'"(?:[^"\\\\]|\\\\.)*+(?:"|\\\\?\\Z)|[\\[\\]{}]'""", """rb'[\\[\\]{}]'"""),
        tests=WORDS,
    ),
    of(
        "escapes-in-log-lines",
        "a node's words move the cursor of the operator's terminal, or hide what was said",
        ("cli/output.py", 'text = printable(f"{begin', 'text = (f"{begin'),
        ("cli/output.py", "print(printable(text), file", "print(text, file"),
        tests=WORDS,
    ),
    of(
        "escapes-in-tables",
        "a run folder of somebody else's acts on the terminal that shows it",
        ("cli/output.py", "Segment(printable(segment.text)", "Segment(segment.text"),
        tests=WORDS,
    ),
    of(
        "escapes-in-greetings",
        "what a server says it plays reaches the node's terminal as it is",
        ("federation/engines/mqtt/greeting.py", "value if value.isprintable() else one_line(value)", "value"),
        tests=WORDS,
    ),
)
