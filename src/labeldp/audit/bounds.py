"""Lower bounds on epsilon from counts, valid at a stated error rate.

Proportions are bounded by Clopper and Pearson (1934). The lower bound on a probability p from `hits` of `trials` is the
p under which so many hits or more have a probability of exactly `level`. So it exceeds the true p with a probability of
`level` at most, whatever p is; the upper bound is the same for misses.
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
    """Return a lower bound on a probability, wrong with probability `level` at most."""
    hits, trials = np.broadcast_arrays(hits, trials)
    positive_hits = np.maximum(hits, 1)
    return np.where(hits > 0, beta.ppf(level, positive_hits, trials - positive_hits + 1), 0.0)


def proportion_upper_bound(hits: CountLike, trials: CountLike, level: float) -> Floats:
    """Return an upper bound on a probability, wrong with probability `level` at most."""
    hits, trials = np.broadcast_arrays(hits, trials)
    return 1 - proportion_lower_bound(trials - hits, trials, level)


def epsilon_lower_bound(hits: CountLike, neighbor_hits: CountLike, trials: int, delta: float, level: float) -> Floats:
    """Return a lower bound on epsilon from the number of draws with an event in each of two neighboring worlds.

    Proof. (epsilon, delta) demands p <= exp(epsilon) q + delta for the probabilities p and q of any event that was
    fixed in advance: epsilon >= log((p - delta) / q). With p bounded from below and q from above, each wrong with
    probability level / 2 at most, this is too large with a probability of `level` at most.
    """
    p_low = proportion_lower_bound(hits, trials, level / 2)
    q_high = proportion_upper_bound(neighbor_hits, trials, level / 2)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.maximum(p_low - delta, 0.0)) - np.log(q_high), 0.0)


def epsilon_lower_bound_from_guesses(correct: CountLike, guesses: CountLike, level: float) -> Floats:
    """Return a lower bound on epsilon from the number of correct guesses of fair coins (see `one_run` for the proof).

    A guess is right with probability exp(epsilon) / (1 + exp(epsilon)) at most. So epsilon is at least the logarithm of
    the odds of a right guess.
    """
    p_low = proportion_lower_bound(correct, guesses, level)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(p_low) - np.log1p(-p_low), 0.0)


def error_rate(confidence: float) -> float:
    """Return one minus the confidence.

    Raises:
        InputError: The confidence is not a number from 0.5 to below 1.
    """
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not is_number or not 0.5 <= confidence < 1 or not math.isfinite(confidence):
        raise InputError(f"confidence must be a number from 0.5 to below 1, not {confidence!r}: 0.95 is usual.")
    return 1 - float(confidence)
