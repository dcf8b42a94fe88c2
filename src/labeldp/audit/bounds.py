"""From counts to a lower bound on epsilon, valid at a stated error rate.

Shares are bounded by Clopper and Pearson (1934): the lower bound on a chance p from `hits` of `trials` is the p under
which so many hits or more have a chance of exactly `level`. So it exceeds the true p with a chance of `level` at most,
whatever p is; the upper bound is the same for misses.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from labeldp.core.errors import InputError

CountLike = Any  # a whole number, or an array of them
Floats = NDArray[np.float64]


def proportion_lower_bound(hits: CountLike, trials: CountLike, level: float) -> Floats:
    """Return what a chance is at least, but for an error of `level`."""
    hits, trials = np.broadcast_arrays(hits, trials)
    positive_hits = np.maximum(hits, 1)
    return np.where(hits > 0, beta.ppf(level, positive_hits, trials - positive_hits + 1), 0.0)


def proportion_upper_bound(hits: CountLike, trials: CountLike, level: float) -> Floats:
    """Return what a chance is at most, but for an error of `level`."""
    hits, trials = np.broadcast_arrays(hits, trials)
    return 1 - proportion_lower_bound(trials - hits, trials, level)


def epsilon_lower_bound(hits: CountLike, neighbor_hits: CountLike, trials: int, delta: float, level: float) -> Floats:
    """Return a lower bound on epsilon from how often an event was seen in each of two neighbouring worlds.

    Proof. (epsilon, delta) demands p <= exp(epsilon) q + delta for the chances p and q of any event that was fixed
    beforehand: epsilon >= log((p - delta) / q). With p bounded from below and q from above, each but for an error of
    level / 2, this is too much with a chance of `level` at most.
    """
    p_low, q_high = (
        proportion_lower_bound(hits, trials, level / 2),
        proportion_upper_bound(neighbor_hits, trials, level / 2),
    )
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.maximum(p_low - delta, 0.0)) - np.log(q_high), 0.0)


def epsilon_lower_bound_from_guesses(correct: CountLike, guesses: CountLike, level: float) -> Floats:
    """Return a lower bound on epsilon from so many correct guesses of fair coins (see `one_run` for the proof).

    Nobody guesses better than exp(epsilon) / (1 + exp(epsilon)), so epsilon is at least the logarithm of the odds.
    """
    p_low = proportion_lower_bound(correct, guesses, level)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(p_low) - np.log1p(-p_low), 0.0)


def error_rate(confidence: float) -> float:
    """Return one minus the confidence, or say that it is none."""
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not is_number or not 0.5 <= confidence < 1 or not math.isfinite(confidence):
        raise InputError(f"confidence must be a number from 0.5 to below 1, not {confidence!r}: 0.95 is usual.")
    return 1 - float(confidence)
