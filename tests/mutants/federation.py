"""Mutants of the round: whose randomness, when it is charged, how many are enough; and of the wire."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

NOISE_KEYS = "tests/federation/test_noise_keys.py"

TOGETHER = "tests/federation/test_client.py::test_noisy_messages_are_sent_together_byte_for_byte_as_alone"

MUTANTS = (
    of(
        "clients-of-a-call-share-noise",
        "the noise of clients that are protected together is the same, and one of them knows all of it",
        (
            "federation/coding.py",
            "self._own_randomness(round_, client) for client in clients]",
            "self._own_randomness(round_, clients[0]) for client in clients]",
        ),
        tests=TOGETHER,
    ),
    of(
        "hashed-noise-of-every-round",
        "a simulated client's noise is the same in every round",
        ("core/streams.py", "{purpose:d}, {path}", "{purpose:d}, {path[1:]}"),
        tests=NOISE_KEYS,
    ),
    of(
        "server-noise-is-client-0s",
        "what the server makes up is known to a client, and adds to its share",
        (
            "federation/coding.py",
            "self._randomness(self.seeds.server, round_)",
            "self._randomness(self.seeds.client(0), round_)",
        ),
        tests=NOISE_KEYS,
    ),
    of(
        "server-noise-of-every-round",
        "what the server makes up cancels between two rounds",
        (
            "federation/coding.py",
            "self._randomness(self.seeds.server, round_)",
            "self._randomness(self.seeds.server, 0)",
        ),
        tests=NOISE_KEYS,
    ),
    of(
        "one-signing-key-for-all",
        "each client signs for the others",
        ("federation/aggregation/secure.py", "signing_key(seeds.client(client))", "signing_key(seeds.client(0))"),
        (
            "federation/client.py",
            "import NamedStreams, Purpose, Streams",
            "import NamedStreams, Purpose, Seeds, Streams",
        ),
        ("federation/client.py", "signing_key(self.streams)", "signing_key(Seeds(1).client(0))"),
        tests=NOISE_KEYS,
    ),
    of(
        "one-seed-for-all-owners",
        "who knows the public seed knows everyone's secrets",
        ("core/streams.py", "{self.seed}: {owner}", "{self.seed}"),
        tests=f"{NOISE_KEYS} tests/core/test_streams.py",
    ),
    of(
        "charged-after-opening",
        "a killed run has released what it never paid for",
        (
            "federation/aggregation/direct.py",
            "        spend()\n        total.values",
            "        total.values",
        ),
        (
            "federation/aggregation/direct.py",
            "self.coding.open(summed.total(), terms, total.senders, round_)\n",
            "self.coding.open(summed.total(), terms, total.senders, round_)\n        spend()\n",
        ),
        tests="tests/federation/test_round.py",
    ),
    of(
        "secure-charged-after-opening",
        "the same for a secure sum",
        (
            "federation/aggregation/secure.py",
            'if phase == "unmask":\n                    spend',
            "if False:\n                    spend",
        ),
        (
            "federation/aggregation/secure.py",
            "                payloads = server.close(phase)\n",
            "                payloads = server.close(phase)\n            spend()\n",
        ),
        tests="tests/federation/test_secure.py::test_every_aggregator_keeps_the_contract",
    ),
    of(
        "sum-of-one-is-opened",
        "the sum of one vector is that vector",
        ("federation/aggregation/aggregator.py", "max(needed, 2)", "max(needed, 1)"),
        tests="tests/federation/test_quorum.py",
    ),
    of(
        "frames-unchecked",
        "damaged words are added as they come",
        ("core/wire.py", "if check != _check(bytes(view[:16]), body):", "if False:"),
        tests="tests/core/test_wire.py",
    ),
)
