"""Streams of a secret key: the bits are the cipher's, the distributions are numpy's, and the key stays where it is."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
import signal
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.random import Generator
from scipy import stats

from sottovoce.core.cipher import CipherGenerator, derive, generator
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.streams import NamedStreams, Purpose, Secrets, Seeds

KEY = bytes(range(32))


def hkdf(key: bytes, salt: bytes, info: str, size: int = 32) -> bytes:
    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=info.encode()).derive(key)


def words(key: bytes, count: int) -> list[int]:
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * count))
    return [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(count)]


def test_the_words_are_aes_in_counter_mode_across_several_refills() -> None:
    drawn = generator(KEY).integers(2**64, size=2000, dtype=np.uint64)

    assert drawn.tolist() == words(KEY, 2000)


def test_the_zero_key_gives_the_published_first_block() -> None:
    """The first block of AES-256 under the zero key: NIST's known answers (KAT, VarTxt) have it for a zero text."""
    two = generator(bytes(32)).integers(2**64, size=2, dtype=np.uint64)

    assert two.astype("<u8").tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_a_half_word_is_the_lower_half_and_a_double_the_upper_53_bits_of_the_same_stream() -> None:
    rng, expected = generator(KEY), words(KEY, 6)

    assert rng.random(3).tolist() == [word // 2**11 * 2.0**-53 for word in expected[:3]]
    assert rng.integers(2**32, size=2, dtype=np.uint32).tolist() == [word % 2**32 for word in expected[3:5]]
    assert int(rng.integers(2**64, dtype=np.uint64)) == expected[5]


def test_a_stream_outlives_the_object_that_made_it() -> None:
    many = [generator(KEY) for _ in range(50)]
    gc.collect()

    assert {int(rng.integers(2**64, dtype=np.uint64)) for rng in many} == {words(KEY, 1)[0]}


def test_children_are_streams_of_their_own_and_take_nothing_from_their_parent() -> None:
    """Torch's own modules train with a child of a client's generator."""
    rng = generator(KEY)
    one, two = rng.spawn(2)
    (three,) = rng.spawn(1)
    drawn = [int(each.integers(2**64, dtype=np.uint64)) for each in (rng, one, two, three)]

    assert drawn[:2] == [words(KEY, 1)[0], words(hkdf(KEY, b"spawned", "0"), 1)[0]]
    assert drawn[3] == words(hkdf(KEY, b"spawned", "2"), 1)[0]
    assert len(set(drawn)) == 4


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"a cipher key must have 32 bytes, got {size}"):
        CipherGenerator(bytes(size))


def counts_of_uniforms(rng: Generator) -> np.ndarray[Any, Any]:
    return np.histogram(rng.random(20_000), bins=20, range=(0, 1))[0]


def counts_of_choices(rng: Generator) -> np.ndarray[Any, Any]:
    return sum(np.bincount(rng.choice(20, 4, replace=False), minlength=20) for _ in range(4000))


def counts_of_first_places(rng: Generator) -> np.ndarray[Any, Any]:
    return np.bincount([int(rng.permutation(20)[0]) for _ in range(8000)], minlength=20)


def counts_of_integers(rng: Generator) -> np.ndarray[Any, Any]:
    return np.bincount(rng.integers(20, size=20_000), minlength=20)


@pytest.mark.parametrize("count", [counts_of_uniforms, counts_of_choices, counts_of_first_places, counts_of_integers])
def test_draws_are_uniform(count: Callable[[Generator], np.ndarray[Any, Any]]) -> None:
    """False alarms: none, the key is fixed; of random keys one in a million would fail."""
    assert stats.chisquare(count(generator(KEY))).pvalue > 1e-6


def test_coins_have_the_rate_that_was_asked_for() -> None:
    """Five standard deviations either way; the key is fixed."""
    drawn = generator(KEY).binomial(1, 1 / 60, size=60_000)

    assert abs(int(drawn.sum()) - 1000) < 5 * np.sqrt(1000 * 59 / 60)
    assert abs(float(generator(KEY).binomial(100, 0.3, size=5000).mean()) - 30) < 5 * np.sqrt(21 / 5000)


def test_a_key_is_hkdf_of_process_owner_purpose_and_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: KEY[:size])
    owned = hkdf(KEY, b"sottovoce secrets", "client 3")
    stream = hkdf(owned, b"sottovoce streams", "generator of 32 bytes: 5 (7, 8)")

    drawn = Secrets(1).client(3).get(Purpose.BATCH, 7, 8).integers(2**64, size=4, dtype=np.uint64)

    assert drawn.tolist() == words(stream, 4)
    assert Secrets(1).client(3).key(Purpose.BATCH, 7, size=16) == hkdf(
        owned, b"sottovoce streams", "key of 16 bytes: 5 (7,)", 16
    )
    assert derive(KEY, salt=b"s", info=b"i") == hkdf(KEY, b"s", "i")


def first(streams: NamedStreams, purpose: Purpose, *path: int) -> int:
    return int(streams.get(purpose, *path).integers(2**63))


def test_a_name_starts_anew_and_names_owners_and_uses_are_independent() -> None:
    secrets = Secrets(1)
    names = [(Purpose.BATCH,), (Purpose.BATCH, 0), (Purpose.BATCH, 0, 0), (Purpose.NOISE, 0), (Purpose.BATCH, 1)]
    owners = [secrets.server, secrets.client(0), secrets.client(1)]
    drawn = [first(owner, *name) for owner in owners for name in names]

    assert drawn == [first(owner, *name) for owner in owners for name in names]
    assert len(set(drawn)) == 15
    assert secrets.server.key(Purpose.MASK, 1, size=32)[:16] != secrets.server.key(Purpose.MASK, 1, size=16)


def test_two_neighbouring_streams_are_not_correlated() -> None:
    """Five standard deviations of the correlation of 20,000 pairs; fails for two in a million keys."""
    secrets = Secrets(1)
    one, two = (secrets.server.get(Purpose.COHORT, round_).standard_normal(20_000) for round_ in (1, 2))

    assert abs(float(np.corrcoef(one, two)[0, 1])) < 5 / np.sqrt(20_000)


def test_two_processes_share_only_what_is_public() -> None:
    one, two, seeds = Secrets(7), Secrets(7), Seeds(7)

    assert one.public == two.public == seeds.public
    assert one.world == seeds.world
    assert one.adversary == seeds.adversary
    assert one.server.key(Purpose.COHORT, 1) != two.server.key(Purpose.COHORT, 1)
    assert first(one.client(3), Purpose.BATCH, 1) != first(two.client(3), Purpose.BATCH, 1)
    assert one != two


@pytest.mark.parametrize("write", [pickle.dumps, cloudpickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("part", ["secrets", "streams", "bits"])
def test_secrets_are_never_pickled_or_copied(write: Callable[[Any], Any], part: str) -> None:
    secrets = Secrets(1)
    objects = {"secrets": secrets, "streams": secrets.client(1), "bits": CipherGenerator(KEY)}

    with pytest.raises(PrivacyError, match="never copied, written or sent"):
        write(objects[part])


def test_a_generator_is_never_pickled() -> None:
    with pytest.raises(PrivacyError, match="never copied, written or sent"):
        pickle.dumps(Secrets(1).server.get(Purpose.COHORT, 1))


def test_no_repr_shows_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\xabS" * (size // 2))
    secrets = Secrets(7)
    shown = [secrets, secrets.server, secrets.server.get(Purpose.COHORT), CipherGenerator(b"\xabS" * 16)]

    assert repr(secrets) == "Secrets(seed=7)"
    assert not re.search(r"xab|abS|b'", " ".join(map(repr, shown)) + " ".join(map(str, shown)))


def test_a_forked_process_cannot_repeat_its_parents_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = Secrets(1)
    monkeypatch.setattr(os, "getpid", lambda: 1)

    with pytest.raises(PrivacyError, match="a forked process would repeat"):
        _ = secrets.server


def test_an_interrupt_in_the_middle_of_a_draw_changes_no_number() -> None:
    """A handler that raises, as Ctrl-C does, every 10 ms: each is raised between two draws and never inside one."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    rng, drawn, caught = generator(KEY), np.empty(400_000, np.uint64), 0
    try:
        done = 0
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        while done < len(drawn) or not caught:
            try:
                while done < len(drawn):
                    # One statement: the draw and its place are kept together or lost together.
                    drawn[done : done + 4000] = rng.integers(2**64, size=4000, dtype=np.uint64)
                    done += 4000
            except KeyboardInterrupt:
                caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    known = set(words(KEY, 2_000_000))

    assert caught
    assert set(drawn.tolist()) <= known
