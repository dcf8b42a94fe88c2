"""Votes that charge only unstable queries: `StableVote`, which is private, and `ImmutableArgmax`, which is not.

Distance. d(n) is the number of votes that must move to change the winner of n (the first of equals). With
k_i = n_w - n_i, plus one where class i comes after the winner w, class i wins as soon as k_i is 0 or less. A moved vote
lowers k_i by two at most, and by exactly two if it goes from w to i. So d = min over i of ceil(k_i / 2), and d >= 1.
If two neighboring votes have the same winner, d differs by one at most: move to the neighbor first. If they have
different winners, d is 1 for both. So d moves by one at most in every query, for any changed label.

Proof of StableVote. A query passes if d + x >= t + r with discrete Laplace noise of scale b: r is drawn anew after
each query that fails, x for each query. A query that passes releases its exact winner, another only that it failed.
After `max_unstable` failures the run halts.

1. The pattern of passes. Take the part of a run from one drawing of r up to the next failure, at neighboring
   distances d and d'. Pair r with r - 1, whose probability differs by a factor exp(1/b) at most. A query that passes at
   (d, r) with some x also passes at (d', r - 1), since d' >= d - 1. The one that fails at (d, r) fails at (d', r - 1)
   with x lowered by two: a factor exp(2/b). Each part loses 3/b; there are c = `max_unstable` of them, each with fresh
   noise, or fewer where the queries run out. So the pattern is a composition of c mechanisms with pure loss 3/b each.
   It loses epsilon by plain addition (3 c / b = epsilon), or by their loss distribution with half of delta.
2. The winners. Let B be the queries whose winners differ between the neighbors; there d = 1 for both. If no query of B
   passes, the released output is the same function of the pattern for both. When a part begins, its r and all later x
   are fresh, so the probability that a given query of B passes within that part is at most P(x - r >= t - 1). (Given
   that the part lasted so long, r is not fresh any more: passes favor a low r. So parts are counted, too.) There are
   `max_queries` queries and c parts, and t is such that the product of both with that probability is at most delta (or
   the remaining half of delta, where the pattern uses the other half).
   So P(S) <= P(S, none of B passes) + delta <= exp(epsilon) P'(S) + delta.

All parameters of these bounds are known before the run, so epsilon and delta are reserved for the whole run.

ImmutableArgmax (near-zero-cost private learning with teacher ensembles) adds a large constant to the leading count,
then noise, and takes the maximum. Its analysis charges the noise as if one label moved the counts by one. But where one
vote changes the leader, the constant moves to another class: two counts move by that constant, which is chosen so large
that noise hardly ever matters. Suppose that noise changes the winner with probability tau at most. Two neighboring
votes with different winners are then distinguished with probability 1 - tau, so epsilon is at least
log((1 - tau - delta) / tau). This is 20 at tau 1e-9 and grows without bound for the larger constants that the paper
recommends, so the stated epsilon is infinite. The leader is stable for some votes and not for others. Which votes these
are is secret; StableVote tests it privately.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.losses import ApproximateLoss, Loss, NoLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import SMALLEST_EPSILON, check_delta, check_epsilon
from labeldp.core.unproven import require_allowed
from labeldp.privacy.mechanisms.vote_aggregators import (
    NOT_ANSWERED,
    Answers,
    GNMax,
    LNMax,
    NoiseType,
    UnitShifts,
    VoteAggregator,
    VoteLoss,
    Votes,
    check_counts,
    check_positive,
    draw_noisy_winners,
)
from labeldp.privacy.mechanisms.vote_tails import laplace_difference_tail
from labeldp.privacy.noise.samplers import MAX_SCALE, discrete_laplace
from labeldp.privacy.noise.secure_stream import Bits

# Larger than any noise, and small enough that counts plus the constant fit in 64 bits.
_MAX_CONSTANT = 1 << 61


def distances_to_instability(votes: Votes) -> NDArray[np.int64]:
    """Return how many votes must move to change each query's winner."""
    winner = np.argmax(votes, axis=1)[:, None]
    lead = np.take_along_axis(votes, winner, axis=1) - votes + (np.arange(votes.shape[1]) > winner)
    np.put_along_axis(lead, winner, np.iinfo(np.int64).max - 1, axis=1)
    return (lead.min(axis=1) + 1) // 2


@dataclass(frozen=True)
class StableVote(VoteAggregator):
    """The exact winner of each stable query: one whose winner changes only if many votes move.

    This is the sparse vector technique on the distance to instability (after Bassily, Thakkar and Thakurta 2018). The
    guarantee (epsilon, delta) covers the whole run: at most `max_queries` queries, until `max_unstable` of them fail.
    """

    epsilon: float
    delta: float
    max_queries: int
    max_unstable: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta, positive=True)
        check_counts(max_queries=self.max_queries, max_unstable=self.max_unstable)

    @property
    def noise_scale(self) -> Fraction:
        """The scale of the noise on distances and on the threshold."""
        return self._noise_and_threshold[0]

    @property
    def threshold(self) -> int:
        """The distance that a query with noise must reach to pass."""
        return self._noise_and_threshold[1]

    def distance_for(self, probability: float) -> int:
        """Return the distance from which a query passes with at least this probability."""
        return self.threshold + _difference_quantile(float(self.noise_scale), 1 - probability)

    @cached_property
    def _noise_and_threshold(self) -> tuple[Fraction, int]:
        """The noise scale and the threshold.

        They follow from the sum of the losses of the parts, or from their composition at half of delta. The result is
        the pair with the smaller threshold.
        """
        n_parts, part_epsilon = self.max_unstable, as_fraction(self.epsilon) / self.max_unstable
        options = [(3 / part_epsilon, self.delta)]
        if n_parts > 1:
            options.append((3 / self._composed_part_epsilon(), self.delta / 2))
        pairs = self.max_queries * n_parts
        settings = [
            (noise_scale, 1 + _difference_quantile(float(noise_scale), delta / pairs)) for noise_scale, delta in options
        ]
        return min(settings, key=lambda setting: setting[1])

    def _composed_part_epsilon(self) -> Fraction:
        """Return the pure loss of a part at which all parts together lose epsilon at half of delta."""
        low, high = 0.0, self.epsilon
        while high - low > 1e-3 * high:
            mid = (low + high) / 2
            total = VoteLoss((UnitShifts("laplace", 1 / mid, self.max_unstable),)).epsilon(self.delta / 2)
            low, high = (mid, high) if total <= self.epsilon else (low, mid)
        return as_fraction(max(low, SMALLEST_EPSILON / self.max_unstable))

    def loss(self, n_queries: int, n_answers: int) -> ApproximateLoss:
        """Return epsilon and delta, which are reserved for the whole run for any number of queries."""
        if n_queries > self.max_queries:
            raise InputError("StableVote was made for fewer queries: raise max_queries.")
        if not self.noise_scale < MAX_SCALE:
            raise InputError("This much noise cannot be drawn: raise epsilon, or lower max_unstable.")
        return ApproximateLoss(self.epsilon, self.delta)

    def _draw(self, votes: Votes, bits: Bits) -> Answers:
        margin = distances_to_instability(votes) + discrete_laplace(self.noise_scale, len(votes), bits)
        thresholds = self.threshold + discrete_laplace(self.noise_scale, self.max_unstable, bits)
        codes = np.argmax(votes, axis=1)
        start = 0
        for threshold in thresholds:
            failures = np.flatnonzero(margin[start:] < threshold)
            if not failures.size:
                return Answers(codes, len(votes))
            start += int(failures[0]) + 1
            codes[start - 1] = NOT_ANSWERED
        codes[start:] = NOT_ANSWERED
        return Answers(codes, start)


def _difference_quantile(scale: float, probability: float) -> int:
    """Return a whole number that the difference of two such noises reaches with at most this probability.

    The logarithm of the tail falls by at least 1/scale - 1/(1 + k) per step, so doubling and bisection find it.
    """
    low, high = 0, 1
    while laplace_difference_tail(scale, high) > math.log(probability):
        low, high = high, 2 * high
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (mid, high) if laplace_difference_tail(scale, mid) > math.log(probability) else (low, mid)
    return high


@dataclass(frozen=True)
class ImmutableArgmax(VoteAggregator):
    """NOT PRIVATE: a published mechanism that adds a constant to the leading count, then noise to all counts.

    The paper chooses the constant such that noise changes the winner with probability at most `tau`. For L classes, it
    is scale log(L / tau) for Laplace noise and sqrt(2 sigma^2 log(2 L / tau)) for Gaussian noise. `constant` overrides
    it (the paper's tables have scale 1e10 and constant 1e100). It requires `labeldp.allow_unproven("immutable")`.
    """

    scale: float
    max_queries: int
    noise: NoiseType = "laplace"
    tau: float = 1e-9
    constant: float | None = None

    def __post_init__(self) -> None:
        require_allowed("immutable")
        check_positive(scale=self.scale)
        check_counts(max_queries=self.max_queries)
        check_delta(self.tau, positive=True)
        if self.noise not in ("laplace", "gaussian"):
            raise InputError('noise must be "laplace" or "gaussian".')
        if self.constant is not None and not 0 <= self.constant < math.inf:
            raise InputError("constant must be a finite number from 0.")

    def constant_for(self, n_classes: int) -> float:
        """Return the constant that is added to the leading count."""
        if self.constant is not None:
            return self.constant
        if self.noise == "laplace":
            return self.scale * math.log(n_classes / self.tau)
        return self.scale * math.sqrt(2 * math.log(2 * n_classes / self.tau))

    def claimed_loss(self, n_queries: int) -> VoteLoss:
        """Return the loss that the paper claims: that of the noise, as if the constant were zero."""
        mechanism: Any = LNMax if self.noise == "laplace" else GNMax
        return mechanism(self.scale, n_queries).loss(n_queries, n_queries)

    def loss(self, n_queries: int, n_answers: int) -> Loss:
        """Return an infinite loss."""
        return NoLoss()

    def _draw(self, votes: Votes, bits: Bits) -> Answers:
        boosted = votes.copy()
        constant = min(math.ceil(self.constant_for(votes.shape[1])), _MAX_CONSTANT)
        np.put_along_axis(boosted, np.argmax(votes, axis=1)[:, None], votes.max(axis=1)[:, None] + constant, axis=1)
        return Answers(draw_noisy_winners(boosted, self.noise, self.scale, bits), len(votes))
