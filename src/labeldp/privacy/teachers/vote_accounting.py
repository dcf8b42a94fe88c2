"""Privacy accounting of teachers' votes: Renyi bounds for any votes, and smaller ones for given votes.

There are two bounds. The data-independent one holds for any votes; ledgers, stopping rules and calibrations use it
alone. The data-dependent one holds for given votes: if teachers agree, one vote hardly changes the winner. It is itself
a function of the secret, so it is for analysis and must not be published (`sanitizing` draws a publishable epsilon).

Every query is charged for its threshold test, answered or not, and every answer for its noisy maximum.

Proof of the data-dependent bounds. Let q be the probability that the outcome is not the expected one, and P and P' the
distributions of outcomes at these votes and at neighboring ones. `q` here bounds that probability for the sampler that
runs: integer noise, ties by the public order of the classes. Class i beats the winner w only if the difference of their
two noises reaches n_w - n_i, or one more if i comes after w. The probabilities are summed over the classes
(`vote_tails`).

- Gaussian votes: Theorem 6 of Papernot et al. (2018), which needs nothing of the noise but its Renyi bounds at two
  higher orders. The unexpected outcomes have probability at most (q exp(r2))^((m2-1)/m2) at the
  neighbor, by the bound r2 at the order m2; and Hoelder's inequality with the bound r1 at the order m1 gives the rest.
- The threshold test is a mechanism of two outcomes with the Renyi bound order / (2 sigma1^2); q is the exact
  probability of the rarer one. The same theorem holds with sigma = sqrt(2) sigma1.
- Laplace votes change every probability by a factor exp(e) at most, e = 2/scale. Let s be the probability at the
  neighbor of the unexpected outcomes, between q exp(-e) and q exp(e). Given s, the sum of P^a P'^(1-a) is largest if
  each ratio P/P' is exp(e) or exp(-e); that largest value is convex in s, so an end of the range is the worst: a pair
  of Bernoulli distributions with probabilities q and q exp(-e), or q and q exp(e). Both divergences grow with q,
  because post-processing turns a Bernoulli variable into one with a smaller q.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta
from labeldp.privacy.mechanisms.vote_aggregators import ConfidentGNMax, GNMax, LNMax, VoteAggregator, Votes
from labeldp.privacy.mechanisms.vote_tails import (
    Floats,
    gaussian_difference_tail,
    gaussian_tail,
    laplace_difference_tail,
    log_one_minus_exp,
)

Conversion = Literal["classic", "tight"]
Accountable = LNMax | GNMax | ConfidentGNMax

ORDERS: Floats = np.concatenate(
    [1 + np.geomspace(0.02, 1, 60)[:-1], np.geomspace(2, 64, 341), np.geomspace(65, 2000, 100)]
)
# The number of queries that are evaluated at once, which fits in the cache.
_BLOCK_SIZE = 128
# An upper bound on the rounding error of the float64 sums.
_ROUNDING_SLACK = 1e-9


@dataclass(frozen=True)
class VoteAccount:
    """The privacy cost of the first queries of a run.

    Attributes:
        epsilon_data_dependent: The epsilon for these votes. It depends on the votes and must not be published.
        epsilon_data_independent: The epsilon for any votes, of a run whose caps on queries and answers were fixed in
            advance at these numbers. If the votes set the caps, it must not be published either.
        queries: The number of queries.
        answers: The expected number of answered queries.
        delta: The delta of each epsilon.
        conversion: The conversion from Renyi bounds to epsilon.
        order: The Renyi order of the data-dependent epsilon.
        publishable: The names of the epsilons that may be published.
        epsilon_sanitized: An epsilon that may be published once, if the number of queries was fixed in advance. It
            covers the answers and itself; the other epsilons do not cover it.
    """

    epsilon_data_dependent: float
    epsilon_data_independent: float
    queries: int
    answers: float
    delta: float
    conversion: Conversion
    order: float
    publishable: tuple[str, ...]
    epsilon_sanitized: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields, without a sanitized epsilon if none was drawn."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def read_votes(votes: Any) -> Votes:
    """Return votes as integers. Files often hold whole numbers as floats.

    Raises:
        InputError: They are no vote counts.
    """
    counts = np.asarray(votes)
    is_numeric = counts.dtype.kind in "iuf" and counts.ndim == 2 and len(counts) > 0 and counts.shape[1] >= 2
    if not is_numeric or not np.isfinite(counts).all() or (counts < 0).any() or (counts % 1 != 0).any():
        raise InputError(
            "Votes must be whole numbers from 0: a row for each query, a column for each of 2 or more classes."
        )
    if counts.max() > 1e6:
        raise InputError("A count of more than a million votes is not supported.")
    return counts.astype(np.int64)


def account_votes(
    votes: Any,
    mechanism: Accountable,
    delta: float,
    *,
    n_queries: int | None = None,
    n_answers: float | None = None,
    conversion: Conversion = "tight",
    orders: Floats = ORDERS,
) -> VoteAccount:
    """Sum the costs of the queries in their order.

    Args:
        votes: The vote counts (queries, classes).
        mechanism: The vote mechanism.
        delta: The delta of the result.
        n_queries: The number of queries; None for all.
        n_answers: The number of expected answers at which to stop; None for all queries.
        conversion: The conversion from Renyi bounds to epsilon.
        orders: The Renyi orders.

    Raises:
        InputError: A value is out of range, or both `n_queries` and `n_answers` are given.
    """
    counts = read_votes(votes)
    check_delta(delta, positive=True)
    if not isinstance(mechanism, Accountable):
        raise InputError("Votes are accounted for LNMax, GNMax and ConfidentGNMax.")
    if conversion not in ("classic", "tight"):
        raise InputError("conversion must be classic or tight.")
    probabilities = answer_probabilities(counts, mechanism)
    n_walked = resolve_n_queries(probabilities, n_queries, n_answers)
    counts, probabilities = counts[:n_walked], probabilities[:n_walked]
    expected_answers = (
        math.fsum(probabilities) if n_answers is None else min(math.fsum(probabilities), float(n_answers))
    )
    dependent, order = epsilon_from_rdp(
        data_dependent_rdp(counts, mechanism, orders, probabilities), orders, delta, conversion
    )
    independent, _ = epsilon_from_rdp(
        data_independent_rdp(mechanism, n_walked, math.ceil(expected_answers), orders), orders, delta, conversion
    )
    # The number of confident queries and the query at which the answers are reached depend on the votes. Caps that the
    # votes set must not be published.
    depends_on_votes = n_answers is not None or isinstance(mechanism, ConfidentGNMax)
    publishable = () if depends_on_votes else ("epsilon_data_independent",)
    return VoteAccount(
        min(dependent, independent), independent, n_walked, expected_answers, delta, conversion, order, publishable
    )


def answer_probabilities(votes: Votes, mechanism: Accountable) -> Floats:
    """Return the probability that each query is answered."""
    if not isinstance(mechanism, ConfidentGNMax):
        return np.ones(len(votes))
    shortfall, tail = _shortfall(votes, mechanism)
    return np.where(
        shortfall >= 1, np.exp(tail[np.maximum(shortfall, 0)]), -np.expm1(tail[np.maximum(1 - shortfall, 0)])
    )


def resolve_n_queries(probabilities: Floats, n_queries: int | None, n_answers: float | None) -> int:
    """Return the number of queries to account for."""
    if n_queries is not None and n_answers is not None:
        raise InputError("Stop at so many queries or at so many answers, not at both.")
    if n_queries is not None:
        if (
            isinstance(n_queries, bool)
            or not isinstance(n_queries, int | np.integer)
            or not 1 <= n_queries <= len(probabilities)
        ):
            raise InputError(
                f"n_queries must be a whole number from 1 to the {len(probabilities)} queries of the votes.",
                parameter="n_queries",
            )
        return int(n_queries)
    if n_answers is None:
        return len(probabilities)
    if isinstance(n_answers, bool) or not isinstance(n_answers, int | float) or not 0 < n_answers < math.inf:
        raise InputError("n_answers must be a number above zero.", parameter="n_answers")
    expected_answers = np.cumsum(probabilities)
    if expected_answers[-1] < n_answers * (1 - _ROUNDING_SLACK):
        raise InputError(
            f"The {len(probabilities)} queries give fewer than {n_answers:g} expected answers: ask for fewer."
        )
    return int(np.argmax(expected_answers >= n_answers * (1 - _ROUNDING_SLACK))) + 1


def data_independent_rdp(mechanism: VoteAggregator, n_queries: int, n_answers: int, orders: Floats = ORDERS) -> Floats:
    """Return the Renyi bound of a run with so many queries and answers at each order, for any votes."""
    loss = mechanism.loss(n_queries, n_answers)
    return np.array([loss.rdp(order) for order in orders.tolist()])


def data_dependent_rdp(
    votes: Votes, mechanism: Accountable, orders: Floats = ORDERS, weights: Floats | None = None
) -> Floats:
    """Return the Renyi bound of these votes at each order. Each answer counts by `weights`, each test fully."""
    weights = answer_probabilities(votes, mechanism) if weights is None else weights
    log_q = log_wrong_probability(votes, mechanism)
    if isinstance(mechanism, LNMax):
        return laplace_rdp(log_q, mechanism.scale, orders, weights)
    if isinstance(mechanism, GNMax):
        return gaussian_rdp(log_q, mechanism.sigma, orders, weights)
    tests = gaussian_rdp(
        log_rarer_probability(votes, mechanism), math.sqrt(2) * mechanism.sigma1, orders, np.ones(len(votes))
    )
    return tests + gaussian_rdp(log_q, mechanism.sigma2, orders, weights)


def epsilon_from_rdp(rdp: Floats, orders: Floats, delta: float, conversion: Conversion) -> tuple[float, float]:
    """Turn Renyi bounds into the smallest epsilon, with the order that gives it."""
    if conversion == "tight":
        from dp_accounting.rdp import compute_epsilon

        epsilon, order = compute_epsilon(orders, rdp, delta)
    else:
        classic = rdp - math.log(delta) / (orders - 1)
        epsilon, order = classic.min(), orders[classic.argmin()]
    return float(epsilon) * (1 + _ROUNDING_SLACK) + _ROUNDING_SLACK, float(order)


def log_wrong_probability(votes: Votes, mechanism: Accountable) -> Floats:
    """Return the log of a bound on the probability that each noisy maximum is not the winner."""
    winner = np.argmax(votes, axis=1)[:, None]
    leads = np.take_along_axis(votes, winner, axis=1) - votes + (np.arange(votes.shape[1]) > winner)
    log_probabilities = difference_tail(mechanism, int(leads.max()))[leads]
    np.put_along_axis(log_probabilities, winner, -np.inf, axis=1)
    return np.minimum(np.logaddexp.reduce(log_probabilities, axis=1) + _ROUNDING_SLACK, 0.0)


def difference_tail(mechanism: Accountable, max_difference: int) -> Floats:
    """Return log P(difference of the noises of two counts >= k) for k from 0 to `max_difference`."""
    if isinstance(mechanism, LNMax):
        return laplace_difference_tail(mechanism.scale, np.arange(max_difference + 1))
    sigma = mechanism.sigma2 if isinstance(mechanism, ConfidentGNMax) else mechanism.sigma
    return gaussian_difference_tail(sigma, max_difference)


def log_rarer_probability(votes: Votes, mechanism: ConfidentGNMax) -> Floats:
    """Return the log of the probability of the rarer outcome of each threshold test."""
    shortfall, tail = _shortfall(votes, mechanism)
    return tail[np.where(shortfall >= 1, shortfall, 1 - shortfall)]


def _shortfall(votes: Votes, mechanism: ConfidentGNMax) -> tuple[NDArray[np.int64], Floats]:
    """Return how much noise each query needs to reach the threshold, and the tail of that noise."""
    shortfall = math.ceil(mechanism.threshold) - votes.max(axis=1)
    return shortfall, gaussian_tail(mechanism.sigma1, int(np.abs(shortfall).max()) + 1)


def gaussian_rdp(log_q: Floats, sigma: float, orders: Floats, weights: Floats | None = None) -> Floats:
    """Return the bounds at each order for noise with the Renyi bound order / sigma^2: (queries, orders).

    With `weights`, return their weighted sum over the queries.
    """
    base, variance = orders / sigma**2, sigma**2
    values, inverse = np.unique(log_q, return_inverse=True)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        m2 = sigma * np.sqrt(-values)  # Proposition 10 of Papernot et al. (2018)
        m1 = m2 + 1
        r1, r2 = m1 / variance, m2 / variance
        # Valid where the bound grows with q, so a bound on q may replace q, and the neighbor's probability is below 1.
        limit = (m2 - 1) * r2 - m2 * (np.log(m1 / (m1 - 1)) + np.log(m2 / (m2 - 1)))
        is_valid = (m2 > 1) & (values <= limit) & (-values > r2)
        log_p = log_one_minus_exp(values)
        a = log_p - log_one_minus_exp(np.where(is_valid, (values + r2) * (1 - 1 / m2), -1.0))
        b = r1 - values / (m1 - 1)

    def bound(block: slice) -> Floats:
        return np.where(
            is_valid[block, None] & (orders <= m1[block, None]),
            _two_outcome_bound(values[block], log_p[block], a[block], b[block], orders),
            base,
        )

    return _evaluate_in_blocks(bound, base, inverse, values.size, weights)


def laplace_rdp(log_q: Floats, scale: float, orders: Floats, weights: Floats | None = None) -> Floats:
    """Return the bounds at each order for Laplace votes: (queries, orders), or their weighted sum over the queries."""
    e = 2 / scale
    base = data_independent_rdp(LNMax(scale, 1), 1, 1, orders)
    values, inverse = np.unique(log_q, return_inverse=True)
    is_valid = values < -e
    log_p = log_one_minus_exp(np.where(is_valid, values, -1.0))
    a_lower = log_p - log_one_minus_exp(np.where(is_valid, values - e, -1.0))
    a_upper = log_p - log_one_minus_exp(np.where(is_valid, values + e, -1.0))

    def bound(block: slice) -> Floats:
        lower = _two_outcome_bound(values[block], log_p[block], a_lower[block], np.full_like(a_lower[block], e), orders)
        upper = _two_outcome_bound(
            values[block], log_p[block], a_upper[block], np.full_like(a_upper[block], -e), orders
        )
        return np.where(is_valid[block, None], np.maximum(lower, upper), base)

    return _evaluate_in_blocks(bound, base, inverse, values.size, weights)


def _two_outcome_bound(log_q: Floats, log_p: Floats, a: Floats, b: Floats, orders: Floats) -> Floats:
    """Return log(p exp((order-1) a) + q exp((order-1) b)) / (order-1), for the common outcome and the rare one."""
    order_minus_one = orders - 1
    common = a[:, None] * order_minus_one + log_p[:, None]
    rare = b[:, None] * order_minus_one
    rare += log_q[:, None]
    rare -= common
    # Far above 0 the exponential would overflow. The bound then exceeds the data-independent one anyway.
    np.minimum(rare, 700.0, out=rare)
    np.exp(rare, out=rare)
    np.log1p(rare, out=rare)
    rare += common
    rare /= order_minus_one
    return rare


def _evaluate_in_blocks(
    bound: Any, base: Floats, inverse: NDArray[np.intp], n_values: int, weights: Floats | None
) -> Floats:
    """Evaluate block by block, never above the data-independent bound; equal queries are evaluated once."""
    blocks = [slice(start, min(start + _BLOCK_SIZE, n_values)) for start in range(0, n_values, _BLOCK_SIZE)]
    if weights is None:
        bounds = np.concatenate([np.clip(bound(block), 0.0, base) for block in blocks])
        return bounds[inverse]
    value_weights = np.bincount(inverse, weights, minlength=n_values)
    return np.sum([value_weights[block] @ np.clip(bound(block), 0.0, base) for block in blocks], axis=0)
