"""The helper of a deployed run: its answers are those of a simulation's, and whoever is not its server gets none."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sottovoce.assembly.elsewhere import gather_for_server, gather_without_records
from sottovoce.assembly.parties import Parties
from sottovoce.config.experiment import Experiment, parse
from sottovoce.core.errors import InputError, PrivacyError, RunError, SecAggError, SottovoceError
from sottovoce.core.streams import Secrets, Seeds
from sottovoce.deployment.helper.count import Desk, count
from sottovoce.deployment.helper.frames import HelperAddress, receive
from sottovoce.deployment.helper.keys import add_helper
from sottovoce.deployment.helper.mark import MARK
from sottovoce.deployment.keys import sign_roster
from sottovoce.deployment.node.build import config_digest
from sottovoce.deployment.party import Identity
from sottovoce.deployment.server.helper_link import HelperLink, check_unused, greeting
from sottovoce.deployment.server.serve import serve
from sottovoce.deployment.trial.trial import trial
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER
from sottovoce.federation.aggregation.ballots.count import in_run
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.client import setup_message
from sottovoce.privacy.ledger import verify
from sottovoce.runs.loop import run
from tests.deployment.test_trial import Meddling, simulated, tables
from tests.deployment.wired import RUN, member_of, parts_of, roster_of, server_key, wired

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-2, "clip_norm": 0.5}


def ballots(clients: int = 3, rounds: int = 2, **more: Any) -> Experiment:
    told = {"aggregation": {"secure": "ballot"}, "privacy": PRIVATE, **more}
    return parse(tables(clients=clients, rounds=rounds, **told))


@dataclass
class Direct:
    """A link without a network, to a desk in this process."""

    record = None

    desk: Desk
    greeting: bytes

    def begin(self, setup: bytes) -> bytes:
        self.desk.answer("greet", self.greeting)
        self.desk.answer("begin", RUN + bytes(MARK) + setup)
        return RUN

    def ready(self) -> bool:
        return False

    def answer(self, kind: str, payload: bytes) -> bytes:
        reply = self.desk.answer(kind, payload)
        return reply[:-MARK] if kind in ("confirm", "prove", "open") else reply

    def close(self) -> None:
        self.desk.connected()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the model of the simulation."""
    told = tables(clients=2, aggregation={"secure": "ballot"}, privacy=PRIVATE)
    return simulated(told, tmp_path_factory.mktemp("alone") / "run")


def test_nodes_and_a_helper_elsewhere_make_the_model_of_a_simulation(alone: bytes, tmp_path: Path) -> None:
    experiment, roster = ballots(clients=2), roster_of(2)
    told = greeting(config_digest(experiment), roster, simulated=True)
    with (
        Desk(experiment, roster, (server_key, b""), tmp_path / "state", simulated=True) as desk,
        wired(experiment) as held,
    ):
        parties = Parties.of_machines(
            Seeds(1),
            SimulatedKeys(Seeds(1), 2),
            roster.digest,
            lambda parts, run_id: nullcontext(held.engine),
            seeded=True,
            link=Direct(desk, told),
        )
        run(experiment, tmp_path / "together", parties=parties)
        spent, counted = desk.account.spent, [desk.account.participations(client) for client in range(2)]

    assert (tmp_path / "together" / "model.npz").read_bytes() == alone
    assert (spent, counted) == (2, [2, 2])
    assert verify(tmp_path / "state" / HELPER_LEDGER).charged == [1, 2]


@pytest.fixture
def helped(fed: Path) -> Path:
    add_helper(fed, "notary")
    sign_roster(fed)
    return fed


def listening(experiment: Experiment, fed: Path) -> HelperAddress:
    """Start a helper in a thread, and return where it listens."""
    there: list[HelperAddress] = []
    heard = threading.Event()

    def ready(place: HelperAddress) -> None:
        there.append(place)
        heard.set()

    threading.Thread(
        target=count, args=(experiment, fed / "helper", "127.0.0.1:0"), kwargs={"ready": ready}, daemon=True
    ).start()
    assert heard.wait(60)
    return there[0]


def link(experiment: Experiment, keys: Path, place: HelperAddress) -> HelperLink:
    identity = Identity.read(keys)
    return HelperLink(place, identity, identity.read_roster(), config_digest(experiment), simulated=False)


def test_the_helper_answers_the_server_of_its_roster_about_its_own_file_and_nobody_else(helped: Path) -> None:
    experiment = ballots()
    place = listening(experiment, helped)
    server = link(experiment, helped / "server", place)

    assert server.reach() == ""
    with pytest.raises(InputError, match="another experiment file"):
        link(ballots(rounds=3), helped / "server", place).reach()
    with pytest.raises(RunError, match="is gone"):
        link(experiment, helped / "nodes" / "lyon", place).reach()
    with socket.create_connection(place) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
    server._connect()
    assert server._connection is not None
    server._connection.sendall(b"\0" + (1 << 40).to_bytes(8, "little"))  # longer than any request
    with pytest.raises(SecAggError, match="is gone"):
        server._ask("greet", b"")
    server.run = b"1" * 16
    server.begin(b"a set-up")
    assert server.reach() == server.run.hex()
    with pytest.raises(InputError, match="--state"):
        check_unused(server.reach())
    again = link(experiment, helped / "server", place)
    again.run = b"2" * 16
    with pytest.raises(InputError, match="its account holds for that one"):
        again.begin(b"a set-up")
    with pytest.raises(SecAggError, match="a connection begins with greet, begin and hello"):
        server._open()
        server.answer("roll", b"")


def test_a_helper_that_is_not_there_or_somebody_else_is_one_sentence_and_no_run(helped: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused: dict[str, Callable[[], object]] = {
        "cannot be reached": lambda: played(helped, tmp_path, f"127.0.0.1:{port}"),
        "start it there": lambda: played(helped, tmp_path, f"127.0.0.1:{port}", resume=True),  # there is no folder yet
        "none is named": lambda: played(helped, tmp_path, None),
        "is host:port": lambda: played(helped, tmp_path, "nowhere"),
    }
    for words, act in refused.items():
        with pytest.raises(SottovoceError, match=words):
            act()
    assert not (tmp_path / "run").exists()


def played(fed: Path, tmp_path: Path, helper: str | None, *, resume: bool = False) -> object:
    def carrier(*_: object) -> Any:
        raise AssertionError("nobody is to be called")

    return serve(ballots(), tmp_path / "run", keys=fed / "server", helper=helper, carrier=carrier, resume=resume)


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(1.0)
        ours.sendall(b"\0" + (1 << 40).to_bytes(8, "little"))
        with pytest.raises(RunError, match="none has more than 9"):
            receive(theirs, 9)


@pytest.mark.parametrize("whose", ["server", "nodes/lyon"])
def test_a_helper_with_the_keys_of_another_member_is_refused(whose: str, helped: Path) -> None:
    with pytest.raises(InputError, match="the helper needs its own"):
        count(ballots(), helped / whose, "127.0.0.1:0")


def test_seeded_secrets_stay_on_one_machine(helped: Path) -> None:
    with pytest.raises(InputError, match="one machine"):
        count(ballots(), helped / "helper", "0.0.0.0:0", simulated=True)


def test_without_a_helper_in_the_roster_or_a_link_no_count_begins(fed: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the roster has no helper"):
        played(fed, tmp_path, "127.0.0.1:9")
    parties = Parties.of_machines(Secrets(1), roster_of(3).keys)
    with pytest.raises(InputError, match="none is named"):
        gather_for_server(ballots(), parties)
    with pytest.raises(InputError, match="is not played between machines"):
        gather_without_records(ballots(aggregation={"secure": "ideal-ballot"}))


def test_an_address_of_a_helper_is_for_ballots_and_changes_no_digest() -> None:
    named = ballots(aggregation={"secure": "ballot", "helper": "notary.example:8900"})
    assert named.aggregation.helper == "notary.example:8900"
    assert config_digest(named) == config_digest(ballots())
    with pytest.raises((InputError, PrivacyError), match="helper is for secure"):
        parse(tables(aggregation={"helper": "notary.example:8900"}))


def test_a_ballot_holds_for_one_run() -> None:
    experiment = ballots()
    parts = parts_of(experiment)
    bound = parts.scheme.bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start)
    setup = setup_message(bound, parts.seeds.public, parts.network.start_payload())
    client = member_of(experiment, 0).training.client(setup)
    one, two = (in_run(client, bytes(32), run_id).knowledge.ballot for run_id in (b"1" * 16, b"2" * 16))

    assert one is not None and two is not None and one.digest() != two.digest()


def test_a_trial_of_processes_equals_the_simulation(alone: bytes, tmp_path: Path) -> None:
    told = tables(clients=2, aggregation={"secure": "ballot"}, privacy=PRIVATE)
    with trial(parse(told), 2, tmp_path / "ours", simulated=True, kind="amqtt") as made:
        assert made.helper is not None
        where = {"keys": made.keys, "broker": made.broker.url, "helper": made.helper.address}
        serve(made.experiment, tmp_path / "ours", **where, simulated=True, min_nodes=2, check=made.check)

    assert (tmp_path / "ours" / "model.npz").read_bytes() == alone


def test_a_helper_that_is_killed_and_comes_back_counts_on_with_the_same_account(tmp_path: Path) -> None:
    told = tables(clients=2, rounds=3, aggregation={"secure": "ballot"}, privacy=PRIVATE)
    out = tmp_path / "ours"
    with trial(parse(told), 2, out, simulated=False, kind="amqtt") as made:
        helper = made.helper
        assert helper is not None

        def again() -> None:
            helper.stop(kill=True)
            helper.start()

        where = {"keys": made.keys, "broker": made.broker.url, "helper": helper.address}
        summary = serve(
            made.experiment,
            out,
            **where,
            min_nodes=2,
            around=lambda engine: Meddling(engine, {(2, "train"): [again]}),
        )
        (state,) = (made.folder / "fed" / "helper" / "state").iterdir()
        charged, notes = verify(state / HELPER_LEDGER), (state / HELPER_LEDGER).read_text()
        nodes = [verify(path) for path in (made.folder / "fed" / "nodes").glob("*/state/*/ledger.jsonl")]
        secrets = [
            (made.folder / "fed" / "helper" / name).read_text().strip() for name in ("signing.key", "exchange.key")
        ]
        said = notes + helper.log.read_text()
    operator = [json.loads(line) for line in (out / "operator.jsonl").read_text().splitlines()]

    signed = json.loads((out / "signatures.json").read_text())["signatures"]
    assert [(each["signer"], each["agrees"]) for each in signed] == [
        ("server", True),
        ("helper", True),
        (0, True),
        (1, True),
    ]
    assert charged == ([1, 3], None)
    assert verify(out / "ledger.jsonl").charged == [1, 2, 3]
    assert [verdict.charged for verdict in nodes] == [[1, 2, 3], [1, 2, 3]]
    assert operator[-1]["rounds_without_quorum"] == 1 and "answer_rate" in summary["epsilon_reason"]
    assert len({line["session"] for line in map(json.loads, notes.splitlines()) if line["kind"] == "ballots"}) == 2
    assert not any(secret in said for secret in secrets)
