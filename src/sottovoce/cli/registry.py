"""Every command by its name: each file of `cli/commands`, and the entry points `sottovoce.commands` of packages.

A file holds its command under its own name: a function, or a `typer.Typer` of several. `DOOR` says under which heading
`sottovoce --help` lists it, and `EXAMPLE` is the last line of a function's help.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pkgutil import iter_modules
from typing import Any, Final

import typer
from typer.core import TyperGroup

from sottovoce.cli import commands
from sottovoce.core.errors import InputError
from sottovoce.core.registry import Registry

DOORS: Final = ("try", "plan", "deploy", "explain", "research", "other packages")

COMMANDS: Final[Registry[Callable[..., Any]]] = Registry(
    "command",
    "sottovoce.commands",
    {
        module.name: f"{commands.__name__}.{module.name}:{module.name}"
        for module in iter_modules(commands.__path__)
        if not module.name.startswith("_")
    },
    key="sottovoce",
)


class CommandGroup(TyperGroup):
    """The commands of the registry; one is imported when it is called, and all when they are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return every name, door by door."""
        return sorted(COMMANDS, key=lambda name: DOORS.index(self._built(name).rich_help_panel))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None, with all names at hand for a guess, if there is none."""
        if cmd_name in COMMANDS:
            return self._built(cmd_name)
        self.list_commands(ctx)
        return None

    def _built(self, name: str) -> Any:
        if name not in self.commands:
            self.commands[name] = make_command(name)
        return self.commands[name]


def make_command(name: str) -> Any:
    """Return a command in the form that the command line calls; one that cannot be used says why."""
    try:
        thing = COMMANDS[name]
    except InputError as error:
        return _command(name, _broken(error), "", DOORS[-1])
    module = importlib.import_module(COMMANDS.entry(name).place.partition(":")[0])
    door = getattr(module, "DOOR", DOORS[-1])
    return _command(name, thing, getattr(module, "EXAMPLE", ""), door if door in DOORS else DOORS[-1])


def _command(name: str, thing: Callable[..., Any], example: str, door: str) -> Any:
    if isinstance(thing, typer.Typer):
        group = typer.main.get_group(thing)
        group.name, group.rich_help_panel = name, door
        return group
    alone = typer.Typer(add_completion=False)
    alone.command(name, epilog=example or None, rich_help_panel=door)(thing)
    return typer.main.get_command(alone)


def _broken(error: InputError) -> Callable[[], None]:
    def refuse() -> None:
        raise error

    refuse.__doc__ = f"Cannot be used: {str(error).replace('[', chr(92) + '[')}"
    return refuse
