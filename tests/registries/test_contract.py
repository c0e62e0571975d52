"""Every registry keeps one contract: what is listed can be had, its names are its own, and a wrong name is helped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sottovoce.cli import commands
from sottovoce.cli.registry import COMMANDS, DOORS, make_command
from sottovoce.core.errors import InputError
from sottovoce.core.registry import OURS, Registry
from sottovoce.data.catalogue import SOURCES
from sottovoce.federation.aggregation.protocols import PROTOCOLS
from sottovoce.federation.engines.kinds import ENGINES
from sottovoce.models.fronts import FRONTS
from sottovoce.models.metrics import METRICS
from sottovoce.runs.loggers import LOGGERS
from sottovoce.schemes import SCHEMES
from sottovoce.threats.attacks import ATTACKS
from sottovoce.threats.defences import DEFENCES

REGISTRIES: list[Registry[Any]] = [
    SCHEMES,
    ATTACKS,
    DEFENCES,
    FRONTS,
    ENGINES,
    PROTOCOLS,
    SOURCES,
    METRICS,
    LOGGERS,
    COMMANDS,
]

each = pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)


@each
def test_everything_of_ours_that_is_listed_can_be_had_at_its_place(registry: Registry[Any]) -> None:
    ours = [name for name in registry if registry.entry(name).packages == (OURS,)]

    assert ours
    for name in ours:
        assert registry[name] is registry[registry.entry(name).place]
        assert getattr(registry[name], "name", name) in (name, None)


@each
def test_no_two_names_lead_to_one_place(registry: Registry[Any]) -> None:
    places = [registry.entry(name).place for name in registry]

    assert len(set(places)) == len(places)


@each
def test_a_slip_of_the_pen_is_answered_with_the_nearest_name(registry: Registry[Any]) -> None:
    name = max(registry, key=len)

    with pytest.raises(InputError, match=f"did you mean {name!r}"):
        registry[name[:-1] + "~"]
    with pytest.raises(InputError, match="no_such_module"):
        registry["no_such_module:Thing"]


@each
def test_a_name_of_ours_cannot_be_taken(registry: Registry[Any]) -> None:
    name, other, *_ = registry

    with pytest.raises(InputError, match=f"cannot be named {name!r}"):
        registry.add(name, registry[other])


def test_ten_kinds_have_groups_of_their_own() -> None:
    assert len({registry.group for registry in REGISTRIES}) == len({registry.kind for registry in REGISTRIES}) == 10


def test_each_file_of_commands_is_a_command_under_one_of_the_doors() -> None:
    files = {path.stem for path in Path(commands.__path__[0]).glob("[a-z]*.py")}

    assert files == {name for name in COMMANDS if COMMANDS.entry(name).packages == (OURS,)}
    for name in files:
        command = make_command(name)
        assert command.rich_help_panel in DOORS[:-1], f"cli/commands/{name}.py needs a DOOR, one of {DOORS[:-1]}"
        assert command.help
        assert command.epilog.startswith("Example: sottovoce ")
