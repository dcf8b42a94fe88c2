"""How many teachers vote, and with how much noise, by public facts alone: what recipes do, and what plans say."""

from collections.abc import Callable
from functools import lru_cache

from labeldp.privacy.mechanisms.stable import StableVote
from labeldp.privacy.mechanisms.voting import ConfidentGNMax

# Malek et al. (2021): beyond 10 to 25 labels a class, answers of teachers hardly improve a semi-supervised student.
ANSWERS_PER_CLASS = 20
QUERIES_PER_ANSWER = 3
MIN_TEACHERS = 10  # no fewer teachers than that

_TEST_NOISE_RATIO = (
    3.0  # noise of threshold tests, in units of that of answers: tests are many, and may be wrong more often
)
_TEACHERS_PER_SIGMA = (
    8.0  # teachers for each unit of noise: where half of them are ahead of the rest, that is four deviations
)
_MAX_UNSTABLE = 10  # queries that may fail before stable votes halt
_PASS_PROBABILITY = 0.9  # the chance that a query passes which is far enough from another winner


def max_teachers(n_rows: int, n_classes: int) -> int:
    """Return the most teachers that still have two rows for each class, on average."""
    return max(MIN_TEACHERS, n_rows // (2 * n_classes))


@lru_cache(64)
def calibrate_confident_votes(epsilon: float, delta: float, n_queries: int, n_answers: int) -> ConfidentGNMax:
    """Return the votes with the least noise that stay within epsilon, whatever the teachers say.

    Their threshold, of which the cost knows nothing, is for the caller to set.
    """

    def with_noise(sigma: float) -> ConfidentGNMax:
        return ConfidentGNMax(1.0, round(_TEST_NOISE_RATIO * sigma, 3), round(sigma, 3), n_queries, n_answers)

    return with_noise(
        calibrate_noise(lambda sigma: with_noise(sigma).loss(n_queries, n_answers).epsilon(delta), epsilon)
    )


def count_confident_teachers(votes: ConfidentGNMax, limit: int) -> int:
    """Return how many teachers are heard above the noise, or as many as there can be."""
    return int(min(max(_TEACHERS_PER_SIGMA * votes.sigma2, MIN_TEACHERS), limit))


@lru_cache(64)
def calibrate_stable_votes(epsilon: float, delta: float, n_queries: int) -> StableVote:
    """Return exact winners of so many queries, of which some may fail."""
    return StableVote(epsilon, delta, n_queries, min(_MAX_UNSTABLE, n_queries))


def min_unanimous_teachers(votes: StableVote) -> int:
    """Return how many teachers take a query far enough from another winner if all of them agree."""
    return 2 * votes.distance_for(_PASS_PROBABILITY)


def count_stable_teachers(votes: StableVote, limit: int) -> int:
    """Return teachers enough for a query to pass if half of them lead, or as many as there can be."""
    return min(max(2 * min_unanimous_teachers(votes), MIN_TEACHERS), limit)


def calibrate_noise(epsilon_of: Callable[[float], float], epsilon: float) -> float:
    """Return the least noise that spends no more than epsilon, to one in a thousand."""
    low, high = 0.5, 1e6
    while high / low > 1.001:
        mid = (low * high) ** 0.5
        low, high = (mid, high) if epsilon_of(mid) > epsilon - 1e-6 else (low, mid)
    return high
