"""Mutants of statement and verify: a lie would be called true, and nothing would show it."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

VERIFY = "tests/statement/test_verify.py"
ODDS = "tests/statement/test_odds.py"
SIGNED = "tests/statement/test_countersigned.py"
NODE = "tests/deployment/test_countersigning.py"
POLICY = "tests/deployment/test_policy.py"
ACCOUNT = "tests/deployment/test_account.py"
DECISION = "tests/report/test_decision.py"

MUTANTS = (
    of(
        "statement-believed-without-being-written-again",
        "a statement says another epsilon than its evidence, and is called true",
        ("statement/verify.py", "wrong = [] if statement == again else", "wrong = [] if True else"),
        tests=VERIFY,
    ),
    of(
        "trial-called-a-deployment",
        "a run on one machine is published as if its sites were protected from whoever ran it",
        ("runs/exposure.py", '"trial": not lasting', '"trial": False'),
        tests=SIGNED,
    ),
    of(
        "twin-of-records-that-are-not-public",
        "the numbers of a run without privacy are published of somebody's records",
        ("statement/twin.py", "if public is None and (", "if False and ("),
        tests=VERIFY,
    ),
    of(
        "twin-believed",
        "a statement claims another price of privacy than its twin's files have",
        ("statement/verify.py", "    _check_twin(evidence, findings)\n", ""),
        tests=VERIFY,
    ),
    of(
        "released-round-need-not-be-charged",
        "a round that nobody paid for is not found",
        ("statement/verify.py", "free, later = released - set(ledger.charged),", "free, later = set(),"),
        tests=VERIFY,
    ),
    of(
        "odds-without-delta",
        "attacks succeed more often than the statement says",
        ("statement/odds.py", "* false_positives + delta", "* false_positives"),
        tests=ODDS,
    ),
    of(
        "signature-taken-for-any-claim",
        "nodes signed other numbers than those that are published, and nobody notices",
        ("statement/signatures.py", "if key is None or not each.holds(signed.claim, key):", "if key is None:"),
        tests=SIGNED,
    ),
    of(
        "published-numbers-not-compared-with-signed-ones",
        "a server tells nodes one epsilon and the public another",
        ("statement/signatures.py", "        if getattr(claim, name) != value\n", "        if False\n"),
        tests=SIGNED,
    ),
    of(
        "disagreement-is-no-lie",
        "a site signs that its account differs, and the statement is called true",
        (
            "statement/signatures.py",
            "signed.signatures if not each.agrees]:",
            "() if not each.agrees]:",
        ),
        tests=SIGNED,
    ),
    of(
        "node-signs-every-claim",
        "a node agrees to a claim that its account contradicts",
        ("deployment/countersign.py", "if max(begun, spent) > self.rounds:", "if False:"),
        tests=NODE,
    ),
    of(
        "node-signs-twice",
        "a server gets a node's signature for two different claims about one run",
        ("deployment/node/state.py", "if known is not None and known[:2] != (claim, agrees):", "if False:"),
        tests=NODE,
    ),
    of(
        "commitment-without-salt",
        "anybody tries out in which rounds a site took part",
        (
            "deployment/countersign.py",
            "os.urandom(_SALT).hex()",
            '""',
        ),
        tests=NODE,
    ),
    of(
        "policy-read-and-not-enforced",
        "a site's rules are never looked at",
        (
            "deployment/node/permit.py",
            "        self.policy.check(experiment, self.digest, signatures=read_vouchers(file))\n",
            "",
        ),
        tests=POLICY,
    ),
    of(
        "records-read-before-the-policy-is-asked",
        "records of a site are read for an experiment that has no budget left",
        ("deployment/node/build.py", "    allow(protection.plan)\n", ""),
        tests=POLICY,
    ),
    of(
        "policy-told-in-words",
        "the server learns how much of a site's budget is left",
        (
            "deployment/node/node.py",
            "        if isinstance(error, PolicyError):\n            return POLICY.decode()\n",
            "",
        ),
        tests=POLICY,
    ),
    of(
        "hours-not-looked-at-while-playing",
        "a node that was started in time answers all night",
        ("deployment/node/node.py", "                guard.check()\n", "                pass\n"),
        tests=POLICY,
    ),
    of(
        "account-charged-by-nobody",
        "experiments on the same records do not add up",
        ("deployment/node/state.py", "                self._reserve()\n", "                pass\n"),
        tests=ACCOUNT,
    ),
    of(
        "account-forgets-other-experiments",
        "each experiment has the whole budget of the data set",
        (
            "deployment/node/account.py",
            'self._within("in all", self.rule.limit(year=False), all_)',
            'self._within("in all", self.rule.limit(year=False), all_[-1:])',
        ),
        tests=ACCOUNT,
    ),
    of(
        "account-may-be-deleted",
        "a site that deletes its account begins anew",
        (
            "deployment/node/account.py",
            "        if not path.exists() or binding[1] not in",
            "        if path.exists() and binding[1] not in",
        ),
        tests=ACCOUNT,
    ),
    of(
        "accused-run-recommended",
        "the report tells readers to take a run whose audit contradicts its epsilon",
        ("report/decision.py", " and not accusations(record)]", "]"),
        tests=DECISION,
    ),
    of(
        "simulation-recommended-as-protection",
        "a guarantee on paper reads as if somebody were protected",
        ("report/decision.py", 'if record.get("private") and not record.get("deployed"):', "if False:"),
        tests=DECISION,
    ),
)
