"""What a broker must be told: who may read and write which topic, and a configuration to start from.

Topics are `sottovoce/<federation>/to/<id>` and `sottovoce/<federation>/from/<id>`. A node reads the one and writes the
other of its own id; the training server writes the first kind and reads the second; nobody may do anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from sottovoce.deployment.party import node_user

MESSAGE_LIMIT: Final = 64 * 2**20
WAITING: Final = 2 * MESSAGE_LIMIT  # bytes that wait for one client
_MEMORY: Final = 4 * 2**30  # bytes that a broker uses
_KEEPALIVE: Final = 1200  # seconds; nodes ask for 220, and whoever is silent for longer is gone
_MOSQUITTO: Final = PurePosixPath("/etc/mosquitto/sottovoce")
_EMQX: Final = PurePosixPath("/etc/emqx/sottovoce")


def to_node(federation: str, id_: int | str) -> str:
    """Return the topic on which a node hears the server; `+` for every node."""
    return f"sottovoce/{federation}/to/{id_}"


def from_node(federation: str, id_: int | str) -> str:
    """Return the topic on which the server hears a node; `+` for every node."""
    return f"sottovoce/{federation}/from/{id_}"


def mosquitto_acl(federation: str, ids: Iterable[int]) -> str:
    """Return Mosquitto's list; what it does not name is forbidden."""
    lines = [
        "# written by `sottovoce keys roster`; after a change: systemctl reload mosquitto",
        "user server",
        f"topic write {to_node(federation, '+')}",
        f"topic read {from_node(federation, '+')}",
    ]
    for id_ in ids:
        lines += [
            "",
            f"user {node_user(id_)}",
            f"topic read {to_node(federation, id_)}",
            f"topic write {from_node(federation, id_)}",
        ]
    return "\n".join(lines) + "\n"


def mosquitto_conf(
    folder: PurePosixPath | Path = _MOSQUITTO,
    *,
    port: int = 8883,
    bind: str = "",
    log: PurePosixPath | Path | None = None,
) -> str:
    """Return a configuration of Mosquitto whose files lie in `folder`."""
    return f"""\
# written by `sottovoce keys`: mutual TLS, and nobody without a certificate of this federation
per_listener_settings false
listener {port}{f" {bind}" if bind else ""}
cafile {folder}/ca.pem
certfile {folder}/cert.pem
keyfile {folder}/key.pem
crlfile {folder}/crl.pem
tls_version tlsv1.2
require_certificate true
# The user is the certificate's common name, and so is the client id: nobody can push another off the broker.
use_identity_as_username true
use_username_as_clientid true
allow_anonymous false
acl_file {folder}/acl
# A round lives for minutes and its messages are repeated when somebody comes back: nothing to keep on disk.
persistence false
retain_available false
set_tcp_nodelay true
message_size_limit {MESSAGE_LIMIT}
max_packet_size {MESSAGE_LIMIT + 65536}
max_keepalive {_KEEPALIVE}
# A whole cohort answers the training server at once. What waits for one client beyond these limits is dropped.
max_inflight_messages 200
max_inflight_bytes {WAITING}
max_queued_messages 20000
max_queued_bytes {WAITING}
# All that waits for all clients: set it to half of the machine's memory. Whoever is beyond it is cut off.
memory_limit {_MEMORY}
connection_messages true
log_type error
log_type warning
log_type notice
{f"log_dest file {log}" if log else "log_dest syslog"}
"""


def emqx_acl(federation: str, ids: Iterable[int]) -> str:
    """Return EMQX's list (acl.conf); its last line forbids the rest."""
    rules = [
        "%% written by `sottovoce keys roster`",
        _rule("server", "publish", to_node(federation, "+")),
        _rule("server", "subscribe", from_node(federation, "+")),
    ]
    for id_ in ids:
        rules.append(_rule(node_user(id_), "subscribe", to_node(federation, id_)))
        rules.append(_rule(node_user(id_), "publish", from_node(federation, id_)))
    return "\n".join([*rules, "{deny, all}."]) + "\n"


def emqx_conf(folder: PurePosixPath | Path = _EMQX, *, port: int = 8883) -> str:
    """Return the lines of EMQX 5's configuration (base.hocon or emqx.conf) that differ from its defaults."""
    return f"""\
# written by `sottovoce keys`: mutual TLS, and nobody without a certificate of this federation
listeners.tcp.default.enable = false
listeners.ws.default.enable = false
listeners.wss.default.enable = false
listeners.ssl.default {{
  bind = "0.0.0.0:{port}"
  tcp_options {{ nodelay = true }}
  ssl_options {{
    cacertfile = "{folder}/ca.pem"
    certfile = "{folder}/cert.pem"
    keyfile = "{folder}/key.pem"
    versions = ["tlsv1.3", "tlsv1.2"]
    verify = verify_peer
    fail_if_no_peer_cert = true
  }}
}}
# The user and the client id are the certificate's common name.
mqtt.peer_cert_as_username = cn
mqtt.peer_cert_as_clientid = cn
mqtt.max_packet_size = {MESSAGE_LIMIT // 2**20}MB
# What waits for one client beyond these numbers of messages is dropped, and a connection that needs more memory is cut.
mqtt.max_inflight = 200
mqtt.max_mqueue_len = 20000
force_shutdown {{ enable = true, max_mailbox_size = 20000, max_heap_size = {WAITING // 2**20}MB }}
mqtt.server_keepalive = {_KEEPALIVE}
mqtt.retain_available = false
authorization {{
  no_match = deny
  deny_action = disconnect
  cache.enable = false
  sources = [{{ type = file, enable = true, path = "{folder}/emqx-acl.conf" }}]
}}
"""


def _rule(user: str, action: str, topic: str) -> str:
    return f'{{allow, {{user, "{user}"}}, {action}, ["{topic}"]}}.'
