"""Mutants of keys, roster and broker: whoever is not in gets in, or somebody speaks for another."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

ROSTER = "tests/deployment/test_roster.py"
IDENTITY = "tests/deployment/test_identity.py"
KEYS = "tests/deployment/test_keys.py"
BROKER = "tests/deployment/test_broker.py"

MUTANTS = (
    of(
        "roster-not-signed",
        "the server writes the roster and plays every node but one",
        ("deployment/roster.py", "or not verify(root, signature, _DOMAIN + canonical(body))", ""),
        tests=ROSTER,
    ),
    of(
        "roster-of-any-root",
        "a roster by anybody's root key is believed",
        ("deployment/roster.py", "if fingerprint(root) != pinned:", "if False:"),
        tests=ROSTER,
    ),
    of(
        "roster-in-many-forms",
        "one roster has many files: what two operators compare differs, or does not",
        ("deployment/roster.py", "raw != _written(document) or", ""),
        tests=ROSTER,
    ),
    of(
        "roster-key-twice",
        "one machine stands for two nodes in every sum",
        ("deployment/roster.py", '("key", [entry.key.hex() for entry in self.entries]),', ""),
        tests=ROSTER,
    ),
    of(
        "roster-server-is-a-node",
        "the training server takes part in the sums that are to hide from it",
        ("deployment/roster.py", "if entry.key in (self.server, self.root):", "if False:"),
        tests=ROSTER,
    ),
    of(
        "roster-with-gaps",
        "clients of the run have no node, and noise is shared among too many",
        ("deployment/roster.py", "if ids != list(range(len(ids))):", "if False:"),
        tests=ROSTER,
    ),
    of(
        "digest-of-entries-only",
        "two rosters with different servers pass for the same",
        ("deployment/roster.py", '"server": self.server.hex(),', '"server": "",'),
        tests=ROSTER,
    ),
    of(
        "secrets-that-all-may-read",
        "another user of the machine signs as the node",
        ("core/files.py", "& 0o077:", "& 0o007:"),
        tests=IDENTITY,
    ),
    of(
        "secrets-written-for-all",
        "keys are readable from the moment they are made",
        ("core/files.py", "PRIVATE: Final = 0o600", "PRIVATE: Final = 0o644"),
        tests=KEYS,
    ),
    of(
        "signing-key-in-words",
        "a log line shows the key",
        ("deployment/party.py", "field(repr=False)", "field()"),
        tests=IDENTITY,
    ),
    of(
        "identity-of-another",
        "a node signs with a key that is not the roster's for its id",
        ("deployment/party.py", "if entry.key != own:", "if False:"),
        tests=IDENTITY,
    ),
    of(
        "keys-at-the-same-time",
        "two nodes get one id, and one of them is lost",
        ("deployment/roster_ledger.py", "hold(file.fileno(), wait=True)", "pass"),
        tests=f"{KEYS}::test_commands_at_the_same_time_give_everybody_an_id_of_its_own",
    ),
    of(
        "request-not-signed",
        "somebody between node and root changes the node's key",
        ("deployment/request.py", "if not verify(key, signature, signed):", "if False:"),
        tests=KEYS,
    ),
    of(
        "moved-certificate-lives",
        "a node that moved can enter as the next owner of its old id",
        ("deployment/keys.py", "dead += last.serials", "pass"),
        tests=KEYS,
    ),
    of(
        "renewed-certificate-lives",
        "a revoked node enters with the certificate from before its renewal",
        (
            "deployment/roster_ledger.py",
            "return (*self.former, self.certificate.serial_number)",
            "return (self.certificate.serial_number,)",
        ),
        tests=KEYS,
    ),
    of(
        "mosquitto-without-revocations",
        "revoked nodes come back",
        ("deployment/acl.py", "crlfile {folder}/crl.pem\n", ""),
        tests=f"{BROKER}::test_a_revoked_certificate_is_refused",
    ),
    of(
        "mosquitto-without-certificates",
        "anybody enters",
        ("deployment/acl.py", "require_certificate true", "require_certificate false"),
        ("deployment/acl.py", "allow_anonymous false", "allow_anonymous true"),
        ("deployment/acl.py", "use_identity_as_username true\nuse_username_as_clientid true\n", ""),
        tests=f"{BROKER}::test_a_guest_without_a_certificate_is_refused",
    ),
    of(
        "mosquitto-with-free-client-ids",
        "a node pushes another off the broker",
        ("deployment/acl.py", "use_username_as_clientid true\n", ""),
        tests=f"{BROKER}::test_a_name_and_a_client_id_that_somebody_writes_mean_nothing",
    ),
    of(
        "acl-for-all-topics",
        "a node hears what is for others",
        (
            "deployment/acl.py",
            'f"topic read {to_node(federation, id_)}",',
            "f\"topic read {to_node(federation, '+')}\",",
        ),
        tests=f"{BROKER}::test_a_node_hears_nothing_that_is_for_another",
    ),
    of(
        "amqtt-certificate-optional",
        "anybody enters the trial broker",
        ("deployment/trial/trial_broker.py", "ssl.CERT_REQUIRED", "ssl.CERT_OPTIONAL"),
        ("deployment/trial/trial_broker.py", 'raise MQTTError("a client without a certificate")', 'user = "server"'),
        tests=f"{BROKER}::test_a_guest_without_a_certificate_is_refused",
    ),
    of(
        "amqtt-without-revocations",
        "revoked nodes come back to the trial broker",
        ("deployment/trial/trial_broker.py", "context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF", "pass"),
        tests=f"{BROKER}::test_a_revoked_certificate_is_refused",
    ),
    of(
        "amqtt-believes-names",
        "a node takes another's name at the trial broker",
        (
            "deployment/trial/trial_broker.py",
            "session.username = session.client_id = user",
            "session.username = session.client_id = session.username or user",
        ),
        tests=f"{BROKER}::test_a_name_and_a_client_id_that_somebody_writes_mean_nothing",
    ),
    of(
        "amqtt-free-wills",
        "a node leaves a message in another's name",
        ("deployment/trial/trial_broker.py", "if session.will_flag:", "if False:"),
        tests=f"{BROKER}::test_a_last_will_reaches_the_server_and_nobody_leaves_one_for_another",
    ),
    of(
        "amqtt-hears-all",
        "a node subscribes to a pattern that covers others",
        (
            "deployment/trial/trial_broker.py",
            "        return topic == rule\n",
            '        return topic == rule or "+" in topic\n',
        ),
        tests=f"{BROKER}::test_a_node_hears_nothing_that_is_for_another",
    ),
)
