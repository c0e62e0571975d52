"""Hold one connection to an MQTT broker: over TLS, made anew whenever it is lost. The only file that imports paho.

MQTT 5 is tried first and 3.1.1 if the broker does not have it; nothing here needs more than 3.1.1. Messages go with
QoS 1 in clean sessions: they may come twice and they may be lost, and both ends of a federation live with either.

paho's own thread reads and writes the socket. It calls `Listener` methods, which must be quick and must not raise.

How long anything may take follows from the round trip, which is measured whenever a connection is made. A link that
breaks without a word is found out by TCP: soon while a round is under way, and by the keep-alive of MQTT in between.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import threading
import time
from typing import Any, Final, Self

from sottovoce.core.errors import InputError, RunError
from sottovoce.core.packages import require
from sottovoce.federation.engines.mqtt.carrier import Address, Counts, LinkQuality, Listener, TlsFiles

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)


def tls_context(credentials: TlsFiles) -> ssl.SSLContext:
    """Return how to speak TLS: with our certificate, and with nobody whom the authority did not sign."""
    try:
        context = ssl.create_default_context(cafile=str(credentials.authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(str(credentials.certificate), str(credentials.private_key))
    except FileNotFoundError as error:
        missing = [path for path in credentials if not path.exists()]
        raise InputError(f"{missing[0] if missing else error}: there is no such file") from None
    except (ssl.SSLError, OSError) as error:
        raise InputError(f"certificate {credentials.certificate} or its key cannot be used: {error}") from None
    return context


def no_delay(opened: Any) -> None:
    """Send small messages at once: else one waits up to 40 ms for the acknowledgement of the one before."""
    with contextlib.suppress(OSError, AttributeError):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def watch_silence(opened: Any, *, within: float, busy: bool) -> None:
    """Let the system give a connection up when the other side is silent for so many seconds, where it can.

    Probes of a connection that has nothing to say cost 100 bytes each, so they are sent only while it is `busy`.
    """
    tcp = socket.IPPROTO_TCP
    wishes = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(busy))]
    for name, value in (("USER_TIMEOUT", 1000 * within), ("KEEPIDLE", _PROBE), ("KEEPINTVL", _PROBE), ("KEEPCNT", 3)):
        if (option := getattr(socket, f"TCP_{name}", None)) is not None:
            wishes.append((tcp, option, int(value)))
    with contextlib.suppress(OSError, AttributeError):
        for level, option, value in wishes:
            opened.setsockopt(level, option, value)


def bound_queue(opened: Any, size: int) -> None:
    """Keep no more than so many bytes on their way, both ways: what waits in a modem is sent twice by a hasty TCP."""
    with contextlib.suppress(OSError, AttributeError):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(_LEAST_QUEUE, size))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, max(_LEAST_QUEUE, size))


def wire_bytes(connection: Any) -> tuple[int, int] | None:
    """Return the bytes that a socket sent and received, with headers of TCP and IP, as Linux counts them.

    `struct tcp_info`: options in byte 5, bytes acknowledged and received at 120, segments out and in at 136. A segment
    carries 20 bytes of IPv4 or 40 of IPv6, 20 of TCP, and 12 of timestamps where both ends use them.
    """
    if connection is None or _TCP_INFO is None:
        return None
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 144)
        headers = 40 if connection.family == socket.AF_INET else 60
    except (OSError, AttributeError, ValueError):
        return None
    if len(told) < 144:
        return None
    sent, received, segments_out, segments_in = struct.unpack_from("=QQII", told, 120)
    headers += 12 * (told[5] & 1)
    return sent + headers * segments_out, received + headers * segments_in


_NOT_VERIFIED: Final = {  # OpenSSL's numbers of what is wrong with the broker's certificate
    9: "its certificate is not valid yet; check the clock of this machine",
    10: "its certificate has expired; its operator must renew it",
    18: "its certificate is of an unknown authority; check ca.pem in the keys folder",
    19: "its certificate is of an unknown authority; check ca.pem in the keys folder",
    20: "its certificate is of an unknown authority; check ca.pem in the keys folder",
    62: "its certificate is for another host name; use the name in the certificate",
    64: "its certificate is for another address; use the name in the certificate",
}

_ALERTS: Final = {  # what the broker says of our certificate
    "CERTIFICATE_REQUIRED": "it asks for a certificate, and none was sent",
    "CERTIFICATE_EXPIRED": "it refuses our certificate: it has expired; ask for a new one",
    "CERTIFICATE_REVOKED": "it refuses our certificate: it was revoked",
    "UNKNOWN_CA": "it refuses our certificate: it is of an authority that the broker does not know",
    "DECRYPT_ERROR": "it refuses our certificate: another authority of the same name signed it",
    "BAD_CERTIFICATE": "it refuses our certificate",
    "CERTIFICATE_UNKNOWN": "it refuses our certificate",
    "ACCESS_DENIED": "it refuses our certificate",
    "HANDSHAKE_FAILURE": "it does not agree on how to encrypt, or asks for a certificate",
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port",
}


def explain(error: BaseException | None) -> str:
    """Return why a connection failed, and what can be done, in words that follow the broker's name."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _NOT_VERIFIED.get(error.verify_code, f"its certificate is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        known = next((words for name, words in _ALERTS.items() if reason.endswith(name)), None)
        return known or f"TLS failed: {reason.replace('_', ' ').lower() or error}"
    if isinstance(error, socket.gaierror):
        return "there is no such host; check the address"
    if isinstance(error, ConnectionRefusedError):
        return "unreachable: nothing listens at this address and port; is the broker running?"
    if isinstance(error, TimeoutError):
        return "unreachable: no answer; check address, port and firewall"
    if isinstance(error, ConnectionResetError):
        return "it closed the connection; does it ask for TLS or for another certificate?"
    if isinstance(error, OSError):
        return f"unreachable: {error.strerror or error}"
    return str(error) if error is not None else "gave no answer"


require("a federation over MQTT", "paho")

from paho.mqtt import client as paho  # noqa: E402
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion  # noqa: E402
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402

_WINDOW: Final = 32 << 20  # bytes that wait for the broker's acknowledgement before a publisher waits too
_SMALL: Final = 4096  # bytes of a message that waits for no room among those of others
_AHEAD: Final = 2  # largest messages that may wait for one receiver: a set-up, and the request after it
_PACKET: Final = 512  # bytes of a packet beside its message: fixed header, topic, properties
_FIRST: Final = {"5": 3.0, "3.1.1": 15.0}  # seconds for a first answer: some are silent to what they do not speak
_LONGEST: Final = 30.0  # seconds for anything while a connection is made, however slow the link
_TRIPS: Final = 6  # round trips that an answer may take
_CONNECT: Final = 10.0  # seconds to connect, while the round trip is not known
_PROBE: Final = 10  # seconds of silence after which TCP asks whether anybody is there
_SILENCE: Final = 20.0  # seconds at least, after which nobody is
_PAUSES: Final = (60.0, 8.0)  # longest seconds between two attempts: else, and while a round waits for this party
_GREETED_AFTER: Final = 4  # round trips: TCP, TLS, CONNECT, SUBSCRIBE
_THIN: Final = 2000.0  # bytes a second, below which the first burst of TCP waits longer than TCP does
_QUEUED: Final = 2.0  # seconds of bytes that may wait in a thin link, beside those of two round trips
_LEAST_QUEUE: Final = 3000  # bytes: two segments
_SLOW: Final = 1.0  # seconds beyond these round trips, above which the link's rate shows


def pause(attempts: int, longest: float) -> float:
    """Return the seconds before the next attempt: twice as many each time, and never those of all others."""
    return min(longest, 2.0 ** min(attempts, 10)) * random.uniform(0.5, 1.0)


class _Client(paho.Client):
    """paho's client, which also refuses to read what is too long and remembers why a connection failed."""

    most = 0
    trouble: Exception | None = None
    attempts = 0  # since the last connection
    longest = _PAUSES[0]  # seconds between two of them
    patience = _CONNECT  # seconds to connect

    def _reconnect_wait(self) -> None:
        until = time.monotonic() + pause(self.attempts, self.longest)
        self.attempts += 1
        while not self._thread_terminate and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            until = min(until, time.monotonic() + self.longest)  # a round may have begun meanwhile

    def _create_socket_connection(self) -> socket.socket:
        # A link may have become slow: every third attempt is a patient one.
        self._connect_timeout = _LONGEST if self.attempts % 3 == 2 else self.patience
        opened = super()._create_socket_connection()
        no_delay(opened)
        watch_silence(opened, within=max(_SILENCE, self.connect_timeout), busy=True)
        return opened

    def reconnect(self) -> MQTTErrorCode:
        try:
            return super().reconnect()
        except (OSError, ValueError) as error:
            self.trouble = error
            raise OSError(str(error)) if isinstance(error, ValueError) else error from None

    def _sock_recv(self, bufsize: int) -> bytes:
        # paho asks for all that is left of a packet, so the first call after a header tells its length.
        if bufsize > self.most:
            self.trouble = RunError(f"a message of {bufsize} bytes came, at most {self.most} are taken")
            raise ConnectionError(str(self.trouble))
        try:
            return super()._sock_recv(bufsize)
        except BlockingIOError:
            raise
        except OSError as error:
            self.trouble = error
            raise

    def _sock_send(self, buf: bytes | bytearray) -> int:
        try:
            return super()._sock_send(buf)
        except BlockingIOError:
            raise
        except OSError as error:
            self.trouble = error
            with contextlib.suppress(BlockingIOError, OSError):
                self._sock_recv(1)  # a broker that refuses a certificate says why before it hangs up
            raise


class Transport:
    """A connection to a broker that listens to one topic and is made anew, with back-off, whenever it is lost."""

    def __init__(
        self,
        address: Address,
        listener: Listener,
        *,
        name: str,
        topic: str,
        credentials: TlsFiles | None,
        most: int,
        keep_alive: int = 60,
        version: str | None = None,
        lasting: bool = False,
        until_refused: bool = False,
    ) -> None:
        if address.tls and credentials is None:
            raise InputError(f"broker {address} is spoken to over TLS, which needs a certificate; give --keys")
        self.address = address
        self._listener = listener
        self._name = name
        self._topic = topic
        self._credentials = credentials
        self._most = most
        self._keep_alive = keep_alive
        self._state = threading.Condition()
        self._connection = 0
        self._up: bool | None = None  # None: not decided yet
        self._refused: str | None = None
        self._lasting = lasting  # the first connection, too, is tried for ever
        self._until_refused = until_refused  # but where nothing listens: more likely the address is wrong
        self._stopped = threading.Event()
        self._busy = False
        self._link = LinkQuality()
        self._began = self._subscribed = 0.0  # when this connection did, by time.monotonic
        self._sizes: dict[int, tuple[str, int, int]] = {}  # topic, bytes, hash of what the broker has not acknowledged
        self._early: set[int] = set()  # acknowledged before `publish` could note their size
        self._payload = [0, 0]
        self._wire = [0, 0]  # of sockets that are closed
        self._closing = False
        self._established = False  # there was a connection: from now on a failure is told, not raised
        self._fallback = version is None  # None: not known yet what the broker speaks
        self._client = self._make(MQTTProtocolVersion.MQTTv311 if version == "3.1.1" else MQTTProtocolVersion.MQTTv5)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect for the first time, or raise one sentence; from then on a lost connection is made anew.

        One that lasts raises only what no further attempt can mend, and returns when it is told to `stop`.
        """
        attempts = 0
        while (reason := self._connected_or_why()) is not None:
            if not self._lasting or self._hopeless:
                raise RunError(f"broker {self.address}: {reason}")
            self._listener.lost(reason)
            if self._stopped.wait(pause(attempts, _PAUSES[0])):
                return
            attempts += 1
            self._client = self._make(self._client._protocol, _LONGEST)
        self._established = True

    def stop(self) -> None:
        """Try no more to connect for the first time."""
        self._stopped.set()

    def link(self) -> LinkQuality:
        """Return what the newest connection has shown of the link."""
        return self._link

    def attend(self, *, busy: bool) -> None:
        """Find out soon that a link is broken, and come back soon, while a round waits for this party."""
        if busy != self._busy:
            self._busy, self._client.longest = busy, _PAUSES[busy]
            self._watch()

    def _watch(self) -> None:
        if (opened := self._client.socket()) is not None:
            watch_silence(opened, within=max(_SILENCE, _TRIPS * self._link.round_trip), busy=self._busy)
            if 0 < self._link.rate < _THIN:
                bound_queue(opened, round(self._link.rate * (2 * self._link.round_trip + _QUEUED)))

    def _connected_or_why(self) -> str | None:
        """Try to connect by each protocol that may be spoken; return why none did."""
        reason = self._try()
        if reason is not None and self._fallback and not self._final(self._client.trouble):
            self._abandon()
            self._client = self._make(MQTTProtocolVersion.MQTTv311)
            reason = self._try()
            if reason is not None and self._lasting:  # which of the two it speaks is not known yet
                self._abandon()
                self._client, failed = self._make(MQTTProtocolVersion.MQTTv5), self._client
                self._client.trouble = failed.trouble
        if reason is not None:
            self._abandon()
        return reason

    @property
    def _hopeless(self) -> bool:
        """Tell whether the first connection failed for a reason that time does not mend."""
        error = self._client.trouble
        if isinstance(error, socket.gaierror):
            return error.errno != socket.EAI_AGAIN
        if self._until_refused and isinstance(error, ConnectionRefusedError):
            return True
        return isinstance(error, ssl.SSLError | ValueError) or (self._refused or "").startswith("refuses")

    @property
    def version(self) -> str:
        """Return the version of MQTT that the broker speaks."""
        return "5" if self._client._protocol == MQTTProtocolVersion.MQTTv5 else "3.1.1"

    @property
    def there(self) -> bool:
        """Tell whether the connection stands."""
        return bool(self._up)

    @property
    def counts(self) -> Counts:
        """Return the bytes of messages and on the wire, over all connections so far."""
        open_now = wire_bytes(self._client.socket())
        if open_now is None and not any(self._wire):
            return Counts(self._payload[0], self._payload[1])
        up, down = open_now or (0, 0)
        return Counts(self._payload[0], self._payload[1], self._wire[0] + up, self._wire[1] + down)

    def wire(self) -> tuple[int, int]:
        """Return the bytes that came in (up, from clients) and went out on the wire; zeros where nobody counts."""
        counts = self.counts
        return counts.wire_down or 0, counts.wire_up or 0

    def publish(self, topic: str, message: bytes, *, patience: float = 0.0) -> bool:
        """Send a message, after up to `patience` seconds while too much is under way; False if there is no room.

        Nobody waits for a receiver for whom too much waits already: others' messages would wait too.

        Guarantee: of what waits in memory no more than `_AHEAD` largest messages are for one receiver, and all that is
        not small has at most `_WINDOW` bytes and one message of each thread that sends.
        """
        if len(message) > self._most:
            raise RunError(f"a message of {len(message)} bytes is too long, at most {self._most} are sent")
        until = time.monotonic() + patience
        key = (topic, len(message), hash(message))
        with self._state:
            if key in self._sizes.values():
                return True
            while (waiting := sum(size for _, size, _ in self._sizes.values())) > _WINDOW and len(message) > _SMALL:
                if (left := until - time.monotonic()) <= 0:
                    return False
                self._state.wait(left)
            ahead = waiting and sum(size for other, size, _ in self._sizes.values() if other == topic)
            if ahead and ahead + len(message) > _AHEAD * self._most:
                return False
        # Not under our lock: paho holds its own while it tells of an acknowledgement.
        number = self._client.publish(topic, message, qos=1).mid
        with self._state:
            self._payload[0] += len(message)
            if number in self._early:
                self._early.discard(number)
            else:
                self._sizes[number] = key
        return True

    def flush(self, seconds: float) -> bool:
        """Wait until the broker has acknowledged all messages; tell whether it has."""
        until = time.monotonic() + seconds
        with self._state:
            while self._sizes and (left := until - time.monotonic()) > 0:
                self._state.wait(left)
            return not self._sizes

    def close(self) -> None:
        """Disconnect in order: the last will is not sent."""
        self._closing = True
        self._abandon()

    def _try(self) -> str | None:
        """Connect once; return why not."""
        client = self._client
        self._up = self._refused = None
        try:
            client.connect(self.address.host, self.address.port, self._keep_alive, **self._connect_keys)
        except (OSError, ValueError) as error:
            client.trouble = client.trouble or error
            return explain(client.trouble)
        client.loop_start()
        until = time.monotonic() + self._patience(time.monotonic() - self._began)
        with self._state:
            while self._up is None and self._refused is None and (left := until - time.monotonic()) > 0:
                self._state.wait(left)
        if self.there:
            return None
        return explain(client.trouble) if client.trouble is not None else self._refused or "gave no answer"

    def _patience(self, opening: float) -> float:
        """Return the seconds for a first answer, when TCP and TLS took so many."""
        return max(_FIRST[self.version], min(_LONGEST, _TRIPS * opening))

    @property
    def _connect_keys(self) -> dict[str, Any]:
        if self._client._protocol != MQTTProtocolVersion.MQTTv5:
            return {}
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = self._client.most
        return {"clean_start": True, "properties": properties}

    def _final(self, error: Exception | None) -> bool:
        """Tell whether an older protocol would fail the same way: no connection, or no agreement on certificates."""
        if isinstance(error, ConnectionError):
            return isinstance(error, ConnectionRefusedError)
        return isinstance(error, OSError | ValueError)

    def _make(self, version: MQTTProtocolVersion, patience: float = _CONNECT) -> _Client:
        five = version == MQTTProtocolVersion.MQTTv5
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._name,
            clean_session=None if five else True,
            protocol=version,
        )
        client.most = self._most + _PACKET
        if self.address.tls and self._credentials is not None:
            client.tls_set_context(tls_context(self._credentials))
        client.patience = patience
        client.on_pre_connect = self._on_pre_connect
        client.on_socket_close = self._on_socket_close
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    def _abandon(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
        self._client.loop_stop()

    def _on_pre_connect(self, client: paho.Client, _: Any) -> None:
        self._connection += 1
        self._began = time.monotonic()
        if (will := self._listener.last_will(self._connection)) is not None:
            client.will_set(*will, qos=1)

    def _on_socket_close(self, _: paho.Client, __: Any, closing: Any) -> None:
        if (counted := wire_bytes(closing)) is not None:
            self._wire = [before + now for before, now in zip(self._wire, counted, strict=True)]

    def _on_connect(self, client: paho.Client, _: Any, __: Any, reason: Any, ___: Any) -> None:
        if reason.is_failure:
            self._decide(up=False, refused=f"refuses this client: {reason}")
        else:
            self._client.attempts, self._subscribed = 0, time.monotonic()
            client.subscribe(self._topic, qos=1)

    def _on_connect_fail(self, _: paho.Client, __: Any) -> None:
        self._tell(explain(self._client.trouble))

    def _on_subscribe(self, _: paho.Client, __: Any, ___: int, reasons: list[Any], ____: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self._decide(up=False, refused=f"refuses to let this client read {self._topic}; check its access list")
            return
        self._measure()
        self._decide(up=True)
        self._listener.connected(self._connection)

    def _measure(self) -> None:
        """Take the round trip from that of the subscription, and the rate from how long all before it took."""
        now = time.monotonic()
        trip, sent = now - self._subscribed, wire_bytes(self._client.socket())
        carrying = now - self._began - _GREETED_AFTER * trip
        self._link = LinkQuality(trip, sum(sent) / carrying if sent is not None and carrying > _SLOW else 0.0)
        self._client.patience = min(_LONGEST, max(_CONNECT, _TRIPS * trip))
        self._watch()

    def _on_disconnect(self, client: paho.Client, _: Any, __: Any, reason: Any, ___: Any) -> None:
        was_up, self._up = self._up, False
        with self._state:
            self._refused = self._refused or f"closed the connection: {reason}"
            self._state.notify_all()
        if was_up:
            error = self._client.trouble
            self._tell(f"connection lost: {reason if error is None else explain(error)}")
        self._client.trouble = None if was_up else self._client.trouble

    def _on_message(self, _: paho.Client, __: Any, message: paho.MQTTMessage) -> None:
        self._payload[1] += len(message.payload)
        self._listener.heard(message.topic, bytes(message.payload))

    def _on_publish(self, _: paho.Client, __: Any, number: int, ___: Any, ____: Any) -> None:
        with self._state:
            if self._sizes.pop(number, None) is None:
                self._early.add(number)
            self._state.notify_all()

    def _tell(self, reason: str) -> None:
        if self._established and not self._closing:
            self._listener.lost(reason)

    def _decide(self, *, up: bool, refused: str | None = None) -> None:
        if refused is not None:
            self._tell(refused)
        with self._state:
            self._up, self._refused = up, refused
            self._state.notify_all()
