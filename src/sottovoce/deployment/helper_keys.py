"""Let a helper into a federation: it counts ballots with the training server, and has keys of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from sottovoce.core.errors import InputError
from sottovoce.deployment.certificates import key_pem, new_key
from sottovoce.deployment.durable import PRIVATE, new_folder, write_new
from sottovoce.deployment.keys import ends_in, publish, read_authority
from sottovoce.deployment.register import HelperKeys, locked, write_register
from sottovoce.deployment.roster import check_name
from sottovoce.secagg.primitives import KEY, exchange_key, verifying_key

__all__ = ["add_helper"]


def add_helper(folder: Path, name: str) -> HelperKeys:
    """Let a helper in whose keys are made here; `helper` is then its operator's to take away.

    Killed before the register names it, a folder `helper` may be left, whose keys nobody knows: it is made anew.
    """
    with locked(folder) as register:
        check_name(name)
        if register.helper is not None:
            raise InputError(f"{folder} has a helper already, {register.helper.name}; a count has two aggregators")
        if register.has(name):
            raise InputError(f"{folder} has a node {name}; the helper is somebody else, give another name")
        home = folder / "helper"
        if home.exists():
            home.rename(folder / "revoked" / f"{len(list((folder / 'revoked').iterdir()))}-helper")
        authority, tls, signing, exchange = read_authority(folder), new_key(), os.urandom(KEY), os.urandom(KEY)
        certificate = authority.helper(name, tls.public_key(), ends_in(register.days))
        made = HelperKeys(name, verifying_key(signing), exchange_key(exchange), certificate)
        with new_folder(home) as fresh:
            write_new(fresh / "key.pem", key_pem(tls), PRIVATE)
            write_new(fresh / "signing.key", signing.hex().encode() + b"\n", PRIVATE)
            write_new(fresh / "exchange.key", exchange.hex().encode() + b"\n", PRIVATE)
        register = replace(register, helper=made)
        write_register(folder, register)  # from here on it is in
        publish(folder, register, authority)
        return made
