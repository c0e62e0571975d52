"""Keep client-level differential privacy: plan, accountant, noise, ledger. `docs/privacy.md` says what is promised."""

from sottovoce.privacy.calculator import calculate, curve
from sottovoce.privacy.clipping import public_clip_norm
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.plan import PrivacyPlan, Release
from sottovoce.privacy.randomness import Randomness

__all__ = ["Ledger", "PrivacyPlan", "Randomness", "Release", "calculate", "curve", "public_clip_norm"]
