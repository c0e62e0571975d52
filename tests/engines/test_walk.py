"""The walk of a plain round, as docs/architecture.md tells it: traced, and compared with what is written there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sottovoce
from sottovoce.assembly import engines
from sottovoce.assembly.parts import Parts
from sottovoce.checks.twin import Hosted, few
from sottovoce.runs import loop as running

SRC = Path(sottovoce.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "architecture.md"
ROOMS = ("config", "assembly", "runs", "federation", "models", "schemes", "core")
STATIONS = {  # where the model goes down, and where an update is made, changed or used: file, function
    ("schemes/base.py", "downlink"),
    ("schemes/base.py", "receive"),
    ("federation/aggregation/direct.py", "collect"),
    ("models/fast.py", "updates"),
    ("schemes/standard.py", "encode"),
    ("federation/coding.py", "words"),
    ("federation/coding.py", "pack"),
    ("federation/sums.py", "add"),
    ("schemes/standard.py", "decode"),
}


class Tracer:
    """Profiler that keeps every file that is entered, and those on the way to a station."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.walk: list[str] = []
        self.stations: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = _name(frame)
        if event != "call" or name is None:
            return
        if name not in self.touched:
            self.touched.append(name)
        station = (name, frame.f_code.co_name)
        if station not in STATIONS:
            return
        self.stations.add(station)
        way: list[str] = []
        at: FrameType | None = frame
        while at is not None:
            if (name := _name(at)) is not None:
                way.append(name)
            at = at.f_back
        self.walk.extend(name for name in dict.fromkeys(reversed(way)) if name not in self.walk)


def _name(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(SRC):
        return None
    name = path.relative_to(SRC).as_posix()
    return name if name.split("/")[0] in ROOMS else None


def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracer:
    @contextmanager
    def in_process(parts: Parts) -> Iterator[tuple[Any, Any]]:
        engine = Hosted(parts)
        yield engine, engine

    tracers: list[Tracer] = []
    drive = running.drive

    def watched(*arguments: Any) -> Any:
        tracers.append(Tracer())
        sys.setprofile(tracers[-1])
        try:
            return drive(*arguments)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(engines, "start_engine", in_process)
    monkeypatch.setattr(running, "drive", watched)
    running.run(few(experiment={"rounds": 2}), tmp_path / "run")
    return tracers[1]  # what the first round compiles and caches is no part of the walk


def test_a_plain_round_is_walked_in_twelve_files_and_the_page_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = traced(tmp_path, monkeypatch)
    page = DOCS.read_text(encoding="utf-8")
    told = re.findall(r"^\d+\. `([a-z_/]+\.py)`", page, re.MULTILINE)

    assert tracer.stations == STATIONS
    assert tracer.walk[0] == "runs/loop.py"
    assert len(tracer.walk) <= 12
    assert sorted(told) == sorted(tracer.walk)
    written = re.search(r"(\d+) files are entered in all", page)
    assert written is not None
    assert len({*tracer.touched, *tracer.walk}) <= int(written[1]), sorted(tracer.touched)


def test_every_file_that_the_page_names_exists() -> None:
    page = DOCS.read_text(encoding="utf-8")
    rooms = "|".join(path.name for path in SRC.iterdir() if path.is_dir())
    named = set(re.findall(rf"`((?:{rooms})/[a-z_/]+\.py)`", page))

    assert len(named) > 20
    assert not [name for name in named if not (SRC / name).exists()]
