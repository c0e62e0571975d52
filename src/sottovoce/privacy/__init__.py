"""Keep client-level differential privacy: plan, accountant, noise, ledger. `docs/privacy.md` says what is promised."""

from sottovoce.privacy.accounting.calculator import calculate, curve
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.noise.clipping import public_clip_norm
from sottovoce.privacy.noise.randomness import Randomness
from sottovoce.privacy.plan.calculator import calculate_units
from sottovoce.privacy.plan.plan import PrivacyPlan, Release

__all__ = [
    "Ledger",
    "PrivacyPlan",
    "Randomness",
    "Release",
    "calculate",
    "calculate_units",
    "curve",
    "public_clip_norm",
]
