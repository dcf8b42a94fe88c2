"""Formulas from the distributions of the mechanisms: accuracy of labels, information, and reliability of votes.

They use no labels, no data and no randomness. The only assumption about the data is `purity`: the share of rows that
belong to the largest class of their cluster, the other classes being equally frequent.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, xlogy
from scipy.stats import binom

from labeldp.accounting.calibration import analytic_gaussian_ratio, bisect_largest, unit_shift_sigma
from labeldp.accounting.losses import LATTICE_SIGMA, GaussianLoss
from labeldp.releases.responses import response_probabilities

FeatureKindName = Literal["table", "embeddings", "images"]
Device = Literal["cpu", "cuda"]
Noise = Literal["laplace", "gaussian"]

# Probability that noise does not change the winner of a vote, from which the vote is reliable.
RELIABLE_VOTE = 0.99
# Assumed number of columns of rows that are summed.
_ASSUMED_COLUMNS = {"table": 16, "embeddings": 512, "images": 512}
# Standard deviation above which the lattice bound is as good as exact sums, and faster.
_WIDE_SIGMA = 50.0


@dataclass(frozen=True)
class ProblemSpec:
    """The public facts of a training, and the assumed purity.

    Attributes:
        n_rows: The number of labeled rows.
        n_classes: The number of classes.
        epsilon: The epsilon of a label.
        delta: The delta of a label.
        features: The type of the features.
        device: The device of the training.
        n_clusters: The number of clusters.
        purity: The share of rows in the largest class of their cluster.
        positives: The share of the rarer of two classes, if it is known.
    """

    n_rows: int
    n_classes: int
    epsilon: float
    delta: float
    features: FeatureKindName
    device: Device
    n_clusters: int
    purity: float
    positives: float | None = None

    @property
    def n_columns(self) -> int:
        """The assumed number of columns."""
        return _ASSUMED_COLUMNS[self.features]

    @cached_property
    def n_effective_rows(self) -> float:
        """The number of rows of a balanced problem of the same difficulty: twice the rows of a rare class."""
        return self.n_rows if self.positives is None else 2 * self.positives * self.n_rows

    @cached_property
    def other_class_share(self) -> float:
        """The share of each other class in a cluster."""
        return (1 - self.purity) / (self.n_classes - 1)

    @cached_property
    def margin(self) -> float:
        """The number of rows by which the largest class of a cluster leads."""
        return self.n_effective_rows / self.n_clusters * (self.purity - self.other_class_share)


# ---------------------------------------------------------------- accuracy of labels


def response_accuracy(epsilon: float, n_classes: int) -> float:
    """Return the probability that randomized response retains the label: exp(epsilon) / (exp(epsilon) + K - 1)."""
    return response_probabilities(epsilon, n_classes)[0]


def prior_response_accuracy(epsilon: float, n_classes: int, quality: float) -> float:
    """Return the accuracy of `RRWithPrior` for a prior with `quality` on the likeliest class, the rest uniform.

    The accuracy w_k / (1 + (k - 1) exp(-epsilon)) is then a ratio of linear functions of k, so that k = 1 (repeat the
    prior) or k = K (plain randomized response) is best.
    """
    return max(quality, response_accuracy(epsilon, n_classes))


def laplace_accuracy(epsilon: float, n_classes: int) -> float:
    """Return the probability that the label has the largest evidence by `OneHotLaplace`, ties broken at random.

    With noise q^|x| on the unit grid, q = exp(-epsilon / 2), the evidence is only whether a coordinate is above zero:
    with probability 1 - f for the label, f = q / (1 + q) for another class. So the release is K bits, each flipped with
    probability f. The label wins if its bit is set, against M ~ Binomial(K - 1, f) others, or if no bit is set.
    """
    flip_probability = _flip_probability(epsilon)
    no_bit_set = math.exp(n_classes * math.log1p(-flip_probability))
    return (1 - flip_probability) * (1 - no_bit_set) / (
        n_classes * flip_probability
    ) + flip_probability * no_bit_set / (1 - flip_probability) / n_classes


def _flip_probability(epsilon: float) -> float:
    return max(math.exp(-epsilon / 2) / (1 + math.exp(-epsilon / 2)), 1e-300)


def noisy_argmax_accuracy(noise: Noise, scale: float, lead: float, n_classes: int) -> float:
    """Return the probability that the largest of K noisy numbers is the one that leads by `lead`; the others are equal.

    Noise is on integers: Laplace with P(x) proportional to exp(-|x| / scale), or Gaussian with deviation `scale`. With
    F its distribution function and f its mass function, a number at x is the largest of K, ties broken at random, with
    probability (F(x)^K - F(x-1)^K) / (K f(x)). Wide noise is approximated as continuous.
    """
    half_width = 40.0 if noise == "laplace" else 12.0  # in scales; the mass outside is below 1e-17
    if scale > 200:
        x = np.linspace(-half_width, half_width, 16001)
        density = np.exp(-np.abs(x) if noise == "laplace" else -(x**2) / 2)
        y = x + lead / scale
        if noise == "gaussian":
            below = log_ndtr(y)
        else:
            below = np.where(y < 0, np.minimum(y, 0) - math.log(2), np.log1p(-0.5 * np.exp(-np.maximum(y, 0))))
        return float((np.exp((n_classes - 1) * below) * density).sum() / density.sum())
    limit = math.ceil(half_width * scale) + 1
    grid = np.arange(-limit, limit + 1)
    step = np.exp(-np.abs(grid) / scale if noise == "laplace" else -(grid**2) / (2 * scale**2))
    step = step[step > 1e-300] / step.sum()
    below, above = np.cumsum(step), np.append(np.cumsum(step[::-1])[-2::-1], 0.0)
    log_below = np.where(below < 0.5, np.log(below), np.log1p(-np.minimum(above, 0.5)))  # precise in both tails
    ties = -np.expm1(n_classes * np.log1p(-np.minimum(step * np.exp(-log_below), 1 - 1e-16))) / (n_classes * step)
    wins = np.append(np.exp(n_classes * log_below) * ties, 1.0)  # above the grid, no other number is as large
    return float((step * wins[np.minimum(np.arange(step.size) + math.floor(lead), step.size)]).sum())


# ---------------------------------------------------------------- information


def response_information(epsilon: float, n_classes: int) -> float:
    """Return the mutual information, in nats, of randomized response and a uniform label."""
    p_true = response_accuracy(epsilon, n_classes)
    p_other = p_true * math.exp(-epsilon)
    return _clip_rounding(xlogy(p_true, n_classes * p_true) + (n_classes - 1) * xlogy(p_other, n_classes * p_other))


def rare_label_efficiency(epsilon: float, positives: float) -> float:
    """Return the information of a randomized response, relative to that of a clean label, for a rare class.

    With H the binary entropy, a clean label has H(positives) nats. A noisy label has
    H(flipped + (1 - 2 flipped) positives) - H(flipped) nats.
    """
    flip_probability = 1 - response_accuracy(epsilon, 2)
    information = _entropy(flip_probability + (1 - 2 * flip_probability) * positives) - _entropy(flip_probability)
    return max(0.0, information / _entropy(positives))


def rare_precision(epsilon: float, positives: float) -> float:
    """Return the precision of positive labels after randomized response."""
    accuracy = response_accuracy(epsilon, 2)
    return positives * accuracy / (positives * accuracy + (1 - positives) * (1 - accuracy))


def _entropy(p: float) -> float:
    return -math.fsum(x * math.log(x) for x in (p, 1 - p) if x > 0)


def laplace_information(epsilon: float, n_classes: int) -> float:
    """Return the mutual information, in nats, of `OneHotLaplace` and a uniform label.

    The release is K bits, see `laplace_accuracy`. A class whose bit is set is exp(epsilon) times as likely as one whose
    bit is not, so that only the number of set bits matters.
    """
    flip_probability = _flip_probability(epsilon)
    width = 40 * math.sqrt(n_classes * flip_probability * (1 - flip_probability)) + 40
    others = np.arange(
        max(0, math.floor(n_classes * flip_probability - width)),
        min(n_classes - 1, math.ceil(n_classes * flip_probability + width)) + 1,
    )
    probabilities = binom.pmf(others, n_classes - 1, flip_probability)
    with np.errstate(divide="ignore"):
        log_others = np.log(others)
    set_bit = -np.logaddexp(np.log(1.0 + others), np.log(np.maximum(n_classes - 1 - others, 1e-300)) - epsilon)
    no_bit = -epsilon - np.logaddexp(log_others, np.log(n_classes - others) - epsilon)
    return _clip_rounding(
        math.log(n_classes) + probabilities @ ((1 - flip_probability) * set_bit + flip_probability * no_bit)
    )


def channel_information(on: NDArray[np.float64], off: NDArray[np.float64], n_classes: int) -> float:
    """Return the mutual information, in nats, of a uniform label and K independent draws.

    The draw of the label's coordinate has the distribution `on`, and the draws of the others have `off`.

    With w = on / off the likelihood ratio of a coordinate, this is log K + E log w_label - E log(sum of w). The last
    term is one integral instead of a K-fold one, since log A is the integral of (exp(-t) - exp(-t A)) / t over t > 0,
    and the mean of exp(-t sum of w) is a product over coordinates. t = exp(u) makes the trapezoid rule converge fast.
    """
    log_ratio = np.log(on) - np.log(off)
    # Outside of this range, the integrand is below rounding errors.
    t = np.exp(np.arange(-40.0 - log_ratio.max(), 6.0 - log_ratio.min() + math.log(n_classes), 1 / 16))
    with np.errstate(over="ignore"):
        transform = np.exp(-np.outer(t, np.exp(log_ratio) / n_classes))
    log_sum = np.sum(np.exp(-t) - (transform @ on) * (transform @ off) ** (n_classes - 1)) / 16
    return _clip_rounding(on @ log_ratio - log_sum)


def gaussian_information(sigma: float, n_classes: int) -> float:
    """Return the mutual information, in nats, of a uniform label and its one-hot encoding with Gaussian noise."""
    stride = max(1, math.floor(sigma / 16))  # accurate for a Gaussian that is 16 times as wide
    x = np.arange(-math.ceil(10 * sigma / stride) - 1, math.ceil(10 * sigma / stride) + 3) * stride
    off, on = (np.exp(np.maximum(-((x - mean) ** 2) / (2 * sigma**2), -690)) for mean in (0, 1))
    return channel_information(on / on.sum(), off / off.sum(), n_classes)


def _clip_rounding(value: float | np.floating[Any]) -> float:
    """Return a difference of logarithms, or 0 if it is below their rounding errors."""
    return float(value) if value > 1e-9 else 0.0


# ---------------------------------------------------------------- votes of clusters


def agreed_accuracy(epsilon: float, quality: float) -> float:
    """Return the accuracy of the labels that agree with a pseudo-label, whose own accuracy is `quality`.

    Equation 8 of Tang et al. (2022): exp(epsilon) / (exp(epsilon) + (1 - quality) / quality).
    """
    return quality / (quality + (1 - quality) * math.exp(-epsilon))


def agreement_rate(epsilon: float, n_classes: int, quality: float) -> float:
    """Return the share of labels that agree with the pseudo-label."""
    accuracy = response_accuracy(epsilon, n_classes)
    return accuracy * (quality + (1 - quality) * math.exp(-epsilon))


def min_epsilon_for_count_vote(spec: ProblemSpec, delta: float) -> float:
    """Return the smallest epsilon at which the largest noisy count of a cluster reliably names its largest class.

    Noise is geometric for delta 0 and Gaussian above. The result is infinite if no noise is small enough.
    """
    scale = max_noise_scale("gaussian" if delta else "laplace", spec)
    if not scale or not delta:
        return 2 / scale if scale else math.inf
    return GaussianLoss(scale, math.sqrt(2), n_shifts=None if scale > _WIDE_SIGMA else 1).epsilon(delta)


def max_noise_scale(noise: Noise, spec: ProblemSpec) -> float:
    """Return the largest scale of noise on counts at which a cluster's vote is reliable; 0 if there is none."""

    def is_reliable(scale: float) -> bool:
        return noisy_argmax_accuracy(noise, scale, spec.margin, spec.n_classes) >= RELIABLE_VOTE

    return bisect_largest(is_reliable, 0.05, 1e12) if is_reliable(0.05) else 0.0


def response_vote_accuracy(spec: ProblemSpec, epsilon: float) -> float:
    """Return the probability that the plurality of a cluster's responses is its largest class, by a normal limit.

    The lead of the largest class over another one has mean (a - b)(p - q) for each row. Given the labels, its variance
    comes from randomized response alone: of rows of these two classes, and of other rows that are changed to them.
    """
    a, b, n_cluster_rows = spec.purity, spec.other_class_share, spec.n_rows / spec.n_clusters
    p = response_accuracy(epsilon, spec.n_classes)
    q = p * math.exp(-epsilon)
    lead = n_cluster_rows * (a - b) * (p - q)
    variance = n_cluster_rows * ((a + b) * (p + q - (p - q) ** 2) + max(0.0, 1 - a - b) * 2 * q)
    # Only the ratio of lead and deviation matters. A scale of 1000 is integrated as continuous.
    deviation = math.sqrt(max(variance, 1e-9) / 2)
    return noisy_argmax_accuracy("gaussian", 1000.0, 1000 * lead / deviation, spec.n_classes)


def min_epsilon_for_response_vote(spec: ProblemSpec) -> float:
    """Return the smallest epsilon at which the vote among labels of randomized response is reliable."""

    def is_reliable(noise: float) -> bool:
        return response_vote_accuracy(spec, 1 / noise) >= RELIABLE_VOTE

    return 1 / bisect_largest(is_reliable, 1 / 60, 1e9) if is_reliable(1 / 60) else math.inf


def max_clusters(spec: ProblemSpec) -> int:
    """Return the most clusters of this purity whose votes are reliable with the whole epsilon."""
    total_margin = spec.n_rows * (spec.purity - spec.other_class_share)

    def is_reliable(n_clusters: float) -> bool:
        return (
            noisy_argmax_accuracy("laplace", 2 / spec.epsilon, total_margin / n_clusters, spec.n_classes)
            >= RELIABLE_VOTE
        )

    return math.floor(bisect_largest(is_reliable, 0.5, 1e12))


def noise_deviation(epsilon: float, delta: float) -> float:
    """Return the deviation of noise on counts and one-hot labels, by the lattice bound if exact sums are slow."""
    epsilon = min(epsilon, 100.0)  # above, noise is negligible and its calibration underflows
    sigma = math.hypot(math.sqrt(2) * analytic_gaussian_ratio(epsilon, delta), LATTICE_SIGMA)
    return sigma if sigma > _WIDE_SIGMA else unit_shift_sigma(epsilon, delta)
