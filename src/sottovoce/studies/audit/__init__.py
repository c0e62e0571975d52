"""`sottovoce audit`: empirical lower bounds beside the proven epsilons. `docs/audit.md` says what is played."""

from sottovoce.studies.audit.audit import CONFIDENCE, Options, audit, audit_run
from sottovoce.studies.audit.verdict import FALSE_ALARM, Audit

__all__ = ["CONFIDENCE", "FALSE_ALARM", "Audit", "Options", "audit", "audit_run"]
