"""Mutants of who is named for a wrong share: honest rounds come out as before."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

SHARES = "tests/attacks/test_b4_wrong_shares.py"

MUTANTS = (
    of(
        "made-up-shares-taken",
        "one wrong share ends the round, and its dealer is named",
        ("secagg/dealing.py", "return _pledge(session, dealer, holder, which, share) ==", "return True or b'' =="),
        tests=SHARES,
    ),
    of(
        "pledges-of-one-secret-only",
        "a wrong share of a client that dropped is taken",
        ("secagg/dealing.py", "== pledges[PLEDGE * which", "== pledges[0 * which"),
        tests=SHARES,
    ),
    of(
        "doubts-unheard",
        "who was dealt another share than was pledged is called a liar",
        ("secagg/opening.py", "(share is None or one.doubts)", "share is None"),
        tests=SHARES,
    ),
    of(
        "round-receipt-unread",
        "a client does not see that it was dealt another share than was pledged, and is called a liar",
        ("secagg/client.py", "or dealing.receipt(pledges) != bytes(body[start:])", ""),
        tests=SHARES,
    ),
    of(
        "standing-receipt-unread",
        "the same with keys of a session",
        ("secagg/standing.py", "or dealing.receipt(pledges) != bytes(body[end:])", ""),
        tests=SHARES,
    ),
    of(
        "nobody-must-be-the-liar",
        "one that complains of everybody has everybody named",
        ("secagg/opening.py", "if len(others) > most}", "if False}"),
        tests=SHARES,
    ),
    of(
        "wrong-dealing-uncorrected",
        "a dealer of one wrong share ends the round",
        ("secagg/opening.py", "secret = shamir.correct(held, needed, opens)", "secret = None"),
        tests=SHARES,
    ),
    of(
        "wrong-dealing-unnoticed",
        "a dealer of wrong shares is not named while enough others answer",
        ("secagg/opening.py", "if not shamir.fit_together(held, needed):", "if False:"),
        tests=SHARES,
    ),
    of(
        "correction-of-one-error-fewer",
        "half of what may be missing is not corrected",
        ("secagg/shamir.py", ">= len(points) + threshold:", ">= len(points) + threshold + 2:"),
        tests=SHARES,
    ),
    of(
        "server-keeps-opened-shares",
        "who seizes the server later opens single vectors",
        ("secagg/opening.py", "self._held = {}\n\n    def", "pass\n\n    def"),
        tests=f"{SHARES} tests/secagg/test_secrets.py",
    ),
    of(
        "liars-untold",
        "the operator does not hear who lied",
        ("federation/aggregation/secure.py", "total.failures |= server.accused", "pass"),
        tests="tests/federation/test_lying_server.py",
    ),
)
