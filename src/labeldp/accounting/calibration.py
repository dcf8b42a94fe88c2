"""Calibration: the smallest noise that meets a target (epsilon, delta), rounded so that it never exceeds it."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from labeldp.accounting.losses import (
    EXACT_BELOW,
    GaussianLoss,
    Loss,
    PureLoss,
    compose,
    gaussian_delta,
    unit_shift_delta,
)
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta, check_epsilon

# Decimal digits to which deviations are rounded up, so that they can be printed and entered again.
_DIGITS = 6


@lru_cache(256)
def unit_shift_sigma(epsilon: float, delta: float) -> float:
    """Return sigma of discrete Gaussian noise for a shift of (+1, -1), by its exact loss distribution."""
    guess = math.sqrt(2) * analytic_gaussian_ratio(epsilon, delta)
    if guess > EXACT_BELOW / 2:
        return lattice_sigma(epsilon, delta, math.sqrt(2) * (1 + 1e-12))
    return smallest_noise(lambda sigma: unit_shift_delta(epsilon, sigma) <= delta, guess)


@lru_cache(256)
def analytic_gaussian_ratio(epsilon: float, delta: float) -> float:
    """Return sigma over sensitivity for continuous Gaussian noise (Balle and Wang 2018, Theorem 8)."""
    check_epsilon(epsilon)
    check_delta(delta, positive=True)
    return smallest_noise(lambda ratio: gaussian_delta(epsilon, ratio) <= delta, 1 / epsilon)


@lru_cache(256)
def lattice_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return sigma of discrete Gaussian noise for any integer shift of at most that l2 norm."""
    guess = sensitivity * analytic_gaussian_ratio(epsilon, delta)
    return smallest_noise(lambda sigma: GaussianLoss(sigma, sensitivity).epsilon(delta) <= epsilon, guess)


# A sensitivity, in grid steps, above that of every query.
_WIDE_SENSITIVITY = 1e9


@lru_cache(256)
def calibrated_loss(epsilon: float, delta: float = 0.0) -> Loss:
    """Return an upper bound on the loss of any query calibrated to (epsilon, delta), for a plan made before the query.

    Proof. Without delta it is epsilon. With delta, `lattice_sigma` gives a query a ratio of smooth deviation to
    sensitivity that meets (epsilon, delta). A ratio that misses it is smaller than every one that meets it, because
    delta falls as the ratio grows. The returned loss has such a ratio, and so much noise that the grid adds nothing to
    its Renyi bound. So `covers` holds for every query that meets its target by the lattice bound: those whose noise
    is many grid steps wide, as of `LinearQuery` without a `max_row_norm` far above its rows. Counts meet it by another
    bound.

    Args:
        epsilon: The epsilon of the query.
        delta: Its delta; 0 for a purely private mechanism.

    Returns:
        A `PureLoss`, or a `GaussianLoss` that is larger than that of the query by about one in a hundred thousand.
    """
    if not delta:
        return PureLoss(check_epsilon(epsilon))
    ratio = analytic_gaussian_ratio(epsilon, delta) * (1 - 10.0 ** -(_DIGITS - 1))
    while gaussian_delta(epsilon, ratio) <= delta * (1 + 1e-9):
        ratio *= 1 - 10.0**-_DIGITS
    return GaussianLoss(ratio * _WIDE_SENSITIVITY, _WIDE_SENSITIVITY)


def calibrate(losses: Callable[[float], Sequence[Loss]], epsilon: float, delta: float = 0.0) -> float:
    """Return the smallest noise parameter whose whole plan `losses(noise)` stays within (epsilon, delta)."""
    check_epsilon(epsilon)
    check_delta(delta)
    return smallest_noise(lambda noise: compose(losses(noise), delta) <= epsilon, 1 / epsilon)


def largest_epsilon(is_feasible: Callable[[float], bool], guess: float, max_epsilon: float) -> float:
    """Return the largest feasible epsilon up to `max_epsilon`, to one part in 10,000; at least a feasible `guess`."""
    low, high = guess, max_epsilon
    while not is_feasible(low):
        low, high = low / 2, low
    return bisect_largest(is_feasible, low, high, 1e-4)


def bisect_largest(is_feasible: Callable[[float], bool], low: float, high: float, tolerance: float = 1e-6) -> float:
    """Return the largest feasible value, to a relative tolerance; `low` must be feasible."""
    while high > low * (1 + tolerance):
        mid = math.sqrt(low * high)
        low, high = (mid, high) if is_feasible(mid) else (low, mid)
    return low


def smallest_noise(is_feasible: Callable[[float], bool], guess: float) -> float:
    """Return the smallest feasible noise, rounded up to six digits and checked after rounding."""
    low, high = 0.0, guess
    while not is_feasible(high):
        low, high = high, 2 * high
        if high > 2**49:
            raise InputError("No amount of noise meets this target: raise epsilon or delta.")
    while high - low > 1e-8 * high:
        mid = (low + high) / 2
        low, high = (low, mid) if is_feasible(mid) else (mid, high)
    step = 10.0 ** (math.floor(math.log10(high)) + 1 - _DIGITS)
    n_steps = math.ceil(high / step)
    while not is_feasible(_round_to_step(n_steps, step)):
        n_steps += 1
    return _round_to_step(n_steps, step)


def _round_to_step(n_steps: int, step: float) -> float:
    return float(f"{n_steps * step:.12g}")
