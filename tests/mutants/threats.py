"""Mutants of attacks and of the guard: a defence that does nothing, or an attack that is tamer than it says."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

GUARD = "tests/federation/test_guard.py"
WORDS = "tests/federation/test_conspiracy.py"
RUNS = "tests/assembly/test_threat.py"

MUTANTS = (
    of(
        "guard-forgets-the-noise",
        "the noise itself counts as energy: honest rounds are refused, or the bound is set far too high",
        ("federation/guard.py", "excess = energy - variance * total.size - ", "excess = energy - "),
        tests=GUARD,
    ),
    of(
        "guard-lets-infinity-pass",
        "a sum that is not finite is compared with a limit, and no comparison with NaN refuses",
        ("federation/guard.py", "return excess if math.isfinite(excess) else math.inf", "return excess"),
        (
            "federation/guard.py",
            "energy = float(np.dot(total.astype(np.float64), total.astype(np.float64))) / clip_norm**2",
            "energy = float(np.nansum(np.where(np.isfinite(total), total, 0.0) ** 2)) / clip_norm**2",
        ),
        tests=GUARD,
    ),
    of(
        "guard-in-message-units",
        "the bound is in the message's units instead of clip norms",
        ("federation/guard.py", " / clip_norm**2\n        variance", "\n        variance"),
        tests=GUARD,
    ),
    of(
        "refused-sum-is-used",
        "the guard refuses a round, and the model moves all the same",
        ("federation/round.py", "total.values is None or total.rejected or", "total.values is None or"),
        tests=f"{RUNS}::test_one_client_with_a_quarter_of_the_modulus_owns_a_round_and_the_guard_refuses_it",
    ),
    of(
        "attackers-add-their-noise",
        "malicious clients of a private run look as strong as honest ones",
        ("federation/wrappers/conspiracy.py", "or self.omit_noise:", "and self.omit_noise:"),
        tests=WORDS,
    ),
    of(
        "attackers-wrap",
        "the sum of the attackers wraps around the modulus and undoes their work",
        ("federation/wrappers/conspiracy.py", "_QUARTER / malicious", "4 * _QUARTER"),
        tests=WORDS,
    ),
    of(
        "honest-clients-keep-the-class",
        "an out-backdoor is contradicted by everybody else, and succeeds less than it should",
        ("assembly/threat.py", "attacked, Without(owners, struck)", "attacked, owners"),
        tests=RUNS,
    ),
    of(
        "attack-on-nobody",
        "no client of a round is malicious, and every scheme looks robust",
        ("federation/wrappers/malicious.py", "_replace(malicious=self._round,", "_replace(malicious=frozenset(),"),
        tests=f"{RUNS} -k fifth",
    ),
    of(
        "colluders-train-alone",
        "malicious clients that should pool their records each use their own",
        ("threats/attack.py", "if not self.collude:", "if True:"),
        tests="tests/threats/test_attacks.py",
    ),
    of(
        "pool-of-the-round",
        "attackers that pool everybody's records train on those of the round",
        ("federation/host.py", "pool=malice.pool or tuple(sorted(malicious)),", "pool=tuple(sorted(malicious)),"),
        tests="tests/assembly/test_threat.py::test_pooling_all_takes_the_records_of_every_malicious_client_of_the_population",
    ),
    of(
        "every-round-is-attacked",
        "an attack in some rounds is one in all",
        ("federation/wrappers/malicious.py", " or not self._strikes(round_):", ":"),
        tests="tests/assembly/test_threat.py::test_outside_the_attacked_rounds_everyone_is_honest",
    ),
)
