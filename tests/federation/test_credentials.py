"""A client on a device signs with its registered key and takes its secrets from the operating system."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.checks.twin import Hand, few
from sottovoce.core.errors import InputError
from sottovoce.core.streams import Secrets, Seeds
from sottovoce.federation.aggregation.secure import Secure, SimulatedKeys, announce, downlink_hash
from sottovoce.federation.client import Client, ClientState, Credentials
from sottovoce.federation.coding import Private, Terms
from sottovoce.privacy import PrivacyPlan, Randomness
from sottovoce.secagg import KeyedEntropy, RoundServer, verifying_key

KEYS = {client: verifying_key(bytes([client + 1] * 32)) for client in range(20)}


@pytest.fixture(scope="module")
def stage() -> tuple[Client, Secure, bytes]:
    """Return a client with credentials, the server's side with registered keys, and a downlink."""
    parts = gather(few(aggregation={"secure": "real"}))
    parts = replace(parts, parties=replace(parts.parties, keys=KEYS))
    hand = Hand(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    ready.enrol(hand)
    secure = ready.server.aggregator
    assert isinstance(secure, Secure)
    one = hand.worker(3).host.client(3)
    knowledge = replace(one.knowledge, keys=KEYS)
    client = replace(one, knowledge=knowledge, credentials=Credentials(bytes([4] * 32)))
    return client, secure, ready.scheme.downlink(ready.server.init(parts.start), 1)


def advertised(client: Client, secure: Secure, down: bytes) -> bytes:
    session = secure.session(1, list(range(9)), downlink_hash(down))
    return client.answer(1, "advertise", announce(session, down), ClientState())[0]


def test_the_registered_key_signs_and_another_is_refused(stage: tuple[Client, Secure, bytes]) -> None:
    client, secure, down = stage
    session = secure.session(1, list(range(9)), downlink_hash(down))
    RoundServer(session).accept("advertise", 3, advertised(client, secure, down))
    with pytest.raises(InputError, match="client 3: the signing key is not the one registered for it"):
        advertised(replace(client, credentials=None), secure, down)


def test_secrets_on_a_device_are_fresh_each_time_and_keyed_ones_repeat(
    stage: tuple[Client, Secure, bytes],
) -> None:
    client, secure, down = stage

    def simulated() -> Client:
        return replace(client, credentials=Credentials(bytes([4] * 32), KeyedEntropy(bytes(32))))

    assert advertised(client, secure, down) != advertised(client, secure, down)
    assert advertised(simulated(), secure, down) == advertised(simulated(), secure, down)


def test_credentials_take_the_systems_entropy_unless_told_and_hide_the_key() -> None:
    own = Credentials(b"S" * 32)

    assert own.entropy is os.urandom
    assert "SSS" not in repr(own)


def test_session_ids_come_from_the_servers_own_streams(stage: tuple[Client, Secure, bytes]) -> None:
    _, secure, _ = stage
    cohort = list(range(9))
    ids = [replace(secure, streams=Secrets(1).server).session(1, cohort).session_id for _ in range(2)]

    assert ids[0] != ids[1]
    assert (
        replace(secure, keys=SimulatedKeys(Seeds(9), 20)).session(1, cohort).session_id
        == secure.session(1, cohort).session_id
    )


def private(**keys: Any) -> Private:
    plan = PrivacyPlan.solve(
        clients=20,
        sample_rate=0.5,
        rounds=3,
        delta=1e-2,
        noise_multiplier=1.0,
        clip_norm=0.5,
        length=64,
        accountant="rdp",
        threshold=2 / 3,
        **keys,
    )
    return Private(plan, Seeds(3))


def test_noise_of_a_deployment_never_repeats_even_with_seeds_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan refuses a repeatable key; here it is never offered one."""
    drawn: list[Randomness] = []
    system = Randomness.system
    monkeypatch.setattr(Randomness, "system", lambda: drawn.append(system()) or drawn[-1])
    coding, message = private(deployment=True), np.zeros(64, np.float32)
    one, two = (coding.words(message, Terms(10, 0.5), 1, 0) for _ in range(2))
    opened = [coding.open(np.zeros(64, np.uint32), Terms(10, 0.5), 7, 1).values for _ in range(2)]

    assert not np.array_equal(one, two)
    assert not np.array_equal(*opened)
    assert len({randomness.key for randomness in drawn}) == 4
