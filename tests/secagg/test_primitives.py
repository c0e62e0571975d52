"""What is remembered of public values is what was computed of exactly these values."""

from __future__ import annotations

from unittest.mock import patch

from sottovoce.secagg import primitives

KEY = bytes(range(32))


def test_a_signature_is_verified_once_and_another_one_by_itself() -> None:
    public, message = primitives.verifying_key(KEY), b"a digest"
    signature = primitives.sign(KEY, message)
    primitives.forget()

    with patch.object(primitives, "Ed25519PublicKey", wraps=primitives.Ed25519PublicKey) as spied:
        for _ in range(3):
            assert primitives.verify(public, memoryview(bytearray(signature)), message)  # type: ignore[arg-type]
            assert not primitives.verify(public, signature, message + b".")
            assert not primitives.verify(public, signature[:-1] + bytes([signature[-1] ^ 1]), message)
            assert not primitives.verify(primitives.verifying_key(bytes(32)), signature, message)

    assert spied.from_public_bytes.call_count == 4


def test_a_point_of_small_order_stays_unusable() -> None:
    for _ in range(2):
        assert not primitives.usable(bytes(32))
        assert primitives.usable(primitives.exchange_key(KEY))
