"""Mutants of engines of workers: who acts for whom, what is summed; those of Ray where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

LOCAL = "tests/engines/test_local_engine.py"
ONE = "tests/engines/ray/test_one_machine.py"
TWO = "tests/engines/ray/test_two_machines.py"

ANYWHERE = (
    of(
        "secrets-elsewhere",
        "a client's next phase is played by a worker that does not have its secrets",
        ("federation/engines/workers.py", "held.keeper(client),)", "held.keeper(client + len(request.phase)),)"),
        tests=LOCAL,
    ),
    of(
        "first-sum-lost",
        "the clients of one worker are missing from every sum",
        (
            "federation/engines/workers.py",
            "for worker in range(self.count):  # one",
            "for worker in range(1, self.count):  # one",
        ),
        tests=LOCAL,
    ),
    of(
        "other-versions-pass",
        "machines with other code take part",
        ("federation/engines/machines.py", "if versions.get(name) != version and", "if False and"),
        tests="tests/federation/test_machines.py",
    ),
    of(
        "points-go-on-after-an-error",
        "a sweep that failed keeps a cluster busy",
        ("search/runner.py", "                session.stop()\n", ""),
        tests="tests/search/test_spread.py",
    ),
)
RAY = (
    of(
        "no-back-pressure",
        "a worker fills the store with vectors that nobody has read",
        ("federation/engines/ray.py", "_IN_FLIGHT: Final = 2", "_IN_FLIGHT: Final = 8"),
        tests=f"{ONE}::test_a_worker_is_at_most_two_vectors_ahead_of_who_reads_them",
    ),
    of(
        "open-to-the-network",
        "whoever reaches the machine can run code in a simulation",
        ("federation/engines/ray_session.py", '"ENABLE_RAY_CLUSTER", False', '"ENABLE_RAY_CLUSTER", True'),
        tests=f"{ONE}::test_a_local_cluster_can_be_reached_from_this_machine_only",
    ),
    of(
        "local-joins",
        "a simulation for this machine runs on whatever cluster the process has joined",
        (
            "federation/engines/ray_session.py",
            "    if ray.is_initialized():\n        raise",
            "    if False:\n        raise",
        ),
        tests=f"{TWO}::test_two_machines_make_the_bits_of_one",
    ),
    of(
        "versions-not-asked",
        "nobody compares what machines compute with",
        ("federation/engines/ray_session.py", "        _check_machines()\n", ""),
        tests=f"{TWO}::test_a_machine_with_another_version_is_refused_before_round_1",
    ),
    of(
        "records-stay",
        "the records of a run stay in the store when its engine is closed",
        ("federation/engines/ray.py", "self._session.forget(self._kept.pop())", "self._kept.pop()"),
        tests=f"{ONE}::test_what_is_computed_outlives_the_store_and_no_worker_its_engine",
    ),
    of(
        "points-one-after-the-other",
        "a sweep uses a cluster for one run at a time",
        ("search/runner.py", 'engine.address != "local" and', "False and"),
        tests=f"{TWO}::test_the_points_of_a_sweep_run_at_the_same_time_and_end_as_they_do_here",
    ),
)
MUTANTS = ANYWHERE + (RAY if find_spec("ray") is not None else ())
