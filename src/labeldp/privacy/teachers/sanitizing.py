"""A publishable data-dependent epsilon, with noise scaled by smooth sensitivity.

Proof. Fix in advance, without reading votes: the number of queries, the order a, the smoothness b and the width w.

1. The cost. f(votes) is a bound on the Renyi divergence of order a between the answers at these votes and at any
   neighboring ones, summed over queries. A query's bound is a function of two whole numbers, its state:
   its largest count, and the place of q on a ladder whose steps are the probabilities (classes - 1) P(D >= k), D the
   difference of two noises, with rungs between them on straight lines; q is rounded up to a rung. For the confident
   vote the bound is the divergence of test and maximum together: the largest count m becomes m - 1, m or m + 1, which
   gives the probabilities of the test exactly, and an answered query adds the bound of its maximum.
2. How far a state moves. A moved vote changes the largest count by one at most. It changes each lead by two at most.
   The distribution of D is log-concave, so P(D >= k - 2) is a concave function of P(D >= k) (on the straight lines,
   too), and P(D >= k + 2) a convex one. So the sum over classes moves by no more than if all leads were equal: two
   steps of the ladder. This holds for the sum of each class taken as the winner, hence for the smallest of them, which
   is the winner's: winners may change. One more rung is allowed for, against rounding.
3. Smooth sensitivity (Nissim, Raskhodnikova and Smith 2007). V(state) is the largest change of the bound by one move,
   V_d the largest V within d moves, S = max over d of exp(-b d) times the sum of V_d over the queries. A neighbor's
   V_d is at most our V_(d+1), so S changes by a factor exp(b) at most; and f changes by at most S, to either side.
4. What is drawn is E = f + w S (Z + z), Z standard normal and z its quantile at 1 - delta/2. E < f has probability
   delta/2. Between neighbors, the mean f + w z S changes by at most S (1 + w z (exp(b) - 1)) and the deviation w S by a
   factor exp(b) at most, whichever of the two S is taken. The Renyi divergence of two normal distributions is known,
   and largest where the neighbor's deviation is smallest: that is `own_cost`.
5. So answers and E together lose at most f + own_cost at the order a. Let S be a set of outcomes that all state at most
   some epsilon. If the true one is not above it, P(S) <= exp(epsilon) P'(S) + delta/2; otherwise S is within
   the event E < f, of probability delta/2. Both together: (epsilon, delta) as stated, at every stated value.

Z is exact discrete Gaussian noise on steps of 2^-46. The result is rounded up to 1e-4, far above those steps and
the errors of float64; `_GRID_COST` covers their effect on the probability of a rounded value.

Draw it once for one set of votes: the noise of several draws would average out.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter
from scipy.special import ndtri

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms.vote_aggregators import ConfidentGNMax, LNMax, Votes
from labeldp.privacy.mechanisms.vote_tails import Floats, gaussian_tail, log_one_minus_exp
from labeldp.privacy.noise.samplers import discrete_gaussian
from labeldp.privacy.noise.secure_stream import SYSTEM, Bits
from labeldp.privacy.teachers.vote_accounting import (
    Accountable,
    VoteAccount,
    data_independent_rdp,
    difference_tail,
    epsilon_from_rdp,
    gaussian_rdp,
    laplace_rdp,
    log_wrong_probability,
    read_votes,
)

# The number of rungs of the ladder for each step.
_RUNGS_PER_STEP = 4
_MAX_RUNG_MOVE = 2 * _RUNGS_PER_STEP + 1
# The number of blocks of states along each side of the table.
_BLOCKS_PER_SIDE = 256
_MAX_TEACHERS = 20_000
# The Renyi divergence that the steps of the discrete noise and float64 errors may add.
_GRID_COST = 1e-6
# The published epsilon is rounded up to a multiple of this.
_RESOLUTION = 1e-4


@dataclass(frozen=True)
class SanitizerSettings:
    """The Renyi order, the smoothness and the width of the noise. They are public, chosen without reading votes."""

    order: float
    smoothness: float
    width: float

    def own_cost(self, margin: float) -> float:
        """Return the Renyi divergence of the noisy cost itself; infinite if the smoothness is too large."""
        a, variance_ratio = self.order, math.exp(-2 * self.smoothness)
        if a * variance_ratio + 1 - a <= 0:
            return math.inf
        shift = 1 + self.width * margin * math.expm1(self.smoothness)
        mean_divergence = a * shift**2 * variance_ratio / (2 * self.width**2 * (a * variance_ratio + 1 - a))
        scale_divergence = max(self._scale_divergence(self.smoothness), self._scale_divergence(-self.smoothness))
        return mean_divergence + scale_divergence + _GRID_COST

    def _scale_divergence(self, log_ratio: float) -> float:
        a = self.order
        return (a * log_ratio - 0.5 * math.log(a * math.exp(2 * log_ratio) + 1 - a)) / (a - 1)


@dataclass(frozen=True, eq=False)
class _QueryStates:
    """The cost of the queries, the largest change of a bound in each block of states, and each query's state."""

    cost: float
    changes: Floats
    block_shape: tuple[int, int]
    positions: NDArray[np.int64]

    def smooth_sensitivity(self, smoothness: float) -> float:
        """Return a smooth bound on how much one label changes the cost.

        V is rounded up to its largest value in a block of states, which keeps it a function of the state. The blocks
        that a box of d moves meets are within those that a neighbor's box of d + 1 moves meets.
        """
        box_maxima = _BoxMaxima(self.changes)
        states, counts = np.unique(self.positions, axis=0, return_counts=True)
        block_shape, last_block = np.array(self.block_shape), np.array(self.changes.shape) - 1
        upper_bound, sensitivity, decay, n_moves = self.changes.max() * len(self.positions), 0.0, 1.0, 0
        while decay * upper_bound > sensitivity:
            reach = n_moves * np.array([1, _MAX_RUNG_MOVE])
            low, high = (states - reach) // block_shape, (states + reach) // block_shape
            sensitivity = max(
                sensitivity,
                decay
                * float(counts @ box_maxima.box_maximum(np.clip(low, 0, last_block), np.clip(high, 0, last_block))),
            )
            decay, n_moves = decay * math.exp(-smoothness), n_moves + 1
        return sensitivity


class _BoxMaxima:
    """The largest value in any box of a table, from the largest ones in boxes whose sides are powers of two."""

    def __init__(self, table: Floats) -> None:
        levels = [(size - 1).bit_length() + 1 for size in table.shape]
        self._tables = np.empty((*levels, *table.shape))
        self._tables[0, 0] = table
        for i in range(1, levels[0]):
            step, previous = 1 << (i - 1), self._tables[i - 1, 0]
            self._tables[i, 0] = previous
            np.maximum(previous[:-step], previous[step:], out=self._tables[i, 0, :-step])
        for j in range(1, levels[1]):
            step, previous = 1 << (j - 1), self._tables[:, j - 1]
            self._tables[:, j] = previous
            np.maximum(previous[..., :-step], previous[..., step:], out=self._tables[:, j, :, :-step])

    def box_maximum(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> Floats:
        """Return the largest value of each box, corners included."""
        level = np.frexp(high - low + 1)[1] - 1  # the largest power of two within each side
        last_start = high + 1 - (1 << level)
        i, j = level.T
        values = [
            self._tables[i, j, x, y] for x in (low[:, 0], last_start[:, 0]) for y in (low[:, 1], last_start[:, 1])
        ]
        return np.max(values, axis=0)


def sanitize(
    result: VoteAccount, votes: Votes, mechanism: Accountable, order: float | None = None, bits: Bits = SYSTEM
) -> VoteAccount:
    """Add a sanitized epsilon to an account, for a run whose number of queries was fixed in advance.

    Args:
        result: The account of the run.
        votes: The vote counts (queries, classes).
        mechanism: The vote mechanism.
        order: The Renyi order; None chooses one from public facts.
        bits: The source of random bits.

    Raises:
        InputError: The votes or the order are not supported.
    """
    counts = read_votes(votes)[: result.queries]
    if len(np.unique(counts.sum(axis=1))) != 1:
        raise InputError("Each query must have the same number of votes: the number of teachers is public.")
    if counts[0].sum() > _MAX_TEACHERS:
        raise InputError(f"A sanitized epsilon is drawn for at most {_MAX_TEACHERS} teachers.")
    settings = default_settings(mechanism, result.queries, result.delta, order)
    margin = _margin(result.delta)
    states = _collect_states(counts, mechanism, settings.order)
    noise_scale = settings.width * states.smooth_sensitivity(settings.smoothness)
    noise = int(discrete_gaussian(Fraction(2**46), 1, bits)[0]) / 2**46
    ceiling = data_independent_rdp(mechanism, result.queries, result.queries, np.array([settings.order]))[0]
    noisy_cost = min(max(0.0, states.cost + noise_scale * (noise + margin)), ceiling)  # public limits: post-processing
    rdp = noisy_cost + settings.own_cost(margin)
    epsilon, _ = epsilon_from_rdp(np.array([rdp]), np.array([settings.order]), result.delta / 2, result.conversion)
    rounded = math.ceil(epsilon / _RESOLUTION) * _RESOLUTION
    # This epsilon covers the answers and itself; any other would have to cover this one, too.
    return replace(result, epsilon_sanitized=round(rounded, 4), publishable=("epsilon_sanitized",))


def default_settings(
    mechanism: Accountable, n_queries: int, delta: float, order: float | None = None
) -> SanitizerSettings:
    """Return settings from public facts alone: 1.5 times the best order for any votes, if all were answered.

    The width balances the cost of the noise against its margin for a guessed sensitivity: a vote changes each query's
    bound by 1/noise of the data-independent one.
    """
    if order is None:
        slope = float(data_independent_rdp(mechanism, n_queries, n_queries, np.array([2.0]))[0]) / 2
        order = min(1 + 1.5 * math.sqrt(math.log(1 / delta) / slope), 200.0)
    if isinstance(order, bool) or not isinstance(order, int | float) or not 1 < order < 1e4:
        raise InputError("order must be a number above 1 and below 10000: 10 to 50 is usual.")
    max_cost = float(data_independent_rdp(mechanism, n_queries, n_queries, np.array([order]))[0])
    sensitivity_guess, margin = max_cost / _noise_scale(mechanism), _margin(delta)
    candidates = [
        SanitizerSettings(float(order), 0.1 / order, width)
        for width in (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
    ]
    return min(candidates, key=lambda s: s.own_cost(margin) + s.width * margin * sensitivity_guess)


def _margin(delta: float) -> float:
    return float(-ndtri(delta / 2))


def _noise_scale(mechanism: Accountable) -> float:
    if isinstance(mechanism, LNMax):
        return mechanism.scale
    return mechanism.sigma2 if isinstance(mechanism, ConfidentGNMax) else mechanism.sigma


def _collect_states(votes: Votes, mechanism: Accountable, order: float) -> _QueryStates:
    n_classes, n_teachers = votes.shape[1], int(votes[0].sum())
    steps = difference_tail(mechanism, n_teachers + 2)
    fractions = np.arange(_RUNGS_PER_STEP) / _RUNGS_PER_STEP
    with np.errstate(divide="ignore"):
        ladder = np.logaddexp(steps[:-1, None] + np.log1p(-fractions), steps[1:, None] + np.log(fractions)).ravel()
    ladder = np.minimum.accumulate(ladder) + math.log(n_classes - 1)
    # The lowest probability on the ladder that is not below q.
    rungs = np.maximum(np.searchsorted(-ladder, -log_wrong_probability(votes, mechanism), "right") - 1, 0)
    maximum = _maximum_bound(np.minimum(ladder, 0.0), mechanism, order)
    is_confident = isinstance(mechanism, ConfidentGNMax)
    max_counts = votes.max(axis=1) if is_confident else np.zeros(len(votes), np.int64)
    n_counts = n_teachers + 1 if is_confident else 1
    block_shape = (-(-n_counts // _BLOCKS_PER_SIDE), -(-maximum.size // _BLOCKS_PER_SIDE))
    cost, changes = 0.0, []
    for start in range(0, n_counts, block_shape[0]):
        # A slab of states with one row more on either side, where there is one.
        first, end = max(start - 1, 0), min(start + block_shape[0] + 1, n_counts)
        bounds = (
            _confident_bounds(maximum, mechanism, np.arange(first, end), order) if is_confident else maximum[None, :]
        )
        in_slab = (max_counts >= start) & (max_counts < start + block_shape[0])
        cost += math.fsum(bounds[max_counts[in_slab] - first, rungs[in_slab]])
        slab = _largest_change(bounds)[start - first : start - first + block_shape[0]].max(axis=0)
        changes.append(np.maximum.reduceat(slab, np.arange(0, slab.size, block_shape[1])))
    return _QueryStates(cost, np.array(changes), block_shape, np.stack([max_counts, rungs], axis=1))


def _largest_change(bounds: Floats) -> Floats:
    """Return the largest change of each state's bound by one move."""
    window = (3, 2 * _MAX_RUNG_MOVE + 1)
    increase = maximum_filter(bounds, window, mode="nearest") - bounds
    return np.maximum(increase, bounds - minimum_filter(bounds, window, mode="nearest"))


def _maximum_bound(log_q: Floats, mechanism: Accountable, order: float) -> Floats:
    """Return the bound of a noisy maximum on each rung. The bound of a higher rung holds, too, if it is smaller."""
    orders = np.array([order])
    if isinstance(mechanism, LNMax):
        bounds = laplace_rdp(log_q, mechanism.scale, orders)
    else:
        bounds = gaussian_rdp(log_q, _noise_scale(mechanism), orders)
    return np.minimum.accumulate(bounds[:, 0])


def _confident_bounds(maximum: Floats, mechanism: Any, counts: NDArray[np.int64], order: float) -> Floats:
    """Return the divergence of test and maximum together, for consecutive largest counts and each rung."""
    shortfall = math.ceil(mechanism.threshold) - np.arange(counts[0] - 1, counts[-1] + 2)
    tail = gaussian_tail(mechanism.sigma1, int(np.abs(shortfall).max()) + 1)
    rarer = tail[np.where(shortfall >= 1, shortfall, 1 - shortfall)]
    other = log_one_minus_exp(rarer)
    yes, no = np.where(shortfall >= 1, rarer, other), np.where(shortfall >= 1, other, rarer)
    center, order_minus_one = slice(1, -1), order - 1
    worst = np.zeros((counts.size, maximum.size))
    for neighbor in (slice(0, -2), center, slice(2, None)):
        refused = order * no[center] - order_minus_one * no[neighbor]
        answered = order * yes[center] - order_minus_one * yes[neighbor]
        both = np.logaddexp(refused[:, None], answered[:, None] + order_minus_one * maximum) / order_minus_one
        worst = np.maximum(worst, both)
    return worst + 2e-9 * order  # the slack of the rounded tails, on either side
