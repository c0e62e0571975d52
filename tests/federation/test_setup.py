from __future__ import annotations

import numpy as np

from sottovoce.core import wire
from sottovoce.core.streams import Purpose, Seeds, Streams
from sottovoce.federation.client import read_setup, setup_message
from sottovoce.models import network
from sottovoce.schemes import make

SEEDS = Seeds(7)
NETWORK = network("mlp", (8, 8), 10, hidden=4)


def public_seed(setup: bytes) -> int:
    low, high = wire.unpack(setup[: wire.frame_size(2, bits=32)], length=2, bits=32).tolist()
    return int(low | high << 32)


def test_a_client_finds_the_servers_start_and_shared_choices_in_the_set_up() -> None:
    start = NETWORK.initialise(SEEDS.public.get(Purpose.INIT))
    server = make("fl-rnd", ratio=0.1).bind(NETWORK.dim, seed=SEEDS.public.seed, start=start)

    client = read_setup(make("fl-rnd", ratio=0.1), NETWORK, setup_message(server, SEEDS.public))

    assert client.start is not None
    assert np.array_equal(client.start, start)
    assert client.round_seed(3) == server.round_seed(3)


def test_whoever_reads_the_set_up_finds_nobodys_secrets() -> None:
    setup = setup_message(make("fl-std").bind(NETWORK.dim), SEEDS.public)
    told = Seeds(public_seed(setup))
    guesses = [Streams(told.seed), told.public, told.server, told.world, told.client(0)]
    secrets = {
        owner.key(purpose, *path)
        for owner in (SEEDS.server, SEEDS.client(0))
        for purpose in Purpose
        for path in ((), (1,), (1, 0))
    }

    guessed = {guess.key(purpose, *path) for guess in guesses for purpose in Purpose for path in ((), (1,), (1, 0))}

    assert public_seed(setup) == SEEDS.public.seed != SEEDS.seed
    assert not secrets & guessed
