"""`sottovoce join`: be a node of a federation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.options import AsJson, Changes, Log, Quiet
from sottovoce.cli.output import messages, note, put_json, saying, waiting
from sottovoce.core.errors import InputError, RunError

DOOR = "deploy"
EXAMPLE = "Example: sottovoce join mqtts://broker.example --run experiment.toml --keys lyon --data records.npz"


def join(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker's address.", show_default=False)],
    file: Annotated[
        Path, typer.Option("--run", metavar="FILE", help="The experiment, as its operator gave it to you.")
    ],
    keys: Annotated[Path, typer.Option("--keys", metavar="FOLDER", help="The folder with this node's keys.")],
    data: Annotated[
        str,
        typer.Option("--data", metavar="MINE", help="This node's records: .npz (x, y), .csv or module:function."),
    ],
    changes: Changes = None,
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="Of a table: the column with the classes.", show_default=False),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="FOLDER", help="Where the account of what was given is kept.", show_default="in --keys"
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="FILE", help="What this site allows (docs/policy.md).", show_default=False),
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
    ] = 220,
    check: Annotated[
        bool, typer.Option("--check", help="Try keys, broker, schema, records and policy, and take no part.")
    ] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="When the server refuses this node, say so once and wait for another file.")
    ] = False,
    quiet: Quiet = False,
    simulate: Annotated[
        bool, typer.Option("--simulate-randomness", help="Take all secrets from the seed: for tests on one machine.")
    ] = False,
    as_json: AsJson = False,
    log: Log = None,
) -> None:
    """Take part in a federation with records that never leave this machine."""
    from sottovoce.config.experiment import load
    from sottovoce.deployment.node.join import give_back_large_pieces, prepare
    from sottovoce.deployment.node.join import join as take_part
    from sottovoce.deployment.policy import SitePolicy
    from sottovoce.privacy.plan.process import solving_apart
    from sottovoce.report.units import human_bytes

    with messages(note, quiet=quiet, form=log):
        allowed = None if policy is None else SitePolicy.read(policy)
        experiment = load(file, [*(changes or ()), "engine.name=mqtt"])
        give_back_large_pieces()
        with waiting("solving the plan"), solving_apart():
            ready = prepare(
                experiment,
                broker,
                keys,
                data,
                label=label,
                state=state,
                simulated=simulate,
                policy=allowed,
                dataset=dataset,
                file=file,
            )
        if check:
            _tell_checked(broker, keys, as_json=as_json)
            return
        ended = take_part(ready, keep_alive=keep_alive, stays=stay)
    over, counts = ended.over, ended.counts
    if over.code:
        raise InputError(over.words) if over.code == InputError.exit_code else RunError(over.words)
    if as_json:
        numbers = {"answers": ended.answers, "participations": ended.participations, "reason": over.words}
        put_json({"node": ended.node, **numbers, **asdict(counts)})
    elif not quiet:
        sent = f"{human_bytes(counts.payload_up)} up, {human_bytes(counts.payload_down)} down"
        if counts.wire_up is not None and counts.wire_down is not None:
            carried = f"{human_bytes(counts.wire_up)} up, {human_bytes(counts.wire_down)} down"
            sent = f"{sent}; its link carried {carried}"
        saying(log)(f"{over.words}: node {ended.node} gave {ended.answers} answers, {sent}")


def _tell_checked(broker: str, keys: Path, *, as_json: bool) -> None:
    """Knock at the broker, which is all that is left to try, and say that nothing is in the way."""
    from sottovoce.deployment.knock import knock

    door = knock(broker, keys)
    if door.trouble is not None:
        raise RunError(f"broker {door.broker}: {door.trouble}")
    if as_json:
        put_json({"checked": True, **door._asdict()})
    else:
        note(
            f"keys, roster, experiment, records and policy fit, and {door.broker} opens to {door.who}, whose "
            f"certificate holds for {door.own_days} days; nothing was sent and nothing is charged"
        )
