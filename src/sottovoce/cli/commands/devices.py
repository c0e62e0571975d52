"""`sottovoce devices`: what clients can run on, and where each number of it comes from."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Wide
from sottovoce.cli.output import put, put_json, put_tables

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.devices import Device

DOOR = "explain"
EXAMPLE = "Example: sottovoce devices phone-lte"


def devices(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One profile.", show_default=False)] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """List the device profiles, or show one with the source of each number."""
    from sottovoce.devices import known, profile

    if name is not None:
        device = profile(name)
        if as_json:
            put_json(_described(device))
        else:
            put_tables(_numbers(device))
            put(f"\n{_legend()}\n")
        return
    everything = [profile(each) for each in known()]
    if as_json:
        put_json([_described(device) for device in everything])
    else:
        put_tables(_table(everything))
        put(
            "\nJoules: 208 KB down and up, 3.6 GFLOP of training; estimates, good to a factor of 2 to 3 (radio) and 5 "
            "(training).\nUse them to compare schemes, not to size a battery. Sources and dates: sottovoce devices "
            "NAME.\n"
        )


def _described(device: Device) -> dict[str, Any]:
    """Return a profile as plain data: its numbers by part, and mark, year and source of each."""
    return {
        "name": device.name,
        "year": device.year,
        "about": device.about,
        **{part: _part(device, part) for part in ("link", "radio", "compute", "availability")},
        "frame": _part(device, "frame") if device.link.frame is not None else None,
        "relay": device.relay and device.relay.name,
        "sources": {
            key: {"mark": origin.mark, "year": origin.year, "source": origin.text}
            for key, origin in device.sources.items()
        },
    }


def _part(device: Device, part: str) -> dict[str, float]:
    values: Any = device.link.frame if part == "frame" else getattr(device, part)
    return {field.name: getattr(values, field.name) for field in fields(values) if field.name != "frame"}


def _table(everything: list[Device]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from sottovoce.devices import Work, joules, seconds

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "year", "what it is"):
        drawn.add_column(title, overflow="fold", no_wrap=title == "name")
    for title in ("Mb/s up", "down", "GFLOP/s", "memory MB", "J session", "J radio", "J training", "s"):
        drawn.add_column(title, justify="right")
    work = Work(208e3, 208e3, 3.6)
    for device in everything:
        spent = joules(device, work)
        numbers = (
            *(device.link.up_mbps, device.link.down_mbps, device.compute.gflops, device.compute.memory_mb),
            *(device.radio.session_j, spent.radio.default, spent.training.default, seconds(device, work)),
        )
        row = (device.name, str(device.year), device.about, *(_short(number) for number in numbers))
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def _numbers(device: Device) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=f"{device.name}: {device.about}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("number", "value", "mark", "year", "source"):
        drawn.add_column(
            title, overflow="fold", no_wrap=title != "source", justify="right" if title == "value" else "left"
        )
    for key, origin in device.sources.items():
        part, _, field = key.partition(".")
        value = f"{_part(device, part)[field]:g}"
        drawn.add_row(*(Text(cell) for cell in (key, value, origin.mark, str(origin.year), origin.text)))
    if device.relay is not None:
        relayed = ("relay", device.relay.name, "", "", "passes the bytes on at its own cost, which is not counted here")
        drawn.add_row(*(Text(cell) for cell in relayed))
    return drawn


def _legend() -> str:
    from sottovoce.devices import MARKS

    return "\n".join(f"{mark}  {words}" for mark, words in MARKS.items())


def _short(number: float) -> str:
    """Return a number with two significant digits, or as it is if it is larger."""
    return f"{number:.0f}" if number >= 100 else f"{number:.2g}"
