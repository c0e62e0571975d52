"""The mutants by name: each would void the guarantee, and every sum, model and epsilon would look as before.

Texts are short, so that an edit nearby does not spoil them. One that no longer occurs exactly once is an error: the
mutant must follow the code.
"""

from __future__ import annotations

from tests.mutants import (
    attacked,
    audit,
    ballot_audit,
    ballots,
    count,
    defences,
    deployed,
    devices,
    divided,
    engines,
    federation,
    fleet,
    fronts,
    helper,
    identities,
    inference,
    lean,
    lying_server,
    mechanisms,
    opening,
    page,
    planning,
    privacy,
    published,
    report,
    secagg,
    threats,
    tuning,
    ways,
    wire,
)

__all__ = ["MUTANTS"]

MUTANTS = (
    *attacked.MUTANTS,
    *audit.MUTANTS,
    *ballot_audit.MUTANTS,
    *ballots.MUTANTS,
    *count.MUTANTS,
    *defences.MUTANTS,
    *deployed.MUTANTS,
    *devices.MUTANTS,
    *divided.MUTANTS,
    *engines.MUTANTS,
    *federation.MUTANTS,
    *fleet.MUTANTS,
    *fronts.MUTANTS,
    *helper.MUTANTS,
    *identities.MUTANTS,
    *inference.MUTANTS,
    *lean.MUTANTS,
    *lying_server.MUTANTS,
    *mechanisms.MUTANTS,
    *opening.MUTANTS,
    *planning.MUTANTS,
    *page.MUTANTS,
    *privacy.MUTANTS,
    *published.MUTANTS,
    *report.MUTANTS,
    *secagg.MUTANTS,
    *threats.MUTANTS,
    *tuning.MUTANTS,
    *ways.MUTANTS,
    *wire.MUTANTS,
)
