"""Play rounds: cohorts, exact sums, the server's and the clients' side, and engines that carry bytes between them."""

from sottovoce.federation.cohort import Cohort
from sottovoce.federation.engine import Engine, Reply, Request, drive
from sottovoce.federation.engines.local import LocalEngine
from sottovoce.federation.round import RoundResult, Server, server_round

__all__ = ["Cohort", "Engine", "LocalEngine", "Reply", "Request", "RoundResult", "Server", "drive", "server_round"]
