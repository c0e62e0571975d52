"""Federations with several servers, or with none: what their sums are made of, and what travels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sottovoce.core.wire import Traffic
from sottovoce.federation.aggregation.aggregator import Aggregator, Conversation, Costs, Spend, Total, total_traffic
from sottovoce.federation.coding import Terms
from sottovoce.federation.engine import Reply, Request

NUMBER: Final = 8  # bytes of one value of a partial sum between two servers
SINGLE: Final = ("share",)  # phases in which a client has another message for each peer, cut from one answer


@dataclass(frozen=True)
class Servers:
    """The sum by several servers: client k belongs to server k mod `servers`, and the servers add up their sums.

    This is the average of the servers' averages, each weighed by its clients. A server whose clients are too few
    releases nothing, and the others go on without it.
    """

    inner: Aggregator
    servers: int

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Let one server after the other talk to its clients, and add up what they release."""
        total, reasons, released = Total(clip_norm=terms.clip_norm), [], 0
        for server in range(self.servers):
            group = [client for client in cohort if client % self.servers == server]
            if not group:
                continue
            part = yield from self.inner.collect(round_, group, down, terms._replace(cohort=len(group)), spend)
            _merge(total, part)
            if part.values is None:
                reasons.append(part.reason or f"round {round_}: server {server} released nothing")
                continue
            released += 1
            total.values = part.values if total.values is None else total.values + part.values
        if total.values is None:
            total.reason = "; ".join(reasons) or f"round {round_}: nobody was asked; nothing was released"
        else:
            total.between_servers = released * (released - 1) * NUMBER * total.values.size
        return total

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round between servers and clients: each server has its share of the cohort."""
        return self.inner.costs(max(1, round(cohort / self.servers)), down)


@dataclass(frozen=True)
class Serverless:
    """The sum without a server: every client sends its message to every other, and averages by itself.

    All of them come to the same sum, so it is computed once. The model is never sent: each follows it by itself. In a
    round of n clients n (n - 1) messages travel in every phase.
    """

    inner: Aggregator

    def collect(self, round_: int, cohort: list[int], down: bytes, terms: Terms, spend: Spend) -> Conversation:
        """Let the clients talk, and count what travels between each two of them."""
        conversation = self.inner.collect(round_, cohort, down, terms, spend)
        phases: dict[str, dict[int, Traffic]] = {}
        reply: Reply | None = None
        while True:
            try:
                request: Request = next(conversation) if reply is None else conversation.send(reply)
            except StopIteration as stop:
                total: Total = stop.value
                break
            reply = yield request
            phases[request.phase] = peer_sizes(request.phase, request.payloads, reply.sizes)
        total.phases = {
            phase: (sum(s.up for s in sizes.values()), sum(s.down for s in sizes.values()))
            for phase, sizes in phases.items()
        }
        total.bytes_up = sum(up for up, _ in total.phases.values())
        total.bytes_down = sum(down for _, down in total.phases.values())
        total.clients = {
            client: total_traffic({phase: sizes[client] for phase, sizes in phases.items() if client in sizes})
            for client in cohort
        }
        return total

    def costs(self, cohort: int, down: int) -> Costs:
        """Return the bytes of a round: each client sends to and receives from all others what the protocol asks."""
        clients = range(cohort)
        phases = self.inner.costs(cohort, down).phases
        return Costs(
            cohort,
            {name: peer_sizes(name, clients, dict.fromkeys(clients, each.up))[0] for name, each in phases.items()},
        )


def peer_sizes(phase: str, members: Iterable[int], sizes: Mapping[int, int]) -> dict[int, Traffic]:
    """Return what each member of a phase sends and receives when those in `sizes` send answers of these sizes to all.

    >>> peer_sizes("train", [0, 1, 2], {0: 10, 1: 10, 2: 10})[0]
    Traffic(up=20, down=20)
    """
    members = list(members)
    peers = len(members) - 1
    if phase in SINGLE:  # each peer gets its own part; what does not divide goes to nobody and is not sent
        parts = {client: size // peers if peers else 0 for client, size in sizes.items()}
    else:
        parts = dict(sizes)
    everything = sum(parts.values())
    return {client: Traffic(parts.get(client, 0) * peers, everything - parts.get(client, 0)) for client in members}


def _merge(total: Total, part: Total) -> None:
    """Add what another server's round cost."""
    total.senders += part.senders
    total.bytes_up += part.bytes_up
    total.bytes_down += part.bytes_down
    total.failures |= part.failures
    total.left |= part.left
    total.clients |= part.clients
    for phase, (up, down) in part.phases.items():
        before = total.phases.get(phase, (0, 0))
        total.phases[phase] = (before[0] + up, before[1] + down)
