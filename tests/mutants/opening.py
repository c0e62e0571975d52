"""Mutants of fronts and of round 0 between machines: a node would believe the server, or give more than it charges."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

NODE = "tests/deployment/test_opening.py"
RUNS = "tests/assembly/test_opening.py"
FRONTS = "tests/assembly/test_deployed_fronts.py"

MUTANTS = (
    of(
        "update-at-the-price-of-a-vote",
        "a server asks for an update in round 0, which the ledger charges as a vote or a measurement",
        ("deployment/node/node.py", "if (round_ == 0) != self._opening:", "if False:"),
        tests=NODE,
    ),
    of(
        "votes-paid-by-measurements",
        "a node votes again in every new run, as long as measurements are left",
        ("privacy/ledger.py", "return self._opening if round_ == 0 else", "return self._before if round_ == 0 else"),
        tests=RUNS,
    ),
    of(
        "stage-of-the-server",
        "a server takes a node back to round 0 after it began to train",
        ("deployment/node/node.py", "if came.run == self._run and opening and not self._opening:", "if False:"),
        tests=NODE,
    ),
    of(
        "mark-lost-after-the-vote",
        "a node that voted masks a round again after it was restarted",
        ("deployment/node/node.py", "ClientState(mark=self._seat.state.mark)", "ClientState()"),
        tests=NODE,
    ),
    of(
        "open-vote-played-again",
        "a server that was killed in round 0 asks everybody a second time",
        ("runs/journal.py", "if read_begun(path) is not None:", "if False:"),
        tests=RUNS,
    ),
    of(
        "vote-of-nobody",
        "the budget of all rounds is spent on coordinates that noise has chosen",
        ("runs/journal.py", "if total.reason is not None:", "if False:"),
        tests=RUNS,
    ),
    of(
        "layers-of-the-server",
        "a node trains layers that its operator wanted frozen",
        ("assembly/stages.py", "if network.layout != parts.network.layout:", "if False:"),
        tests=FRONTS,
    ),
    of(
        "front-of-any-size",
        "a set-up makes a node compute with more axes than its file has features",
        (
            "models/fronts/projection.py",
            "rows[0] <= min(channels, dims) and 1 <= rows[1] <= min(places, dims)",
            "rows[0] <= channels and 1 <= rows[1] <= places",
        ),
        tests=FRONTS,
    ),
    of(
        "features-out-of-range",
        "whether a node can answer depends on its records, by numbers that a server chose for it",
        ("deployment/node/build.py", "np.nan_to_num(found, posinf=0.0, neginf=0.0)", "found"),
        tests="tests/deployment/test_fronts.py",
    ),
)
