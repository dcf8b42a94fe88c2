"""The number of teachers and the noise of their votes, from public facts alone, for recipes and the advisor."""

from collections.abc import Callable
from functools import lru_cache

from labeldp.privacy.mechanisms.stable import StableVote
from labeldp.privacy.mechanisms.vote_aggregators import ConfidentGNMax

# Answers of the teachers for each class. With more than 10 to 25, a semi-supervised student hardly improves (Malek et
# al. 2021).
ANSWERS_PER_CLASS = 20
# Queries for each answer.
QUERIES_PER_ANSWER = 3
# Fewest teachers.
MIN_TEACHERS = 10

# Noise of threshold tests in units of the noise of answers. Tests are many, and their errors matter less.
_TEST_NOISE_RATIO = 3.0
# Teachers per standard deviation of the noise. A lead of half of the teachers is then four deviations.
_TEACHERS_PER_SIGMA = 8.0
# Unstable queries after which stable votes halt.
_MAX_UNSTABLE = 10
# Probability that a query passes the stability test at the required distance.
_PASS_PROBABILITY = 0.9


def max_teachers(n_rows: int, n_classes: int) -> int:
    """Return the most teachers that still have two rows for each class, on average."""
    return max(MIN_TEACHERS, n_rows // (2 * n_classes))


@lru_cache(64)
def calibrate_confident_votes(epsilon: float, delta: float, n_queries: int, n_answers: int) -> ConfidentGNMax:
    """Return Confident-GNMax with the least noise within epsilon, for all possible votes.

    The caller sets the threshold, on which the cost does not depend.
    """

    def with_noise(sigma: float) -> ConfidentGNMax:
        return ConfidentGNMax(1.0, round(_TEST_NOISE_RATIO * sigma, 3), round(sigma, 3), n_queries, n_answers)

    return with_noise(
        calibrate_noise(lambda sigma: with_noise(sigma).loss(n_queries, n_answers).epsilon(delta), epsilon)
    )


def count_confident_teachers(votes: ConfidentGNMax, limit: int) -> int:
    """Return the number of teachers whose lead exceeds the noise, at most `limit`."""
    return int(min(max(_TEACHERS_PER_SIGMA * votes.sigma2, MIN_TEACHERS), limit))


@lru_cache(64)
def calibrate_stable_votes(epsilon: float, delta: float, n_queries: int) -> StableVote:
    """Return stable votes, which release exact winners, for a number of queries."""
    return StableVote(epsilon, delta, n_queries, min(_MAX_UNSTABLE, n_queries))


def min_unanimous_teachers(votes: StableVote) -> int:
    """Return the number of teachers with which a unanimous query passes the stability test."""
    return 2 * votes.distance_for(_PASS_PROBABILITY)


def count_stable_teachers(votes: StableVote, limit: int) -> int:
    """Return the number of teachers with which a query passes if half of them lead, at most `limit`."""
    return min(max(2 * min_unanimous_teachers(votes), MIN_TEACHERS), limit)


def calibrate_noise(epsilon_of: Callable[[float], float], epsilon: float) -> float:
    """Return the smallest noise that spends at most epsilon, to a relative precision of 0.001."""
    low, high = 0.5, 1e6
    while high / low > 1.001:
        mid = (low * high) ** 0.5
        low, high = (mid, high) if epsilon_of(mid) > epsilon - 1e-6 else (low, mid)
    return high
