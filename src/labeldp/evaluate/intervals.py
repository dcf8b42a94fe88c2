"""Confidence intervals of 95 % that include both the sampling error and the noise of the release."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

Floats = NDArray[np.float64]

LEVEL = 0.05
# Distances from a value at which a grid has its points; each is 5 % longer than the one before.
_OFFSETS = np.geomspace(1e-10, 1.0, 500)
_Z = float(norm.ppf(1 - LEVEL / 2))


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % confidence interval. `value` is None where the noise leaves no estimate."""

    value: float | None
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high") if self.value is None else ("value", "low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def to_json(self) -> list[float | None]:
        """Return [value, low, high]; JSON has no infinity, so an infinite end is null."""
        return [self.value, self.low, self.high if math.isfinite(self.high) else None]

    @classmethod
    def from_json(cls, data: list[float | None]) -> "Interval":
        """Read what `to_json` wrote."""
        value, low, high = data
        return cls(value, float(low or 0.0), math.inf if high is None else high)

    @classmethod
    def of_proportion(cls, value: float, low: float, high: float) -> "Interval":
        """Return the interval of a proportion, without a value if it holds all numbers from 0 to 1."""
        low, high = max(0.0, low), min(1.0, high)
        return cls(None, 0.0, 1.0) if low <= 0 and high >= 1 else cls(min(max(value, low), high), low, high)


def proportion_interval(observed: int, size: int, scale: float, floor: float = 0.0, top: float = 1.0) -> Interval:
    """Return the interval of p, where `observed` is Binomial(size, floor + (top - floor) p) plus noise.

    The noise is discrete Laplace noise. The interval holds the p that an exact test does not reject. The test uses the
    distribution of `observed`, clipped to the counts that are possible without noise. (No information is lost: the
    likelihood of p is the same for all counts beyond 0 or `size`.) The p-value is twice the smaller tail, or that tail
    alone where the other side has none as small, since the clipped end there is likelier (as in Blaker 2000). A count
    in the middle counts half in its own tail, which centers the coverage on 95 %; a clipped end counts whole. Coverage
    is above 97 % in two cases, both of little data: where a clipped end has a probability between 2.5 and 5 % under p
    (up to 98 %), and where both have (then it is 100 %).

    Args:
        observed: The noisy count.
        size: The number of rows that were counted.
        scale: The scale of the discrete Laplace noise; 0 for none.
        floor: The expected fraction of counted rows at p = 0.
        top: The expected fraction of counted rows at p = 1.
    """
    test = ExactTest(size, scale, floor, top)
    observed = test.clip(observed)
    value = min(max((observed / size - floor) / (top - floor), 0.0), 1.0)

    def find_end(outside: float) -> float:
        """Bisect between a rejected end of [0, 1] and the value, which is never rejected."""
        if test.p_value(observed, outside) >= LEVEL:
            return outside
        inside = value
        while abs(inside - outside) > 1e-6:
            midpoint = (inside + outside) / 2
            inside, outside = (midpoint, outside) if test.p_value(observed, midpoint) >= LEVEL else (inside, midpoint)
        return outside

    return Interval.of_proportion(value, find_end(0.0), find_end(1.0))


class ExactTest:
    """The exact two-sided test of p that `proportion_interval` inverts."""

    __test__ = False  # pytest must not collect this class

    def __init__(self, size: int, scale: float, floor: float = 0.0, top: float = 1.0) -> None:
        self._size, self._floor, self._top = size, floor, top
        self._ratio = math.exp(-1 / scale) if scale else 0.0
        self._min_count, self._max_count = math.floor(size * floor), math.ceil(size * top)

    def clip(self, observed: int) -> int:
        """Return the nearest count that is possible without noise."""
        return min(max(observed, self._min_count), self._max_count)

    def p_value(self, observed: int, p: float) -> float:
        """Return the p-value of a clipped count under p."""
        probability = self._floor + (self._top - self._floor) * p
        mean, spread = self._size * probability, math.sqrt(self._size * probability * (1 - probability))
        first, last = max(0, math.floor(mean - 9 * spread - 9)), min(self._size, math.ceil(mean + 9 * spread + 9))
        # Of very many counts, an evenly spaced subset is used: the distribution is smooth on that scale.
        possible_counts = np.arange(first, last + 1, max(1, (last - first) // 4000))
        pmf = binom.pmf(possible_counts, self._size, probability)
        pmf /= pmf.sum()

        def cdf(y: int) -> float:
            """P(clipped count <= y)."""
            return (
                0.0
                if y < self._min_count
                else 1.0
                if y >= self._max_count
                else float(pmf @ self._noise_cdf(y - possible_counts))
            )

        def lower_tail(y: int) -> float:
            return cdf(y) if y <= self._min_count else (cdf(y) + cdf(y - 1)) / 2 if y < self._max_count else 1.0

        def upper_tail(y: int) -> float:
            return (
                1 - cdf(y - 1)
                if y >= self._max_count
                else 1 - (cdf(y) + cdf(y - 1)) / 2
                if y > self._min_count
                else 1.0
            )

        below, above = lower_tail(observed), upper_tail(observed)
        p_own, p_other = (
            (below, upper_tail(self._max_count)) if below <= above else (above, lower_tail(self._min_count))
        )
        return p_own + (p_own if p_other <= p_own * (1 + 1e-9) else 0.0)

    def _noise_cdf(self, x: NDArray[np.int64]) -> Floats:
        q = self._ratio
        tail = q ** np.where(x < 0, -x, x + 1).astype(np.float64) / (1 + q)
        return np.where(x < 0, tail, 1 - tail)


def quantile(variance: float, fourth_cumulant: float) -> float:
    """Return how many standard deviations hold 95 % of a sum of normal and Laplace parts with a given fourth cumulant.

    Laplace noise has long tails: alone it needs 2.12 deviations instead of 1.96. The first Cornish-Fisher term gives
    the factor.
    """
    kurtosis = min(fourth_cumulant / variance**2, 6.0) if variance > 0 else 0.0
    return _Z * (1 + (_Z**2 - 3) * kurtosis / 24)


def acceptance_interval(theta: Floats, gap: Floats, tolerance: Floats) -> tuple[float, float] | None:
    """Return the ends of {theta: |gap(theta)| <= tolerance(theta)}, both given on a grid; None if it is empty.

    For a ratio of noisy sums, gap = numerator - theta * denominator, this is Fieller's set, from its least to its
    largest member. The denominator may be close to zero: then the set can be all numbers.
    """
    margin = tolerance - np.abs(gap)
    inside = np.flatnonzero(margin >= 0)
    if not inside.size:
        return None
    return _interpolate_crossing(theta, margin, inside[0], -1), _interpolate_crossing(theta, margin, inside[-1], 1)


def _interpolate_crossing(theta: Floats, margin: Floats, inside: int, step: int) -> float:
    outside = inside + step
    if not 0 <= outside < theta.size:
        return float(theta[inside])
    fraction = margin[inside] / (margin[inside] - margin[outside])
    return float(theta[inside] + fraction * (theta[outside] - theta[inside]))


def grid_around(value: float) -> Floats:
    """Return a grid from 0 to 1 that is dense around a value, because an interval may be very short."""
    return np.unique(np.clip(np.concatenate([value - _OFFSETS, [0.0, value, 1.0], value + _OFFSETS]), 0.0, 1.0))
