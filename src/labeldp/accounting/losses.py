"""Privacy losses of one unit: pure, approximate and Gaussian losses, and their composition.

Google's dp-accounting composes the losses of a plan that was fixed before its first draw. It is imported where it is
used, because most releases do not need it and it takes a second to load.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NoReturn, Protocol, TypeGuard

import numpy as np
from scipy.special import gammaln, log_expit, log_ndtr, ndtr

from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction

# In steps of the integer grid. Noise of at least this deviation makes the effect of the grid negligible (see
# `GaussianLoss`).
LATTICE_SIGMA = 2.0
# In steps of the integer grid. Above this deviation the exact sums are long, and the lattice bound is as tight.
EXACT_BELOW = 1e4


class Loss(Protocol):
    """The privacy loss of one unit from one release."""

    def epsilon(self, delta: float) -> float:
        """The smallest proved epsilon at `delta`; infinite where there is none."""

    def rdp(self, order: float) -> float:
        """A bound on the Renyi divergence of that order."""

    def distribution(self) -> Any:
        """The loss as a privacy loss distribution of dp-accounting, never below the true one."""


@dataclass(frozen=True)
class PureLoss:
    """Every probability changes by a factor exp(epsilon) at most."""

    bound: float

    def __post_init__(self) -> None:
        _check_nonnegative(self.bound)

    def epsilon(self, delta: float) -> float:
        """Return the bound, which holds at any delta."""
        return self.bound

    def rdp(self, order: float) -> float:
        """Return the divergence of binary randomized response, the largest of any mechanism with this epsilon.

        Every pure mechanism is a post-processing of binary randomized response (Kairouz, Oh and Viswanath 2015).
        """
        x = (order - 1) * self.bound
        if x > 500:
            return self.bound
        # cosh x - 1 + tanh(epsilon / 2) sinh x, in a form that keeps the digits of a small epsilon.
        excess = 2 * math.sinh(x / 2) ** 2 + math.tanh(self.bound / 2) * math.sinh(x)
        return min(self.bound, math.log1p(excess) / (order - 1))

    def distribution(self) -> Any:
        """Return the loss distribution of binary randomized response."""
        return _from_parameters(self.bound, 0.0)


@dataclass(frozen=True)
class RepeatedLoss:
    """Independent, purely private draws with a common bound: the labels of one unit, each with its own noise.

    A pure draw is a post-processing of binary randomized response (Kairouz, Oh and Viswanath 2015), and n independent
    draws are a post-processing of n such responses. The number k of true responses is binomial with
    p = exp(bound) / (1 + exp(bound)), and the loss is (2 k - n) bound. So delta is a sum of n + 1 terms.

    Attributes:
        bound: The epsilon of each draw.
        n_draws: The number n of draws.
    """

    bound: float
    n_draws: int

    def __post_init__(self) -> None:
        _check_nonnegative(self.bound, self.n_draws)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at `delta`, rounded up; the plain sum at delta 0."""
        if delta <= 0:
            return self.n_draws * self.bound
        # No term of the sum is negative, so its relative error is that of its terms.
        return smallest_epsilon(lambda epsilon: self._delta(epsilon) * (1 + 1e-9), delta)

    def rdp(self, order: float) -> float:
        """Return the sum over the draws."""
        return self.n_draws * PureLoss(self.bound).rdp(order)

    def distribution(self) -> Any:
        """Return the composed loss distribution."""
        return PureLoss(self.bound).distribution().self_compose(self.n_draws)

    def _delta(self, epsilon: float) -> float:
        from scipy.stats import binom  # slow to import, and rarely needed

        n_true = np.arange(self.n_draws + 1)
        excess = epsilon - (2 * n_true - self.n_draws) * self.bound
        probabilities = binom.pmf(n_true, self.n_draws, 1 / (1 + math.exp(-self.bound)))
        return float(probabilities @ -np.expm1(np.minimum(excess, 0.0)))


@dataclass(frozen=True)
class NoLoss:
    """The unbounded loss of a mechanism that is not private."""

    def epsilon(self, delta: float) -> float:
        """Return infinity."""
        return math.inf

    def rdp(self, order: float) -> float:
        """Return infinity."""
        return math.inf

    def distribution(self) -> NoReturn:
        """Raise InputError: a mechanism that is not private cannot be composed."""
        raise InputError("This mechanism is not private: its loss is infinite, and nothing can be composed with it.")


@dataclass(frozen=True)
class ApproximateLoss:
    """A loss of which only an (epsilon, delta) bound is known."""

    bound: float
    delta: float

    def __post_init__(self) -> None:
        _check_nonnegative(self.bound, self.delta)

    def epsilon(self, delta: float) -> float:
        """Return the bound where `delta` is at least its own, else infinity."""
        return self.bound if delta >= self.delta else math.inf

    def rdp(self, order: float) -> float:
        """Return infinity: an approximate guarantee bounds no Renyi divergence."""
        return math.inf

    def distribution(self) -> Any:
        """Return the dominating loss distribution of this guarantee."""
        return _from_parameters(self.bound, self.delta)


@dataclass(frozen=True)
class GaussianLoss:
    """Independent discrete Gaussian noise of deviation `sigma` on an integer vector.

    If `n_shifts` is given, neighboring vectors differ by +1 and -1 in that many pairs of coordinates and nowhere else
    (a histogram, or `n_shifts` one-hot rows). Then the loss is known exactly: see `unit_shift_delta`. Otherwise only
    the l2 norm of their difference, `sensitivity`, is known, and the smaller of two proved bounds holds:

    - Renyi: order * sensitivity^2 / (2 sigma^2), as for continuous noise (Canonne et al. 2020).
    - Lattice: let c^2 = sigma^2 - 2^2. Continuous Gaussian noise of deviation c followed by discrete Gaussian
      noise of deviation 2 around the (real) result is a post-processing of the continuous mechanism. By
      Poisson summation the normalizer of the second step is constant within a factor 1 + 1e-33, so the result
      has the law of discrete Gaussian noise of deviation sigma within that factor for each coordinate. The
      analytic bound of Balle and Wang at c therefore holds for the discrete noise, with an excess below
      1e-20 up to 1e12 coordinates, which `_ROUNDING_MARGIN` covers.
    """

    sigma: float
    sensitivity: float
    n_shifts: int | None = None

    def __post_init__(self) -> None:
        _check_nonnegative(self.sensitivity, self.n_shifts or 0)
        if not self.sigma > 0:
            raise InputError("Gaussian noise needs a deviation above 0.")

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon that is proved at `delta`."""
        if delta <= 0:
            return math.inf
        if self.n_shifts == 1 and self.sigma < EXACT_BELOW:
            return smallest_epsilon(lambda eps: unit_shift_delta(eps, self.sigma), delta)
        best = min(rdp_to_epsilon(self.rdp(order), order, delta) for order in ORDERS)
        if self.n_shifts is not None and self.sigma < EXACT_BELOW:
            return min(best, _epsilon_from_distribution(self.distribution(), delta))
        smooth = self._smooth_sigma()
        if smooth > 0:
            ratio = smooth / self.sensitivity
            best = min(best, smallest_epsilon(lambda eps: gaussian_delta(eps, ratio), delta))
        return best

    def rdp(self, order: float) -> float:
        """Return order * sensitivity^2 / (2 sigma^2)."""
        return order * self.sensitivity**2 / (2 * self.sigma**2)

    def distribution(self) -> Any:
        """Return the exact distribution for unit shifts, else that of the lattice bound."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        if self.n_shifts is not None:
            return pld.from_discrete_gaussian_mechanism(self.sigma).self_compose(2 * self.n_shifts)
        if self._smooth_sigma() <= 0:
            raise InputError("This noise is too small to be composed: use a finer grid or a smaller epsilon.")
        return pld.from_gaussian_mechanism(self._smooth_sigma(), sensitivity=self.sensitivity)

    def _smooth_sigma(self) -> float:
        return smooth_sigma(self.sigma)


def smooth_sigma(sigma: float) -> float:
    """Return the deviation of continuous noise whose output dominates that of discrete noise: the lattice bound."""
    return math.sqrt(max(0.0, sigma**2 - LATTICE_SIGMA**2)) * (1 - _ROUNDING_MARGIN)


_ROUNDING_MARGIN = 1e-9
ORDERS = [1 + x / 100 for x in range(1, 100, 3)] + [2 + x / 10 for x in range(100)] + list(range(12, 512, 4))


def _check_nonnegative(*values: float) -> None:
    """Raise InputError for a negative loss, which would reduce the cost of others."""
    if not all(part >= 0 for part in values):
        raise InputError("A loss cannot be below zero, nor unknown: state what one unit may lose.")


def covers(declared: Loss, actual: Loss) -> bool:
    """Return whether a plan that was charged for `declared` may draw a mechanism with the loss `actual`.

    Proof. The plan's cost is that of a product of dominating pairs, so a pair may be replaced by one that it dominates:
    one that is a post-processing of it.

    - Pure: a response that is true with odds exp(bound), flipped at random, has any smaller odds.
    - Gaussian on the lattice (see `GaussianLoss`): the pair is continuous noise at (sigma^2 - 2^2) / sensitivity^2, and
      more noise gives every larger ratio. The Renyi bound falls with sigma^2 / sensitivity^2, so neither of these two
      ratios may be smaller than declared. They are compared exactly.
    - Any other loss covers what is equal to it: exact distributions on the grid are not ordered by sigma.

    Args:
        declared: The loss that was charged.
        actual: The loss of the mechanism.

    Returns:
        Whether `actual` is proved to lose no more at any delta and at any Renyi order, alone and in any composition.
    """
    if type(declared) is PureLoss and type(actual) is PureLoss:
        return actual.bound <= declared.bound
    if _is_on_lattice(declared) and _is_on_lattice(actual):
        declared_sensitivity, actual_sensitivity = (Fraction(loss.sensitivity) ** 2 for loss in (declared, actual))
        declared_variance, actual_variance = (Fraction(loss.sigma) ** 2 for loss in (declared, actual))
        lattice_variance = Fraction(LATTICE_SIGMA) ** 2
        return (
            declared_variance * actual_sensitivity <= actual_variance * declared_sensitivity
            and (declared_variance - lattice_variance) * actual_sensitivity
            <= (actual_variance - lattice_variance) * declared_sensitivity
        )
    return declared == actual


def _is_on_lattice(loss: Loss) -> TypeGuard[GaussianLoss]:
    """Whether a composition uses the lattice bound of a loss."""
    if type(loss) is not GaussianLoss or loss.n_shifts is not None:
        return False
    return 0 < loss.sensitivity < math.inf and LATTICE_SIGMA < loss.sigma < math.inf


def compose(losses: Sequence[Loss], delta: float) -> float:
    """Return epsilon at `delta` for a plan of losses that was fixed before the first of them."""
    plain_sum = _basic_composition(losses)
    if delta == 0 and all(isinstance(loss, PureLoss | RepeatedLoss) for loss in losses):
        return plain_sum
    if len(losses) == 1:
        return losses[0].epsilon(delta)
    # Both compositions are rounded up. The plain sum and the Renyi bound hold as well, so the smallest one is returned.
    joint_delta = _joint_delta(losses) if delta > 0 else None
    if joint_delta is not None:
        composed = smallest_epsilon(lambda epsilon: joint_delta(epsilon) * (1 + 1e-9), delta)
    else:
        total = losses[0].distribution()
        for loss in losses[1:]:
            total = total.compose(loss.distribution())
        composed = _epsilon_from_distribution(total, delta)
    rdp_epsilon = min(rdp_to_epsilon(math.fsum(loss.rdp(order) for loss in losses), order, delta) for order in ORDERS)
    return min(composed, rdp_epsilon, plain_sum)


def _basic_composition(losses: Sequence[Loss]) -> float:
    """Return the sum of epsilons at delta 0, as exact decimals, rounded up."""
    parts = [
        (loss.bound, loss.n_draws) if isinstance(loss, RepeatedLoss) else (loss.epsilon(0.0), 1) for loss in losses
    ]
    if not all(math.isfinite(bound) for bound, _ in parts):
        return math.inf
    total = sum((n_draws * as_fraction(bound) for bound, n_draws in parts), Fraction(0))
    rounded = float(total)
    return rounded if as_fraction(rounded) >= total else math.nextafter(rounded, math.inf)


_MAX_OUTCOMES = 1 << 14  # joint outcomes that are summed one by one


def _joint_delta(losses: Sequence[Loss]) -> Callable[[float], float] | None:
    """Return delta as a function of epsilon, for pure and Gaussian losses; None for other losses or many outcomes.

    Proof. The product of dominating pairs dominates a plan, however its steps depend on earlier ones (Zhu, Dong and
    Wang 2022, Theorem 10). Gaussian pairs at ratios r are one at the inverse root of the sum of r^-2. A pure pair is
    randomized response, whose loss is the bound or its negative. `RepeatedLoss` states how often each occurs in equal
    draws. So delta is the mean, over all joint outcomes, of the Gaussian delta at epsilon minus the outcome's loss.
    """
    draws, squared_shift = Counter[float](), 0.0
    for loss in losses:
        if isinstance(loss, PureLoss | RepeatedLoss):
            draws[loss.bound] += loss.n_draws if isinstance(loss, RepeatedLoss) else 1
        elif _is_on_lattice(loss):
            squared_shift += (loss.sensitivity / smooth_sigma(loss.sigma)) ** 2
        else:
            return None
    if math.prod(n_draws + 1 for n_draws in draws.values()) > _MAX_OUTCOMES or not all(map(math.isfinite, draws)):
        return None
    outcome_losses, log_probabilities = np.zeros(1), np.zeros(1)
    for bound, n_draws in draws.items():
        n_true = np.arange(n_draws + 1)
        log_probability = gammaln(n_draws + 1) - gammaln(n_true + 1) - gammaln(n_draws - n_true + 1)
        log_probability += n_true * log_expit(bound) + (n_draws - n_true) * log_expit(-bound)
        outcome_losses = np.add.outer(outcome_losses, (2 * n_true - n_draws) * bound).ravel()
        log_probabilities = np.add.outer(log_probabilities, log_probability).ravel()
    probabilities, shift = np.exp(log_probabilities), squared_shift**0.5

    def delta(epsilon: float) -> float:
        excess = epsilon - outcome_losses
        if not shift:
            return float(probabilities @ -np.expm1(np.minimum(excess, 0.0)))
        a, b = shift / 2, excess / shift
        return float(probabilities @ (ndtr(a - b) - np.exp(np.minimum(excess + log_ndtr(-a - b), 0.0))))

    return delta


def rdp_to_epsilon(rdp: float, order: float, delta: float, conversion: Literal["classic", "tight"] = "tight") -> float:
    """Turn a Renyi bound into epsilon at `delta`.

    "classic" is Mironov's lemma (2017), which the papers use; "tight" is Proposition 12 of Canonne et al.
    (2020), never above it.
    """
    if delta <= 0 or order <= 1:
        return math.inf
    classic = rdp - math.log(delta) / (order - 1)
    if conversion == "classic":
        return classic
    return max(0.0, classic + math.log1p(-1 / order) - math.log(order) / (order - 1))


def unit_shift_delta(epsilon: float, sigma: float) -> float:
    """Return the exact delta of discrete Gaussian noise for a shift of +1 in one coordinate and -1 in another.

    With D the difference of the two noises, the loss is (1 - D) / sigma^2. The law of D is
    exp(-d^2 / (4 sigma^2)) times a theta sum that depends only on whether d is even, so
    delta = sum over d < 1 - epsilon sigma^2 of P(d) (1 - exp(epsilon - (1 - d) / sigma^2)), terms above zero.
    """
    variance = sigma * sigma
    cutoff = math.ceil(40 * sigma) + 2
    x = np.arange(-cutoff, cutoff + 1)
    theta = [np.exp(-((x - half) ** 2) / variance).sum() for half in (0.0, 0.5)]
    log_total = 2 * math.log(np.exp(-(x**2) / (2 * variance)).sum())
    max_d = math.ceil(1 - epsilon * variance) - 1  # the largest d whose loss is above epsilon
    d = np.arange(max_d - math.ceil(60 * sigma) - 2, max_d + 1)
    log_mass = -(d**2) / (4 * variance) + np.log(np.where(d % 2 == 0, theta[0], theta[1])) - log_total
    return float((np.exp(log_mass) * -np.expm1(epsilon - (1 - d) / variance)).sum())


def gaussian_delta(epsilon: float, ratio: float) -> float:
    """Return delta of continuous Gaussian noise, `ratio` being sigma over sensitivity (Balle and Wang 2018)."""
    a, b = 0.5 / ratio, epsilon * ratio
    return float(ndtr(a - b) - math.exp(min(epsilon + log_ndtr(-a - b), 0.0)))


# An absolute error of delta. Compositions by Fourier transforms in float64 are off by about 1e-13 at any delta.
_FOURIER_ERROR = 1e-11


def _epsilon_from_distribution(distribution: Any, delta: float) -> float:
    """Return epsilon of a composed distribution, rounded up by more than the error of its float64 sums.

    For a delta within this error it returns infinity; other bounds apply there.
    """
    if delta <= _FOURIER_ERROR:
        return math.inf
    return float(distribution.get_epsilon_for_delta(delta - _FOURIER_ERROR)) * (1 + 1e-8) + 1e-7


def smallest_epsilon(delta_at: Any, delta: float) -> float:
    """Return an epsilon with `delta_at(epsilon) <= delta`, within 1e-9 of the smallest."""
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        mid = (low + high) / 2
        low, high = (low, mid) if delta_at(mid) <= delta else (mid, high)
    return high


def _from_parameters(epsilon: float, delta: float) -> Any:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, delta))
