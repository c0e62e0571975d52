"""Compute what the thesis proves of FL-SIGN and FL-SIGN-DP: the slack of Theorem 3 (Lemma 4), the bound of Theorem 6.

These stand beside a run for whoever compares it with the proofs. Our own privacy account uses neither: it treats the
lattice exactly (docs/privacy.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from sottovoce.core.errors import InputError
from sottovoce.core.validate import in_range

_LN10: Final = math.log(10)


@final
@dataclass(frozen=True)
class Slack:
    """What rounding to integers adds to the moments of the Gaussian mechanism, by Lemma 4.

    `kappa` is how far a discrete Gaussian of the whole noise is from the continuous one, `nu` how far the sum of the
    clients' shares is from one discrete Gaussian. Both are often too small for a float, and then 0; their logarithms to
    the base 10 are exact.
    """

    kappa: float
    nu: float
    log10_kappa: float
    log10_nu: float

    def moment(self, order: int) -> float:
        """Return what a round adds to alpha(lambda).

        log((1 + kappa)^lambda / (1 - kappa)^(lambda + 1) ((1 + nu) / (1 - nu))^3)
        """
        in_range("order", order, low=1)
        noise = order * math.log1p(self.kappa) - (order + 1) * math.log1p(-self.kappa)
        return noise + 3 * (math.log1p(self.nu) - math.log1p(-self.nu))

    def epsilon(self, rounds: int) -> float:
        """Return the most that Theorem 3 adds to the epsilon of the moments accountant.

        epsilon is the least over lambda of (T alpha(lambda) - log delta) / lambda, and what a round adds over lambda is
        largest at lambda = 1.
        """
        in_range("rounds", rounds, low=1)
        return rounds * self.moment(1)


def slack(stddev: float, cohort: float) -> Slack:
    """Return the slack of Lemma 4 for noise of `stddev` integer steps on the sum (xi), shared by `cohort` clients.

    kappa(xi) = 2 exp(-2 pi^2 xi^2) / (1 - exp(-6 pi^2 xi^2)); nu is the smallest for which
    xi >= sqrt(|K| ln(2 + 2 / nu)) / pi.
    Theorem 3 as printed asks for half of that xi^2; the lemma, from which it follows, does not, and is used here.

    >>> slack(6.0, cohort=9).nu < 1e-16 < slack(1.0, cohort=2).nu
    True
    """
    in_range("stddev", stddev, low=0, open_low=True)
    in_range("cohort", cohort, low=1)
    exponent = 2 * (math.pi * stddev) ** 2
    log_kappa = math.log(2) - exponent - math.log1p(-math.exp(-3 * exponent))
    shared = (math.pi * stddev) ** 2 / cohort  # ln(2 + 2 / nu) at most
    if shared <= math.log(4) or log_kappa >= 0:  # nu >= 1 or kappa >= 1: the lemma bounds nothing
        raise InputError(
            f"noise of {stddev:.4g} steps shared by {cohort:g} clients is too coarse for Lemma 4; it needs more than "
            f"{math.sqrt(cohort * math.log(4)) / math.pi:.4g}"
        )
    log_nu = math.log(2) - shared - math.log1p(-2 * math.exp(-shared))
    return Slack(math.exp(log_kappa), math.exp(log_nu), log_kappa / _LN10, log_nu / _LN10)


@final
@dataclass(frozen=True)
class Convergence:
    """Theorem 6: the mean of |g_t|_1 over the rounds is at most `sampling` |tau|_1 + `privacy` |tau|_1 + `descent`.

    tau_i bounds the standard deviation of a client's gradient at coordinate i. The theorem holds for one local step, a
    batch as large as the number of rounds, and the step gamma = sqrt((f_0 - f*) / (|L|_1 T)).
    """

    sampling: float
    privacy: float
    descent: float

    def bound(self, tau: float) -> float:
        """Return the bound for |tau|_1."""
        in_range("tau", tau, low=0)
        return (self.sampling + self.privacy) * tau + self.descent


def convergence(
    *,
    rounds: int,
    cohort: float,
    server_lr: float,
    gap: float,
    fraction: float = 0.0,
    noise_multiplier: float = 0.0,
    length: int = 0,
) -> Convergence:
    """Return the terms of Theorem 6; `gap` is f_0 - f*, `fraction` the share of clients that send random updates.

    2 / sqrt(T) (sqrt(2) |tau|_1 / ((1 - a) sqrt(CN)) + sqrt(|L|_1 gap)) under attack, and without one, with noise,
    2 / sqrt(T) (|tau|_1 / sqrt(CN) + sqrt(3 n) sigma |tau|_1 / (CN) + sqrt(|L|_1 gap)). |L|_1 is unknown in practice;
    it is the one for which `server_lr` is the theorem's gamma, so that sqrt(|L|_1 gap) = gap / (gamma sqrt(T)). The
    thesis has no bound for noise and attackers together.
    """
    in_range("rounds", rounds, low=1)
    in_range("cohort", cohort, low=0, open_low=True)
    in_range("server_lr", server_lr, low=0, open_low=True)
    in_range("gap", gap, low=0)
    in_range("fraction", fraction, low=0, high=1, open_high=True)
    if fraction and noise_multiplier:
        raise InputError("Theorem 6 bounds noise or attackers, not both; set fraction or noise_multiplier to 0")
    scale = 2 / math.sqrt(rounds)
    attacked = math.sqrt(2) / (1 - fraction) if fraction else 1.0
    return Convergence(
        sampling=scale * attacked / math.sqrt(cohort),
        privacy=scale * math.sqrt(3 * length) * noise_multiplier / cohort,
        descent=scale * gap / (server_lr * math.sqrt(rounds)),
    )
