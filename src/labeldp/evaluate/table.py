"""A noisy table of labels by group of predictions, and what can be read from it."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labeldp.evaluate.intervals import Floats, Interval, accepted, around, quantile
from labeldp.releases.counts import NoisyCounts

LEAST = 1e-6  # a probability below counts as this: one label must not make the log-loss infinite


def slices(score: Floats, weight: Floats, count: int) -> NDArray[np.int64]:
    """Cut rows by score into at most `count` slices of about equal weight; equal scores stay together."""
    values, place = np.unique(score, return_inverse=True)
    mass = np.bincount(place, weight, minlength=values.size)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    return np.minimum((middle * count).astype(np.int64), count - 1)[place]


def group(proba: Floats, epsilon: float, bins: int) -> NDArray[np.int64]:
    """Number the rows by predicted class and confidence bin; with two classes, in the order of the score.

    More bins say more, and each adds its noise. Their number balances the two for AUC: with B bins, about 1/(2B) of
    it is hidden inside bins, and noise of deviation s in each bin adds about 2 sqrt(0.1 B) s / (rows of a class). All
    of this is public: the rows of a class are those that the model expects.
    """
    rows, classes = proba.shape
    predicted = proba.argmax(axis=1)
    expected = proba.sum(axis=0).min() if classes == 2 else rows / classes
    noise = max(_variance(2 / epsilon), 1e-9)  # at a huge epsilon there is none, and the number of bins is the limit
    total = (max(expected, 1.0) / (2 * math.sqrt(0.1 * noise * (1 - 1 / classes)))) ** (2 / 3)
    if classes == 2:
        # Equal parts of both classes, as the model expects them: then no bin hides many pairs of unlike labels.
        weight = (proba / np.maximum(proba.sum(axis=0), 1e-300)).sum(axis=1)
        number = 2 * slices(proba[:, 1], weight, min(max(round(total), 2), 2 * bins)) + predicted
    else:
        each, confidence = min(max(round(total / classes), 1), bins), proba.max(axis=1)
        number = predicted * each
        for c in np.unique(predicted):
            own = predicted == c
            number[own] += slices(confidence[own], np.ones(own.sum()), each)
    return np.unique(number, return_inverse=True)[1].astype(np.int64)


def _variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise."""
    q = math.exp(-1 / scale)
    return 2 * q / (1 - q) ** 2


class Table:
    """Noisy counts (groups, classes), with what is public of each group: its size, prediction and probabilities."""

    def __init__(self, release: NoisyCounts, proba: Floats, groups: NDArray[np.int64]) -> None:
        self.size = release.sizes.astype(np.float64)
        # Each group's counts add up to its public size: remove the part of the noise that disagrees.
        self.counts = release.counts - (release.counts.sum(axis=1) - self.size)[:, None] / release.counts.shape[1]
        self.possible = np.clip(self.counts, 0, self.size[:, None])
        self._proba, self._groups = proba, groups
        self.predicted = np.zeros(self.size.size, np.int64)
        self.predicted[groups] = proba.argmax(axis=1)
        q = math.exp(-1 / release.scale)
        self._variance, self._fourth = _variance(release.scale), 2 * q * (1 + 4 * q + q * q) / (1 - q) ** 4

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.counts.shape[1])

    def mean(self, values: Floats, weight: Floats | None = None) -> Floats:
        """Return the mean of a value of each row over each group's rows."""
        weight = np.ones(values.size) if weight is None else np.maximum(weight, 1e-300)
        count = self.size.size
        return np.bincount(self._groups, values * weight, count) / np.bincount(self._groups, weight, count)

    def noise(self, weights: Floats) -> tuple[float, float]:
        """Return variance and fourth cumulant of the noise in the sum of weights times counts."""
        left = weights - weights.mean(axis=1, keepdims=True)
        return self._variance * float((left**2).sum()), self._fourth * float((left**4).sum())

    def only(self, column: int, weights: Floats) -> Floats:
        """Return weights that are zero but for one class."""
        out = np.zeros_like(self.counts)
        out[:, column] = weights
        return out

    def _noise_line(self, theta: Floats, at_zero: Floats, slope: Floats) -> Floats:
        """Return the noise variance for weights at_zero + theta * slope, at each theta."""
        a = at_zero - at_zero.mean(axis=1, keepdims=True)
        b = slope - slope.mean(axis=1, keepdims=True)
        squares = (a**2).sum() + 2 * theta * (a * b).sum() + theta**2 * (b**2).sum()
        return self._variance * np.maximum(squares, 0.0)  # rounding may leave a little less than nothing

    def precision(self, column: int) -> Interval:
        """Return how many of the rows predicted as a class are of it; how many are predicted is public."""
        own = self.predicted == column
        size = self.size[own].sum()
        if not size:
            return Interval(None, 0.0, 1.0)
        right = min(max(self.counts[own, column].sum(), 0.0), size)
        return self._ratio(right, size, self.only(column, own.astype(np.float64)), np.zeros_like(self.counts), size)

    def recall(self, column: int) -> Interval:
        """Return how many rows of a class are predicted as it: a ratio of two noisy sums."""
        own = (self.predicted == column).astype(np.float64)
        right, size = float(own @ self.counts[:, column]), float(self.counts[:, column].sum())
        every = self.only(column, np.ones_like(own))
        return self._ratio(right, size, self.only(column, own), every, max(size, 0.0))

    def _ratio(self, top: float, bottom: float, over: Floats, under: Floats, rows: float) -> Interval:
        """Return Fieller's interval of top / bottom, sums of counts with these weights, for a share of `rows` rows."""
        value = min(max(top / bottom, 0.0), 1.0) if bottom > 0 else 0.5
        theta = around(value)
        variance = self._noise_line(theta, over, -under) + rows * theta * (1 - theta)
        z = quantile(float(np.interp(value, theta, variance)), self.noise(over - value * under)[1])
        ends = accepted(theta, top - theta * bottom, z * np.sqrt(variance))
        return Interval.of_share(value, *ends) if ends and bottom > 0 else Interval(None, 0.0, 1.0)

    def log_loss(self) -> Interval:
        """Return the mean of -log(probability of the label).

        Inside a group the rows' losses differ, and which rows have which label is not known: the model's own
        probabilities weigh them. How much the answer would differ without these weights is added to the interval.
        """
        rows, value, square, hidden = self.size.sum(), 0.0, 0.0, 0.0
        weights = np.empty_like(self.counts)
        for c in range(self.classes):
            lost = -np.log(np.maximum(self._proba[:, c], LEAST))
            weights[:, c] = self.mean(lost, self._proba[:, c])
            value += float(self.counts[:, c] @ weights[:, c]) / rows
            square += float(self.possible[:, c] @ self.mean(lost**2, self._proba[:, c])) / rows
            hidden += float(self.possible[:, c] @ np.abs(self.mean(lost) - weights[:, c])) / rows
        variance, fourth = self.noise(weights / rows)
        if 2 * math.sqrt(variance) > math.log(self.classes):  # not even told apart from a guess
            return Interval(None, 0.0, math.inf)
        variance += max(square - value**2, 0.0) / rows
        reach = quantile(variance, fourth) * math.sqrt(variance) + hidden
        return Interval(max(value, 0.0), max(value - reach, 0.0), max(value, 0.0) + reach)

    def calibration_error(self) -> Interval:
        """Return how far confidence and share of right answers are apart, on average over groups.

        Noise makes the absolute gaps larger. So the upper end needs only the noise of the sum, and the lower end and
        the value give back what noise adds when there is no gap.
        """
        rows, own = self.size.sum(), np.arange(self.size.size)
        column = np.ones_like(self.predicted) if self.classes == 2 else self.predicted
        scored = self._proba[:, 1] if self.classes == 2 else self._proba.max(axis=1)
        gap = self.counts[own, column] - self.size * self.mean(scored)
        rate = np.clip(self.possible[own, column] / self.size, 1 / (self.size + 2), 1 - 1 / (self.size + 2))
        variance = self._variance * (1 - 1 / self.classes) + self.size * rate * (1 - rate)
        seen, spread = float(np.abs(gap).sum()) / rows, float(np.sqrt(variance.sum())) / rows
        added = math.sqrt(2 / math.pi) * float(np.sqrt(variance).sum()) / rows
        value = float(np.sqrt(np.maximum(gap**2 - variance, 0)).sum()) / rows
        return Interval.of_share(value, seen - added - 2 * spread, seen + 2 * spread)

    def auc(self) -> Interval:
        """Return the chance that a row of a class scores higher than one of another.

        With two classes, that of the second class, and pairs inside a bin of several scores may go either way. With
        more, the mean over classes of one against the others, for scores rounded to their mean in a group; the ends are
        means of the classes' ends, which is wide enough however the classes' errors hang together.
        """
        if self.classes == 2:
            highest, lowest = np.full(self.size.size, -np.inf), np.full(self.size.size, np.inf)
            np.maximum.at(highest, self._groups, self._proba[:, 1])
            np.minimum.at(lowest, self._groups, self._proba[:, 1])
            return self._auc(1, np.arange(self.size.size), highest > lowest)
        each = [self._one_auc(c) for c in range(self.classes)]
        value = None if any(i.value is None for i in each) else _mean([i.value or 0.0 for i in each])
        low, high = _mean([i.low for i in each]), _mean([i.high for i in each])
        return Interval(value, low, high)

    def _one_auc(self, column: int) -> Interval:
        order = np.argsort(self.mean(self._proba[:, column]), kind="stable")
        return self._auc(column, order, np.zeros(order.size, bool))

    def _auc(self, column: int, order: NDArray[np.int64], open_: NDArray[np.bool_]) -> Interval:
        """Return Fieller's interval; groups come in `order` of score, and pairs in `open_` groups may go either way.

        With p rows of the class among m and mid-rank R of each group (public), the pairs in the right order number
        sum(p_g R_g) - p^2 / 2, of p (m - p): only sums of counts and one square, whose bias is known.
        """
        size, total = self.size[order], float(self.size.sum())
        rank = np.empty_like(size)
        rank[order] = np.cumsum(size) - size / 2
        found, ranks = float(self.counts[:, column].sum()), float(rank @ self.counts[:, column])
        of_found, of_ranks = self.only(column, np.ones_like(size)), self.only(column, rank)
        square = found**2 - self.noise(of_found)[0]
        if not 0 < square < total * found:  # one of the two classes is lost in the noise
            return Interval(None, 0.0, 1.0)
        value = min(max((ranks - square / 2) / (total * found - square), 0.0), 1.0)
        theta = around(value)
        gap = ranks - theta * total * found + (theta - 0.5) * square
        # d gap = (R_g - theta m + (2 theta - 1) p) d p_g, and the spread of the square itself.
        variance = self._noise_line(theta, of_ranks - found * of_found, (2 * found - total) * of_found)
        variance += 2 * ((theta - 0.5) * self.noise(of_found)[0]) ** 2
        one, other = self.possible[order, column], size - self.possible[order, column]
        variance += _pair_variance(one, other)
        weights = of_ranks + (found * (2 * value - 1) - value * total) * of_found
        z = quantile(float(np.interp(value, theta, variance)), self.noise(weights)[1])
        hidden = float((one * other)[open_[order]].sum()) / 2
        ends = accepted(theta, gap, z * np.sqrt(variance) + hidden)
        return Interval.of_share(value, *ends) if ends else Interval(None, 0.0, 1.0)


def _pair_variance(one: Floats, other: Floats) -> float:
    """Return the sampling variance of the number of pairs in the right order (DeLong), from counts in score order."""
    ones, others = one.sum(), other.sum()
    if not (ones > 0 and others > 0):
        return 0.0
    below = (np.cumsum(other) - other / 2) / others
    above = (ones - np.cumsum(one) + one / 2) / ones
    of_one = one @ (below - one @ below / ones) ** 2 / ones
    of_other = other @ (above - other @ above / others) ** 2 / others
    return float(ones * others * (others * of_one + ones * of_other))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
