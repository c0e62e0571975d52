"""Mutants of records that are divided among machines: whose work goes where, which parts pass, what a split may hold.

Those of Ray where it is installed.
"""

from __future__ import annotations

from importlib.util import find_spec

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

DIVISION = "tests/assembly/test_division.py"
ONE = "tests/engines/ray/test_one_machine.py"
APART = "tests/engines/ray/test_divided.py"

ANYWHERE = (
    of(
        "part-of-others",
        "a part holds records of clients of another part",
        ("data/machine_parts.py", "range(number, owners.clients, of)", "range(owners.clients)"),
        tests=DIVISION,
    ),
    of(
        "any-worker-will-do",
        "a client's work goes to a machine that does not hold its records",
        (
            "federation/engines/workers.py",
            "if worker in there] for worker",
            "if worker in there or True] for worker",
        ),
        tests=DIVISION,
    ),
    of(
        "numbers-of-other-clients",
        "what was measured on one client is told of another",
        ("federation/engines/workers.py", "found.update(zip(asked[index],", "found.update(zip(sorted(asked)[index],"),
        tests=DIVISION,
    ),
    of(
        "secrets-beside-the-records",
        "the secrets of a client are kept where its records are not",
        (
            "federation/engines/placement.py",
            "there = self.workers[client % self.parts]",
            "there = self.workers[(client + 1) % self.parts]",
        ),
        tests=DIVISION,
    ),
    of(
        "damaged-parts-pass",
        "a machine computes with records that are not as they were written",
        ("data/machine_parts.py", 'if _hash(self.path / f"{name}.npy") != digest:', "if False:"),
        tests=DIVISION,
    ),
    of(
        "mixed-parts-pass",
        "machines compute with parts of two splits",
        ("federation/engines/placement.py", "or part.digest != digests[part.number]", ""),
        tests=DIVISION,
    ),
    of(
        "missing-parts-pass",
        "clients whose records are nowhere are not missed before they are asked",
        ("federation/engines/placement.py", "        if number not in there:", "        if False:"),
        tests=DIVISION,
    ),
    of(
        "any-split-will-do",
        "a run takes records that were divided for another experiment",
        ("assembly/division.py", "if theirs.get(key) != value:", "if False:"),
        tests=DIVISION,
    ),
    of(
        "slice-of-the-private-passes",
        "a private run chooses by a slice of the clients' records that somebody cut before",
        ("assembly/division.py", "needs_public(experiment, scheme) and cuts_public(experiment)", "False"),
        tests=DIVISION,
    ),
    of(
        "front-of-the-private-passes",
        "a private run reads features that were fitted on the clients' records",
        ("assembly/division.py", "        check_projection(experiment)\n", "        pass\n"),
        tests=DIVISION,
    ),
    of(
        "pools-overlap",
        "a virtual client draws records of another pool, which its machine does not hold",
        ("data/partition.py", "return first + self.pools * rng", "return first + rng"),
        tests="tests/data/test_partition.py",
    ),
)
RAY = (
    of(
        "restarts",
        "a worker that was lost is made again, without its secrets",
        ("federation/engines/ray.py", '"max_restarts": 0', '"max_restarts": -1'),
        ("federation/engines/ray.py", '"max_task_retries": 0', '"max_task_retries": -1'),
        tests=f"{ONE}::test_a_worker_that_is_lost_is_never_made_again",
    ),
    of(
        "workers-anywhere",
        "workers run on machines that do not hold the records that they are asked for",
        ("federation/engines/ray.py", '"SPREAD" if home is None else', '"SPREAD" if True else'),
        tests=APART,
    ),
)
MUTANTS = ANYWHERE + (RAY if find_spec("ray") is not None else ())
