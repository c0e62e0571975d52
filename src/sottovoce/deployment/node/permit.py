"""Whether a node may play an experiment with a data set: the site's policy and account together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sottovoce.config.experiment import Experiment
from sottovoce.deployment.node.account import ACCOUNTS, DataAccount, bind, check_accounts
from sottovoce.deployment.node.build import config_digest
from sottovoce.deployment.policy import DATA, Guard, SitePolicy, check_data_name, read_vouchers
from sottovoce.deployment.roster import Roster
from sottovoce.privacy import PrivacyPlan


@dataclass(frozen=True)
class Permit:
    """What a site allows an experiment: by its policy, if it has one, and by the account of its data set."""

    digest: str  # of the experiment
    unit: str
    name: str  # of the data set
    policy: SitePolicy | None
    state: Path | None  # None: nothing is kept, as in a test with simulated secrets
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    @classmethod
    def make(cls, experiment: Experiment, policy: SitePolicy | None, dataset: str | None, state: Path | None) -> Permit:
        """Return the permit of an experiment; nothing is checked yet but the name of the data set."""
        name = check_data_name(dataset or DATA) if policy is None else policy.data_name(dataset)
        unit = "client" if experiment.privacy is None else experiment.privacy.unit
        return cls(config_digest(experiment), unit, name, policy, state)

    @property
    def guard(self) -> Guard | None:
        """Return what of the policy is enforced while the node plays; None without a policy."""
        if self.policy is None:
            return None
        return Guard(self.policy, None if self.state is None else self.state.parent / "traffic.json", self.now)

    @property
    def account(self) -> DataAccount | None:
        """Return the account of the data set; None where nothing is kept."""
        if self.state is None:
            return None
        rule = None if self.policy is None else self.policy.data.get(self.name)
        return DataAccount(self.state.parent / ACCOUNTS, self.name, rule, self.now)

    def check(self, experiment: Experiment, roster: Roster | None, file: Path | None, *, now: bool) -> None:
        """Raise if the policy does not allow the experiment or its aggregators, with `now` at this time of day."""
        if self.policy is None:
            return
        self.policy.check(experiment, self.digest, signatures=read_vouchers(file))
        if roster is not None:
            self.policy.check_roster(roster)
        if experiment.privacy is not None:
            self.policy.check_unit(self.name, self.unit)
        if now:
            self.policy.check_hours(self.now())

    def allow(self, plan: PrivacyPlan | None) -> None:
        """Raise if the data set has no budget left for a plan; nothing is charged."""
        account = self.account
        if plan is None or account is None or self.state is None:
            return
        check_accounts(self.state, limited=account.limited)
        account.check(self.digest, plan, self.unit)

    def rule_alone(self, plan: PrivacyPlan) -> None:
        """Raise if a plan alone exceeds the data set's limits, whatever was charged before."""
        rule = None if self.policy is None else self.policy.data.get(self.name)
        DataAccount(Path("nowhere"), self.name, rule, self.now).check(self.digest, plan, self.unit)

    def charge(self, name: str, plan: PrivacyPlan) -> None:
        """Charge the account of the data set for a plan, once; on return that is on disk."""
        account = self.account
        if account is None or self.state is None:
            return
        account.charge(self.digest, name, plan, self.unit)
        bind(self.state, self.name, self.digest)
