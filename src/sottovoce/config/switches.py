"""The `[switches]` table: what PrivacyFL lets its users switch, for any run, and where a run refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from sottovoce.config.table import Table
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data import Partition

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment


class SwitchesTable(Table):
    """The `[switches]` table: PrivacyFL's switches (docs/switches.md); security is `[aggregation] secure`."""

    new_records: int = Field(
        0,
        ge=0,
        description="Records that come to each client in each round. 0: a client has all of its records from the "
        "start. Every client counts the same then.",
    )
    cumulative: bool = Field(
        True,
        description="For new_records: train on all records that came so far; if false, on those of this round alone.",
    )
    leave_within: float = Field(
        0.0,
        ge=0,
        description="A client leaves for good when every weight that it has trained is within this distance of the "
        "model that it was sent; the run ends when fewer than two clients are left. 0: nobody leaves.",
    )
    subtract_own_noise: bool = Field(
        False,
        description="Let a client subtract its own noise from the model before it trains. Refused in a private run, "
        "whose noise the others' next updates would tell; the mechanisms study has it, where it is safe.",
    )
    servers: int = Field(
        1,
        ge=0,
        description="Number of servers. 2 or more divide the clients among them and add up their sums. 0: there is "
        "none, and every client sends to every other and averages by itself.",
    )


def check_switches(experiment: Experiment) -> None:
    """Raise if a switch cannot be played with the other tables, or would void the guarantee of a private run."""
    table = experiment.switches
    if table is None:
        return
    if table.subtract_own_noise:
        _refuse_subtraction(experiment)
    if not table.cumulative and not table.new_records:
        raise ValueError("[switches] cumulative = false is about new_records, which is 0; set it, or remove cumulative")
    if table.new_records:
        _check_growth(experiment)
    if table.leave_within:
        _check_leaving(experiment)
    if table.servers != 1:
        _check_servers(experiment, table.servers)


def check_records(table: SwitchesTable | None, rounds: int, owners: Partition, held_out: float) -> None:
    """Raise if a client would be without records in some round."""
    if table is None or not table.new_records or table.cumulative:
        return
    fewest = int(min(owners.size(client) for client in range(owners.clients)) * (1 - held_out))
    if fewest <= (rounds - 1) * table.new_records:
        raise InputError(
            f"[switches] new_records = {table.new_records} without cumulative needs more than "
            f"{(rounds - 1) * table.new_records} records of every client in {rounds} rounds, and one has {fewest}; "
            "lower new_records, [experiment] rounds or [data] clients"
        )


def smallest_session(table: SwitchesTable | None, least: int) -> int:
    """Return the smallest cohort of a secure sum that clients take part in, where `least` would be that of one server.

    Several servers divide a cohort, and where clients leave for good, two may be left.
    """
    if table is None:
        return least
    return 2 if table.leave_within else least // max(1, table.servers)


def _refuse_subtraction(experiment: Experiment) -> None:
    if experiment.privacy is None:
        raise ValueError(
            "[switches] subtract_own_noise: clients of this run add no noise; remove it, or play the mechanisms study "
            "(sottovoce study mechanisms --set study.subtract_own_noise=true)"
        )
    raise PrivacyError(
        "[switches] subtract_own_noise would void epsilon: a client is hidden by the noise of all clients, and if each "
        "trains on from a model without its own share, the next sum tells of those shares; remove it"
    )


def _check_growth(experiment: Experiment) -> None:
    if experiment.aggregation.weighting == "records":
        raise ValueError(
            "[switches] new_records gives every client as many records in a round as all others; remove [aggregation] "
            "weighting"
        )
    if experiment.client.balanced:
        raise ValueError("[switches] new_records comes before any balancing; remove [client] balanced")
    if experiment.threat is not None:
        raise ValueError("[switches] new_records: malicious clients have all records at once; remove [threat]")


def _check_leaving(experiment: Experiment) -> None:
    if experiment.privacy is not None:
        raise PrivacyError(
            "[switches] leave_within would void epsilon: when a client leaves depends on its records, and who is there "
            "is seen without noise; remove it"
        )
    if experiment.aggregation.key_life == "session":
        raise ValueError('[switches] leave_within: a session needs every client; set [aggregation] key_life = "round"')
    if experiment.threat is not None:
        raise ValueError("[switches] leave_within is for honest clients; remove [threat]")


def _check_servers(experiment: Experiment, servers: int) -> None:
    key = f"[switches] servers = {servers}"
    if experiment.privacy is not None:
        why = (
            "every client would open the sums itself, knows who takes part and knows its own share of the noise"
            if servers == 0
            else "each server would open the sum of its own clients, which has only their part of the noise"
        )
        raise PrivacyError(f"{key} would void epsilon: {why}; set it to 1")
    if experiment.devices.profile is not None:
        raise ValueError(f"{key}: the clock of [devices] profile is for rounds with one server; remove one of them")
    if experiment.aggregation.defence != "none":
        raise ValueError(
            f"{key}: a defence judges the updates of all clients in one place; remove [aggregation] defence"
        )
    if experiment.aggregation.key_life == "session":
        raise ValueError(f'{key}: keys of a session are for one server; set [aggregation] key_life = "round"')
    if servers == 0 and (experiment.cohort.sample_rate != 1 or experiment.cohort.cap is not None):
        raise ValueError(
            f"{key}: nobody sends the model to a client that was not there; set [cohort] sample_rate = 1 without cap"
        )
    if servers == 0 and experiment.protocol.masks and not experiment.aggregation.colluders:
        raise ValueError(
            f"{key}: every client sees what a server would see, and has its own secrets besides; set [aggregation] "
            "colluders to 1 or more"
        )
    cohort = float(experiment.cohort.sample_rate) * experiment.data.clients
    if servers > 1 and experiment.protocol.hides_updates and cohort / servers < 2:
        raise ValueError(
            f"{key}: the sum of one client hides nothing, and a cohort of {cohort:g} leaves a server with one; "
            "lower it, or raise [cohort] sample_rate or [data] clients"
        )
    if servers > experiment.data.clients:
        raise ValueError(f"{key} is more than [data] clients = {experiment.data.clients}; lower it")
