"""What a statement rests on: the files of a finished run that may be published, and the totals of its ledger."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PureWindowsPath
from typing import Any, Final

from sottovoce.core.errors import InputError, RunError
from sottovoce.deployment.server.signatures import read_signatures
from sottovoce.report.audits import read_audit
from sottovoce.runs.digests import read_digests
from sottovoce.runs.folder import read_environment
from sottovoce.statement.ledgers import LEDGER, read_ledger

LEFT_OUT: Final = "# folders of the machine were left out"
_ABSOLUTE: Final = re.compile(r'"(?:~?/|[A-Za-z]:(?:/|\\\\))(?:[^"\\\n]|\\.)*"')
_SOFTWARE: Final = ("python", "system", "machine", "packages", "trainer", "given")  # no times: they tell of cohorts
_ACCOUNT: Final = ("plan", "deployment", "limit", "charges", "charges_beside_rounds", "torn", "lines", "head")
_AUDIT: Final = ("accused", "reasons", "epsilon", "epsilon_lower", "epsilon_server", "epsilon_server_lower")
_DECIDES: Final = ("sottovoce", "numpy", "scipy", "dp-accounting")  # packages that the accountant's bits depend on


@dataclass(frozen=True)
class Evidence:
    """The parts of a run that a statement is computed from; nothing here tells the size of a cohort."""

    config: str
    summary: dict[str, Any]
    software: dict[str, Any]
    digests: dict[str, Any] | None
    ledger: dict[str, Any] | None
    audit: dict[str, Any] | None
    signatures: dict[str, Any] | None = None
    twin: dict[str, Any] | None = None  # the same run without privacy (`twin`)

    @property
    def private(self) -> bool:
        """Tell whether the run promised differential privacy."""
        return bool(self.summary.get("private"))

    @property
    def plan(self) -> dict[str, Any]:
        """Return what the summary tells of the privacy plan; empty if there is none."""
        told = self.summary.get("privacy")
        return told if isinstance(told, dict) else {}

    @property
    def same_software(self) -> bool:
        """Tell whether this machine has the versions by which the run was accounted."""
        packages = self.software.get("packages")
        return isinstance(packages, dict) and all(packages.get(name) == installed(name) for name in _DECIDES)

    def record(self) -> dict[str, Any]:
        """Return the evidence as JSON has it."""
        return asdict(self)

    @classmethod
    def read(cls, record: Any) -> Evidence:
        """Return the evidence that a statement holds; raise InputError if there is none."""
        kinds = {"config": str, "summary": dict, "software": dict}
        names = set(cls.__dataclass_fields__)
        if isinstance(record, dict) and "twin" not in record:  # of a version that knew of none
            record = record | {"twin": None}
        if not isinstance(record, dict) or set(record) != names:
            raise InputError(f"the evidence of a statement must hold {', '.join(sorted(names))}")
        for name in names:
            if not isinstance(record[name], kinds.get(name, dict | None)):
                raise InputError(f"the evidence of a statement is damaged: {name} is of another kind")
        return cls(**record)


def gather_evidence(folder: Path, *, whole: bool = False) -> Evidence:
    """Read the evidence of a finished run; unless it is `whole`, without the folders of the machine."""
    if not (folder / "config.toml").exists():
        raise InputError(f"{folder} is no run folder: it holds no config.toml")
    if not (folder / "summary.json").exists():
        raise InputError(f"{folder} holds no summary.json: the run is not finished; end it with --resume")
    try:
        config = (folder / "config.toml").read_bytes().decode()
        summary = json.loads((folder / "summary.json").read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{folder} is damaged: {error}; restore it") from None
    if not isinstance(summary, dict):
        raise RunError(f"{folder / 'summary.json'} is damaged: it holds no JSON object; restore it")
    environment, ledger = read_environment(folder), None
    if (folder / LEDGER).exists():
        told = read_ledger(folder / LEDGER).told()
        ledger = {name: told[name] for name in _ACCOUNT}
    audit = read_audit(folder)
    return Evidence(
        config=config if whole else without_folders(config),
        summary=summary,
        software={name: environment[name] for name in _SOFTWARE if name in environment},
        digests=read_digests(folder),
        ledger=ledger,
        audit=None if audit is None else {name: audit[name] for name in (*_AUDIT, "problem") if name in audit},
        signatures=read_signatures(folder),
    )


def without_folders(config: str) -> str:
    """Return a config whose absolute paths are names alone, with a first line that says so.

    >>> without_folders('[data]\\nsource = "digits"\\n')
    '[data]\\nsource = "digits"\\n'
    >>> print(without_folders('test = "/home/me/own.csv"'))
    # folders of the machine were left out
    test = "own.csv"
    """
    shared = _ABSOLUTE.sub(lambda found: json.dumps(_name(json.loads(found[0])), ensure_ascii=False), config)
    return config if shared == config else f"{LEFT_OUT}\n{shared}"


def _name(path: str) -> str:
    return PureWindowsPath(path).name or "folder"  # it knows both slashes


def installed(package: str) -> str | None:
    """Return the version of a package on this machine; None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
