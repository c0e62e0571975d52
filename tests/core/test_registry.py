"""Names lead to things of ours, of installed packages and of any module; what is broken harms nobody else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.errors import InputError
from sottovoce.core.registry import Registry, check_keys, summary_of

HERE = __name__


class Bird(ABC):
    """A bird."""

    name: str

    @abstractmethod
    def sings(self) -> str:
        """Return its song."""


@dataclass(frozen=True)
class Wren(Bird):
    """A small bird

    that is loud.
    """

    name = "wren"
    songs: int = 1
    loud: bool = True

    def sings(self) -> str:
        return "tic " * self.songs


def birds(**rows: str) -> Registry[type[Bird]]:
    return Registry("bird", "sottovoce.birds", {"wren": f"{HERE}:Wren", **rows}, base=Bird, labels=("name",))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes an installed package: a module, and entry points in the group of birds."""

    def make(package: str, module: str, code: str, **entries: str) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        points = "\n".join(f"{name} = {place}" for name, place in entries.items())
        (info / "entry_points.txt").write_text(f"[sottovoce.birds]\n{points}\n", encoding="utf-8")
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    return make


OWL = f"""
from {HERE} import Bird

class Owl(Bird):
    '''An owl.'''
    name = "owl"
    def sings(self): return "hu"
"""


def test_a_name_of_ours_and_a_place_of_anybodys_lead_to_the_same_class() -> None:
    assert birds()["wren"] is birds()[f"{HERE}:Wren"] is Wren
    assert birds().make("wren", songs=2).sings() == "tic tic "


def test_an_entry_point_is_found_listed_and_made(package: Any) -> None:
    package("aviary", "aviary_a", OWL, owl="aviary_a:Owl")

    assert list(birds()) == ["wren", "owl"]
    assert "owl" in birds()
    assert birds().make("owl").sings() == "hu"
    assert birds().entry("owl").packages == ("aviary",)


def test_a_name_of_ours_cannot_be_taken_and_the_list_says_so(package: Any) -> None:
    package("thief", "thief_a", OWL, wren="thief_a:Owl")

    assert birds()["wren"] is Wren
    described = birds().describe(lambda name, kind: {"name": name})
    assert described[0] == {"name": "wren"}
    assert "'thief' gives this name, which is sottovoce's own" in described[1]["error"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "raise RuntimeError('boom')",
            "bird 'owl' of the package 'broken': module 'broken_a' cannot be imported: boom",
        ),
        ("import not_there", "module 'broken_a' cannot be imported: No module named 'not_there'"),
        ("", "bird 'owl' of the package 'broken': module 'broken_a' has no 'Owl'"),
        ("Owl = 3", "bird 'owl' of the package 'broken': 'Owl' is not a subclass of "),
        (OWL.replace("sings", "hoots"), "'Owl' does not define sings"),
        (OWL.replace('"owl"', '"eagle-owl"'), "its class is named 'eagle-owl'; entry point and class need the same"),
    ],
)
def test_a_broken_package_is_named_when_it_is_asked_for_and_marked_in_lists(
    package: Any, code: str, words: str
) -> None:
    package("broken", "broken_a", code, owl="broken_a:Owl")
    sys.modules.pop("broken_a", None)

    assert birds()["wren"] is Wren
    assert "owl" in birds()
    assert [name for name, _ in birds().items()] == ["wren"]
    with pytest.raises(InputError) as caught:
        birds()["owl"]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert birds().describe(lambda name, _: {"name": name})[1] == {"name": "owl", "error": str(caught.value)}


def test_two_packages_with_one_name_are_both_named(package: Any) -> None:
    package("one", "one_a", OWL, owl="one_a:Owl")
    package("two", "two_a", OWL, owl="two_a:Owl")

    with pytest.raises(InputError, match=r"bird 'owl' of the package '(one|two)' and '(one|two)': one name for two"):
        birds()["owl"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("wrem", "bird has no 'wrem'; did you mean 'wren'?"), ("zzz", "bird has no 'zzz'; known: wren")],
)
def test_an_unknown_name_gives_the_nearest_or_all(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        birds().check(name)


def test_keys_are_those_of_the_dataclass_and_of_its_types() -> None:
    for keys, words in (
        ({"song": 1}, r"wren has no key 'song'; did you mean 'songs'\?"),
        ({"songs": True}, "wren: songs must be a whole number, got True"),
        ({"zzz": 1}, "wren has no key 'zzz'; known: songs, loud"),
    ):
        with pytest.raises(InputError, match=words):
            birds().make("wren", **keys)
    check_keys("wren", Wren, {"songs": 3, "loud": False})


def test_a_class_of_a_notebook_is_known_in_this_process_and_cannot_take_a_name_of_ours() -> None:
    registry = birds()

    class Tit(Wren):
        name = "tit"

    registry.add("tit", Tit)

    assert registry["tit"] is Tit
    with pytest.raises(InputError, match="Tit cannot be named 'wren', a bird of sottovoce; choose another name"):
        registry.add("wren", Tit)
    with pytest.raises(InputError, match="name must be letters, digits, - and _, got 'a b'"):
        registry.add("a b", Tit)


def test_a_description_is_the_first_paragraph() -> None:
    assert summary_of(Wren) == "A small bird"


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, sottovoce.schemes as s; 'fl-cs' in s.SCHEMES; s.SCHEMES['fl-std'];"
        "print('scipy.fft' in sys.modules, 'importlib.metadata' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )
