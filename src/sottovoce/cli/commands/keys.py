"""`sottovoce keys`: the keys of a federation between machines, and who is in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson
from sottovoce.cli.output import put, put_json
from sottovoce.core.errors import InputError

if TYPE_CHECKING:
    from sottovoce.deployment.request import Registration

DOOR = "deploy"
keys = typer.Typer(
    help="Make the keys of a federation, let nodes in or take them out, and sign the roster (docs/deploy.md).",
    epilog="Example: sottovoce keys init fed, sottovoce keys node fed lyon, sottovoce keys roster fed",
    no_args_is_help=True,
)

Federation = Annotated[Path, typer.Argument(metavar="FED", help="The federation's folder.", show_default=False)]


@keys.callback()
def _start(context: typer.Context, as_json: AsJson = False) -> None:
    context.obj = as_json  # `keys --json init` means the same as `keys init --json`


@keys.command("init", epilog="Example: sottovoce keys init fed --broker broker.example")
def _init(
    context: typer.Context,
    folder: Federation,
    broker: Annotated[str, typer.Option("--broker", metavar="HOST", help="The broker's name or address.")] = (
        "localhost"
    ),
    days: Annotated[int, typer.Option("--days", metavar="N", help="How long certificates hold.")] = 365,
    as_json: AsJson = False,
) -> None:
    """Make a federation's folder: authority, root key, keys of broker and training server; never overwrites."""
    as_json = as_json or context.obj
    from sottovoce.deployment.keys import init_federation
    from sottovoce.deployment.roster import fingerprint

    register = init_federation(folder, broker=broker, days=days)
    told = {
        "path": str(folder),
        "broker": register.broker,
        "days": register.days,
        "root_fingerprint": fingerprint(register.root),
        "offline": [str(folder / "root.key"), str(folder / "ca.key")],
    }
    if as_json:
        put_json(told)
        return
    put(
        f"made {folder} for a broker on {broker}\n"
        f"root fingerprint {told['root_fingerprint']}: every operator pins it\n"
        f"keep {folder} offline: whoever has root.key and ca.key decides who is in\n"
    )


@keys.command(
    "node", epilog="Example: sottovoce keys node fed lyon; on the node itself: sottovoce keys node lyon --request"
)
def _node(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(metavar="FED", help="The federation's folder; with --request, the node's.", show_default=False),
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The new nodes' names.", show_default=False)
    ] = None,
    request: Annotated[
        bool, typer.Option("--request", help="Make the node's keys here, in a folder of its name, and a request.")
    ] = False,
    accept: Annotated[
        Path | None,
        typer.Option("--accept", metavar="REQUEST", help="Let in the sender of a request.", show_default=False),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="New certificates for nodes, or for `server`, `helper` or `broker`.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let nodes in; the next `keys roster` makes it known. Never overwrites."""
    as_json = as_json or context.obj
    if request + (accept is not None) + renew > 1:
        raise InputError("--request, --accept and --renew exclude each other; give one")
    if (request or accept is not None) == bool(names):
        raise InputError(
            "--request takes the node's folder alone, --accept the federation's folder alone"
            if names
            else "give the names of the nodes after the federation's folder"
        )
    if request:
        from sottovoce.deployment.keys import request_node

        _asked(request_node(folder), folder, as_json)
    elif accept is not None:
        _accepted(folder, accept, as_json)
    elif renew:
        _renewed(folder, names or [], as_json)
    else:
        _added(folder, names or [], as_json)


@keys.command(
    "helper",
    epilog="Example: on the helper's machine: sottovoce keys helper notary --request; then keys helper fed --accept",
)
def _helper(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FED", help="The federation's folder; with --request, the helper's.", show_default=False
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Of a helper whose keys are made here.", show_default=False),
    ] = None,
    request: Annotated[
        bool, typer.Option("--request", help="Make the helper's keys here, in a folder of its name, and a request.")
    ] = False,
    accept: Annotated[
        Path | None,
        typer.Option("--accept", metavar="REQUEST", help="Let in the sender of a request.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let in the helper that counts ballots with the server (docs/ballots.md); then sign the roster."""
    as_json = as_json or context.obj
    from sottovoce.deployment.helper.keys import accept_helper, add_helper, request_helper

    if request + (accept is not None) + (name is not None) != 1:
        raise InputError("give one of --request (with the helper's folder alone), --accept REQUEST, or a name")
    if request:
        _asked(request_helper(folder), folder, as_json)
        return
    if accept is not None:
        made, asked = accept_helper(folder, accept)
        more, words = (
            {"digest": asked.digest},
            (
                f"it needs all files of {folder / 'helper'} once the roster is signed: sottovoce keys roster {folder}\n"
                f"request digest {asked.digest}: compare it with the helper's operator, and revoke it if it differs\n"
            ),
        )
    else:
        made = add_helper(folder, name or "")
        more, words = (
            {},
            (
                f"sign the roster, then move the folder to its machine: sottovoce keys roster {folder}\n"
                "warning: its keys were made here, and this folder and the server could open every ballot; let "
                "the helper make its own: sottovoce keys helper NAME --request\n"
            ),
        )
    told = {"path": str(folder / "helper"), "name": made.name, "key": made.key.hex(), "exchange": made.exchange.hex()}
    _tell(told | more, f"{made.name} is the helper: {folder / 'helper'}\n{words}", as_json)


@keys.command("roster", epilog="Example: sottovoce keys roster fed --revoke lyon")
def _roster(
    context: typer.Context,
    folder: Federation,
    revoke: Annotated[
        list[str] | None,
        typer.Option("--revoke", metavar="NAME", help="Take a node or the helper out; repeatable.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign the roster of all nodes and the helper so far, and write what the broker needs to know of them."""
    as_json = as_json or context.obj
    from sottovoce.deployment.keys import sign_roster

    signed = sign_roster(folder, revoke or ())
    roster = signed.roster
    if as_json:
        put_json(
            {
                "path": str(folder / "public" / "roster.json"),
                "revision": roster.revision,
                "root_fingerprint": roster.fingerprint,
                "digest": roster.digest.hex(),
                "nodes": [{"id": entry.id, "name": entry.name} for entry in roster.entries],
                "helper": None if roster.helper is None else roster.helper.name,
                "revoked": list(signed.revoked),
                "moved": dict(signed.moved),
            }
        )
        return
    lines = [f"signed roster {roster.revision} of {len(roster.entries)} nodes: {folder / 'public' / 'roster.json'}"]
    lines += [f"  {entry.id:>4}  {entry.name}" for entry in roster.entries]
    if roster.helper is not None:
        lines.append(f"  helper {roster.helper.name}")
    lines += [
        f"revoked {name}: the broker needs the new crl.pem and acl, all others the roster" for name in signed.revoked
    ]
    lines += [
        f"{name} is now node {id_}: send it the new cert.pem in {folder / 'nodes' / name}"
        for name, id_ in signed.moved.items()
    ]
    lines.append(f"root fingerprint {roster.fingerprint}: every operator pins it")
    put("\n".join(lines) + "\n")


def _asked(request: Registration, folder: Path, as_json: bool) -> None:
    path = folder / "request.json"
    _tell(
        {"path": str(folder), "name": request.name, "request": str(path), "digest": request.digest},
        f"made {folder}; send {path}, which holds no secret, to whoever holds the root key\n"
        f"request digest {request.digest}: read it to them\n",
        as_json,
    )


def _accepted(folder: Path, path: Path, as_json: bool) -> None:
    from sottovoce.deployment.keys import accept_node

    node, request = accept_node(folder, path)
    home = folder / "nodes" / node.name
    _tell(
        {"path": str(home), "id": node.id, "name": node.name, "digest": request.digest},
        f"{node.name} is node {node.id}; it needs all files of {home} once the roster is signed\n"
        f"request digest {request.digest}: compare it with the node's operator, and revoke the node if it differs\n",
        as_json,
    )


def _renewed(folder: Path, names: list[str], as_json: bool) -> None:
    from sottovoce.deployment.keys import renew

    ends = {name: f"{renew(folder, name):%Y-%m-%d}" for name in names}
    lines = [f"the certificate of {name} holds until {day}" for name, day in ends.items()]
    lines.append(f"sign the roster anew: sottovoce keys roster {folder}")
    _tell({"path": str(folder), "valid_until": ends}, "\n".join(lines) + "\n", as_json)


def _added(folder: Path, names: list[str], as_json: bool) -> None:
    from sottovoce.deployment.keys import add_nodes

    nodes = add_nodes(folder, names)
    homes = {node.name: str(folder / "nodes" / node.name) for node in nodes}
    lines = [f"{node.name} is node {node.id}: {homes[node.name]}" for node in nodes]
    lines.append(f"sign the roster, then move each folder to its machine: sottovoce keys roster {folder}")
    _tell(
        [{"id": node.id, "name": node.name, "path": homes[node.name]} for node in nodes],
        "\n".join(lines) + "\n",
        as_json,
    )


def _tell(document: Any, text: str, as_json: bool) -> None:
    if as_json:
        put_json(document)
    else:
        put(text)
