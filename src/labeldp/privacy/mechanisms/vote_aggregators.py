"""Noisy votes: teachers vote on public queries, and the mechanism releases the winner of each query after noise.

Votes are counts, with one row per query and one column per class. Teachers train on disjoint rows, so a changed label
changes one teacher, and in every query at most one vote moves from one class to another: neighboring votes differ
by +1 in one class and -1 in another, or not at all.

Proof, data-independent. All noise is integer (the exact samplers of `noise.samplers`) and independent. The winner of
the noisy counts, the first of equals in the public order of the classes, is a function of the noisy counts: ties need
no separate case. So a query loses at most what its noisy counts lose, two coordinates moved by one:

- Laplace, P(x) proportional to exp(-|x| / scale). The loss of a coordinate is +1/scale or -1/scale and no value
  between: it is randomized response of epsilon 1/scale, exactly. A query is two of them.
- Gaussian, P(x) proportional to exp(-x^2 / (2 sigma^2)). A coordinate is the discrete Gaussian mechanism, whose Renyi
  divergence is at most order / (2 sigma^2) (Canonne et al. 2020). A query is two of them: order / sigma^2.
- Threshold test. The largest count moves by one at most. Noise is added to that one number only, and whether it
  reaches the threshold is released: one coordinate, order / (2 sigma1^2). Noise on each count, with the largest noisy
  count compared, would be another mechanism with twice that bound.

Composition. Which queries reach their noisy maximum, and when a run halts at a cap, depends on earlier draws. Fix two
neighboring votes. Before the run, draw the moved noisy numbers: one for each of `max_queries` tests, and the pair for
each of `max_answers` maxima. Every step of the run, for any earlier results, can be completed from the next unused draw
of its type (add the noise of the other coordinates; ignore the draw where no vote moved), in the same way for both
votes. So the whole run is a post-processing of that fixed number of independent moves, whose joint loss `VoteLoss`
states. Caps never depend on answers.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.losses import (
    ORDERS,
    Loss,
    PureLoss,
    _epsilon_from_distribution,
    gaussian_delta,
    rdp_to_epsilon,
    smallest_epsilon,
    smooth_sigma,
)
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Guarantee, Unit
from labeldp.privacy.noise.samplers import discrete_gaussian, discrete_laplace
from labeldp.privacy.noise.secure_stream import SYSTEM, Bits

Votes = NDArray[np.int64]
NoiseType = Literal["laplace", "gaussian"]
NOT_ANSWERED = -1
# Sigma, in votes, from which the lattice bound is within a thousandth of the exact sums, which are long there.
_MIN_SMOOTH_SIGMA = 50.0
# Above this epsilon, which protects nothing, the exact loss distribution is not worth seconds of computation.
_LARGE_EPSILON = 30.0


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to queries: class codes, or -1 without an answer. The first `n_queries` queries were processed."""

    codes: NDArray[np.int64]
    n_queries: int

    @property
    def n_answered(self) -> int:
        """The number of queries with an answer."""
        return int(np.count_nonzero(self.codes != NOT_ANSWERED))


@dataclass(frozen=True)
class UnitShifts:
    """A number `n` of integers with independent noise of the same distribution, each moved by one."""

    noise: NoiseType
    scale: float
    n: int

    def rdp(self, order: float) -> float:
        """Return a bound on the Renyi divergence of all shifts together."""
        if self.noise == "laplace":
            return self.n * PureLoss(1 / self.scale).rdp(order)
        return self.n * order / (2 * self.scale**2)

    def distribution(self) -> Any:
        """Return the exact loss distribution, discretized upwards."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        if self.noise == "laplace":
            return PureLoss(1 / self.scale).distribution().self_compose(self.n)
        return pld.from_discrete_gaussian_mechanism(self.scale).self_compose(self.n)


@dataclass(frozen=True)
class VoteLoss:
    """The joint loss of independent shifts, in any order.

    Wide Gaussian noise is as good as continuous noise (the lattice bound of `accounting.losses.GaussianLoss`, for each
    shift). All shifts together are then one of length sqrt(sum of 1 / sigma^2), whose loss has a closed form.
    """

    shifts: tuple[UnitShifts, ...]

    def epsilon(self, delta: float) -> float:
        """Return the smallest bound of Renyi divergence, loss distribution and sum of pure losses."""
        is_pure = all(shift.noise == "laplace" for shift in self.shifts)
        total = math.fsum(shift.n / shift.scale for shift in self.shifts) if is_pure else math.inf
        if delta <= 0:
            return total
        best = min(total, *(rdp_to_epsilon(self.rdp(order), order, delta) for order in ORDERS))
        if all(shift.noise == "gaussian" and shift.scale >= _MIN_SMOOTH_SIGMA for shift in self.shifts):
            shift_norm = math.sqrt(math.fsum(shift.n / smooth_sigma(shift.scale) ** 2 for shift in self.shifts))
            return min(best, smallest_epsilon(lambda eps: gaussian_delta(eps, 1 / shift_norm), delta))
        return best if best > _LARGE_EPSILON else min(best, _epsilon_from_distribution(self.distribution(), delta))

    def rdp(self, order: float) -> float:
        """Return the sum over all shifts."""
        return math.fsum(shift.rdp(order) for shift in self.shifts)

    def distribution(self) -> Any:
        """Return the composed loss distribution."""
        composed, *rest = [shift.distribution() for shift in self.shifts]
        for shift in rest:
            composed = composed.compose(shift)
        return composed


class VoteAggregator(ABC):
    """A mechanism that releases winners of votes. Subclasses are frozen dataclasses; construction does no work."""

    max_queries: int

    @property
    def caps(self) -> tuple[int, int]:
        """The largest numbers of queries and answers of one run. Their cost is reserved before the first draw."""
        return self.max_queries, int(getattr(self, "max_answers", self.max_queries))

    @abstractmethod
    def loss(self, n_queries: int, n_answers: int) -> Loss:
        """Return the loss of one label over at most `n_queries` and `n_answers`, for any votes."""

    @abstractmethod
    def _draw(self, votes: Votes, bits: Bits) -> Answers:
        """Answer the queries in order, at most `max_queries` of them."""

    def check(self, votes: NDArray[Any]) -> None:
        """Raise InputError if `votes` has a wrong shape or dtype. Values are not inspected."""
        if votes.ndim != 2 or votes.shape[1] < 2 or not np.issubdtype(votes.dtype, np.integer):
            raise InputError(
                "Votes must be whole numbers: a row for each query, a column for each of 2 or more classes."
            )

    def draw(self, votes: NDArray[np.integer[Any]], bits: Bits = SYSTEM) -> Answers:
        """Answer the queries in order until a cap is reached. Later queries have no answer."""
        self.check(votes)
        answers = self._draw(votes[: self.max_queries].astype(np.int64), bits)
        codes = np.full(len(votes), NOT_ANSWERED, np.int64)
        codes[: answers.codes.size] = answers.codes
        return Answers(codes, answers.n_queries)

    def guarantee(self, delta: float = 0.0, unit: Unit = "label") -> Guarantee:
        """Return what a whole run guarantees, up to its caps."""
        epsilon = self.loss(*self.caps).epsilon(delta)
        return Guarantee(epsilon, delta, unit, "central", f"{type(self).__name__}: data-independent, up to its caps")


@dataclass(frozen=True)
class LNMax(VoteAggregator):
    """The winner after discrete Laplace noise on each count (PATE, Papernot et al. 2017)."""

    scale: float
    max_queries: int

    def __post_init__(self) -> None:
        check_positive(scale=self.scale)
        check_counts(max_queries=self.max_queries)

    def loss(self, n_queries: int, n_answers: int) -> VoteLoss:
        """Return two shifts for each query, because all queries are answered."""
        return VoteLoss((UnitShifts("laplace", self.scale, 2 * n_queries),))

    def _draw(self, votes: Votes, bits: Bits) -> Answers:
        return Answers(draw_noisy_winners(votes, "laplace", self.scale, bits), len(votes))


@dataclass(frozen=True)
class GNMax(VoteAggregator):
    """The winner after discrete Gaussian noise on each count (Papernot et al. 2018)."""

    sigma: float
    max_queries: int

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma)
        check_counts(max_queries=self.max_queries)

    def loss(self, n_queries: int, n_answers: int) -> VoteLoss:
        """Return two shifts for each query, because all queries are answered."""
        return VoteLoss((UnitShifts("gaussian", self.sigma, 2 * n_queries),))

    def _draw(self, votes: Votes, bits: Bits) -> Answers:
        return Answers(draw_noisy_winners(votes, "gaussian", self.sigma, bits), len(votes))


@dataclass(frozen=True)
class ConfidentGNMax(VoteAggregator):
    """GNMax with noise sigma2, only for queries whose largest count plus noise sigma1 reaches the threshold.

    Every query pays for its test, with or without an answer. Every answer pays for its noisy maximum, with fresh noise.
    """

    threshold: float
    sigma1: float
    sigma2: float
    max_queries: int
    max_answers: int

    def __post_init__(self) -> None:
        check_positive(sigma1=self.sigma1, sigma2=self.sigma2)
        check_counts(max_queries=self.max_queries, max_answers=self.max_answers)
        if not _is_number(self.threshold):
            raise InputError("threshold must be a finite number of votes.")

    def loss(self, n_queries: int, n_answers: int) -> VoteLoss:
        """Return one shift for the test of each query and two for each answer."""
        tests = UnitShifts("gaussian", self.sigma1, n_queries)
        return VoteLoss((tests, UnitShifts("gaussian", self.sigma2, 2 * n_answers)) if n_answers else (tests,))

    def _draw(self, votes: Votes, bits: Bits) -> Answers:
        noisy_maxima = votes.max(axis=1) + discrete_gaussian(as_fraction(self.sigma1), len(votes), bits)
        passing_queries = np.flatnonzero(noisy_maxima >= self.threshold)
        n_queries = len(votes)
        if passing_queries.size >= self.max_answers:
            passing_queries = passing_queries[: self.max_answers]
            n_queries = int(passing_queries[-1]) + 1
        codes = np.full(len(votes), NOT_ANSWERED, np.int64)
        codes[passing_queries] = draw_noisy_winners(votes[passing_queries], "gaussian", self.sigma2, bits)
        return Answers(codes, n_queries)


def draw_noisy_winners(votes: Votes, noise: NoiseType, scale: float, bits: Bits) -> NDArray[np.int64]:
    """Return the first of the largest noisy counts of each query."""
    sampler = discrete_laplace if noise == "laplace" else discrete_gaussian
    return np.argmax(votes + sampler(as_fraction(scale), votes.size, bits).reshape(votes.shape), axis=1)


def check_positive(**values: float) -> None:
    """Check that each value is a finite number above zero, within the range of the samplers."""
    for name, value in values.items():
        if not _is_number(value) or not 2**-50 < value < 2**50:
            raise InputError(f"{name} must be a finite number above zero, of votes.")


def check_counts(**values: int) -> None:
    """Check that each value is a whole number from 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number from 1.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
