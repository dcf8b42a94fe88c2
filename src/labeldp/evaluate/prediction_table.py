"""A noisy table of labels by group of predictions, and the scores that are estimated from it."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labeldp.evaluate.intervals import Floats, Interval, acceptance_interval, grid_around, quantile
from labeldp.releases.counts import NoisyCounts

# Smaller probabilities count as this one: a single label must not make the log-loss infinite.
MIN_PROBABILITY = 1e-6


def cut_into_slices(score: Floats, weights: Floats, n_slices: int) -> NDArray[np.int64]:
    """Cut rows by score into at most `n_slices` slices of about equal weight; equal scores stay together."""
    values, inverse = np.unique(score, return_inverse=True)
    mass = np.bincount(inverse, weights, minlength=values.size)
    centers = (np.cumsum(mass) - mass / 2) / mass.sum()
    return np.minimum((centers * n_slices).astype(np.int64), n_slices - 1)[inverse]


def group_predictions(proba: Floats, epsilon: float, n_bins: int) -> NDArray[np.int64]:
    """Number the rows by predicted class and confidence bin; with two classes, in the order of the score.

    More bins have a finer resolution, and each adds its noise. Their number balances the two for AUC: with B bins,
    about 1/(2B) of it is hidden inside bins, and noise of deviation s in each bin adds about 2 sqrt(0.1 B) s / (rows of
    a class). All of this is public: the rows of a class are those that the model expects.
    """
    n_rows, n_classes = proba.shape
    predicted = proba.argmax(axis=1)
    expected = proba.sum(axis=0).min() if n_classes == 2 else n_rows / n_classes
    # At a very large epsilon there is no noise, and `n_bins` limits the number of groups.
    noise_variance = max(_variance(2 / epsilon), 1e-9)
    n_groups = (max(expected, 1.0) / (2 * math.sqrt(0.1 * noise_variance * (1 - 1 / n_classes)))) ** (2 / 3)
    if n_classes == 2:
        # Each bin has equal parts of both classes, as the model expects them: then it hides few pairs of unlike labels.
        weight = (proba / np.maximum(proba.sum(axis=0), 1e-300)).sum(axis=1)
        group_ids = 2 * cut_into_slices(proba[:, 1], weight, min(max(round(n_groups), 2), 2 * n_bins)) + predicted
    else:
        bins_per_class, confidence = min(max(round(n_groups / n_classes), 1), n_bins), proba.max(axis=1)
        group_ids = predicted * bins_per_class
        for c in np.unique(predicted):
            in_class = predicted == c
            group_ids[in_class] += cut_into_slices(confidence[in_class], np.ones(in_class.sum()), bins_per_class)
    return np.unique(group_ids, return_inverse=True)[1].astype(np.int64)


def _variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise."""
    q = math.exp(-1 / scale)
    return 2 * q / (1 - q) ** 2


class PredictionTable:
    """Noisy counts (groups, classes), with public facts of each group: its size, prediction and probabilities."""

    def __init__(self, release: NoisyCounts, proba: Floats, groups: NDArray[np.int64]) -> None:
        self.sizes = release.sizes.astype(np.float64)
        # Without noise, the counts of a group add up to its public size: remove the part of the noise that deviates.
        self.counts = release.counts - (release.counts.sum(axis=1) - self.sizes)[:, None] / release.counts.shape[1]
        self.clipped_counts = np.clip(self.counts, 0, self.sizes[:, None])
        self._proba, self._groups = proba, groups
        self.predicted = np.zeros(self.sizes.size, np.int64)
        self.predicted[groups] = proba.argmax(axis=1)
        q = math.exp(-1 / release.scale)
        self._variance, self._fourth_cumulant = _variance(release.scale), 2 * q * (1 + 4 * q + q * q) / (1 - q) ** 4

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.counts.shape[1])

    def mean(self, values: Floats, weight: Floats | None = None) -> Floats:
        """Return the mean of a value of each row over each group's rows."""
        weight = np.ones(values.size) if weight is None else np.maximum(weight, 1e-300)
        n_groups = self.sizes.size
        return np.bincount(self._groups, values * weight, n_groups) / np.bincount(self._groups, weight, n_groups)

    def noise_moments(self, weights: Floats) -> tuple[float, float]:
        """Return variance and fourth cumulant of the noise in the sum of weights times counts."""
        centered = weights - weights.mean(axis=1, keepdims=True)
        return self._variance * float((centered**2).sum()), self._fourth_cumulant * float((centered**4).sum())

    def only(self, column: int, weights: Floats) -> Floats:
        """Return weights that are zero except for one class."""
        out = np.zeros_like(self.counts)
        out[:, column] = weights
        return out

    def _noise_variance(self, theta: Floats, at_zero: Floats, slope: Floats) -> Floats:
        """Return the noise variance for weights at_zero + theta * slope, at each theta."""
        a = at_zero - at_zero.mean(axis=1, keepdims=True)
        b = slope - slope.mean(axis=1, keepdims=True)
        squares = (a**2).sum() + 2 * theta * (a * b).sum() + theta**2 * (b**2).sum()
        return self._variance * np.maximum(squares, 0.0)  # rounding may make it negative

    def precision(self, column: int) -> Interval:
        """Return the fraction of correct rows among those predicted as a class; the number of these is public."""
        is_predicted = self.predicted == column
        n_predicted = self.sizes[is_predicted].sum()
        if not n_predicted:
            return Interval(None, 0.0, 1.0)
        n_correct = min(max(self.counts[is_predicted, column].sum(), 0.0), n_predicted)
        return self._ratio_interval(
            n_correct,
            n_predicted,
            self.only(column, is_predicted.astype(np.float64)),
            np.zeros_like(self.counts),
            n_predicted,
        )

    def recall(self, column: int) -> Interval:
        """Return the fraction of rows of a class that are predicted as it: a ratio of two noisy sums."""
        is_predicted = (self.predicted == column).astype(np.float64)
        n_correct, n_of_class = float(is_predicted @ self.counts[:, column]), float(self.counts[:, column].sum())
        every = self.only(column, np.ones_like(is_predicted))
        return self._ratio_interval(n_correct, n_of_class, self.only(column, is_predicted), every, max(n_of_class, 0.0))

    def _ratio_interval(
        self, numerator: float, denominator: float, over: Floats, under: Floats, n_rows: float
    ) -> Interval:
        """Return Fieller's interval of a proportion of `n_rows` rows.

        Args:
            numerator: A noisy sum of counts.
            denominator: Another one.
            over: The weights of the counts in the numerator.
            under: The weights of the counts in the denominator.
            n_rows: The number of rows, for the sampling error.
        """
        value = min(max(numerator / denominator, 0.0), 1.0) if denominator > 0 else 0.5
        theta = grid_around(value)
        variance = self._noise_variance(theta, over, -under) + n_rows * theta * (1 - theta)
        z = quantile(float(np.interp(value, theta, variance)), self.noise_moments(over - value * under)[1])
        ends = acceptance_interval(theta, numerator - theta * denominator, z * np.sqrt(variance))
        return Interval.of_proportion(value, *ends) if ends and denominator > 0 else Interval(None, 0.0, 1.0)

    def log_loss(self) -> Interval:
        """Return the mean of -log(probability of the label).

        Inside a group the losses of rows differ, and their labels are not known: the probabilities of the model are the
        weights. The difference to the estimate without these weights is added to the interval.
        """
        n_rows, value, square, ambiguity = self.sizes.sum(), 0.0, 0.0, 0.0
        weights = np.empty_like(self.counts)
        for c in range(self.n_classes):
            losses = -np.log(np.maximum(self._proba[:, c], MIN_PROBABILITY))
            weights[:, c] = self.mean(losses, self._proba[:, c])
            value += float(self.counts[:, c] @ weights[:, c]) / n_rows
            square += float(self.clipped_counts[:, c] @ self.mean(losses**2, self._proba[:, c])) / n_rows
            ambiguity += float(self.clipped_counts[:, c] @ np.abs(self.mean(losses) - weights[:, c])) / n_rows
        variance, fourth = self.noise_moments(weights / n_rows)
        if 2 * math.sqrt(variance) > math.log(
            self.n_classes
        ):  # the noise hides the difference to uniform probabilities
            return Interval(None, 0.0, math.inf)
        variance += max(square - value**2, 0.0) / n_rows
        half_width = quantile(variance, fourth) * math.sqrt(variance) + ambiguity
        return Interval(max(value, 0.0), max(value - half_width, 0.0), max(value, 0.0) + half_width)

    def calibration_error(self) -> Interval:
        """Return the mean absolute difference between confidence and fraction of correct rows, over groups.

        Noise makes the absolute differences larger. So the upper end needs only the noise of the sum. The lower end and
        the value are corrected for the bias that noise has without a difference.
        """
        n_rows, groups = self.sizes.sum(), np.arange(self.sizes.size)
        column = np.ones_like(self.predicted) if self.n_classes == 2 else self.predicted
        confidence = self._proba[:, 1] if self.n_classes == 2 else self._proba.max(axis=1)
        gap = self.counts[groups, column] - self.sizes * self.mean(confidence)
        rate = np.clip(self.clipped_counts[groups, column] / self.sizes, 1 / (self.sizes + 2), 1 - 1 / (self.sizes + 2))
        variance = self._variance * (1 - 1 / self.n_classes) + self.sizes * rate * (1 - rate)
        observed, spread = float(np.abs(gap).sum()) / n_rows, float(np.sqrt(variance.sum())) / n_rows
        noise_bias = math.sqrt(2 / math.pi) * float(np.sqrt(variance).sum()) / n_rows
        value = float(np.sqrt(np.maximum(gap**2 - variance, 0)).sum()) / n_rows
        return Interval.of_proportion(value, observed - noise_bias - 2 * spread, observed + 2 * spread)

    def auc(self) -> Interval:
        """Return the probability that a row of a class scores higher than one of another.

        With two classes, it is that of the second class, and pairs inside a bin of several scores may have either
        order. With more, it is the mean over classes of one against the others, for scores rounded to their mean in a
        group. The ends are means of the classes' ends, which is wide enough for any dependence of the classes' errors.
        """
        if self.n_classes == 2:
            highest, lowest = np.full(self.sizes.size, -np.inf), np.full(self.sizes.size, np.inf)
            np.maximum.at(highest, self._groups, self._proba[:, 1])
            np.minimum.at(lowest, self._groups, self._proba[:, 1])
            return self._auc(1, np.arange(self.sizes.size), highest > lowest)
        intervals = [self._one_vs_rest_auc(c) for c in range(self.n_classes)]
        value = None if any(i.value is None for i in intervals) else _mean([i.value or 0.0 for i in intervals])
        low, high = _mean([i.low for i in intervals]), _mean([i.high for i in intervals])
        return Interval(value, low, high)

    def _one_vs_rest_auc(self, column: int) -> Interval:
        order = np.argsort(self.mean(self._proba[:, column]), kind="stable")
        return self._auc(column, order, np.zeros(order.size, bool))

    def _auc(self, column: int, order: NDArray[np.int64], is_ambiguous: NDArray[np.bool_]) -> Interval:
        """Return Fieller's interval of the AUC of one class.

        Groups come in `order` of score. Pairs in ambiguous groups may have either order.

        With p rows of the class among m and mid-rank R of each group (public), the pairs in the right order number
        sum(p_g R_g) - p^2 / 2, of p (m - p): only sums of counts and one square, whose bias is known.
        """
        sizes, total = self.sizes[order], float(self.sizes.sum())
        rank = np.empty_like(sizes)
        rank[order] = np.cumsum(sizes) - sizes / 2
        n_of_class, rank_sum = float(self.counts[:, column].sum()), float(rank @ self.counts[:, column])
        count_weights, rank_weights = self.only(column, np.ones_like(sizes)), self.only(column, rank)
        square = n_of_class**2 - self.noise_moments(count_weights)[0]
        if not 0 < square < total * n_of_class:  # the noise hides one of the two classes
            return Interval(None, 0.0, 1.0)
        value = min(max((rank_sum - square / 2) / (total * n_of_class - square), 0.0), 1.0)
        theta = grid_around(value)
        gap = rank_sum - theta * total * n_of_class + (theta - 0.5) * square
        # d gap = (R_g - theta m + (2 theta - 1) p) d p_g, and the spread of the square itself.
        variance = self._noise_variance(
            theta, rank_weights - n_of_class * count_weights, (2 * n_of_class - total) * count_weights
        )
        variance += 2 * ((theta - 0.5) * self.noise_moments(count_weights)[0]) ** 2
        one, other = self.clipped_counts[order, column], sizes - self.clipped_counts[order, column]
        variance += _pair_variance(one, other)
        weights = rank_weights + (n_of_class * (2 * value - 1) - value * total) * count_weights
        z = quantile(float(np.interp(value, theta, variance)), self.noise_moments(weights)[1])
        ambiguity = float((one * other)[is_ambiguous[order]].sum()) / 2
        ends = acceptance_interval(theta, gap, z * np.sqrt(variance) + ambiguity)
        return Interval.of_proportion(value, *ends) if ends else Interval(None, 0.0, 1.0)


def _pair_variance(one: Floats, other: Floats) -> float:
    """Return the sampling variance of the number of pairs in the right order (DeLong), from counts in score order."""
    ones, others = one.sum(), other.sum()
    if not (ones > 0 and others > 0):
        return 0.0
    below = (np.cumsum(other) - other / 2) / others
    above = (ones - np.cumsum(one) + one / 2) / ones
    positive_variance = one @ (below - one @ below / ones) ** 2 / ones
    negative_variance = other @ (above - other @ above / others) ** 2 / others
    return float(ones * others * (others * positive_variance + ones * negative_variance))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
