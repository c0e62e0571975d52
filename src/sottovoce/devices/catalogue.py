"""The profiles that come with the package: TOML data, in which every number has a mark, a year and a source."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from sottovoce.core.validate import one_of
from sottovoce.devices.device import Availability, Compute, Device, Frame, Link, NumberOrigin, Radio

_SHARED: Final = ("availability", "computers", "sources")  # files that several profiles refer to
_WHOLE: Final = ("max_payload", "overhead", "spreading_factor")  # whole numbers; all others are floats


@cache
def known() -> tuple[str, ...]:
    """Return the names of all profiles, sorted."""
    names = (entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))
    return tuple(sorted(name for name in names if name not in _SHARED))


@cache
def profile(name: str) -> Device:
    """Return the profile of this name; an unknown one raises and names the nearest.

    >>> profile("phone-lte").link.up_mbps
    9.0
    """
    one_of("profile", name, known())
    table = _read(name)
    tables = {
        "link": table["link"],
        "radio": table["radio"],
        "compute": _read("computers")[table["compute"]],
        "availability": _read("availability")[table["availability"]],
    }
    if "frame" in table:
        tables["frame"] = table["frame"]
    frame = Frame(**_values(tables["frame"])) if "frame" in tables else None
    return Device(
        name=table["name"],
        year=table["year"],
        about=table["about"],
        link=Link(**_values(tables["link"]), frame=frame),
        radio=Radio(**_values(tables["radio"])),
        compute=Compute(**_values(tables["compute"])),
        availability=Availability(**_values(tables["availability"])),
        relay=profile(table["relay"]) if "relay" in table else None,
        sources={
            f"{part}.{key}": _origin(number) for part, numbers in tables.items() for key, number in numbers.items()
        },
    )


def _origin(number: Mapping[str, Any]) -> NumberOrigin:
    source = _read("sources")[number["source"]]
    return NumberOrigin(number["mark"], source["year"], source["text"])


def _values(numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {key: int(n["value"]) if key in _WHOLE else float(n["value"]) for key, n in numbers.items()}


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(_folder().joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def _folder() -> Any:
    return files("sottovoce.devices").joinpath("profiles")
