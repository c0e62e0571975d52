"""Let a helper into a federation: it counts ballots with the training server, and has keys of its own.

Secrecy of ballots rests on a helper that does not collude with the server. So its keys are made on its own machine
(`request_helper`), and whoever holds the root key sees the public halves alone (`accept_helper`). Keys that are made in
the federation's folder (`add_helper`) are for trials: whoever held that folder could open ballots with the server.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from sottovoce.core.errors import InputError
from sottovoce.core.files import PRIVATE, new_folder, write_new
from sottovoce.deployment.certificates import key_pem, new_key
from sottovoce.deployment.keys import check_new, ends_in, publish, read_authority
from sottovoce.deployment.request import Registration
from sottovoce.deployment.roster import Roster, check_name
from sottovoce.deployment.roster_ledger import HelperKeys, Register, locked, write_register
from sottovoce.secagg.primitives import KEY, exchange_key, verifying_key


def request_helper(folder: Path) -> Registration:
    """Make a helper's keys on its own machine, in a folder of its name, with a request to be let in."""
    name = check_name(folder.resolve().name)
    check_new(folder)
    tls, signing, exchange = new_key(), os.urandom(KEY), os.urandom(KEY)
    request, raw = Registration.make(name, signing, tls, exchange_key(exchange))
    with new_folder(folder) as fresh:
        _write_secrets(fresh, tls, signing, exchange)
        write_new(fresh / "request.json", raw)
    return request


def accept_helper(folder: Path, path: Path) -> tuple[HelperKeys, Registration]:
    """Let in a helper that made its keys itself; `helper` gets what it must be sent, and no secret."""
    request = Registration.read(path, helper=True)
    if request.exchange is None:
        raise InputError(f"{path}: a helper's request has an exchange key")
    with locked(folder) as register:
        _check_free(folder, register, request.name)
        made = _entered(folder, register, request.name, request.tls_key, (request.key, request.exchange))
        return made, request


def add_helper(folder: Path, name: str) -> HelperKeys:
    """Let a helper in whose keys are made here, for a trial; `helper` is then its operator's to take away.

    Killed before the register names it, a folder `helper` may be left, whose keys nobody knows: it is put away.
    """
    with locked(folder) as register:
        _check_free(folder, register, name)
        tls, signing, exchange = new_key(), os.urandom(KEY), os.urandom(KEY)
        with new_folder(folder / "helper") as fresh:
            _write_secrets(fresh, tls, signing, exchange)
        return _entered(folder, register, name, tls.public_key(), (verifying_key(signing), exchange_key(exchange)))


def _check_free(folder: Path, register: Register, name: str) -> None:
    check_name(name)
    if register.helper is not None:
        known = register.helper.name
        raise InputError(
            f"{folder} has a helper already, {known}, and a count has two aggregators; take it out first: sottovoce "
            f"keys roster {folder} --revoke {known}"
        )
    if register.has(name):
        raise InputError(f"{folder} has a node {name}; the helper is somebody else, give another name")


def _entered(
    folder: Path, register: Register, name: str, tls_key: EllipticCurvePublicKey, keys: tuple[bytes, bytes]
) -> HelperKeys:
    """Write a helper down who is nobody else of the federation; the next roster names it."""
    authority = read_authority(folder)
    made = HelperKeys(name, *keys, authority.helper(name, tls_key, ends_in(register.days)))
    entries = tuple(node.entry for node in register.nodes)
    Roster(entries, register.server, register.root, helper=made.entry(register.server_certificate))
    register = replace(register, helper=made)
    write_register(folder, register)  # from here on it is in
    publish(folder, register, authority)
    return made


def _write_secrets(fresh: Path, tls: EllipticCurvePrivateKey, signing: bytes, exchange: bytes) -> None:
    write_new(fresh / "key.pem", key_pem(tls), PRIVATE)
    write_new(fresh / "signing.key", signing.hex().encode() + b"\n", PRIVATE)
    write_new(fresh / "exchange.key", exchange.hex().encode() + b"\n", PRIVATE)
