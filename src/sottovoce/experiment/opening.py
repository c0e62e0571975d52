"""The message before round 1, if there is one: the clients' vote for the coordinates, or the warm start.

Both are round 0, with a scheme and a plan of their own. Server and nodes make them from the file by the same steps.
A simulation that is resumed repeats round 0 bit for bit. Between machines it cannot: clients answer it once. So what it
found is in `checkpoint/opening.npz` before anybody trains.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from sottovoce.core.errors import RunError
from sottovoce.core.files import replacing, sync_folder
from sottovoce.core.vectors import Vector
from sottovoce.experiment.opened import read_opened
from sottovoce.experiment.protection import Protection, everyone
from sottovoce.federation.aggregate import Total
from sottovoce.federation.vote import VOTE, Vote
from sottovoce.privacy import PrivacyPlan
from sottovoce.schemes import Scheme
from sottovoce.secagg import Policy

__all__ = ["Opening", "found_before", "keep_found", "opening_of", "vote_of", "warm_of"]

_FILE: Final = "opening.npz"
_ANEW: Final = "clients send it once, so play the experiment anew, with another seed and another --out"


@dataclass(frozen=True)
class Opening:
    """Round 0 of an experiment: its scheme, not bound, and what protects it."""

    scheme: Scheme
    protection: Protection

    @property
    def plan(self) -> PrivacyPlan | None:
        """Return the plan that it is charged for."""
        return self.protection.plan

    def policy(self, bound: Scheme) -> Policy | None:
        """Return what its clients insist on: it is one round, and comes before the first."""
        policy = self.protection.policy(bound, self.plan)
        return None if policy is None else replace(policy, key_life="round", last_round=VOTE)


def opening_of(protection: Protection) -> Opening | None:
    """Return round 0; None if a run begins with round 1."""
    if protection.vote_plan is not None:
        return vote_of(protection, protection.vote_plan)
    return warm_of(protection)


def vote_of(protection: Protection, plan: PrivacyPlan) -> Opening:
    """Return the vote for the coordinates, charged for `plan`."""
    parts = protection.parts
    training = replace(parts.training(), local_steps=parts.experiment.scheme.public_steps)
    vote = Vote(kept=parts.scheme.bind(parts.network.dim).length, training=training)
    return Opening(vote, replace(protection, plan=plan))


def warm_of(protection: Protection) -> Opening | None:
    """Return the warm start, with every client; None if training begins at w_0."""
    parts = everyone(protection.parts)
    if parts.warm is None:
        return None
    return Opening(parts.warm, replace(protection, parts=parts, plan=protection.warm_plan))


def found_before(path: Path) -> Vector | None:
    """Return what round 0 of a run between machines found; None if nobody was asked yet."""
    file = path / "checkpoint" / _FILE
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays["found"], np.float32)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RunError(f"{file} is damaged ({error}); restore it: clients answer round 0 once") from None
    if read_opened(path) is not None:
        raise RunError(f"the server stopped while the message before round 1 was open; {_ANEW}")
    return None


def keep_found(path: Path, found: Vector, total: Total) -> None:
    """Keep what round 0 found; on return it is on disk. Raise if too few answered: what was decoded is noise.

    Guarantee: nothing of a round 0 that failed is released; clients and server have paid for it all the same.
    """
    if total.reason is not None:
        raise RunError(f"the message before round 1 failed: {total.reason}; {_ANEW}")
    folder = path / "checkpoint"
    folder.mkdir(exist_ok=True)
    try:
        with replacing(folder / _FILE) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, found=found)
        sync_folder(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}; {_ANEW}") from None
