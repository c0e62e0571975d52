"""Find things of one kind by name: sottovoce's own, those of installed packages, and any `module:attribute`.

Names are known before anything is imported, so that `sottovoce --help` does not load scipy. A package adds things by
entry points in a group of its kind, such as `sottovoce.attacks` (docs/extend.md).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import UnionType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from sottovoce.core.errors import InputError
from sottovoce.core.words import type_words

Thing = TypeVar("Thing")
OURS = "sottovoce"


class Entry(NamedTuple):
    """A name, where it leads (`module:attribute`), and the packages that give it: usually one."""

    name: str
    place: str
    packages: tuple[str, ...]


class Registry(Generic[Thing]):
    """Things of one kind by name; a thing is imported when it is asked for.

    `rows` are sottovoce's own, name to `module:attribute`; no package can take one of their names. Things from outside
    are classes below `base` that have all `labels`, objects of the class `instance`, or just callables where neither is
    given.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        rows: Mapping[str, str],
        *,
        base: type | None = None,
        instance: type | None = None,
        labels: tuple[str, ...] = (),
        key: str | None = None,
        outside: str = "",
    ) -> None:
        self.kind, self.group = kind, group
        self._rows, self._base, self._instance, self._labels = dict(rows), base, instance, labels
        self._key, self._outside = key or kind, outside  # what an error names, and the other ways to name a thing
        self._added: dict[str, Thing] = {}  # in this process; a class may live in a notebook

    def __iter__(self) -> Iterator[str]:
        """Yield the names: sottovoce's own first."""
        return iter([*self._rows, *self._added, *self._entries])

    def __contains__(self, name: object) -> bool:
        """Tell whether a name is known; nothing is imported."""
        return name in self._rows or name in self._added or name in self._entries

    def __getitem__(self, name: str) -> Thing:
        """Return the thing of this name, or at this `module:attribute`; raise InputError if it cannot be used."""
        if name in self._added:
            return self._added[name]
        if ":" not in name:
            self.check(name)
        entry = self.entry(name)
        where = f"{self.kind} {name!r}"
        if entry.packages not in ((), (OURS,)):
            where += f" of the package {' and '.join(map(repr, entry.packages))}"
        if len(entry.packages) > 1:
            raise InputError(f"{where}: one name for two things; remove one of the packages")
        thing = _imported(entry.place, where)
        self._check_thing(thing, entry.place.partition(":")[2], f"{where}: ")
        label = getattr(thing, "name", name)
        if entry.packages and "name" in self._labels and label != name:
            noun = "class" if self._instance is None else "object"
            raise InputError(f"{where}: its {noun} is named {label!r}; entry point and {noun} need the same name")
        return thing  # type: ignore[no-any-return]

    def items(self) -> Iterator[tuple[str, Thing]]:
        """Yield each name with its thing; what cannot be used is left out."""
        for name in self:
            try:
                thing = self[name]
            except InputError:
                continue
            yield name, thing

    def values(self) -> Iterator[Thing]:
        """Yield each thing; what cannot be used is left out."""
        return (thing for _, thing in self.items())

    def check(self, name: str) -> None:
        """Raise InputError, with the nearest name, unless a name is known or has the form `module:attribute`."""
        module, colon, attribute = name.partition(":")
        if (colon and module and attribute) or name in self:
            return
        guess = _nearest(name, self)
        hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(self)}{self._outside}"
        raise InputError(f"{self._key} has no {name!r}; {hint}")

    def entry(self, name: str) -> Entry:
        """Return where a known name leads; nothing is imported."""
        if name in self._rows:
            return Entry(name, self._rows[name], (OURS,))
        return self._entries.get(name, Entry(name, name, ()))

    def add(self, name: str, thing: Thing) -> None:
        """Let a thing be found by its name in this process; a notebook's cell that is run again brings a new one."""
        label = getattr(thing, "__name__", name)
        self._check_thing(thing, label)
        if name in self._rows:
            if thing is not self[name]:
                raise InputError(f"{label} cannot be named {name!r}, a {self.kind} of sottovoce; choose another name")
            return
        if not name.replace("-", "").replace("_", "").isalnum():
            raise InputError(f"{label}: name must be letters, digits, - and _, got {name!r}")
        self._added[name] = thing

    def make(self, name: str, **keys: Any) -> Any:
        """Return an object of a class with these keys, which are checked against the fields of the class."""
        kind: Any = self[name]
        check_keys(name, kind, keys)
        return kind(**keys)

    def describe(self, describe: Callable[[str, Thing], Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Describe everything that has a name; what cannot be used is listed with the reason under `error`."""
        described: list[dict[str, Any]] = []
        for name in self:
            try:
                described.append(dict(describe(name, self[name])))
            except InputError as error:
                described.append({"name": name, "error": str(error)})
        for entry in self._hidden:
            package = " and ".join(map(repr, entry.packages))
            reason = f"the package {package} gives this name, which is sottovoce's own; it is not used"
            described.append({"name": entry.name, "error": reason})
        return described

    @cached_property
    def _found(self) -> dict[str, Entry]:
        # Imported here: it takes 20 ms, and whoever asks for a thing of ours never needs it.
        from importlib.metadata import entry_points

        found: dict[str, Entry] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: point.name):
            package = "?" if point.dist is None else point.dist.name
            earlier = found[point.name].packages if point.name in found else ()
            found[point.name] = Entry(point.name, f"{point.module}:{point.attr}", (*earlier, package))
        return found

    @property
    def _entries(self) -> dict[str, Entry]:
        return {name: entry for name, entry in self._found.items() if name not in self._rows}

    @property
    def _hidden(self) -> list[Entry]:
        return [entry for name, entry in self._found.items() if name in self._rows]

    def _check_thing(self, thing: Any, attribute: str, where: str = "") -> None:
        if self._instance is not None:
            if not isinstance(thing, self._instance):
                raise InputError(f"{where}{attribute!r} is not a {_place(self._instance)}")
            return
        if self._base is None:
            if not callable(thing):
                raise InputError(f"{where}{attribute!r} is not a function")
            return
        if not (inspect.isclass(thing) and issubclass(thing, self._base)):
            raise InputError(f"{where}{attribute!r} is not a subclass of {_place(self._base)}")
        missing = sorted(getattr(thing, "__abstractmethods__", ()))
        missing += [label for label in self._labels if not hasattr(thing, label)]
        if missing:
            raise InputError(f"{where}{attribute!r} does not define {', '.join(missing)}")


def summary_of(thing: Any) -> str:
    """Return the first paragraph of a thing's docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def own_keys(kind: Any) -> tuple[str, ...]:
    """Return the keys that an experiment file may give a class: as it says itself, or its fields."""
    if hasattr(kind, "own_keys"):
        return tuple(kind.own_keys())
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def check_keys(name: str, kind: Any, keys: Mapping[str, Any]) -> None:
    """Raise InputError unless the class has these keys and the values are of the types of its fields."""
    known, hints = own_keys(kind), get_type_hints(kind)
    for key, value in keys.items():
        if key not in known:
            guess = _nearest(key, known)
            others = f"known: {', '.join(known)}" if known else "it has none"
            raise InputError(f"{name} has no key {key!r}; " + (f"did you mean {guess!r}?" if guess else others))
        if not _fits(value, hints[key]):
            raise InputError(f"{name}: {key} must be {type_words(hints[key])}, got {value!r}")


def _nearest(word: str, known: Iterable[str]) -> str | None:
    # Imported here: it loads numpy, which `sottovoce --help` does without.
    from sottovoce.core.validate import nearest

    return nearest(word, known)


def _place(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _imported(place: str, where: str) -> Any:
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        raise InputError(f"{where}: module {module!r} has no {attribute!r}") from None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):  # something that it imports itself
            raise InputError(f"{where}: module {module!r} cannot be imported: {error}") from error
        raise InputError(
            f"{where}: module {module!r} cannot be imported: it is not where Python looks; if its file is in this "
            "folder, begin the command with PYTHONPATH=."
        ) from error
    except Exception as error:  # whatever a foreign module raises while it is imported
        raise InputError(f"{where}: module {module!r} cannot be imported: {error}") from error


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value from a config can stand for a key of this type; true is not a number here."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, hint) if isinstance(hint, type) else True
