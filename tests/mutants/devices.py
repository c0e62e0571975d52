"""Mutants of simulated devices: what a private run tells of its cohorts, and what joules and seconds count."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

RUNS = "tests/runs/test_devices.py"
CLOCK = "tests/devices/test_clock.py"
ENERGY = "tests/devices/test_energy.py"

MUTANTS = (
    of(
        "simulated-time-of-the-cohort",
        "a private run publishes seconds and joules that tell who was drawn",
        ("runs/devices.py", "(self.promised() if self.private else real)", "real"),
        tests=f"{RUNS}::test_a_private_run_publishes_expected_values_that_tell_nothing_of_a_cohort",
    ),
    of(
        "causes-in-a-private-record",
        "a private run publishes how many clients were lost",
        (
            "runs/devices.py",
            "(self.promised() if self.private else real)",
            '(self.promised() | {"dropouts": real["dropouts"]} if self.private else real)',
        ),
        tests=f"{RUNS}::test_a_private_run_publishes_expected_values_that_tell_nothing_of_a_cohort",
    ),
    of(
        "records-in-expected-joules",
        "what a private run publishes tells how many records its clients have",
        ("runs/devices.py", "_public_gflop(parts) if private else _gflop(parts)", "_gflop(parts)"),
        tests=f"{RUNS}::test_a_private_run_does_not_tell_how_many_records_clients_have",
    ),
    of(
        "fastest-of-a-private-cohort",
        "the clients that are summed are not the random sample that epsilon is charged for",
        (
            "config/devices.py",
            "if experiment.privacy is not None:\n        raise PrivacyError(",
            "if experiment.privacy is None and over < 1:\n        raise PrivacyError(",
        ),
        tests=f"{RUNS}::test_over_selection_is_refused_in_a_private_run",
    ),
    of(
        "late-clients-in-the-sum",
        "a client that missed the deadline is summed all the same",
        ("federation/wrappers/timed.py", "silent=request.silent | lost.keys()", "silent=request.silent"),
        tests="tests/federation/test_timed.py",
    ),
    of(
        "lost-where-all-are-waited-for",
        "clients leave an enrolment that needs everyone",
        ("federation/wrappers/timed.py", "{} if request.waits_for_all else", "{} if False else"),
        tests="tests/federation/test_timed.py",
    ),
    of(
        "slowest-kept",
        "over-selection keeps the slowest clients",
        ("devices/clock.py", "slowest_last[rules.target :]", "slowest_last[: -rules.target]"),
        tests=CLOCK,
    ),
    of(
        "silent-clients-not-waited-for",
        "a server knows who will never answer",
        ("devices/clock.py", "if missing and deadline is not None and", "if missing and deadline is None and"),
        tests=CLOCK,
    ),
    of(
        "phases-without-sessions",
        "a protocol of five slow phases costs as little energy as one message",
        ("devices/energy.py", "self.sessions[at] += ~goes_on", "self.sessions[at] += np.isnan(silent)"),
        tests=CLOCK,
    ),
    of(
        "session-of-the-other-end",
        "low and high joules are the same",
        ("devices/energy.py", "count * radio.session_high_j + waited", "count * radio.session_low_j + waited"),
        tests=ENERGY,
    ),
    of(
        "radio-without-a-cap",
        "a law of 2012 is believed at the rates of today",
        (
            "devices/energy.py",
            "min(slope_nj_bit * 1e-3 * mbps + base_w, cap_w)",
            "(slope_nj_bit * 1e-3 * mbps + base_w)",
        ),
        tests=ENERGY,
    ),
    of(
        "duty-cycle-forgotten",
        "a sensor sends hours of frames in minutes",
        ("devices/lorawan.py", "frame.max_payload) / frame.duty_cycle", "frame.max_payload)"),
        tests="tests/devices/test_lorawan.py",
    ),
    of(
        "gradients-not-counted",
        "training is charged as if it were prediction",
        (
            "models/network.py",
            "sum(flop * (1 + (at in trained)",
            "sum(flop * (1 + 0 * (at in trained)",
        ),
        tests="tests/models/test_flops.py",
    ),
    of(
        "model-larger-than-memory",
        "a sensor trains a network that it cannot hold",
        ("devices/device.py", "return memory_mb <= self.compute.memory_mb", "return True"),
        tests="tests/devices/test_catalogue.py",
    ),
    of(
        "shares-of-any-sum",
        "a mix of profiles that leaves clients without a device runs",
        ("devices/population.py", "if abs(sum(self.shares) - 1) > _SUM:", "if False:"),
        tests=CLOCK,
    ),
    of(
        "expected-without-the-deadline",
        "what a private run publishes of its time forgets who is waited for",
        ("devices/cost.py", "slowest + deadline * float(1 - chance[-1])", "slowest"),
        tests=CLOCK,
    ),
)
