"""Write and read protocol messages: fixed fields, sizes known beforehand, nothing allocated that a message claims.

    header (40 bytes)  magic b"svsa", version, kind, two zero bytes, round, client, session
    body               see each function
    end                from a client: its Ed25519 signature (64); from the server: a digest (16)

Both ends cover the session's context, the header and the body. The digest finds damage and misdelivery; against a
server that lies the clients rely on each other's signatures, and against a third party the transport has TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import Final

from sottovoce.core.errors import SecAggError, WireError
from sottovoce.core.wire import Buffer
from sottovoce.secagg.primitives import NONCE, SIGNATURE, TAG, sign, verify
from sottovoce.secagg.session import Extent, Session
from sottovoce.secagg.shamir import SHARE

PHASES: Final = ("advertise", "share", "mask", "consistency", "unmask")
HEADER: Final = 40
DIGEST: Final = 16
PAIR: Final = NONCE + 2 * SHARE + TAG  # one encrypted pair of shares
SINGLE: Final = NONCE + SHARE + TAG  # one encrypted share
CONSISTENCY: Final = 32  # the hash of a survivor set
_FIELDS = struct.Struct("<4sBBHQQ16s")
_INFO = struct.Struct("<16sQQQ")
_MAGIC: Final = b"svsa"
_VERSION: Final = 3
_REQUEST: Final = 16  # kinds 1..5 come from clients, 17..21 go to them


def info(purpose: bytes, round_: int, sender: int, receiver: int) -> bytes:
    """Return the words that bind a derived key to its one use."""
    return _INFO.pack(purpose, round_, sender, receiver)


def seal_reply(session: Session, phase: str, client: int, body: bytes, signing_key: bytes) -> bytes:
    """Return a client's signed message."""
    header = _header(session, 1 + PHASES.index(phase), client)
    return b"".join((header, body, sign(signing_key, _digest(session, header, body))))


def open_reply(session: Session, phase: str, client: int, message: Buffer, size: int) -> memoryview:
    """Return the body of a client's message, exactly `size` bytes, after checking who wrote it, for what and when."""
    view = memoryview(message).cast("B")
    _check_size(view, HEADER + size + SIGNATURE)
    _check_header(session, view, 1 + PHASES.index(phase), client)
    body = view[HEADER:-SIGNATURE]
    digest = _digest(session, view[:HEADER], body)
    if not verify(session.keys[client], bytes(view[-SIGNATURE:]), digest):
        raise SecAggError(f"client {client}: the signature of its {phase} message does not verify")
    return body


def signed(session: Session, phase: str, client: int, body: bytes, signature: bytes) -> bool:
    """Say whether `client` signed this body in this phase; the server forwards signatures without their headers."""
    header = _header(session, 1 + PHASES.index(phase), client)
    return verify(session.keys[client], signature, _digest(session, header, body))


def seal_request(session: Session, phase: str, client: int, body: bytes) -> bytes:
    """Return the server's message to one client, the input of its `phase`."""
    header = _header(session, _REQUEST + 1 + PHASES.index(phase), client)
    return b"".join((header, body, _digest(session, header, body)[:DIGEST]))


def open_request(session: Session, phase: str, client: int, payload: Buffer, limit: int) -> memoryview:
    """Return the body, of at most `limit` bytes, of the server's message to this client."""
    view = memoryview(payload).cast("B")
    if not HEADER + DIGEST <= view.nbytes <= HEADER + limit + DIGEST:
        raise WireError(f"{phase} request has {view.nbytes} bytes, at most {HEADER + limit + DIGEST} were expected")
    _check_header(session, view, _REQUEST + 1 + PHASES.index(phase), client)
    body = view[HEADER:-DIGEST]
    if not hmac.compare_digest(_digest(session, view[:HEADER], body)[:DIGEST], view[-DIGEST:]):
        raise WireError(f"{phase} request is damaged, or of a session with other terms: its digest does not match")
    return body


def set_size(session: Extent) -> int:
    """Return the bytes of a set of clients: one bit each."""
    return (len(session.clients) + 7) // 8


def write_set(session: Session, places: Iterable[int]) -> bytes:
    """Return a set of places as bits, the lowest first."""
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits.to_bytes(set_size(session), "little")


def read_set(session: Session, raw: Buffer) -> list[int]:
    """Return the places of a set in ascending order; other lengths and bits after the last client are refused."""
    _check_size(memoryview(raw), set_size(session))
    bits = int.from_bytes(raw, "little")
    if bits >> len(session.clients):
        raise WireError(f"a set names a client after the last of {len(session.clients)}")
    return [place for place in range(len(session.clients)) if bits >> place & 1]


def _header(session: Session, kind: int, client: int) -> bytes:
    return _FIELDS.pack(_MAGIC, _VERSION, kind, 0, session.round, client, session.session_id)


def _digest(session: Session, header: Buffer, body: Buffer) -> bytes:
    digest = hashlib.sha256(b"sottovoce secagg message v3" + session.context)
    digest.update(header)
    digest.update(body)
    return digest.digest()


def _check_size(view: memoryview, size: int) -> None:
    if view.nbytes != size:
        raise WireError(f"message has {view.nbytes} bytes, expected {size}")


def _check_header(session: Session, view: memoryview, kind: int, client: int) -> None:
    magic, version, its_kind, zero, round_, its_client, session_id = _FIELDS.unpack(view[:HEADER])
    if magic != _MAGIC or version != _VERSION or zero:
        raise WireError(f"message is foreign: it begins with {bytes(view[:8])!r}")
    if session_id != session.session_id:
        raise SecAggError("message is from another session")
    if round_ != session.round:
        raise SecAggError(f"message is from round {round_}, this is round {session.round}")
    if its_kind != kind:
        raise SecAggError(f"message is of kind {its_kind}, this phase takes kind {kind}")
    if its_client != client:
        raise SecAggError(f"message is client {its_client}'s, not client {client}'s")
