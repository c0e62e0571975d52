"""Tell a plan in plain words: what it costs, in four groups, for the terminal and for one offline page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sottovoce.report.save import save
from sottovoce.report.units import ABSENT, count, decimal, epsilon, human_bytes, human_seconds, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "Grid",
    "Section",
    "bound",
    "plan_sections",
    "plan_tables",
    "section_tables",
    "short",
    "write_plan",
]

Record = Mapping[str, Any]

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
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sottovoce.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("planning.html").render(title=title, sections=sections)
    save(text.encode(), path, "--html")


def section_tables(section: Section) -> list[RenderableType]:
    """Return a section for the terminal."""
    return list(_drawn(section))


def _run(plan: Record) -> Section:
    share = plan["expected_cohort"] / plan["clients"]
    facts = [
        ("scheme", str(plan["scheme"])),
        ("model", f"{plan['model']}, {count(plan['dim'])} weights that train"),
        ("message", f"{count(plan['message_length'])} values of {count(plan['bits_per_coordinate'])} bits"),
        ("clients", f"{count(plan['clients'])}, about {count(plan['expected_cohort'])} ({percent(share)}) in a round"),
        ("rounds", f"{count(plan['rounds'])}; a client takes part in {short(plan['participations_per_client'])}"),
    ]
    return Section("The run", tuple(facts))


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
    facts = [
        ("against outsiders", f"{bound(plan['epsilon'])} at delta {plan['delta']:g}"),
        *_unanswered(privacy),
        *known,
        ("against a client of the cohort", bound(plan["epsilon_member"])),
        ("noise", f"{decimal(plan['noise_multiplier'])} clip norms, decided by {privacy['noise_decided_by']}"),
        ("a client contributes at most", f"{count(privacy['max_participations'])} times"),
        ("draws that this turns away", percent(privacy["draws_lost"])),
        ("signal to noise, predicted", f"{short(signal['low'])} to {short(signal['high'])} over the run"),
    ]
    return Section("Privacy", tuple(facts))


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
    remarks += [plan["records_per_client"]["reason"]] if plan["records_per_client"]["reason"] else []
    remarks += [f"estimated, up to 3 % off: {', '.join(plan['estimated'])}"] if plan["estimated"] else []
    grid = Grid("With real secure aggregation, a client and round", ("phase", "up", "down"), tuple(rows))
    return Section("Bytes", tuple(facts), (grid,) if rows else (), tuple(remarks))


def _energy(plan: Record) -> Section:
    facts = [
        ("training, a client and round", f"{short(plan['gflop_per_client_round'])} GFLOP"),
        ("memory on the device", f"{short(plan['memory_mb'])} MB for weights and gradient"),
    ]
    if plan["seconds_simulated"] is not None:
        facts.append(("the file's devices, whole run", human_seconds(plan["seconds_simulated"])))
        facts.append(("the file's devices, a client's joules", _interval(plan["joules_per_client_run"])))
    if plan["seconds_per_round"] is not None:
        facts.append(("a round on this machine", human_seconds(plan["seconds_per_round"])))
    head = ("device (year)", "fits", "J a round", "of it radio", "J a run (low to high)", "a round", "the run")
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
