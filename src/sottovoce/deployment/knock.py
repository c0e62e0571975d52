"""Try a broker's door with a machine's keys, without going in: TLS on both sides, and no MQTT session.

A session would take the machine's own name at the broker, and push out a node or server that is at work.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509

from sottovoce.deployment.party import Identity
from sottovoce.deployment.status import days_left
from sottovoce.federation.engines.mqtt.carrier import Address, TlsFiles

_PATIENCE: Final = 30.0  # seconds for a connection: links of satellites take several
_REFUSAL: Final = 3.0  # seconds after which a broker that is silent has let us in


class Knock(NamedTuple):
    """What a door said: nothing is wrong if `trouble` is None."""

    broker: str
    who: str
    trouble: str | None
    broker_days: int | None = None
    own_days: int | None = None


def knock(broker: str, keys: Path) -> Knock:
    """Shake hands with a broker over TLS, and hang up; of one on this machine without TLS, connect and hang up."""
    from sottovoce.federation.engines.mqtt.transport import explain, tls_context

    address, identity, now = Address.parse(broker), Identity.read(keys), time.time()
    own = days_left(identity.expires.timestamp(), now)
    context = tls_context(TlsFiles(identity.certificate, identity.private_key, identity.ca)) if address.tls else None
    who = identity.user if identity.id is None or identity.id < 0 else identity.name
    told = Knock(str(address), who, None, own_days=own)
    try:
        with socket.create_connection(address[:2], timeout=_PATIENCE) as plain:
            if context is None:
                return told
            with context.wrap_socket(plain, server_hostname=address.host) as connection:
                der = connection.getpeercert(binary_form=True)
                connection.settimeout(_REFUSAL)
                with suppress(TimeoutError):  # with TLS 1.3 our certificate is refused after the handshake
                    connection.recv(1)
    except (OSError, ValueError) as error:
        return told._replace(trouble=explain(error))
    if der is None:
        return told._replace(trouble="it has no certificate")
    until = x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()
    return told._replace(broker_days=days_left(until, now))
