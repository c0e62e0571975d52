"""Mutants of a deployed federation: its randomness would be known, its ledger short, or its epsilon too small."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

CIPHER = "tests/core/test_cipher.py"
CREDENTIALS = "tests/federation/test_credentials.py"
RUNS = "tests/runs/test_deployed.py"
VOID = f"{RUNS}::test_a_round_that_was_open_is_void_and_its_number_is_never_used_again"
MEASURED = "tests/assembly/test_evaluation.py"
COVERED = f"{RUNS}::test_a_private_round_without_quorum_looks_like_any_other"
PAUSES = f"{RUNS}::test_when_nobody_answers_the_server_pauses_longer_each_time_and_epsilon_is_null_from_then_on"

MUTANTS = (
    of(
        "secrets-of-the-seed",
        "whoever knows the experiment's file knows every secret of the server and of the nodes",
        (
            "core/streams.py",
            "default_factory=lambda: os.urandom(cipher.KEY_SIZE)",
            "default_factory=lambda: bytes(cipher.KEY_SIZE)",
        ),
        tests=CIPHER,
    ),
    of(
        "one-stream-for-all-rounds",
        "the coins of round 2 are those of round 1",
        ("core/streams.py", "{purpose:d} {path}", "{purpose:d} {path[1:]}"),
        tests=CIPHER,
    ),
    of(
        "one-key-for-all-owners",
        "a session id, which travels, is a prefix of what keys a client's stream",
        ("core/streams.py", "info=owner.encode()))", 'info=b""))'),
        tests=CIPHER,
    ),
    of(
        "a-fork-repeats-secrets",
        "two processes that came from one draw the same numbers",
        ("core/streams.py", "if os.getpid() != self._process:", "if False:"),
        tests=CIPHER,
    ),
    of(
        "secrets-in-pickles",
        "a worker, a log or a crash report holds the key of the process",
        (
            "core/streams.py",
            """    def __reduce__(self) -> NoReturn:
        raise PrivacyError("the secrets of a process are never copied, written or sent")


@dataclass(frozen=True, eq=False)
class SecretStreams""",
            """@dataclass(frozen=True, eq=False)
class SecretStreams""",
        ),
        tests=CIPHER,
    ),
    of(
        "zeros-for-cipher-text",
        "half of each word is no cipher's",
        ("core/cipher.py", "repeat(11)", "repeat(43)"),
        tests=CIPHER,
    ),
    of(
        "deployed-noise-of-the-seed",
        "whoever knows the experiment's file takes the noise off",
        ("federation/coding.py", "if self.plan.request.deployment:", "if False:"),
        tests=CREDENTIALS,
    ),
    of(
        "device-secrets-of-the-stream",
        "a device that is restored masks with the secrets of its last life",
        ("federation/client.py", "if self.credentials is not None:", "if False:"),
        tests=CREDENTIALS,
    ),
    of(
        "session-ids-of-the-registry",
        "all runs of one seed have the same session ids",
        ("federation/aggregation/secure.py", "self.streams.key(Purpose.MASK, round_, size=16)", "bytes(16)"),
        tests=CREDENTIALS,
    ),
    of(
        "open-rounds-forgotten",
        "a restarted server plays a round number twice, with other noise under the same charge",
        ("runs/journal.py", "        write_begun(self.folder.path, round_, state)\n", "        pass\n"),
        tests=VOID,
    ),
    of(
        "heard-before-it-is-on-disk",
        "a round that was told to everybody is void after a kill",
        (
            "runs/journal.py",
            "        self._write(told, state)\n        yield\n",
            "        yield\n        self._write(told, state)\n",
        ),
        tests="tests/runs/test_journal.py",
    ),
    of(
        "void-number-reused",
        "the number of a void round is played again",
        ("runs/journal.py", "while begun is not None and begun.round > self.done:", "while False:"),
        tests=VOID,
    ),
    of(
        "void-draws-forgotten",
        "a client takes part more often than its cap, as each restart forgets a draw",
        ("runs/journal.py", "with_seen({**state, **begun.draws}, VOID)", "with_seen(state, VOID)"),
        tests=f"{RUNS}::test_a_void_round_keeps_the_draws_that_it_made",
    ),
    of(
        "restart-keeps-epsilon",
        "the amplified epsilon is claimed for a run in which a failed round showed",
        ("runs/journal.py", "with_seen({**state, **begun.draws}, VOID)", "{**state, **begun.draws}"),
        tests=VOID,
    ),
    of(
        "opened-not-checked",
        "who deletes the mark of an open round makes the server forget its draws",
        ("runs/journal.py", "            check_begun(ledger, self.done, self.state, self._begun)", "            pass"),
        tests=f"{RUNS}::test_a_checkpoint_that_forgets_draws_is_refused",
    ),
    of(
        "abort-in-the-open",
        "everybody sees which private rounds had too few answers",
        ("assembly/aggregator.py", "covers = covers and plan is not None", "covers = False and plan is not None"),
        tests=COVERED,
    ),
    of(
        "covered-round-not-charged",
        "a round without quorum is opened and not charged",
        (
            "federation/aggregation/secure.py",
            "self.open_nothing(round_, terms._replace(cohort=0), spend, total)",
            "self.open_nothing(round_, terms._replace(cohort=0), lambda: None, total)",
        ),
        tests=COVERED,
    ),
    of(
        "covered-round-charged-twice",
        "a round that failed after its charge is charged again, and the run ends too early",
        ("federation/aggregation/secure.py", "        if not charged:\n", "        if True:\n"),
        tests=COVERED,
    ),
    of(
        "covered-round-named",
        "rounds.jsonl says aborted of a round that was covered by noise",
        ("runs/records.py", "failed = total.reason and total.values is None", "failed = total.reason"),
        tests=COVERED,
    ),
    of(
        "no-end-of-aborts",
        "a run without nodes spends its budget on noise",
        ("runs/exposure.py", "return self.count >= self.back_off.max_aborts", "return False"),
        tests=f"{RUNS}::test_too_many_rounds_without_quorum_end_the_run_and_it_can_be_resumed",
    ),
    of(
        "seeds-in-a-deployment",
        "a deployed server draws its cohorts from the experiment's seed",
        ("assembly/parties.py", "if not self.seeded and not isinstance(self.owners, Secrets):", "if False:"),
        tests="tests/assembly/test_elsewhere.py",
    ),
    of(
        "measurements-for-free",
        "what clients tell of their held-out records is in no epsilon",
        ("assembly/protection.py", "else (vote, warm, whiten, evaluation)", "else (vote, warm, whiten)"),
        tests=MEASURED,
    ),
    of(
        "loss-without-bound",
        "one client's loss moves the sum by more than the clip norm",
        ("federation/stages/evaluation.py", "np.clip(update, -1, 1).astype(np.float32)", "update.astype(np.float32)"),
        ("federation/stages/evaluation.py", "min(found[name], bound)", "found[name]"),
        tests=MEASURED,
    ),
    of(
        "measured-on-training-records",
        "clients measure on what they have trained with",
        ("federation/engines/worker.py", "aside = partial(self._records, held_out=True)", "aside = self._records"),
        tests=MEASURED,
    ),
    of(
        "missing-measurement-unseen",
        "a measurement that failed in the open leaves the amplified epsilon as it was",
        ("runs/evaluation.py", "entry.state = with_seen(entry.state, UNMEASURED)", "pass"),
        tests=MEASURED,
    ),
    of(
        "measurements-charged-as-rounds",
        "a measurement takes the charge of a training round",
        (
            "federation/stages/evaluation.py",
            "return round_ if round_ < EVALUATION else EVALUATION - round_",
            "return round_",
        ),
        tests=MEASURED,
    ),
)
