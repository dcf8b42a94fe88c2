"""Intervals of 95 % that know both the luck of the sample and the noise of the release."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

Floats = NDArray[np.float64]

LEVEL = 0.05
_OFFSETS = np.geomspace(1e-10, 1.0, 500)  # each 5 % longer than the one before
_Z = float(norm.ppf(1 - LEVEL / 2))


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its 95 % interval. `value` is None where nothing was learned: the ends say all."""

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
        """Return an interval of a number from 0 to 1, without a value if it holds all of them."""
        low, high = max(0.0, low), min(1.0, high)
        return cls(None, 0.0, 1.0) if low <= 0 and high >= 1 else cls(min(max(value, low), high), low, high)


def proportion_interval(observed: int, size: int, scale: float, floor: float = 0.0, top: float = 1.0) -> Interval:
    """Return the interval of p, where `seen` is Binomial(size, floor + (top - floor) p) plus discrete Laplace noise.

    It holds the p that an exact test does not reject. The test knows the law of `seen`, clipped to what p could bring
    about without noise. (Nothing is lost by that: the likelihood of p is the same for all counts beyond 0 or `size`.)
    The p-value is twice the smaller tail, or that tail alone where the other side has none as small, since the clipped
    end there is likelier (as in Blaker 2000). A count in the middle counts half in its own tail, which centres the
    coverage on 95 %; a clipped end counts whole. Coverage is above 97 % in two cases, both of little data: where a
    clipped end has a chance between 2.5 and 5 % under p (up to 98 %), and where both have (then it is 100 %).
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
    """The exact two-sided test of p that `share` inverts."""

    __test__ = False  # no test of ours, for pytest

    def __init__(self, size: int, scale: float, floor: float = 0.0, top: float = 1.0) -> None:
        self._size, self._floor, self._top = size, floor, top
        self._ratio = math.exp(-1 / scale) if scale else 0.0
        self._min_count, self._max_count = math.floor(size * floor), math.ceil(size * top)

    def clip(self, observed: int) -> int:
        """Return the nearest count that p could bring about without noise."""
        return min(max(observed, self._min_count), self._max_count)

    def p_value(self, observed: int, p: float) -> float:
        """Return how surprising a clipped count is under p."""
        probability = self._floor + (self._top - self._floor) * p
        mean, spread = self._size * probability, math.sqrt(self._size * probability * (1 - probability))
        first, last = max(0, math.floor(mean - 9 * spread - 9)), min(self._size, math.ceil(mean + 9 * spread + 9))
        # Of very many counts every so-manieth stands for its neighbours: the law is smooth on that scale.
        count = np.arange(first, last + 1, max(1, (last - first) // 4000))
        pmf = binom.pmf(count, self._size, probability)
        pmf /= pmf.sum()

        def cdf(y: int) -> float:
            """P(clipped count <= y)."""
            return (
                0.0 if y < self._min_count else 1.0 if y >= self._max_count else float(pmf @ self._noise_cdf(y - count))
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
    """Return how many deviations hold 95 % of a sum of normal and Laplace parts, whose fourth cumulant is given.

    Laplace noise has long tails: alone it needs 2.12 deviations instead of 1.96. The first Cornish-Fisher term says so.
    """
    kurtosis = min(fourth_cumulant / variance**2, 6.0) if variance > 0 else 0.0
    return _Z * (1 + (_Z**2 - 3) * kurtosis / 24)


def acceptance_interval(theta: Floats, gap: Floats, tolerance: Floats) -> tuple[float, float] | None:
    """Return the ends of {theta: |gap(theta)| <= reach(theta)}, both given on a grid; None if no point is accepted.

    For a ratio of noisy sums, gap = numerator - theta * denominator, this is Fieller's set, from its least to its
    largest member. It needs no denominator away from zero: where that is not known, the set is simply everything.
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
    """Return numbers from 0 to 1, dense around a value: an interval may be tiny, or all there is."""
    return np.unique(np.clip(np.concatenate([value - _OFFSETS, [0.0, value, 1.0], value + _OFFSETS]), 0.0, 1.0))
