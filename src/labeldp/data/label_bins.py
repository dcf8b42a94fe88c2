"""Where to cut a range of numbers: exact searches that know a prior, and no label.

Both are cheapest paths over the values of the range: an edge is a bin (`best_bins`) or a gap between two points
(`best_points`), and the number of edges is tried as well.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
LossName = Literal["squared", "absolute", "poisson"]


class Bins(NamedTuple):
    """The bin of each value of the range, the output of each bin, and the expected loss."""

    places: Places
    outputs: Floats
    loss: float


def best_bins(grid: Floats, prior: Floats, epsilon: float, loss: LossName) -> Bins:
    """Return the bins and outputs with the least expected loss after randomized response over the bins.

    With q = exp(-epsilon), k bins and outputs v, the expected loss is the sum over bins of
    (1 - q) sum_{y in bin} p(y) l(v, y) + q sum_y p(y) l(v, y), divided by 1 + (k - 1) q. For fixed k the bins do not
    touch each other, so the best output of every interval is found first and then the cheapest path of k intervals.

    Values that the prior rules out cost nothing anywhere and take no part. Each is given to the bin whose output is
    nearer, where the cut between two possible values allows it; possible values are there already, because an output
    that suits a value better would have won it.
    """
    known = np.flatnonzero(prior > 0)
    values, mass = grid[known], prior[known] / prior[known].sum()
    q, constant = math.exp(-epsilon), 0.0
    if loss == "absolute":
        cost, best_output = _median_costs(values, mass, epsilon)
    else:
        cost, best_output, constant = _mean_costs(values, mass, epsilon, loss)
    alone = cost[0, -1]
    least, count, steps = math.inf, 0, list[Places]()
    for k, (total, before) in enumerate(_cheapest_paths(cost), 1):
        # A further bin must gain more than rounding can: two bins with one output are as good as one, and no better.
        if total / (1 + (k - 1) * q) < least - 1e-13 * alone:
            least, count, steps = total / (1 + (k - 1) * q), k, before
        # Every bin pays q times at least what one bin alone pays, and that bound rises with the number of bins.
        if (k + 1) * q * alone / (1 + k * q) >= least:
            break
    cuts = _trace(steps, count)
    outputs = best_output[cuts[:-1], cuts[1:]]
    inner = cuts[1:-1]
    middle = np.searchsorted(grid, (outputs[:-1] + outputs[1:]) / 2, "right")
    edges = np.clip(middle, known[inner - 1] + 1, known[inner])
    return Bins(np.searchsorted(edges, np.arange(grid.size), "right"), outputs, float(least + constant))


def _mean_costs(values: Floats, mass: Floats, epsilon: float, loss: LossName) -> tuple[Floats, Floats, float]:
    """Return cost and best output of the bin [i, j), for losses that a weighted mean minimises; and what was left out.

    The Poisson loss is counted from its least value y - y log y, which moves every expected loss by one constant: so no
    cost is negative.
    """
    centre = mass @ values if loss == "squared" else 0.0
    shifted = values - centre
    weight, first = _bin_sums(mass, epsilon), _bin_sums(mass * shifted, epsilon)
    real = np.triu(np.ones(weight.shape, bool), 1)
    mean = np.divide(first, weight, out=np.zeros_like(weight), where=real)
    if loss == "squared":
        least, constant = np.zeros(values.size), 0.0
        cost = _bin_sums(mass * shifted**2, epsilon) - first * mean
    else:
        least = values - values * np.log(np.where(values > 0, values, 1))
        constant = float(mass @ least)
        cost = first - first * np.log(np.where(mean > 0, mean, 1)) - _bin_sums(mass * least, epsilon)
    outputs = np.clip(mean + centre, values[0], values[-1])
    return np.where(real, np.maximum(cost, 0), np.inf), outputs, constant


def _median_costs(values: Floats, mass: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Return cost and best output of the bin [i, j) for absolute loss: a weighted median, found by halving."""
    weight, first = _bin_sums(mass, epsilon), _bin_sums(mass * values, epsilon)
    start, stop = np.indices(weight.shape)
    up_to, moment_up_to = _cumulated(mass), _cumulated(mass * values)
    inside, everywhere = -math.expm1(-epsilon), math.exp(-epsilon)

    def below(total: Floats, last: Places) -> Floats:
        """Sum over the values up to `last`, those of the bin weighing more."""
        in_bin = total[np.clip(last + 1, start, np.maximum(start, stop))] - total[start]
        return everywhere * total[last + 1] + inside * in_bin

    low, high = np.zeros(weight.shape, np.int64), np.full(weight.shape, values.size - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = below(up_to, middle) >= weight / 2
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    median = values[low]
    cost = median * (2 * below(up_to, low) - weight) + first - 2 * below(moment_up_to, low)
    return np.where(start < stop, np.maximum(cost, 0), np.inf), median


def _cumulated(terms: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(terms)])


def _bin_sums(terms: Floats, epsilon: float) -> Floats:
    """Return (1 - q) sum over [i, j) + q sum over all, for every i and j."""
    total = _cumulated(terms)
    return -math.expm1(-epsilon) * (total - total[:, None]) + math.exp(-epsilon) * total[-1]


def _cheapest_paths(cost: Floats) -> Iterator[tuple[float, list[Places]]]:
    """Yield, for paths of 1, 2, ... edges from the first node to the last, the least cost and the steps back."""
    arriving = np.ascontiguousarray(cost.T)
    nodes = len(cost)
    reached, before = arriving[:, 0], [np.zeros(nodes, np.int64)]
    yield float(reached[-1]), before
    for edges in range(2, nodes):
        # With that many edges, no node before number `edges` is reached, nor one before the last edge started from.
        through = arriving[edges:, edges - 1 :] + reached[edges - 1 :]
        best = through.argmin(axis=1)
        reached = np.concatenate([np.full(edges, np.inf), through[np.arange(best.size), best]])
        before = [*before, np.concatenate([np.zeros(edges, np.int64), best + edges - 1])]
        yield float(reached[-1]), before


def _trace(before: list[Places], edges: int) -> Places:
    """Return the nodes of the cheapest path of that many edges."""
    nodes = [before[0].size - 1]
    for step in reversed(before[:edges]):
        nodes.append(int(step[nodes[-1]]))
    return np.array(nodes[::-1])


class Points(NamedTuple):
    """The values of the range, by number, that labels are rounded to, and the expected variance."""

    points: Places
    variance: float


def best_points(grid: Floats, prior: Floats, epsilon: float) -> Points:
    """Return the points, with both ends, for which unbiased decoding has the least expected variance.

    Let r = 1 / (exp(epsilon) - 1), count numbers from the prior's mean, and let k points a have the sum A and the sum
    of squares B. Rounding y to its neighbours adds (y - a_l) (a_{l+1} - y), in all R; the decoded points are
    (1 + k r) a_j - r A. Multiplied out, the expected variance is k r Var(y) + (1 + k r) (R + r B) - (r A)^2.

    R + r B adds up over gaps and points. The last term does not, but -(r A)^2 / (1 + k r) is the least of
    (1 + k r) s^2 - 2 s r A over all s, and for fixed s that adds up as well: a cheapest path for every k. As a function
    of s, the cost of the cheapest path is the least of straight lines, hence above its chords: between two s that were
    tried, this bounds from below what any other s can give. The search tries the s where the bound is lowest, at the
    meeting point of the two lines known there, until no bound is below the best points found.
    """
    mass = prior / prior.sum()
    values = grid - mass @ grid
    r, spread = math.exp(-epsilon) / -math.expm1(-epsilon), float(mass @ values**2)
    rounding = _gap_costs(values, mass)
    search = _Search(values, rounding, r, spread)
    for s in (0.0, values[0], values[-1]):
        search.add(float(s))
    while (s := search.next()) is not None:
        search.add(s)
    return Points(search.points, search.least)


def _gap_costs(values: Floats, mass: Floats) -> Floats:
    """Return the variance of rounding the values between i and j to these two, for every i < j."""
    zeroth, first, second = (_cumulated(mass * values**power)[:-1] for power in (0, 1, 2))
    low, high = values[:, None], values
    cost = (low + high) * (first - first[:, None]) - low * high * (zeroth - zeroth[:, None])
    cost -= second - second[:, None]
    return np.where(np.triu(np.ones(cost.shape, bool), 1), np.maximum(cost, 0), np.inf)


class _Search:
    """What `best_points` has tried: for each s and each number of points, the cheapest path as a line in s."""

    def __init__(self, values: Floats, rounding: Floats, r: float, spread: float) -> None:
        self._values, self._rounding, self._r, self._spread = values, rounding, r, spread
        self._most = values.size
        self._lines: dict[float, tuple[Floats, Floats]] = {}  # R + r B and r A, by number of points
        self.least, self.points = math.inf, np.array([0, values.size - 1])

    def add(self, s: float) -> None:
        """Find the cheapest path of every length at this s."""
        values, r = self._values, self._r
        at_point = r * values**2 - 2 * s * r * values
        fixed, sums = [], []
        for k, (total, before) in enumerate(_cheapest_paths(self._rounding + at_point), 2):
            points = _trace(before, k - 1)
            sums.append(r * float(values[points].sum()))
            fixed.append(total + float(at_point[0]) + 2 * s * sums[-1])
            variance = k * r * self._spread + (1 + k * r) * fixed[-1] - sums[-1] ** 2
            if variance < self.least:
                self.least, self.points = variance, points
            if k >= self._most or self._floor(k + 1) >= self.least:
                self._most = min(self._most, k)
                break
        self._lines[s] = (np.array(fixed), np.array(sums))

    def _floor(self, k: int) -> float:
        """Bound the variance of k or more points: with both ends among them, k B - A^2 >= k (range)^2 / 2."""
        ends = self._values[[0, -1]]
        return k * self._r * (self._spread + self._r * np.ptp(ends) ** 2 / 2) + self._r * float(ends @ ends)

    def next(self) -> float | None:
        """Return the most promising s that was not tried, or None when nothing better is left."""
        tried = sorted(self._lines)
        k = np.arange(2, self._most + 1)
        fixed, sums = (np.array([self._lines[s][part][: k.size] for s in tried]) for part in (0, 1))
        s = np.array(tried)[:, None]
        cost = fixed - 2 * s * sums
        width = np.diff(s, axis=0)
        slope = np.diff(cost, axis=0) / width
        scale = 1 + k * self._r
        lowest = np.clip(-slope / (2 * scale), s[:-1], s[1:])
        bound = k * self._r * self._spread + scale * (cost[:-1] + slope * (lowest - s[:-1]) + scale * lowest**2)
        apart = np.diff(sums, axis=0)
        meet = np.divide(np.diff(fixed, axis=0), 2 * apart, out=s[:-1] + 0 * apart, where=apart != 0)
        # Two lines that meet at an end of their interval are the whole truth about it.
        open_ = (meet > s[:-1] + 1e-9 * width) & (meet < s[1:] - 1e-9 * width)
        bound = np.where(open_, bound, np.inf)
        at = np.unravel_index(bound.argmin(), bound.shape)
        return float(meet[at]) if bound[at] < self.least * (1 - 1e-12) else None
