"""Log tail probabilities of the discrete noise that the samplers draw, and of differences of two noises.

Tables are summed term by term up to 60 deviations beyond their last entry, where the rest is below exp(-900) of it.
All values are rounded up by a margin that covers the error of the float64 sums.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]

# Added to each logarithm; larger than the error of the float64 sums.
_ROUNDING_MARGIN = 1e-9
# Above this standard deviation, in steps, the sums are long. An integral then bounds them within one step.
_MAX_SUMMED_DEVIATION = 5e3


def gaussian_tail(sigma: float, max_k: int) -> Floats:
    """Return log P(X >= k) for k from 0 to `max_k`, where X is discrete Gaussian noise."""
    return _gaussian_tail(sigma * sigma, max_k, np.zeros(2))


def gaussian_difference_tail(sigma: float, max_k: int) -> Floats:
    """Return log P(X - Y >= k) for k from 0 to `max_k`, where X and Y are independent discrete Gaussian noise.

    P(d) is exp(-d^2 / (4 sigma^2)) times the sum over x of exp(-(x - d/2)^2 / sigma^2), which depends only on whether
    d is even.
    """
    if sigma >= _MAX_SUMMED_DEVIATION:
        return _gaussian_tail(2 * sigma * sigma, max_k, np.zeros(2))
    x = np.arange(-math.ceil(40 * sigma) - 2, math.ceil(40 * sigma) + 3)
    parity_log_weights = [np.log(np.exp(-((x - half) ** 2) / sigma**2).sum()) for half in (0.0, 0.5)]
    return _gaussian_tail(2 * sigma * sigma, max_k, np.array(parity_log_weights))


def _gaussian_tail(variance: float, max_k: int, parity_log_weights: Floats) -> Floats:
    deviation = math.sqrt(variance)
    if deviation >= _MAX_SUMMED_DEVIATION:
        # The density decreases: the sum from k is below the integral from k - 1. The sum over all integers is above
        # the whole integral (Poisson summation has positive terms).
        k = np.arange(max_k + 1)
        return np.minimum(log_ndtr((1 - k) / deviation) + _ROUNDING_MARGIN, 0.0)
    x = np.arange(max_k + math.ceil(60 * deviation) + 3)
    log_mass = -(x.astype(float) ** 2) / (2 * variance) + parity_log_weights[x % 2]
    tail = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    total = np.logaddexp(tail[0], tail[1])  # zero and above, and the mirror image of one and above
    return np.minimum(tail[: max_k + 1] - total + _ROUNDING_MARGIN, 0.0)


def laplace_difference_tail(scale: float, k: Any) -> Any:
    """Return log P(X - Y >= k) for each k >= 0, where X and Y are independent discrete Laplace noise.

    With q = exp(-1/scale), P(d) = ((1-q)/(1+q))^2 q^d (d + 1 + 2 q^2 / (1 - q^2)) for d >= 0, a geometric sum.
    """
    q, p = math.exp(-1 / scale), -math.expm1(-1 / scale)
    tail_correction = 2 * q * q / (p * (1 + q))
    return np.minimum(
        2 * math.log(p / (1 + q)) - k / scale + np.log((k + 1 + tail_correction) / p + q / p**2) + _ROUNDING_MARGIN, 0.0
    )


def log_one_minus_exp(x: Floats) -> Floats:
    """Return log(1 - exp(x)) for x < 0, without losing digits at either end."""
    with np.errstate(divide="ignore"):
        return np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))
