"""Sum vectors of integers so that the server learns the sum and nothing else; see docs/secure-aggregation.md."""

from sottovoce.secagg.client import RoundClient
from sottovoce.secagg.mark import RoundMark
from sottovoce.secagg.messages import PHASES
from sottovoce.secagg.policy import Policy
from sottovoce.secagg.primitives import Entropy, KeyedEntropy, verifying_key
from sottovoce.secagg.server import RoundServer
from sottovoce.secagg.session import Session, check_modulus, check_threshold, default_threshold, run_digest
from sottovoce.secagg.standing import StandingClient
from sottovoce.secagg.standing_server import Registrar, StandingServer

__all__ = [
    "PHASES",
    "Entropy",
    "KeyedEntropy",
    "Policy",
    "Registrar",
    "RoundClient",
    "RoundMark",
    "RoundServer",
    "Session",
    "StandingClient",
    "StandingServer",
    "check_modulus",
    "check_threshold",
    "default_threshold",
    "run_digest",
    "verifying_key",
]
