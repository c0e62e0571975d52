"""Mutants of what binds a secure sum to its run: every honest sum comes out as before."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

RUNS = "tests/attacks/test_b1_sessions_bound_to_runs.py"

MUTANTS = (
    of(
        "context-without-the-run",
        "a server replays in one run what was signed in another, and opens the sum of five for nine",
        ("secagg/session.py", "digest.update(self.run)", "digest.update(b'')"),
        tests=RUNS,
    ),
    of(
        "run-without-its-federation",
        "a run of another federation with the same keys is the same run",
        ("secagg/session.py", "hashlib.sha256(federation).digest() + run", "run"),
        tests=RUNS,
    ),
    of(
        "federation-without-its-run",
        "all runs of a federation are one",
        ("secagg/session.py", "hashlib.sha256(federation).digest() + run", "hashlib.sha256(federation).digest()"),
        tests=RUNS,
    ),
    of(
        "nodes-and-server-bound-to-no-run",
        "the protocol knows runs, and those who play it do not say which",
        ("deployment/node/node.py", "bytes.fromhex(self.member.facts.roster), run)", "b'', b'')"),
        (
            "assembly/parties.py",
            "run=run_digest(self.federation, run)",
            "run=run_digest(b'', b'')",
        ),
        tests=RUNS,
    ),
    of(
        "marks-of-the-last-run-only",
        "a run id that is minted twice lets a node mask a round twice",
        (
            "deployment/node/state.py",
            "self._marks.setdefault(run, (RoundMark(), RoundMark()))",
            "RoundMark(), RoundMark()",
        ),
        tests=RUNS,
    ),
    of(
        "marks-without-their-run",
        "the second run of a node begins after the last round of the first, or is masked twice",
        ("deployment/node/state.py", 'name = f"mark-{run.hex()}"', 'name = f"mark-{id(run)}"'),
        tests=RUNS,
    ),
)
