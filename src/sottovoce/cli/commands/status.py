"""`sottovoce status`: what goes on in a federation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Wide
from sottovoce.cli.output import note, put, put_json, put_tables
from sottovoce.core.errors import InputError, RunError

if TYPE_CHECKING:
    from rich.table import Table

DOOR = "deploy"
EXAMPLE = "Example: sottovoce status runs/first, or sottovoce status mqtts://broker.example --keys lyon"
_ROUNDS = 8  # that a terminal shows
_OLD = 60.0  # seconds after which a server that runs would have written


def status(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|BROKER", help="The run folder of a server, or a broker's address.", show_default=False
        ),
    ],
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FOLDER", help="Of a broker: with whose keys to knock.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show it anew every two seconds, until Ctrl-C.")] = False,
    as_json: AsJson = False,
    wide: Wide = False,
) -> None:
    """Show who is there, who is waited for, and what it came to; for the operator alone: it shows the cohort.

    Of a broker it shows whether the keys open its door, and nobody is pushed out: no session is begun.
    """
    del wide
    if "://" in target:
        if follow:
            raise InputError("--follow is for a run folder")
        _broker(target, keys, as_json=as_json)
        return
    if keys is not None:
        raise InputError(f"--keys is for a broker's address, such as mqtts://broker.example, got {target}")
    if follow and as_json:
        raise InputError("--follow and --json do not go together; call it again instead")
    try:
        while True:
            _run(Path(target), as_json=as_json)
            if not follow:
                return
            time.sleep(2.0)
            put("\n")
    except KeyboardInterrupt:
        note("no longer followed")


def _run(folder: Path, *, as_json: bool) -> None:
    from sottovoce.deployment.status import read_status

    if not folder.is_dir():
        raise InputError(f"there is no run folder {folder}; give the folder that serve writes, or a broker's address")
    document = read_status(folder)
    age = time.time() - float(document["time"])
    document["age"] = round(age, 1)
    if as_json:
        put_json(document)
        return
    put("\n".join(summary_lines(document)) + "\n")
    put_tables(nodes_table(document), *([rounds_table(document)] if document["per_round"] else []))
    if not document["ended"] and age > _OLD:
        note(f"warning: the server has written nothing for {age:.0f} s: it was killed, or this folder is a copy")


def summary_lines(document: dict[str, Any]) -> list[str]:
    """Return what goes on, in a few lines."""
    from sottovoce.report.units import decimal, epsilon, human_bytes

    waiting = document["waiting_for"]
    phase = f", {document['phase']} for {document['phase_seconds']:.0f} s" if document["phase"] else ""
    lines = [
        f"{document['run']}: {document['state']}; round {document['round']} of {document['rounds']}{phase}; "
        f"{document['there']} of {len(document['nodes'])} nodes are there",
        f"accuracy {decimal(document['accuracy'])}; {human_bytes(document['bytes_up'])} up, "
        f"{human_bytes(document['bytes_down'])} down; on the wire {human_bytes(document['wire_up'])} up, "
        f"{human_bytes(document['wire_down'])} down; rounds without quorum: {document['without_quorum']}",
    ]
    if waiting:
        lines.insert(1, f"waits for {', '.join(waiting[:8])}{f' and {len(waiting) - 8} more' * (len(waiting) > 8)}")
    if document["private"]:
        spent, left = epsilon(document["epsilon_spent"]), epsilon(document["epsilon_left"])
        lines.append(f"epsilon: {spent} spent, {left} left of {epsilon(document['epsilon'])}")
    if (days := document["certificate_days"]) is not None:
        lines.append(f"the server's certificate expires in {days} days")
    return lines


def nodes_table(document: dict[str, Any]) -> Table:
    """Return who is there, those that need a look first."""
    from rich.table import Table

    from sottovoce.report.units import ABSENT, human_seconds

    table = Table("node", "now", "last heard", "certificate", "remark", box=None, pad_edge=False)
    for node in sorted(document["nodes"], key=lambda each: (each["there"], not each["waited_for"])):
        now = "waited for" if node["waited_for"] else "there" if node["there"] else "not there"
        seen = "never" if node["seen"] is None else f"{human_seconds(max(0.0, document['time'] - node['seen']))} ago"
        days = ABSENT if node["certificate_days"] is None else f"{node['certificate_days']} days"
        remark = "; ".join(filter(None, ["two processes use its key" * node["cloned"], node["refused"]]))
        table.add_row(node["name"], now, seen, days, remark)
    return table


def rounds_table(document: dict[str, Any]) -> Table:
    """Return the newest rounds."""
    from rich.table import Table

    from sottovoce.report.units import ABSENT, decimal, human_seconds

    table = Table("round", "quorum", "summed of asked", "time", "accuracy", "remark", box=None, pad_edge=False)
    for each in document["per_round"][-_ROUNDS:]:
        quorum = "void" if each["quorum"] is None else "yes" if each["quorum"] else "no"
        summed = ABSENT if each["senders"] is None else f"{each['senders']} of {each['cohort']}"
        seconds = ABSENT if each["seconds"] is None else human_seconds(each["seconds"])
        table.add_row(str(each["round"]), quorum, summed, seconds, decimal(each["accuracy"]), each["reason"] or "")
    return table


def _broker(target: str, keys: Path | None, *, as_json: bool) -> None:
    from sottovoce.deployment.knock import knock

    if keys is None:
        raise InputError("a broker is asked with a machine's keys: give --keys FOLDER")
    found = knock(target, keys)
    if as_json:
        put_json(found._asdict())
    elif found.trouble is None:
        put(
            f"{target} opens to {found.who}; its certificate holds for {found.broker_days} days, "
            f"{found.who}'s for {found.own_days}\n"
        )
    if found.trouble is not None:
        raise RunError(f"broker {target}: {found.trouble}")
