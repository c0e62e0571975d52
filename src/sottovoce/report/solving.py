"""Tell what a search for plans found, and a plan on paper for many clients, in the groups of `planning`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from sottovoce.report.planning import Grid, Section, bound, short
from sottovoce.report.units import ABSENT, count, decimal, epsilon, human_bytes, human_seconds, percent

__all__ = ["scale_section", "solved_section"]

Record = Mapping[str, Any]


def solved_section(solved: Record) -> Section:
    """Return what a search found: the plans, and what each limit ruled out."""
    head = (
        *("scheme", "weights moved", "asked", "rounds", "z", "most times", "signal / noise (predicted)"),
        *("ε", "ε server", "up", "down", "all bytes", "J a run", "run"),
    )
    return Section(
        "Plans that keep all limits",
        (
            ("limits", ", ".join(f"{name} ≤ {count(limit)}" for name, limit in solved["constraints"].items())),
            ("looked at", f"{count(solved['candidates'])} plans, of which {count(solved['feasible'])} keep all limits"),
            ("worth a look", f"{count(solved['pareto'])} that no other of their scheme beats; shown are the best"),
            ("to take the first", _words(solved["solutions"][0]["changes"])),
        ),
        (Grid("", head, tuple(_solution(found) for found in solved["solutions"])),),
        (
            *(found["sentence"] for found in solved["killed_by"]),
            *(f"left out: {name}: {reason}" for name, reason in solved["schemes_left_out"].items()),
            "signal / noise is predicted from the plan alone (low to high); it ranks plans and promises no accuracy",
        ),
    )


def scale_section(told: Record) -> Section:
    """Return a plan on paper for many clients."""
    signal = told["signal_to_noise"]
    facts = [
        ("clients", f"{count(told['clients'])}, {count(told['cohort'])} of them in a round"),
        ("a client is asked", f"{short(told['asked_a_client_and_day'])} times a day"),
        ("rounds", f"{count(told['rounds'])}, {count(told['rounds_a_day'])} a day (assumed)"),
        ("sessions", f"{count(told['sessions_a_round'])} of {count(told['clients_a_session'])} clients, sums added"),
        (
            "graph",
            f"{count(told['neighbours'])} neighbours a client, {count(told['shares_to_open'])} shares open a secret; "
            f"{count(told['neighbours_in_one_graph'])} if all masked in one session",
        ),
        (
            "a client and round",
            f"{human_bytes(told['bytes_up_per_client_round'])} up, "
            f"{human_bytes(told['bytes_down_per_client_round'])} down (of it "
            f"{human_bytes(told['bytes_announcement_per_client_round'])} to name the session's clients)",
        ),
        ("... with ballots", f"{human_bytes(told['bytes_up_per_client_round_ballots'])} up"),
        ("the server, a day", f"{human_bytes(told['bytes_in_a_day'])} in, {human_bytes(told['bytes_out_a_day'])} out"),
        (
            "the server's CPU",
            f"{human_seconds(told['server_cpu_seconds_a_round'])} of one core a round: "
            f"{short(told['server_cores'])} cores",
        ),
    ]
    if signal is not None:
        facts += [
            ("privacy", f"epsilon {epsilon(told['epsilon'])} against outsiders at delta {told['delta']:g}"),
            ("against the server", bound(told["epsilon_server"])),
            ("noise", f"{decimal(told['noise_multiplier'])} clip norms"),
            ("signal to noise, predicted", f"{short(signal['low'])} to {short(signal['high'])}"),
        ]
    remark = (
        "CPU is put together from what a round of 100 clients took on two EPYC cores (benchmarks/secagg.py), nobody "
        "dropping out; nothing of this size was run"
    )
    return Section("On paper", tuple(facts), (), (remark,))


def _words(changes: Mapping[str, str]) -> str:
    """Return the options that make a solution of the file; --json has them for every one."""
    return shlex.join(word for key, value in changes.items() for word in ("--set", f"{key}={value}"))


def _solution(found: Record) -> tuple[str, ...]:
    signal = found["signal_to_noise"]
    return (
        found["scheme"],
        percent(found["weights_moved"]),
        "everyone" if found["sample_rate"] == "1" else found["sample_rate"],
        count(found["rounds"]),
        decimal(found["noise_multiplier"], 3),
        count(found["max_participations"]),
        ABSENT if signal is None else f"{short(signal['default'])} ({short(signal['low'])}-{short(signal['high'])})",
        epsilon(found["epsilon"]),
        epsilon(found["epsilon_server"]),
        human_bytes(found["up"]),
        human_bytes(found["down"]),
        human_bytes(found["bytes"]),
        short(found["joules"]),
        human_seconds(3600 * found["hours"]),
    )
