"""`sottovoce agent`: be a node for years."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Log, Quiet, StatusAt
from sottovoce.cli.output import messages, note, put_json, saying
from sottovoce.core.errors import RunError

DOOR = "deploy"
_KEPT = "SOTTOVOCE_AGENT"  # in the environment: what a fresh process is to know of the one before
EXAMPLE = "Example: sottovoce agent mqtts://broker.example --keys lyon --data records.npz --policy site.toml"


def agent(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker's address.", show_default=False)],
    keys: Annotated[Path, typer.Option("--keys", metavar="FOLDER", help="The folder with this node's keys.")],
    data: Annotated[
        str,
        typer.Option("--data", metavar="MINE", help="This node's records: .npz (x, y), .csv or module:function."),
    ],
    policy: Annotated[
        Path, typer.Option("--policy", metavar="FILE", help="What this site allows (docs/policy.md); it decides.")
    ],
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="Of a table: the column with the classes.", show_default=False),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="FOLDER", help="Where the accounts of what was given are kept.", show_default="in --keys"
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            metavar="NAME",
            help="The account of these records: all that is played on them adds up there.",
            show_default="records",
        ),
    ] = None,
    keep_alive: Annotated[
        int, typer.Option("--keep-alive", metavar="SECONDS", min=5, max=65535, help="Time between two signs of life.")
    ] = 900,
    check: Annotated[bool, typer.Option("--check", help="Try keys, policy and broker, and take no part.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    log: Log = None,
    status: StatusAt = None,
) -> None:
    """Wait for runs that this site's policy allows, play them, and wait again; refusals end nothing.

    Experiments and root-signed rosters come by the broker. `sottovoce join` is for one run, by its file.
    """
    from sottovoce.deployment.knock import knock
    from sottovoce.deployment.node.agent import Agent, AgentPlace
    from sottovoce.deployment.node.join import give_back_large_pieces
    from sottovoce.deployment.status import serve_health

    say = saying(log)
    with messages(note, quiet=quiet, form=log), ExitStack() as stack:
        path = Path(data).expanduser()
        here = None if state is None else state.absolute()
        mine = str(path.absolute()) if path.exists() or path.suffix in (".npz", ".csv") else data
        place = AgentPlace(broker, keys.absolute(), mine, policy.absolute(), label, here, dataset, keep_alive)
        identity = place.check()
        if check:
            door = knock(broker, keys)
            if door.trouble is not None:
                raise RunError(f"broker {door.broker}: {door.trouble}")
            if as_json:
                put_json({"checked": True, **door._asdict()})
            else:
                note(
                    f"keys and policy can be read, and {door.broker} opens to {door.who}, whose certificate holds for "
                    f"{door.own_days} days; nothing was sent"
                )
            return
        give_back_large_pieces()
        node = Agent(place)
        if status is not None:  # a port 0 is another one after a run
            page = serve_health(status, lambda: node.status.healthy, node.status.families)
            stack.callback(page.close)
            if not quiet:
                say(f"/healthz and /metrics are at {page.address}")
        if not quiet and _KEPT not in os.environ:
            say(f"{identity.name} waits for runs that {policy} allows")
        if (kept := os.environ.pop(_KEPT, None)) is not None:
            node.recall(kept)
        if node.run():  # the same process, without what the run has loaded; its sockets are closed by this
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {_KEPT: node.kept()})
    if as_json:
        put_json({"node": identity.name, "runs": node.status.runs, "answers": node.status.answers})
    elif not quiet:
        say(f"stopped; {node.status.runs} runs were played")
