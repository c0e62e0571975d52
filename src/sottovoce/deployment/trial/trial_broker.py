"""A broker in pure Python for trials and tests, as a program of its own; the only file that imports amqtt.

    python -m sottovoce.deployment.trial.trial_broker SETTINGS.json

amqtt lets anybody in who has no certificate at all, believes the user name and client id that a client writes, has no
revocation list and sends last wills anywhere. Here TLS asks for a certificate and looks it up in the list, user and
client id are its common name, and wills obey the same rules as other messages. Messages have at most `MESSAGE_LIMIT`
bytes, and no more than `WAITING` bytes wait for one client: others are dropped, as Mosquitto does. It speaks MQTT 3.1.1
only, and writes no message to disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import ssl
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import amqtt.broker
from amqtt.broker import Broker
from amqtt.contexts import Action
from amqtt.errors import MQTTError
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from cryptography import x509
from cryptography.x509.oid import NameOID

from sottovoce.core.remote import printable
from sottovoce.deployment.acl import MESSAGE_LIMIT, WAITING

_PACKET = 65536  # bytes of a packet beside its message
_HERE = "sottovoce.deployment.trial.trial_broker"


class CertificateUser(BaseAuthPlugin):
    """Plugin that lets in whoever `_Handler` has named after a certificate."""

    async def authenticate(self, *, session: Any) -> bool | None:
        """Say whether the session has a user."""
        return bool(session.username) and session.username == session.client_id


class OwnTopics(BaseTopicPlugin):
    """Plugin that keeps everybody to the topics that the federation's ACL gives them."""

    @dataclass
    class Config:
        """Topics to read and to write, by user."""

        read: dict[str, list[str]] = field(default_factory=dict)
        write: dict[str, list[str]] = field(default_factory=dict)

    async def topic_filtering(
        self, *, session: Any = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        """Say whether the session's user may do this with the topic."""
        user = session.username if session is not None else None
        rules = self.config.write if action == Action.PUBLISH else self.config.read
        return topic is not None and any(allowed(topic, rule) for rule in rules.get(user, ()))


def allowed(topic: str, rule: str) -> bool:
    """Say whether a topic, or all that a filter stands for, is within a rule; only the last level may be `+`.

    >>> allowed("a/from/3", "a/from/+"), allowed("a/from/+", "a/from/3"), allowed("a/#", "a/from/+")
    (True, False, False)
    """
    if not rule.endswith("/+"):
        return topic == rule
    home, _, last = topic.rpartition("/")
    return home == rule[: -len("/+")] and last != "#"


class _Handler(BrokerProtocolHandler):
    """Connection whose user and client id come from the certificate, before the broker looks for older sessions."""

    waiting = 0  # bytes of messages that the client has not taken

    @classmethod
    async def init_from_connect(cls, reader: Any, writer: Any, plugins_manager: Any, loop: Any = None) -> Any:
        """Read the first packet and name the session."""
        handler, session = await super().init_from_connect(_PacketReader(reader), writer, plugins_manager, loop)
        user = _common_name(writer.get_ssl_info())
        if user is None:
            raise MQTTError("a client without a certificate")
        session.username = session.client_id = user
        if session.will_flag:
            permitted = await plugins_manager.map_plugin_topic(
                session=session, topic=session.will_topic, action=Action.PUBLISH
            )
            if not all(permitted.values()):
                await writer.close()
                raise MQTTError(f"{user} may not leave a will for {session.will_topic}")
        return handler, session

    def attach(self, session: Any, reader: Any, writer: Any) -> None:
        """Read packets of bounded length."""
        super().attach(session, _PacketReader(reader), writer)

    async def mqtt_publish(
        self, topic: str, data: bytes | bytearray, qos: int | None, retain: bool, ack_timeout: int | None = None
    ) -> Any:
        """Send a message, or drop it if too much waits for this client."""
        if self.waiting and self.waiting + len(data) > WAITING:
            return None
        self.waiting += len(data)
        try:
            return await super().mqtt_publish(topic, data, qos, retain, ack_timeout)
        finally:
            self.waiting -= len(data)


class _PacketReader:
    """Reader that refuses a packet by its announced length, before any of it is read."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    async def read(self, n: int = -1) -> bytes:
        """Return n bytes."""
        if n > MESSAGE_LIMIT + _PACKET:
            raise MQTTError(f"a packet of {n} bytes; at most {MESSAGE_LIMIT + _PACKET} are read")
        data: bytes = await self._reader.read(n)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class _Printable(logging.Formatter):
    """Format of log lines, in which clients' own words hold nothing that a terminal acts on."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return printable(super().format(record))


class _Broker(Broker):
    """Broker that asks for certificates and knows the revoked ones."""

    @staticmethod
    def _create_ssl_context(listener: Any) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(listener["cafile"]))
        context.load_verify_locations(cafile=str(listener["capath"] / "crl.pem"))
        context.load_cert_chain(listener["certfile"], listener["keyfile"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def _common_name(connection: ssl.SSLObject | None) -> str | None:
    der = connection.getpeercert(binary_form=True) if connection is not None else None
    if not der:
        return None
    names = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else None


async def _serve(settings: dict[str, Any]) -> None:
    public, broker = Path(settings["public"]), Path(settings["broker"])
    listener = {
        "type": "tcp",
        "bind": f"127.0.0.1:{settings['port']}",
        "ssl": True,
        "cafile": public / "ca.pem",
        "capath": public,  # read by `_Broker` alone: where crl.pem is
        "certfile": broker / "cert.pem",
        "keyfile": broker / "key.pem",
    }
    plugins = {f"{_HERE}.CertificateUser": {}, f"{_HERE}.OwnTopics": settings["topics"]}
    served = _Broker({"listeners": {"default": listener}, "plugins": plugins})
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    await served.start()
    await stop.wait()
    await served.shutdown()


def main(arguments: list[str]) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Printable("%(asctime)s %(message)s"))
    amqtt.broker.BrokerProtocolHandler = _Handler
    asyncio.run(_serve(json.loads(Path(arguments[0]).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    # The plugins are loaded by name, so this must be the module of that name and not `__main__`.
    from sottovoce.deployment.trial import trial_broker

    trial_broker.main(sys.argv[1:])
