"""`sottovoce policy`: say beforehand whether a site's policy allows an experiment, and sign one for those who ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli.options import AsJson, Changes
from sottovoce.cli.output import note, put_json, put_tables, waiting

DOOR = "deploy"
policy = typer.Typer(
    help="What a site's operator allows others to do with its records (docs/policy.md).",
    epilog="Example: sottovoce policy check experiment.toml --policy site.toml",
    no_args_is_help=True,
)

ExperimentPath = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, a TOML file.")]


@policy.callback()
def _start(context: typer.Context, as_json: AsJson = False) -> None:
    context.obj = as_json


@policy.command("check", epilog="Example: sottovoce policy check experiment.toml --policy site.toml --keys lyon")
def _check(
    context: typer.Context,
    file: ExperimentPath,
    path: Annotated[Path, typer.Option("--policy", metavar="FILE", help="The site's policy.")],
    changes: Changes = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", metavar="FOLDER", help="The node's keys: checks servers and account too.", show_default=False
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="Which data set it is.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a node with this policy would play an experiment; exit 3 and one sentence if not.

    No records are read and nothing is sent. The hours of the day are not checked: they change.
    """
    from sottovoce.config.experiment import load
    from sottovoce.deployment.policy import SitePolicy
    from sottovoce.report.tables import grouped

    allowed = SitePolicy.read(path)
    experiment = load(file, [*(changes or ()), "engine.name=mqtt"])
    with waiting("solving the plan"):
        told = _told(experiment, allowed, file, keys, dataset)
    if as_json or context.obj:
        put_json(told)
        return
    put_tables(grouped(told))
    note("the policy allows this experiment")


def _told(experiment: Any, allowed: Any, file: Path, keys: Path | None, dataset: str | None) -> dict[str, Any]:
    """Check everything that can be checked here, and return what there is to say."""
    import math

    from sottovoce.assembly.elsewhere import gather_without_records
    from sottovoce.assembly.parties import Parties
    from sottovoce.assembly.protection import protect
    from sottovoce.core.streams import Secrets
    from sottovoce.deployment.node.build import state_folder
    from sottovoce.deployment.node.permit import Permit
    from sottovoce.deployment.party import Identity

    identity = None if keys is None else Identity.read(keys)
    roster = None if identity is None else identity.read_roster()
    permit = Permit.make(experiment, allowed, dataset, None if keys is None else state_folder(keys, experiment))
    permit.check(experiment, roster, file, now=False)
    parties = Parties.of_machines(
        Secrets(experiment.experiment.seed), dict.fromkeys(range(experiment.data.clients), bytes(32))
    )
    plan = protect(gather_without_records(experiment, parties)).plan
    if keys is None and plan is not None:
        permit.rule_alone(plan)
    permit.allow(plan)
    numbers = {} if plan is None else {"epsilon": plan.epsilon, "epsilon_server": plan.epsilon_server}
    return {
        "allowed": True,
        "experiment": permit.digest,
        "data_set": permit.name,
        "unit": permit.unit,
        **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
        "delta": None if plan is None else plan.request.delta,
        "not_checked": [
            "hours",
            *(["servers, helpers and what was charged before: give --keys"] if keys is None else []),
        ],
    }


@policy.command("sign", epilog="Example: sottovoce policy sign experiment.toml --key board/signing.key")
def _sign(
    context: typer.Context,
    file: ExperimentPath,
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The signer's key, 64 hex digits.")],
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Vouch for an experiment: sites whose policy names the signer's key under `signers` then allow it.

    The signature lies beside the file, in FILE.signed, and goes with it to the sites.
    """
    from sottovoce.config.experiment import load
    from sottovoce.core.files import replace_file
    from sottovoce.deployment.node.build import config_digest
    from sottovoce.deployment.party import read_signing_key
    from sottovoce.deployment.policy import read_vouchers, signed_path, vouch

    digest = config_digest(load(file, [*(changes or ()), "engine.name=mqtt"]))
    made = vouch(digest, read_signing_key(key))
    replace_file(signed_path(file), json.dumps(read_vouchers(file) | made, indent=2) + "\n")
    if as_json or context.obj:
        put_json({"experiment": digest, "signer": next(iter(made)), "file": str(signed_path(file))})
        return
    note(f"signed experiment {digest} as {next(iter(made))}, in {signed_path(file)}")
