"""The roster is what the pinned root key signed, byte for byte, or it is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.errors import InputError
from sottovoce.deployment.roster import _DOMAIN, Roster, RosterEntry, canonical, fingerprint
from sottovoce.secagg.primitives import sign, verifying_key

ROOT, OTHER, SERVER = bytes([1] * 32), bytes([2] * 32), bytes([3] * 32)
PIN = fingerprint(verifying_key(ROOT))


def entry(id_: int, **changes: Any) -> RosterEntry:
    fields = {
        "id": id_,
        "name": f"lab-{id_}",
        "key": verifying_key(bytes([10 + id_] * 32)),
        "fingerprint": fingerprint(bytes([id_])),
    }
    return RosterEntry(**(fields | changes))


ROSTER = Roster(tuple(entry(id_) for id_ in range(3)), verifying_key(SERVER), verifying_key(ROOT))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ROSTER.write(tmp_path / "roster.json", ROOT)
    return tmp_path / "roster.json"


def signed(path: Path, key: bytes = ROOT, **changes: Any) -> Path:
    """Write a roster that the root did sign, whatever it says."""
    body = ROSTER._body() | changes
    path.write_bytes(canonical(body | {"signature": sign(key, _DOMAIN + canonical(body)).hex()}) + b"\n")
    return path


def nodes(*changes: tuple[int, str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(canonical(ROSTER._body()["nodes"]))
    for place, field, value in changes:
        found[place][field] = value
    return found


def test_a_written_roster_is_read_back(path: Path) -> None:
    read = Roster.read(path, PIN)

    assert read == ROSTER and read.digest == ROSTER.digest and len(read.digest) == 32
    assert read.keys == {id_: entry(id_).key for id_ in range(3)}
    assert read.federation == PIN[:16] and read.by_name("lab-1").id == 1


def test_a_pin_may_be_written_as_people_read_it_aloud(path: Path) -> None:
    spoken = " ".join(PIN[start : start + 4].upper() for start in range(0, 64, 4))

    assert Roster.read(path, spoken + "\n") == ROSTER


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 2000), flip=st.integers(1, 255))
def test_one_changed_byte_is_refused(place: int, flip: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("changed") / "roster.json"
    ROSTER.write(path, ROOT)
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] ^= flip
    path.write_bytes(raw)

    with pytest.raises(InputError, match=r"roster\.json: "):
        Roster.read(path, PIN)


@pytest.mark.parametrize(
    "rewrite", [lambda raw: raw + b"\n", lambda raw: raw[:-1], lambda raw: raw.replace(b":", b": ", 1)]
)
def test_the_same_words_written_otherwise_are_refused(path: Path, rewrite: Any) -> None:
    path.write_bytes(rewrite(path.read_bytes()))

    with pytest.raises(InputError, match="changed after it was signed"):
        Roster.read(path, PIN)


def test_another_root_is_refused(path: Path) -> None:
    replace(ROSTER, root=verifying_key(OTHER)).write(path, OTHER)

    with pytest.raises(InputError, match=f"signed by the root key {fingerprint(verifying_key(OTHER))}, and you pinned"):
        Roster.read(path, PIN)


def test_another_key_cannot_sign_in_the_roots_name(path: Path) -> None:
    signed(path, key=OTHER)

    with pytest.raises(InputError, match="changed after it was signed"):
        Roster.read(path, PIN)
    with pytest.raises(InputError, match="names another root key"):
        ROSTER.write(path, OTHER)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodes": nodes((1, "id", 0))}, "the id 0 twice"),
        ({"nodes": nodes((2, "id", 3))}, "ids of 3 nodes must be 0 to 2, in this order; 2 is missing"),
        ({"nodes": nodes((0, "id", 1), (1, "id", 0))}, r"in this order; got \[1, 0, 2\]"),
        ({"nodes": nodes((0, "id", False))}, "id is a whole number"),
        ({"nodes": nodes((1, "name", "LAB-0"))}, "the name lab-0 twice"),
        ({"nodes": nodes((1, "name", "a\u001b[2J"))}, "letters, digits"),
        ({"nodes": nodes((1, "name", "server"))}, "is no node of a federation"),
        ({"nodes": nodes((2, "key", entry(0).key.hex()))}, "the key [0-9a-f]+ twice"),
        ({"nodes": nodes((2, "fingerprint", entry(0).fingerprint))}, "the fingerprint [0-9a-f]+ twice"),
        ({"nodes": nodes((2, "key", verifying_key(SERVER).hex()))}, "lab-2 is the server's too"),
        ({"nodes": nodes((2, "key", verifying_key(ROOT).hex()))}, "lab-2 is the root's too"),
        ({"nodes": nodes((2, "key", "00"))}, "64 hex digits"),
        ({"nodes": [[]]}, "has an id, a name, a key and a fingerprint"),
        ({"server": verifying_key(ROOT).hex()}, "the server could write rosters"),
        ({"version": 2}, "has version 2, and this sottovoce reads 1"),
        ({"kind": "soup"}, "no roster"),
        ({"more": 1}, "other fields than version 1: more"),
        ({"revision": 0}, "at least 1"),
        ({"revision": "1"}, "whole number"),
    ],
)
def test_what_the_root_should_not_have_signed_is_refused(path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Roster.read(signed(path, **changes), PIN)


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{", b"[" * 100_000, b'"\xff"', b'{"kind":NaN}'])
def test_garbage_is_one_sentence(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)

    with pytest.raises(InputError, match="this is no roster"):
        Roster.read(path, PIN)


def test_a_bad_pin_and_a_missing_file_are_named(path: Path) -> None:
    with pytest.raises(InputError, match='64 hex digits, got "abc"'):
        Roster.read(path, "abc")
    with pytest.raises(InputError, match="cannot be read"):
        Roster.read(path.with_name("none"), PIN)


def test_the_digest_changes_with_everything_that_is_signed() -> None:
    others = (
        replace(ROSTER, revision=2),
        replace(ROSTER, server=verifying_key(OTHER)),
        replace(ROSTER, root=verifying_key(OTHER)),
        replace(ROSTER, entries=ROSTER.entries[:2]),
        replace(ROSTER, entries=(*ROSTER.entries[:2], entry(2, name="x"))),
        replace(ROSTER, entries=(*ROSTER.entries[:2], entry(2, fingerprint="0" * 64))),
    )

    assert len({ROSTER.digest, *(each.digest for each in others)}) == 1 + len(others)
