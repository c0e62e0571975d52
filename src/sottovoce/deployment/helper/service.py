"""The helper of a federation without a network: requests of the training server in, answers out, an account on disk.

state/<16 digits of the experiment's digest>/
    helper-ledger.jsonl   every round that was counted and charged (`federation.ballots.account`)
    run                   the run that it counts for: an account holds for one run and no other
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from sottovoce.assembly.elsewhere import gather_without_records
from sottovoce.assembly.parties import Parties
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError, RunError, SecAggError, WireError
from sottovoce.core.files import PRIVATE, replace_file
from sottovoce.core.remote import read_json
from sottovoce.core.streams import Seeds
from sottovoce.deployment.countersign import (
    HELPER_NAME,
    PHASE,
    Claim,
    Countersignature,
    Opening,
    read_signed,
    signed_text,
)
from sottovoce.deployment.helper.mark import MARK, Mark
from sottovoce.deployment.node.build import config_digest, owners_of, promise_of, state_folder
from sottovoce.deployment.party import HELPER, Identity, read_signing_key
from sottovoce.deployment.roster import Roster
from sottovoce.deployment.server.helper_link import another_run, count_keys, greeting
from sottovoce.federation.aggregation.ballots.account import HELPER_LEDGER, HelperAccount
from sottovoce.federation.aggregation.ballots.coding import Ballots
from sottovoce.federation.aggregation.ballots.count import helper_private, helper_signing
from sottovoce.federation.aggregation.secure import SimulatedKeys
from sottovoce.privacy import PrivacyPlan
from sottovoce.secagg.ballots import PROOF, BallotTerms, Helper
from sottovoce.secagg.primitives import exchange_key, verifying_key

_SETUP: Final = 1 << 26  # bytes of a request before the terms are known
_RUN: Final = 16
_GREETING: Final = 4096  # bytes of a greeting that is looked into
_MARKED: Final = ("confirm", "prove", "open")  # after these the account has one line more


class Desk:
    """The helper's answers.

    Guarantee: its plan, terms and keys come from its own file and roster; every connection begins with new transfers;
    it counts for one run, and not with an account that has forgotten what the server has a mark of.
    """

    def __init__(
        self, experiment: Experiment, roster: Roster, keys: tuple[bytes, bytes], state: Path, *, simulated: bool
    ):
        if not experiment.protocol.needs_helper:
            raise InputError(f'[aggregation] secure = "{experiment.secure}" needs no helper; only "ballot" does')
        if experiment.data.clients != len(roster.entries):
            raise InputError(
                f"[data] clients = {experiment.data.clients}, but the roster has {len(roster.entries)} nodes; they "
                "must be the same"
            )
        seeds = Seeds(experiment.experiment.seed)
        self._keys = SimulatedKeys(seeds, experiment.data.clients) if simulated else roster.keys
        self._marking = keys[0]  # the roster's key also where the count's own is simulated
        self._signing, self._exchange = (helper_signing(seeds), helper_private(seeds)) if simulated else keys
        owners = owners_of(experiment, simulated=simulated)
        parties = Parties.of_machines(owners, self._keys, roster.digest, seeded=simulated, count=count_keys(roster))
        self._stage = stages(protect(gather_without_records(experiment, parties)))[TRAINING]
        plan, coding = self._stage.plan, self._stage.coding(self._stage.scheme)
        if plan is None or not isinstance(coding, Ballots):
            raise InputError("a count of ballots needs [privacy]")
        self._coding = coding
        self._greeting = greeting(config_digest(experiment), roster, simulated=simulated)
        self._experiment, self._roster, self._promise = config_digest(experiment), roster.digest.hex(), promise_of(plan)
        self._state = state
        self.account, self.run = _opened(state, plan)
        self._helper: Helper | None = None
        self._step = 0  # of this connection: 0 nothing, 1 greeted, 2 begun, 3 a session of transfers
        self.most = _SETUP

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.account.close()

    @property
    def story(self) -> str:
        """Return what there is to say of the account when the helper starts."""
        if not self.run:
            return f"a new account, in which nothing was counted yet: {self._state}"
        return f"the account of run {self.run[:8]}, {self.account.spent} rounds charged: {self._state}"

    def connected(self) -> None:
        """Take note of a new connection: it greets, begins, and makes new transfers, whatever was before."""
        self._step, self.most = 0, _SETUP

    def answer(self, kind: str, payload: bytes) -> bytes:
        """Return the answer to a request, or raise why it is refused."""
        if kind == "greet":
            return self._greet(payload)
        if kind == "begin":
            return self._begin(payload)
        if kind == "settle" and self._step >= 2:
            self.account.settle(payload)
            return self._mark()
        if kind == PHASE and self._step >= 2:
            return self._countersigned(payload)
        if self._helper is None or self._step < (2 if kind == "hello" else 3):
            raise SecAggError(f"{kind} is out of order: a connection begins with greet, begin and hello")
        reply = self._helper.answer(kind, payload)
        self._step = 3
        return reply + self._mark() if kind in _MARKED else reply

    def _countersigned(self, payload: bytes) -> bytes:
        """Sign whether what the server will publish agrees with this account: one claim a run, and no other."""
        claim, path = Claim.unpack(payload), self._state / f"signed-{self.run}"
        difference = claim.difference(
            run=self.run,
            roster=self._roster,
            experiment=self._experiment,
            promise=self._promise,
            begun=self.account.last_round,
            spent=self.account.spent,
        )
        known = read_signed(path)
        if known is not None and known[:2] != (claim, difference is None):
            raise PrivacyError("the server shows other numbers than those that this helper has signed")
        opening = Opening.make(*self.account.head) if known is None else known[2]
        if known is None:
            replace_file(path, signed_text(claim, difference is None, opening), PRIVATE)
        return Countersignature.make(
            claim, HELPER_NAME, self._marking, agrees=difference is None, commitment=opening.commitment
        ).pack()

    def _greet(self, payload: bytes) -> bytes:
        if payload != self._greeting:
            raise InputError(f"the server plays another run than the helper: {_difference(payload, self._greeting)}")
        self._step = 1
        return self.run.encode()

    def _begin(self, payload: bytes) -> bytes:
        if self._step < 1 or len(payload) < _RUN + MARK:
            raise SecAggError("begin is out of order: a connection begins with greet")
        run, setup = payload[:_RUN], payload[_RUN + MARK :]
        if self.run not in ("", run.hex()):
            raise InputError(another_run(self.run))
        self._check_mark(run, Mark.unpack(payload[_RUN : _RUN + MARK]))
        terms = self._stage.ballot_terms(setup)
        if terms is None:
            raise SecAggError("this run counts no ballots")
        terms = replace(terms, session=run)
        if self._helper is None or self._helper.terms != terms:
            self._helper = self._made(terms)
        if not self.run:
            self._bind(run)
        self._step, self.most = 2, _largest(terms)
        return self.account.last_round.to_bytes(8, "little") + self._pending() + self._mark()

    def _check_mark(self, run: bytes, mark: Mark | None) -> None:
        """Raise if the account lacks a line that this helper has signed for the server."""
        if mark is None:
            return
        if not mark.holds(run, verifying_key(self._marking)):
            raise InputError("the server shows a mark of the helper's account that this helper did not sign")
        if not self.account.holds(mark.lines, mark.head):
            what = "does not hold line" if self.run else "is new, and not the one that has line"
            raise PrivacyError(
                f"the helper's account {what} {mark.lines} of run {run.hex()[:8]}, which it signed: it was deleted, "
                "cut or restored from an older copy; give the newest as --state, or begin another run"
            )

    def _bind(self, run: bytes) -> None:
        try:
            replace_file(self._state / "run", run.hex().encode() + b"\n")
        except OSError as error:
            raise RunError(f"{self._state} cannot be written: {error.strerror}; mend that, and start again") from None
        self.run = run.hex()

    def _pending(self) -> bytes:
        """Return the round and the helper's proof of a comparison that the server has yet to end; zeros if none."""
        pending = self.account.pending
        return bytes(8 + PROOF) if pending is None else pending.round.to_bytes(8, "little") + pending.own

    def _mark(self) -> bytes:
        return Mark.make(bytes.fromhex(self.run), self.account.head, self._marking).packed()

    def _made(self, terms: BallotTerms) -> Helper:
        return Helper(
            terms,
            self._signing,
            self._exchange,
            self._keys,
            account=self.account,
            noise=self._coding.helper_noise,
            entropy=os.urandom,
            toss=self._coding.helper_coins if self._coding.coins else None,
        )


def open_desk(
    experiment: Experiment, keys: Path, state: Path | None, *, simulated: bool
) -> tuple[Desk, Identity, Roster]:
    """Return the helper of a folder of keys, after solving its plan."""
    identity = Identity.read(keys)
    if identity.id != HELPER:
        raise InputError(f"{keys} holds the keys of {identity.user}; the helper needs its own, in FED/helper")
    roster, exchange = identity.read_roster(), read_signing_key(keys / "exchange.key")
    if roster.helper is None or exchange_key(exchange) != roster.helper.exchange:
        raise InputError(f"{keys / 'exchange.key'} is not the key of the roster's helper; take the folder anew")
    home = state or state_folder(keys, experiment)
    desk = Desk(experiment, roster, (identity.signing_key, exchange), home, simulated=simulated)
    return desk, identity, roster


def _opened(state: Path, plan: PrivacyPlan) -> tuple[HelperAccount, str]:
    """Return the account in a folder and the run that it is of, or refuse one of which a part is gone."""
    bound, ledger = state / "run", state / HELPER_LEDGER
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        run = bound.read_text(encoding="ascii").strip() if bound.exists() else ""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(f"--state {state} cannot be used: {why}") from None
    if run and not re.fullmatch(r"[0-9a-f]{32}", run):
        raise InputError(f"{bound} must hold the 32 hex digits of a run; restore the folder from its newest copy")
    if run and not (ledger.exists() and ledger.stat().st_size):
        raise PrivacyError(
            f"{ledger} is gone, and it was the account of run {run[:8]}; restore it, or give --state another folder "
            "for another run"
        )
    account = HelperAccount.open(state, plan)
    if account.head[0] > 1 and not run:
        account.close()
        raise PrivacyError(f"{bound} is gone, which says of which run the account beside it is; restore it")
    return account, run


def _largest(terms: BallotTerms) -> int:
    """Return the bytes of the largest request of a count: the envelopes of a cohort, or the choices of a chunk."""
    return (1 << 20) + 256 * terms.cap + 17 * max(1 << 20, 128 * terms.cap)


def _difference(theirs: bytes, ours: bytes) -> str:
    with suppress(WireError):
        their, own = read_json(theirs, most=_GREETING), json.loads(ours)
        words = {
            "version": "another version of sottovoce",
            "protocol": "another version of sottovoce",
            "config": "another experiment file",
            "roster": "another roster",
            "simulated": "simulated randomness on one side alone",
        }
        if isinstance(their, dict):
            return next((said for key, said in words.items() if their.get(key) != own[key]), "another greeting")
    return "another greeting"
