"""Be the server of a federation: the run that `experiment.run` plays, with nodes behind a broker as its clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sottovoce.assembly.parties import BackOff, Parties
from sottovoce.assembly.parts import Parts
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, SottovoceError
from sottovoce.core.streams import Seeds
from sottovoce.core.vectors import Vector
from sottovoce.deployment.helper.frames import HelperAddress as HelperPlace
from sottovoce.deployment.node.build import config_digest, facts_of, largest_message, owners_of
from sottovoce.deployment.node.join import check_simulated
from sottovoce.deployment.offer import Offers, read_certificates
from sottovoce.deployment.party import Identity
from sottovoce.deployment.policy import read_vouchers
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.helper_link import HelperLink, check_unused, count_keys
from sottovoce.deployment.server.signatures import SIGNATURES, collect_signatures, make_claim
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.federation.engine import Engine
from sottovoce.federation.engines.mqtt.carrier import Address, Carrier, Listener, TlsFiles
from sottovoce.federation.engines.mqtt.engine import MqttEngine, ServerPlace, Status
from sottovoce.federation.engines.mqtt.envelope import topic_from
from sottovoce.runs.digests import SUMMARY
from sottovoce.runs.journal import read_begun
from sottovoce.runs.loop import Observer, run
from sottovoce.runs.records import Record

if TYPE_CHECKING:
    from sottovoce.federation.engines.mqtt.transport import Transport

KEEP_ALIVE = 60  # seconds: the server must know soon that it is cut off

log = logging.getLogger(__name__)

Around = Callable[[Engine], Engine]
Watch = Callable[[Status], None]
MakeCarrier = Callable[[Listener, Roster, int], Carrier]
"""What carries messages, given who listens, the roster, and the bytes of the largest message."""


def serve(
    experiment: Experiment,
    out: Path,
    *,
    keys: Path,
    broker: str | None = None,
    helper: str | None = None,
    carrier: MakeCarrier | None = None,
    resume: bool = False,
    simulated: bool = False,
    lasting: bool = True,
    min_nodes: int | None = None,
    observe: Observer = lambda record: None,
    watch: Watch = lambda status: None,
    around: Around = lambda engine: engine,
    check: Callable[[], None] = lambda: None,
    file: Path | None = None,
    callbacks: Iterable[object] = (),
    initial: Vector | None = None,
    successor: Callable[[], Mapping[int, bytes]] = dict,
) -> Record:
    """Play an experiment with the nodes of a roster, and return its summary.

    Training begins at `initial`, and `successor` says what nodes are told at the end, by number (`server.epochs`).
    `file` is where the experiment was read, beside which signatures for it may lie, for agents' policies.

    `carrier` takes the place of a connection to a broker: see `MakeCarrier`.
    `watch` is handed the engine's status, which changes while the run goes on; `around` may put an engine around ours.
    `check` is called while nodes are waited for, and raises if that is in vain.
    A run that ended, and whose server died before its nodes had signed, is shown to them when it is resumed.
    Without `lasting` keys are a trial's, and a resumed run may have others.
    """
    if carrier is None:
        address = _address(broker or experiment.engine.broker)
        check_simulated(address, simulated=simulated)
    identity = Identity.read(keys)
    if identity.id is not None:
        raise InputError(f"{keys} holds the keys of {identity.user}; the server needs its own, in FED/server")
    roster = identity.read_roster()
    link = _helper(experiment, helper, identity, roster, simulated=simulated)
    if link is not None and not (out / "config.toml").exists():  # before anything is written
        check_unused(link.reach())
    if carrier is None:
        spoken = None if resume else _reach(address, identity, roster)  # before anything is written
        carrier = partial(_transport, address, identity, spoken)
    carried = carrier
    offers = Offers(
        experiment,
        roster,
        identity.roster.read_bytes(),
        read_certificates(keys),
        read_vouchers(file),
        keys / "requests",
        log.warning,
    )

    @contextmanager
    def connect(parts: Parts, run_id: bytes) -> Iterator[Engine]:
        if link is not None:
            opened = read_begun(out)
            link.run, link.opened = run_id, 0 if opened is None else opened.round
        with _engine(parts, run_id, carried, identity, roster, min_nodes, check, offers) as engine:
            engine.status.expires = identity.expires.timestamp()
            watch(engine.status)
            try:
                yield around(engine)
                _countersigned(experiment, out, run_id, engine, identity, roster, link)
            finally:
                engine.announce(successor())

    parties = Parties.of_machines(
        owners=owners_of(experiment, simulated=simulated),
        keys=SimulatedKeys(Seeds(experiment.experiment.seed), len(roster.entries)) if simulated else roster.keys,
        connect=connect,
        federation=roster.digest,
        seeded=simulated,
        lasting=lasting,
        count=count_keys(roster),
        link=link,
        leader_signing=identity.signing_key,
        back_off=BackOff(experiment.engine.max_aborts),
        initial=initial,
        unsigned=lambda: lasting and not (out / SIGNATURES).exists(),
    )
    return run(experiment, out, resume=resume, observe=observe, callbacks=callbacks, parties=parties)


def _countersigned(
    experiment: Experiment,
    out: Path,
    run_id: bytes,
    engine: MqttEngine,
    identity: Identity,
    roster: Roster,
    link: HelperLink | None,
) -> None:
    """Have a finished run signed; what hinders that does not make a failure of the run."""
    if not (out / SUMMARY).exists():
        return
    try:
        claim = make_claim(out, roster, config_digest(experiment), run_id)
        collect_signatures(out, claim, engine, identity, roster, link)
    except SottovoceError as error:
        log.warning("the run is done, and nobody signed it: %s", error)


def _helper(
    experiment: Experiment, address: str | None, identity: Identity, roster: Roster, *, simulated: bool
) -> HelperLink | None:
    """Return the way to the helper of a run that counts ballots, or raise what is missing."""
    if not experiment.protocol.needs_helper:
        return None
    address = address or experiment.aggregation.helper
    if address is None:
        raise InputError(
            '[aggregation] secure = "ballot" needs a helper, and none is named; set [aggregation] helper = "host:port"'
        )
    place = HelperPlace.parse(address)
    if simulated and not place.loopback:
        raise InputError(f"--simulate-randomness is for tests on one machine, and the helper {place} is on another")
    return HelperLink(place, identity, roster, config_digest(experiment), simulated=simulated)


@contextmanager
def _engine(
    parts: Parts,
    run_id: bytes,
    carried: MakeCarrier,
    identity: Identity,
    roster: Roster,
    min_nodes: int | None,
    check: Callable[[], None],
    offers: Offers,
) -> Iterator[MqttEngine]:
    """Connect, and say goodbye: that the run is done, or that the server may come back."""
    table, most = parts.experiment.engine, largest_message(parts)
    place = ServerPlace(
        federation=roster.federation,
        run=run_id,
        keys=roster.keys,
        signing_key=identity.signing_key,
        facts=facts_of(parts, roster),
        attempt=int(time.time()) & 0xFFFFFFFF,
        phase_timeout=table.phase_timeout,
        train_timeout=table.train_timeout,
        min_nodes=min(len(roster.entries), table.min_nodes if min_nodes is None else min_nodes),
        most=most,
        slowest=table.slowest,
        close=table.close,
        names={entry.id: entry.name for entry in roster.entries},
        offer=offers.answer,
    )
    with MqttEngine(place, lambda listener: carried(listener, roster, most), check) as engine:
        try:
            yield engine
        except BaseException as error:
            words = str(error) if isinstance(error, SottovoceError) else "it was interrupted"
            engine.say_bye(words if parts.experiment.privacy is None else "it was interrupted", done=False)
            raise
        engine.say_bye("the run is done", done=True)


def _transport(
    address: Address, identity: Identity, spoken: str | None, listener: Listener, roster: Roster, most: int
) -> Transport:
    """Return a connection to a broker."""
    from sottovoce.federation.engines.mqtt.transport import Transport

    return Transport(
        address,
        listener,
        name=f"sottovoce-{roster.federation}-server",
        topic=topic_from(roster.federation, "+"),
        credentials=TlsFiles(identity.certificate, identity.private_key, identity.ca),
        most=most,
        keep_alive=KEEP_ALIVE,
        version=spoken,
    )


class _Deaf:
    """A listener that wants to know whether there is a broker, and nothing else."""

    def heard(self, topic: str, message: bytes) -> None:
        """Do nothing."""

    def connected(self, connection: int) -> None:
        """Do nothing."""

    def lost(self, reason: str) -> None:
        """Do nothing."""

    def last_will(self, connection: int) -> tuple[str, bytes] | None:
        """Return nothing."""
        return None


def _reach(address: Address, identity: Identity, roster: Roster) -> str:
    """Return what the broker speaks, or raise why it cannot be reached."""
    with _transport(address, identity, None, _Deaf(), roster, 1 << 20) as transport:
        return transport.version


def _address(broker: str | None) -> Address:
    if broker is None:
        raise InputError("[engine] broker is missing; set it to an address such as mqtts://broker.example:8883")
    return Address.parse(broker)
