"""Mutants of what goes between server and nodes: one speaks for another, says it twice, or gives more than agreed."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

ENVELOPE = "tests/federation/mqtt/test_envelope.py"
ENGINE = "tests/engines/test_mqtt_engine.py"
NODE = "tests/deployment/test_node.py"
TRANSPORT = "tests/deployment/test_transport.py"
OWN = "tests/deployment/test_own_data.py"
_EVERYBODY = "for number in self._nodes:\n            self._post(Envelope(Kind.HELLO"

MUTANTS = (
    of(
        "message-not-verified",
        "the broker writes what it likes in anybody's name",
        (
            "federation/engines/mqtt/envelope.py",
            "if not verify(key, message[-_SIGNATURE:], _signed(header, payload)):",
            "if False:",
        ),
        tests=ENVELOPE,
    ),
    of(
        "message-payload-not-signed",
        "the broker puts another payload under a header that was signed",
        (
            "federation/engines/mqtt/envelope.py",
            "return DOMAIN + header + hashlib.sha256(payload).digest()",
            "return header",
        ),
        tests=ENVELOPE,
    ),
    of(
        "message-for-anybody",
        "the broker hands one node what was meant for another",
        ("federation/engines/mqtt/envelope.py", "if addressed != receiver:", "if False:"),
        tests=ENVELOPE,
    ),
    of(
        "message-of-any-size",
        "whoever sends a gigabyte fills the memory of the other side",
        ("federation/engines/mqtt/envelope.py", "if len(message) > OVERHEAD + most:", "if False:"),
        tests=ENVELOPE,
    ),
    of(
        "answer-of-any-round",
        "an answer to an old request is taken for one to this",
        (
            "federation/engines/mqtt/engine.py",
            "return fits and answer.sender in pending.waiting",
            "return answer.sender in pending.waiting",
        ),
        tests=ENGINE,
    ),
    of(
        "answer-taken-twice",
        "a message that comes twice is summed twice",
        ("federation/engines/mqtt/engine.py", "return fits and answer.sender in pending.waiting", "return fits"),
        ("federation/engines/mqtt/engine.py", "answer.sender in pending.came or ", ""),
        tests=ENGINE,
    ),
    of(
        "answers-without-end",
        "a node that talks without end fills the server's memory",
        ("federation/engines/mqtt/engine.py", "            pending.came.add(answer.sender)\n", ""),
        tests=ENGINE,
    ),
    of(
        "greeting-with-half-a-letter",
        "one node's greeting ends the thread that hears all nodes",
        ("core/remote.py", 'letter if letter.isprintable() else " " for', "letter for"),
        tests="tests/federation/mqtt/test_greeting.py",
    ),
    of(
        "diverged-and-silent",
        "a private node that refuses because of its records tells a bit of them, without noise or charge",
        ("federation/client.py", "            update = _finite(update)\n", "            pass\n"),
        ("federation/client.py", "            message = _finite(message)\n", "            pass\n"),
        tests="tests/deployment/test_silence.py",
    ),
    of(
        "roster-of-another-run",
        "a run goes on with nodes that have other numbers than when it began",
        ("runs/loop.py", "if folder is not None and parties.lasting:", "if False:"),
        tests="tests/runs/test_deployed.py -k roster",
    ),
    of(
        "answer-over-anothers-topic",
        "the broker's access list no longer says who spoke",
        (
            "federation/engines/mqtt/engine.py",
            "if topic != topic_from(self.place.federation, envelope.sender):",
            "if False:",
        ),
        tests=ENGINE,
    ),
    of(
        "no-second-ask",
        "an answer that was lost with the connection is lost for good",
        ("federation/engines/mqtt/engine.py", _EVERYBODY, _EVERYBODY.replace("self._nodes", "()")),
        tests=ENGINE,
    ),
    of(
        "no-ask-after-hello",
        "a node that was cut off is out of the round",
        ("federation/engines/mqtt/engine.py", "(number, node) and self._ask_again(number)", "(number, node)"),
        tests=ENGINE,
    ),
    of(
        "old-will-counts",
        "the last will of an old connection drops a node that is back",
        (
            "federation/engines/mqtt/engine.py",
            "if (gone.life, gone.connection) != (node.life, node.connection):",
            "if gone.life != node.life:",
        ),
        tests=ENGINE,
    ),
    of(
        "any-experiment-joins",
        "nodes that play something else are welcome",
        (
            "federation/engines/mqtt/engine.py",
            "difference = self.place.facts.difference(hello.facts)",
            "difference = None",
        ),
        tests=ENGINE,
    ),
    of(
        "node-believes-the-welcome",
        "a server with another experiment is followed",
        (
            "deployment/node/node.py",
            "if (difference := self.member.facts.difference(welcome.facts)) is not None:",
            "if (difference := None) is not None:",
        ),
        tests=NODE,
    ),
    of(
        "node-answers-twice",
        "two different requests of one phase are both answered",
        ("deployment/node/node.py", "if stored.asked != asked:", "if False:"),
        tests=NODE,
    ),
    of(
        "node-forgets-its-answers",
        "a repeated request is computed anew",
        ("deployment/node/node.py", "stored = seat.answers.get(came.phase)", "stored = None"),
        tests=NODE,
    ),
    of(
        "node-charges-nothing",
        "epsilon_server has no cap that the node enforces",
        ("deployment/node/node.py", "self._book.charge(came.round)", "pass"),
        tests=NODE,
    ),
    of(
        "node-never-stops",
        "a node without budget trains on",
        ("deployment/node/node.py", "if charged and not self._book.affords(came.round):", "if False:"),
        tests=NODE,
    ),
    of(
        "node-hears-old-lives",
        "the broker replays what the server asked before it was started again",
        ("deployment/node/node.py", "if came.attempt < self._attempt or came.round < seat.round:", "if False:"),
        tests=NODE,
    ),
    of(
        "node-tells-why",
        "an error message of a private node says something of its records",
        (
            "deployment/node/node.py",
            "if self.member.private and not isinstance(error, PrivacyError | SecAggError):",
            "if False:",
        ),
        tests=NODE,
    ),
    of(
        "node-takes-any-set-up",
        "a second set-up replaces the first in the middle of a run",
        ("deployment/node/node.py", 'if welcome.setup not in (b"", self._setup):', "if False:"),
        tests=NODE,
    ),
    of(
        "node-ends-with-any-bye",
        "a goodbye of another run stops a node",
        (
            "deployment/node/node.py",
            "elif came.kind == Kind.BYE and came.run == self._run:",
            "elif came.kind == Kind.BYE:",
        ),
        tests=NODE,
    ),
    of(
        "node-takes-any-seed",
        "the server chooses what follows from the public seed",
        ("deployment/node/build.py", "_check_seed(parts, setup)\n", "pass\n"),
        tests=NODE,
    ),
    of(
        "mark-in-memory",
        "a node that was started again masks a round twice",
        ("deployment/node/state.py", "return RoundMark(self._folder / name), ", "return RoundMark(), "),
        tests=NODE,
    ),
    of(
        "large-messages-are-read",
        "a broker of 3.1.1 fills the memory of a node",
        ("federation/engines/mqtt/transport.py", "if bufsize > self.most:", "if False:"),
        tests=TRANSPORT,
    ),
    of(
        "records-of-any-shape",
        "a node trains on what is not the run's",
        ("deployment/node/records.py", "if found != shape.shape:", "if False:"),
        tests=OWN,
    ),
)
