"""How many teachers vote, and with how much noise, by public facts alone: what recipes do, and what plans say."""

from collections.abc import Callable
from functools import lru_cache

from labeldp.privacy.mechanisms.stable import StableVote
from labeldp.privacy.mechanisms.voting import ConfidentGNMax

# Malek et al. (2021): beyond 10 to 25 labels a class, answers of teachers hardly improve a semi-supervised student.
ANSWERS_PER_CLASS = 20
QUERIES_PER_ANSWER = 3
FEW = 10  # no fewer teachers than that

_TESTS = 3.0  # noise of threshold tests, in units of that of answers: tests are many, and may be wrong more often
_AHEAD = 8.0  # teachers for each unit of noise: where half of them are ahead of the rest, that is four deviations
_UNSTABLE = 10  # queries that may fail before stable votes halt
_PASSES = 0.9  # the chance that a query passes which is far enough from another winner


def most_teachers(rows: int, classes: int) -> int:
    """Return the most teachers that still have two rows for each class, on average."""
    return max(FEW, rows // (2 * classes))


@lru_cache(64)
def confident_votes(epsilon: float, delta: float, queries: int, answers: int) -> ConfidentGNMax:
    """Return the votes with the least noise that stay within epsilon, whatever the teachers say.

    Their threshold, of which the cost knows nothing, is for the caller to set.
    """

    def votes(sigma: float) -> ConfidentGNMax:
        return ConfidentGNMax(1.0, round(_TESTS * sigma, 3), round(sigma, 3), queries, answers)

    return votes(least_noise(lambda sigma: votes(sigma).loss(queries, answers).epsilon(delta), epsilon))


def confident_teachers(votes: ConfidentGNMax, most: int) -> int:
    """Return how many teachers are heard above the noise, or as many as there can be."""
    return int(min(max(_AHEAD * votes.sigma2, FEW), most))


@lru_cache(64)
def stable_votes(epsilon: float, delta: float, queries: int) -> StableVote:
    """Return exact winners of so many queries, of which some may fail."""
    return StableVote(epsilon, delta, queries, min(_UNSTABLE, queries))


def agreed_by_all(votes: StableVote) -> int:
    """Return how many teachers take a query far enough from another winner if all of them agree."""
    return 2 * votes.distance_for(_PASSES)


def stable_teachers(votes: StableVote, most: int) -> int:
    """Return teachers enough for a query to pass if half of them lead, or as many as there can be."""
    return min(max(2 * agreed_by_all(votes), FEW), most)


def least_noise(spent: Callable[[float], float], epsilon: float) -> float:
    """Return the least noise that spends no more than epsilon, to one in a thousand."""
    low, high = 0.5, 1e6
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if spent(middle) > epsilon - 1e-6 else (low, middle)
    return high
