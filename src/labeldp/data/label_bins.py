"""Exact searches for the bins and points of a numeric range under a public prior. They use no label.

Both are cheapest paths over the values of the range. An edge is a bin (`optimize_bins`) or a gap between two points
(`optimize_points`), and the number of edges is optimized as well.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
LossName = Literal["squared", "absolute", "poisson"]


class LabelBins(NamedTuple):
    """The bin of each value of the range, the output of each bin, and the expected loss."""

    bin_indices: Indices
    outputs: Floats
    loss: float


def optimize_bins(grid: Floats, prior: Floats, epsilon: float, loss: LossName) -> LabelBins:
    """Return the bins and outputs with the least expected loss after randomized response over the bins.

    With q = exp(-epsilon), k bins and outputs v, the expected loss is the sum over bins of
    (1 - q) sum_{y in bin} p(y) l(v, y) + q sum_y p(y) l(v, y), divided by 1 + (k - 1) q. For fixed k the bins do not
    touch each other, so the best output of every interval is found first and then the cheapest path of k intervals.

    Values of prior probability 0 cost nothing and are left out of the search. Each is assigned to the bin with the
    nearer output, if the cut between two possible values allows it. Possible values need no such assignment, because
    the optimal bins already give each the output that suits it best.
    """
    support = np.flatnonzero(prior > 0)
    values, mass = grid[support], prior[support] / prior[support].sum()
    q, constant = math.exp(-epsilon), 0.0
    if loss == "absolute":
        cost, best_output = _median_costs(values, mass, epsilon)
    else:
        cost, best_output, constant = _mean_costs(values, mass, epsilon, loss)
    single_bin_cost = cost[0, -1]
    min_loss, n_bins, predecessors = math.inf, 0, list[Indices]()
    for k, (total, path_steps) in enumerate(_shortest_paths(cost), 1):
        # A further bin must gain more than rounding errors: two bins with one output are no better than one.
        if total / (1 + (k - 1) * q) < min_loss - 1e-13 * single_bin_cost:
            min_loss, n_bins, predecessors = total / (1 + (k - 1) * q), k, path_steps
        # Every bin pays q times at least what one bin alone pays, and that bound rises with the number of bins.
        if (k + 1) * q * single_bin_cost / (1 + k * q) >= min_loss:
            break
    cuts = _trace_path(predecessors, n_bins)
    outputs = best_output[cuts[:-1], cuts[1:]]
    inner_cuts = cuts[1:-1]
    midpoints = np.searchsorted(grid, (outputs[:-1] + outputs[1:]) / 2, "right")
    edges = np.clip(midpoints, support[inner_cuts - 1] + 1, support[inner_cuts])
    return LabelBins(np.searchsorted(edges, np.arange(grid.size), "right"), outputs, float(min_loss + constant))


def _mean_costs(values: Floats, mass: Floats, epsilon: float, loss: LossName) -> tuple[Floats, Floats, float]:
    """Return cost and best output of the bin [i, j), for losses that a weighted mean minimizes, and a constant.

    The minimum y - y log y is subtracted from the Poisson loss, so that no cost is negative. Its mean is the returned
    constant.
    """
    center = mass @ values if loss == "squared" else 0.0
    shifted = values - center
    weight, first_moment = _bin_sums(mass, epsilon), _bin_sums(mass * shifted, epsilon)
    is_interval = np.triu(np.ones(weight.shape, bool), 1)
    mean = np.divide(first_moment, weight, out=np.zeros_like(weight), where=is_interval)
    if loss == "squared":
        least_losses, constant = np.zeros(values.size), 0.0
        cost = _bin_sums(mass * shifted**2, epsilon) - first_moment * mean
    else:
        least_losses = values - values * np.log(np.where(values > 0, values, 1))
        constant = float(mass @ least_losses)
        cost = (
            first_moment - first_moment * np.log(np.where(mean > 0, mean, 1)) - _bin_sums(mass * least_losses, epsilon)
        )
    outputs = np.clip(mean + center, values[0], values[-1])
    return np.where(is_interval, np.maximum(cost, 0), np.inf), outputs, constant


def _median_costs(values: Floats, mass: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Return cost and best output of the bin [i, j) for absolute loss: a weighted median, found by halving."""
    weight, first_moment = _bin_sums(mass, epsilon), _bin_sums(mass * values, epsilon)
    start, stop = np.indices(weight.shape)
    cumulative_mass, cumulative_moment = _cumulative_sum(mass), _cumulative_sum(mass * values)
    inside_weight, base_weight = -math.expm1(-epsilon), math.exp(-epsilon)

    def weighted_sum_up_to(cumulative: Floats, last: Indices) -> Floats:
        """Return the sum over the values up to `last`, in which values of the bin have a larger weight."""
        in_bin = cumulative[np.clip(last + 1, start, np.maximum(start, stop))] - cumulative[start]
        return base_weight * cumulative[last + 1] + inside_weight * in_bin

    low, high = np.zeros(weight.shape, np.int64), np.full(weight.shape, values.size - 1)
    while (low < high).any():
        mid = (low + high) // 2
        reaches_half = weighted_sum_up_to(cumulative_mass, mid) >= weight / 2
        low, high = np.where(reaches_half, low, mid + 1), np.where(reaches_half, mid, high)
    median = values[low]
    cost = (
        median * (2 * weighted_sum_up_to(cumulative_mass, low) - weight)
        + first_moment
        - 2 * weighted_sum_up_to(cumulative_moment, low)
    )
    return np.where(start < stop, np.maximum(cost, 0), np.inf), median


def _cumulative_sum(terms: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(terms)])


def _bin_sums(terms: Floats, epsilon: float) -> Floats:
    """Return (1 - q) sum over [i, j) + q sum over all, for every i and j."""
    total = _cumulative_sum(terms)
    return -math.expm1(-epsilon) * (total - total[:, None]) + math.exp(-epsilon) * total[-1]


def _shortest_paths(cost: Floats) -> Iterator[tuple[float, list[Indices]]]:
    """Yield, for paths of 1, 2, ... edges from the first node to the last, the least cost and the predecessors."""
    incoming_cost = np.ascontiguousarray(cost.T)
    n_nodes = len(cost)
    path_cost, predecessors = incoming_cost[:, 0], [np.zeros(n_nodes, np.int64)]
    yield float(path_cost[-1]), predecessors
    for n_edges in range(2, n_nodes):
        # After `n_edges` edges a path is at node `n_edges` or later; before the last edge, at `n_edges` - 1 or later.
        candidate_cost = incoming_cost[n_edges:, n_edges - 1 :] + path_cost[n_edges - 1 :]
        best = candidate_cost.argmin(axis=1)
        path_cost = np.concatenate([np.full(n_edges, np.inf), candidate_cost[np.arange(best.size), best]])
        predecessors = [*predecessors, np.concatenate([np.zeros(n_edges, np.int64), best + n_edges - 1])]
        yield float(path_cost[-1]), predecessors


def _trace_path(predecessors: list[Indices], n_edges: int) -> Indices:
    """Return the nodes of the cheapest path of `n_edges` edges."""
    nodes = [predecessors[0].size - 1]
    for step in reversed(predecessors[:n_edges]):
        nodes.append(int(step[nodes[-1]]))
    return np.array(nodes[::-1])


class Points(NamedTuple):
    """The indices of the values to which labels are rounded, and the expected variance."""

    points: Indices
    variance: float


def optimize_points(grid: Floats, prior: Floats, epsilon: float) -> Points:
    """Return the points, with both ends, for which unbiased decoding has the least expected variance.

    Let r = 1 / (exp(epsilon) - 1), count numbers from the prior's mean, and let k points a have the sum A and the sum
    of squares B. Rounding y to its neighbors adds (y - a_l) (a_{l+1} - y), in all R; the decoded points are
    (1 + k r) a_j - r A. Multiplied out, the expected variance is k r Var(y) + (1 + k r) (R + r B) - (r A)^2.

    R + r B adds up over gaps and points. The last term does not, but -(r A)^2 / (1 + k r) is the least of
    (1 + k r) s^2 - 2 s r A over all s, and for fixed s that adds up as well: a cheapest path for every k. As a function
    of s, the cost of the cheapest path is the least of straight lines, hence above its chords: between two s that were
    tried, this bounds from below what any other s can give. The search tries the s where the bound is lowest, at the
    meeting point of the two lines known there, until no bound is below the best points found.
    """
    mass = prior / prior.sum()
    values = grid - mass @ grid
    r, variance = math.exp(-epsilon) / -math.expm1(-epsilon), float(mass @ values**2)
    rounding_cost = _rounding_costs(values, mass)
    search = _PointSearch(values, rounding_cost, r, variance)
    for s in (0.0, values[0], values[-1]):
        search.add(float(s))
    while (s := search.next_candidate()) is not None:
        search.add(s)
    return Points(search.points, search.min_variance)


def _rounding_costs(values: Floats, mass: Floats) -> Floats:
    """Return the variance of rounding the values between i and j to these two, for every i < j."""
    zeroth, first, second = (_cumulative_sum(mass * values**power)[:-1] for power in (0, 1, 2))
    low, high = values[:, None], values
    cost = (low + high) * (first - first[:, None]) - low * high * (zeroth - zeroth[:, None])
    cost -= second - second[:, None]
    return np.where(np.triu(np.ones(cost.shape, bool), 1), np.maximum(cost, 0), np.inf)


class _PointSearch:
    """The state of `optimize_points`: for each s and each number of points, the cheapest path as a line in s."""

    def __init__(self, values: Floats, rounding_cost: Floats, r: float, variance: float) -> None:
        self._values, self._rounding_cost, self._r, self._variance = values, rounding_cost, r, variance
        self._max_points = values.size
        self._lines: dict[float, tuple[Floats, Floats]] = {}  # R + r B and r A, by number of points
        self.min_variance, self.points = math.inf, np.array([0, values.size - 1])

    def add(self, s: float) -> None:
        """Find the cheapest path of every length at this s."""
        values, r = self._values, self._r
        point_cost = r * values**2 - 2 * s * r * values
        offsets, slopes = [], []
        for k, (total, predecessors) in enumerate(_shortest_paths(self._rounding_cost + point_cost), 2):
            points = _trace_path(predecessors, k - 1)
            slopes.append(r * float(values[points].sum()))
            offsets.append(total + float(point_cost[0]) + 2 * s * slopes[-1])
            variance = k * r * self._variance + (1 + k * r) * offsets[-1] - slopes[-1] ** 2
            if variance < self.min_variance:
                self.min_variance, self.points = variance, points
            if k >= self._max_points or self._lower_bound(k + 1) >= self.min_variance:
                self._max_points = min(self._max_points, k)
                break
        self._lines[s] = (np.array(offsets), np.array(slopes))

    def _lower_bound(self, k: int) -> float:
        """Bound the variance of k or more points: with both ends among them, k B - A^2 >= k (range)^2 / 2."""
        ends = self._values[[0, -1]]
        return k * self._r * (self._variance + self._r * np.ptp(ends) ** 2 / 2) + self._r * float(ends @ ends)

    def next_candidate(self) -> float | None:
        """Return the s with the smallest lower bound, or None if no bound is below the best variance."""
        tried = sorted(self._lines)
        k = np.arange(2, self._max_points + 1)
        offsets, slopes = (np.array([self._lines[s][part][: k.size] for s in tried]) for part in (0, 1))
        s = np.array(tried)[:, None]
        cost = offsets - 2 * s * slopes
        width = np.diff(s, axis=0)
        slope = np.diff(cost, axis=0) / width
        scale = 1 + k * self._r
        minimizer = np.clip(-slope / (2 * scale), s[:-1], s[1:])
        bound = k * self._r * self._variance + scale * (cost[:-1] + slope * (minimizer - s[:-1]) + scale * minimizer**2)
        slope_gap = np.diff(slopes, axis=0)
        crossing = np.divide(np.diff(offsets, axis=0), 2 * slope_gap, out=s[:-1] + 0 * slope_gap, where=slope_gap != 0)
        # If two lines meet at an end of their interval, the bound is exact there.
        is_undecided = (crossing > s[:-1] + 1e-9 * width) & (crossing < s[1:] - 1e-9 * width)
        bound = np.where(is_undecided, bound, np.inf)
        at = np.unravel_index(bound.argmin(), bound.shape)
        return float(crossing[at]) if bound[at] < self.min_variance * (1 - 1e-12) else None
