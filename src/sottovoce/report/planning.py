"""Tell a plan in plain words: what it costs, in four groups, for the terminal and for one offline page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sottovoce.report.pages import page_environment
from sottovoce.report.save import save
from sottovoce.report.units import ABSENT, count, decimal, epsilon, human_bytes, human_seconds, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

Record = Mapping[str, Any]

_STATISTICS: Final = "statistics"  # the scheme of a run that trains nothing
_HONEST: Final = (
    "Joules are estimates for one device class, good to a factor of 2 to 3 (radio) and 5 (training): use them to "
    "compare schemes, not to size a battery. They count the device only, not the network and not the server; a device "
    "that is charging spends no battery. Hours are of links and training; waiting until devices are there is not in "
    "them."
)


@dataclass(frozen=True)
class Grid:
    """A table with a head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A group of facts with a title, tables that belong to it, and remarks."""

    title: str
    facts: tuple[tuple[str, str], ...]
    grids: tuple[Grid, ...] = ()
    remarks: tuple[str, ...] = ()


def plan_sections(plan: Record) -> list[Section]:
    """Return a plan as groups: the run, privacy, bytes, time and energy, robustness, and of a private run its ways."""
    ways = plan["ways"]
    compared = [] if ways is None else [_compared(plan)]
    return [_run(plan), _privacy(plan), _bytes(plan), _energy(plan), _robustness(plan), *compared]


def plan_tables(plan: Record) -> list[RenderableType]:
    """Return a plan for the terminal."""
    return [drawn for section in plan_sections(plan) for drawn in _drawn(section)]


def write_plan(sections: Sequence[Section], title: str, path: Path) -> None:
    """Write a plan as one page that needs no network."""
    text = page_environment().get_template("planning.html").render(title=title, sections=sections)
    save(text.encode(), path, "--html")


def section_tables(section: Section) -> list[RenderableType]:
    """Return a section for the terminal."""
    return list(_drawn(section))


def _run(plan: Record) -> Section:
    share = plan["expected_cohort"] / plan["clients"]
    facts = [
        ("scheme", str(plan["scheme"])),
        *([] if _asks(plan) else [("model", f"{plan['model']}, {count(plan['dim'])} weights that train")]),
        ("message", f"{count(plan['message_length'])} values of {count(plan['bits_per_coordinate'])} bits"),
        ("clients", f"{count(plan['clients'])}, about {count(plan['expected_cohort'])} ({percent(share)}) in a round"),
        ("rounds", f"{count(plan['rounds'])}; a client takes part in {short(plan['participations_per_client'])}"),
    ]
    return Section("The run", tuple(facts))


def _asks(plan: Record) -> bool:
    """Tell whether the run asks for statistics and trains nothing."""
    return bool(plan["scheme"] == _STATISTICS)


def _privacy(plan: Record) -> Section:
    privacy = plan["privacy"]
    if privacy is None:
        return Section("Privacy", (("epsilon", "none: this run is not private"),))
    signal = plan["signal_to_noise"]
    known = [
        ("against the server", bound(plan["epsilon_server"])),
        ("... with a third of the clients", bound(privacy["epsilon_server_if_a_third_colludes"])),
    ]
    if plan.get("ballot") is not None:
        known = [
            ("against either aggregator", bound(plan["epsilon_server"])),
            ("against both together", bound(privacy["epsilon_both_aggregators"])),
            ("an aggregator that leaves the protocol", "a yes or no more about ballots; a wrong guess ends the run"),
        ]
    if privacy.get("units") is not None:
        return Section("Privacy", tuple(_privacy_of_sites(plan)))
    facts = [
        *([("this cannot work", str(privacy["too_few"]))] if privacy.get("too_few") else []),
        ("against outsiders", f"{bound(plan['epsilon'])} at delta {plan['delta']:g}"),
        *_unanswered(privacy),
        *known,
        ("against a client of the cohort", bound(plan["epsilon_member"])),
        ("noise", f"{decimal(plan['noise_multiplier'])} clip norms, decided by {privacy['noise_decided_by']}"),
        ("a client contributes at most", f"{count(privacy['max_participations'])} times"),
        ("draws that this turns away", percent(privacy["draws_lost"])),
        ("signal to noise, predicted", f"{short(signal['low'])} to {short(signal['high'])} over the run"),
        *_expected(plan),
    ]
    return Section("Privacy", tuple(facts))


def _expected(plan: Record) -> Iterator[tuple[str, str]]:
    """Yield what accuracy to expect, where the one without privacy was told."""
    if (told := plan.get("expected_accuracy")) is not None:
        band = f"{told['low']:.3f} to {told['high']:.3f}, about {told['default']:.3f}"
        yield "accuracy to expect", f"{band}; {told['plain']:.3f} without privacy (a guess, docs/planning.md)"


def _privacy_of_sites(plan: Record) -> Iterator[tuple[str, str]]:
    """Yield what is promised to each record or person of the sites."""
    privacy, signal = plan["privacy"], plan["signal_to_noise"]
    yield "who is protected", f"each {privacy['unit']}, {count(privacy['units'])} in all"
    yield "against outsiders", f"{bound(plan['epsilon'])} at delta {plan['delta']:g}"
    yield "against the server", bound(plan["epsilon_server"])
    yield "against another site", bound(privacy["epsilon_site"])
    yield "taken into a round", f"{percent(privacy['unit_rate'])} of the {privacy['unit']}s"
    noise = f"{decimal(plan['noise_multiplier'])} clip norms, decided by {privacy['noise_decided_by']}"
    yield "noise", f"{noise}; added by {privacy['noise_by']}"
    if _asks(plan):
        return
    yield "signal to noise, predicted", f"{short(signal['low'])} to {short(signal['high'])} over the run"
    if (measured := plan.get("measurements")) is not None:
        aside = f"{count(measured['units'])} {privacy['unit']}s that are set aside, {count(measured['most'])} times"
        yield "measured on", f"{aside}, at {bound(measured['epsilon_server'])} against the server (their own account)"
    needed = signal["units_needed"]
    told = f"about {count(needed['1'])} {privacy['unit']}s, and for ten times the noise {count(needed['10'])}"
    yield "this epsilon needs, for a signal as large as the noise", told


def _unanswered(privacy: Record) -> Iterator[tuple[str, str]]:
    """Yield why there is no epsilon against outsiders, and what it would be if nobody failed to answer."""
    if privacy["epsilon_reason"] is not None:
        yield "... because", privacy["epsilon_reason"]
        yield "... if all clients always answered", bound(privacy["epsilon_if_all_answer"])


def _bytes(plan: Record) -> Section:
    both = "{} up, {} down".format
    facts = [
        (
            f"a client and round (secure = {plan['secure']})",
            both(human_bytes(plan["bytes_up_per_client_round"]), human_bytes(plan["bytes_down_per_client_round"])),
        ),
        (
            "on its link between machines (with TLS, MQTT, acknowledgements)",
            f"{human_bytes(plan['wire_bytes_per_client_round'])}, {plan['wire_factor']:.2f} times as much",
        ),
        ("set-up, once a client", human_bytes(plan["bytes_setup_per_client"])),
        ("a client, whole run", human_bytes(plan["bytes_per_client_total"])),
        (
            "everybody, whole run",
            both(human_bytes(plan["bytes_up_total"]), human_bytes(plan["bytes_down_total"])),
        ),
    ]
    rows: list[tuple[str, ...]] = []
    if plan["phases"] is not None:
        facts.append(("neighbours that a client masks with", count(plan["real_neighbours"])))
        rows = [(name, human_bytes(sizes["up"]), human_bytes(sizes["down"])) for name, sizes in plan["phases"].items()]
        total = (plan["real_bytes_up_per_client_round"], plan["real_bytes_down_per_client_round"])
        rows.append(("all phases", *map(human_bytes, total)))
    for name, key in (("session keys", "if_session_keys"), ("ballots", "if_ballots")):
        if plan["ways"] is None and plan[key] is not None:  # else a table of its own compares them
            cost = plan[key]
            rows.append((f"with {name} ({cost['needs']})", human_bytes(cost["up"]), human_bytes(cost["down"])))
    remarks = [f"real masks cannot be had: {plan['real_refused']}"] if plan["real_refused"] else []
    if (link := plan["slowest_link"]) is not None:
        facts.append(
            (f"a round on the slowest link ({link['link']})", f"{link['seconds_per_round']:.0f} s, training beside")
        )
        remarks += [f"does not fit: {misfit}" for misfit in link["misfits"]]
        remarks += [link["advice"]] if link["advice"] else []
    remarks += [plan["records_per_client"]["reason"]] if plan["records_per_client"]["reason"] else []
    remarks += [f"estimated, up to 3 % off: {', '.join(plan['estimated'])}"] if plan["estimated"] else []
    grid = Grid("With real secure aggregation, a client and round", ("phase", "up", "down"), tuple(rows))
    return Section("Bytes", tuple(facts), (grid,) if rows else (), tuple(remarks))


def _energy(plan: Record) -> Section:
    facts = [
        ("training, a client and round", f"{short(plan['gflop_per_client_round'])} GFLOP"),
        ("memory on the device", f"{short(plan['memory_mb'])} MB for weights and gradient"),
    ]
    facts = [] if _asks(plan) else facts
    if plan["seconds_simulated"] is not None:
        facts.append(("the file's devices, whole run", human_seconds(plan["seconds_simulated"])))
        facts.append(("the file's devices, a client's joules", _interval(plan["joules_per_client_run"])))
    if plan["seconds_per_round"] is not None:
        facts.append(("a round on this machine", human_seconds(plan["seconds_per_round"])))
    head = ("device (year)", "model fits", "J a round", "of it radio", "J a run (low to high)", "a round", "the run")
    grid = Grid("One client, by device", head, tuple(_device(device) for device in plan["devices"]))
    return Section("Time and energy", tuple(facts), (grid,), (*_hints(plan["devices"]), _HONEST))


def _device(device: Record) -> tuple[str, ...]:
    each = device["joules_per_client"]
    total = each["default"]
    radio = each["radio_bytes"]["default"] + each["radio_sessions"]["default"]
    fits = f"no: {short(device['memory_there_mb'])} MB there"
    return (
        f"{device['name']} ({device['year']})",
        "yes" if device["fits"] else fits,
        short(total),
        percent(radio / total) if total else ABSENT,
        _interval(device["joules_per_client_run"]),
        human_seconds(device["seconds_simulated_per_round"]),
        human_seconds(3600 * device["hours"]),
    )


def _hints(devices: Sequence[Record]) -> Iterator[str]:
    """Say where bytes are not what costs."""
    waking, training = [], []
    for device in devices:
        each = {
            part: device["joules_per_client"][part]["default"] for part in ("radio_bytes", "radio_sessions", "training")
        }
        radio = each["radio_bytes"] + each["radio_sessions"]
        if not device["fits"]:
            continue
        if each["radio_sessions"] > each["radio_bytes"] and radio > each["training"]:
            waking.append(f"{device['name']} ({100 * each['radio_sessions'] / radio:.0f} %)")
        elif each["training"] > 2 * radio:
            training.append(f"{device['name']} ({short(each['training'] / radio)} times)")
    if waking:
        yield (
            f"most of the radio's energy is the session, not the bytes, on {', '.join(waking)}: fewer exchanges save "
            "more there than a smaller update"
        )
    if training:
        yield (
            f"training costs more than talking on {', '.join(training)}: compression buys time and data volume there, "
            "not energy"
        )


def _robustness(plan: Record) -> Section:
    drop = plan["dropouts"]
    facts = [
        ("clients that may leave a round", f"{count(drop['may_leave'])} of {count(drop['cohort'])}"),
        *_floor(plan),
        (
            f"rounds lost if {percent(drop['chance'])} leave",
            "fewer than one in a million" if drop["lost_rounds"] < 1e-6 else percent(drop["lost_rounds"]),
        ),
    ]
    if plan["privacy"] is not None:
        facts += [
            ("... which costs in noise", f"{decimal(drop['noise_factor'], 3)} times as much against the server"),
            ("epsilon of the server if nobody could leave", bound(drop["epsilon_server_if_nobody_left"])),
            ("one client can move a value by at most", _moved(plan)),
            ("... a check of noisy messages must let pass (A)", f"{short(plan['votes'])} honest contributions"),
            ("... the energy guard still lets pass", f"{short(plan['guard_radius'])} clip norms"),
        ]
    return Section("Robustness", tuple(facts))


def _floor(plan: Record) -> Iterator[tuple[str, str]]:
    """Yield the least cohort, and a warning if it is small."""
    if plan["cohort_floor"] is not None:
        yield "least cohort (cohort_floor)", count(plan["cohort_floor"])
    if plan["cohort_floor_note"] is not None:
        yield "... which is too few", plan["cohort_floor_note"]


def _compared(plan: Record) -> Section:
    head = ("way", "phases", "up", "down", "J phone-lte", "J sensor-nbiot", "ε others", "ε server", "A")
    facts = (
        ("bytes and joules", "of a client and round"),
        ("noise in all of them", f"{decimal(plan['noise_multiplier'])} clip norms"),
    )
    remarks = [f"{way['way']} trusts {way['trust']}" for way in plan["ways"]]
    remarks += [f"{way['way']} is not for this file: {way['refused']}" for way in plan["ways"] if way["refused"]]
    once = [f"{human_bytes(way['bytes_once_per_client'])} for {way['way']}" for way in plan["ways"] if _enrols(way)]
    remarks += [f"once a client, to enrol: {', '.join(once)}"] if once else []
    between = [
        human_bytes(told) for way in plan["ways"] if (told := way["bytes_between_aggregators_round"]) is not None
    ]
    remarks += [f"ballots: {size} a round between the two servers" for size in between]
    remarks.append(
        "A: how many honest clients one client can pass for though every message is checked; unchecked, it is more"
    )
    grid = Grid("", head, tuple(_way(way) for way in plan["ways"]))
    return Section("Three ways to sum", facts, (grid,), tuple(remarks))


def _way(way: Record) -> tuple[str, ...]:
    joules = [way["joules_per_client"][name] for name in ("phone-lte", "sensor-nbiot")]
    there = way["refused"] is None
    return (
        way["way"],
        count(way["phases"]),
        human_bytes(way["bytes_up_per_client_round"]),
        human_bytes(way["bytes_down_per_client_round"]),
        *(ABSENT if spent is None else short(spent["default"]) for spent in joules),
        epsilon(way["epsilon"]) if there else ABSENT,
        ("no bound" if way["epsilon_server"] is None else epsilon(way["epsilon_server"])) if there else ABSENT,
        short(way["votes"]) if there else ABSENT,
    )


def _enrols(way: Record) -> bool:
    return way["bytes_once_per_client"] is not None


def _moved(plan: Record) -> str:
    return (
        ABSENT if plan["most_per_coordinate"] is None else f"{short(plan['most_per_coordinate'])} clip norms or votes"
    )


def bound(value: float | None) -> str:
    """Return an epsilon in words; None has no bound."""
    return "no bound" if value is None else f"epsilon {epsilon(value)}"


def _interval(interval: Record) -> str:
    return f"{short(interval['default'])} ({short(interval['low'])} to {short(interval['high'])})"


def short(value: float) -> str:
    """Return two digits: more would promise what an estimate cannot keep."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _drawn(section: Section) -> Iterator[RenderableType]:
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    facts = Table(
        title=Text(section.title, style="bold"), show_header=False, box=None, pad_edge=False, title_justify="left"
    )
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for words, value in section.facts:
        facts.add_row(Text(words), Text(value))
    yield facts
    for grid in section.grids:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=Text(grid.title) if grid.title else None, title_justify="left"
        )
        for index, name in enumerate(grid.head):
            table.add_column(Text(name), justify="right" if index else "left", overflow="fold")
        for row in grid.rows:
            table.add_row(*map(Text, row))
        yield table
    for remark in section.remarks:
        yield Padding(Text(f"- {remark}"), (0, 0, 0, 0))
    yield Text("")


def solved_section(solved: Record) -> Section:
    """Return what a search found: the plans, and what each limit ruled out."""
    head = (
        *("scheme", "weights moved", "asked", "rounds", "z", "most times", "signal / noise (predicted)", "reach"),
        *("ε", "ε server", "up a round", "a run", "a month", "down a round", "all bytes", "J a run, at most", "run"),
        *(("tried: " + str(solved["tried"]["metric"]).replace("_", " "),) if solved.get("tried") else ()),
    )
    return Section(
        "Plans that keep all limits",
        (
            ("limits", ", ".join(f"{name} ≤ {count(limit)}" for name, limit in solved["constraints"].items())),
            ("looked at", f"{count(solved['candidates'])} plans, of which {count(solved['feasible'])} keep all limits"),
            ("worth a look", f"{count(solved['pareto'])} that no other of their scheme beats; shown are the best"),
            (
                "joules and hours",
                f"of one client on {', '.join(solved['devices'])}; joules at the high end of their range",
            ),
            ("bytes", f"{solved['bytes_of']}; a month: 30 days of the run"),
            ("to take the first", _words(solved["solutions"][0]["changes"])),
        ),
        (Grid("", head, tuple(_solution(found) for found in solved["solutions"])),),
        (
            *(found["sentence"] for found in solved["killed_by"]),
            *(f"left out: {name}: {reason}" for name, reason in solved["schemes_left_out"].items()),
            "signal / noise is predicted from the plan alone (low to high). reach is how far the sum points where the "
            "whole model should go: noise and weights that never move turn it away. It ranks plans and promises no "
            "accuracy",
            *_tried_notes(solved.get("tried")),
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
        ABSENT if found["reach"] is None else short(found["reach"]),
        epsilon(found["epsilon"]),
        epsilon(found["epsilon_server"]),
        human_bytes(found["up"]),
        human_bytes(found["up_run"]),
        human_bytes(found["up_month"]),
        human_bytes(found["down"]),
        human_bytes(found["bytes"]),
        short(found["joules"]),
        human_seconds(3600 * found["hours"]),
        *((_tried(found["tried"]),) if "tried" in found else ()),
    )


def _tried(trial: Record | None) -> str:
    """Return what a plan reached on other records, and how much of it was played."""
    if trial is None or trial["score"] is None:
        return "not played"
    whole = trial["rounds"] == trial["of"]
    return decimal(trial["score"]) + ("" if whole else f" after {count(trial['rounds'])} rounds")


def _tried_notes(tried: Record | None) -> list[str]:
    if not tried:
        return []
    base = tried["baseline"]
    return [
        f"tried on {tried['on']}: {count(tried['clients'])} clients as in the file, {count(tried['records'])} test "
        f"records, {short(tried['seconds'])} s; always answering the same gives {decimal(base)}. It compares plans; "
        "the clients' records may give other numbers",
        *(f"{name}: {reason}" for name, reason in tried["problems"].items()),
    ]
