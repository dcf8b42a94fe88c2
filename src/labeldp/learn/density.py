"""The predictive distribution of a regressor over the declared numbers, and its point estimates and intervals.

The prediction is the mean of the distribution for "squared" and "poisson" loss and the median for "absolute" loss, also
near the ends of the range. The mean of a truncated normal distribution would be shifted inwards. Expectation
maximization with such a bias would drift to the middle of the range if noise is large.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, softmax

from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.data.feature_rows import iter_blocks
from labeldp.data.label_bins import Floats, LossName

LOSSES = ("squared", "absolute", "poisson")
_MAX_TABLE_GAPS = 2_000  # gaps of a range, up to which the table of means has an entry for each


def check_loss(loss: str, space: LabelSpace) -> None:
    """Check that labels are numbers, and that they are not negative for the Poisson loss."""
    if loss not in LOSSES:
        raise InputError('loss must be "squared", "absolute" or "poisson".')
    if space.step is None:
        raise InputError("Regression needs numbers: declare LabelSpace.range(low, high, step).")
    if loss == "poisson" and float(space.classes[0]) < 0:
        raise InputError("The Poisson loss needs labels from 0: declare a range without negative numbers.")


def label_grid(space: LabelSpace) -> Floats:
    """Return the declared numbers."""
    return np.array(space.classes, np.float64)


def point_estimates(probabilities: NDArray[np.floating], grid: Floats, loss: LossName) -> Floats:
    """Return the mean of each distribution, or the median for absolute loss."""
    return quantiles(probabilities, grid, 0.5) if loss == "absolute" else probabilities.astype(np.float64) @ grid


def quantiles(probabilities: NDArray[np.floating], grid: Floats, level: float) -> Floats:
    """Return the quantile of each distribution; the mass of each declared number is spread over its step."""
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    cumulative /= cumulative[:, -1:]
    indices = np.argmax(cumulative >= level, axis=1)
    row_ids = np.arange(len(cumulative))
    mass = np.maximum(probabilities[row_ids, indices] / np.maximum(probabilities.sum(axis=1), 1e-300), 1e-300)
    offset = (level - (cumulative[row_ids, indices] - mass)) / mass - 0.5
    return np.clip(grid[indices] + offset * (grid[1] - grid[0]), grid[0], grid[-1])


def central_intervals(
    probabilities: NDArray[np.floating], grid: Floats, coverage: float, widening: float = 1.0
) -> tuple[Floats, Floats]:
    """Return the ends of the central interval of each distribution.

    Args:
        probabilities: The distributions, (rows, values).
        grid: The declared numbers.
        coverage: The probability of the interval.
        widening: The factor of the distances between the median and the ends.

    Returns:
        The lower and the upper ends, within the range of the grid.
    """
    low, median, high = (quantiles(probabilities, grid, (1 + sign * coverage) / 2) for sign in (-1, 0, 1))
    ends = median + widening * (low - median), median + widening * (high - median)
    return np.maximum(ends[0], grid[0]), np.minimum(ends[1], grid[-1])


def expected_rmse(probabilities: NDArray[np.floating], grid: Floats, predictions: NDArray[np.floating]) -> float:
    """Return the root mean squared error that predictions have if labels follow these distributions."""
    center, normalized = (grid[0] + grid[-1]) / 2, probabilities.astype(np.float64)
    normalized /= normalized.sum(axis=1, keepdims=True)
    # Without the offsets, squares of numbers far from zero would cancel.
    grid_offsets, prediction_offsets = grid - center, predictions - center
    squared_errors = (
        normalized @ grid_offsets**2 - 2 * prediction_offsets * (normalized @ grid_offsets) + prediction_offsets**2
    )
    return float(np.sqrt(np.maximum(squared_errors, 0.0).mean()))


def predict_intervals(model: Any, features: Features, coverage: float, widening: float = 1.0) -> tuple[Floats, Floats]:
    """Return the `central_intervals` of a model's predictions, in blocks of rows because the grid may be fine."""
    grid = label_grid(model.space)
    parts = [
        central_intervals(model.predict_proba(features.select(range(part.start, part.stop))), grid, coverage, widening)
        for part in iter_blocks(len(features), grid.size)
    ]
    low, high = zip(*parts, strict=True) if parts else ([np.zeros(0)], [np.zeros(0)])
    return np.concatenate(low), np.concatenate(high)


@dataclass(frozen=True)
class Density:
    """Distributions over the declared numbers by their centers.

    For squared loss they are normal, and for Poisson loss they are Poisson distributions with variance about scale^2
    times the mean. Both are tilted by exp(t y) so that the mean equals the center. For absolute loss, each side of the
    median has half of a Laplace distribution.

    Attributes:
        grid: The declared numbers.
        loss: The loss.
        scale: The width of the distributions, in units of the labels.
    """

    grid: Floats
    loss: LossName
    scale: float

    def probabilities(self, centers: NDArray[np.floating]) -> Floats:
        """Return a distribution for each center, (rows, values)."""
        clipped = np.clip(np.asarray(centers, np.float64), self.grid[0], self.grid[-1])
        if self.loss == "absolute":
            distances = self.grid - clipped[:, None]
            weights = np.exp(-np.abs(distances) / self.scale)
            halves = [np.where(half, weights, 0.0) for half in (distances <= 0, distances >= 0)]
            return sum(half / np.maximum(2 * half.sum(axis=1, keepdims=True), 1e-300) for half in halves)
        means, tilts = self._table
        return softmax(self._base + np.interp(clipped, means, tilts)[:, None] * self.grid, axis=1)

    @cached_property
    def _base(self) -> Floats:
        if self.loss == "poisson":
            return -gammaln(self.grid + 1) / self.scale**2
        center = (self.grid[0] + self.grid[-1]) / 2
        return -((self.grid - center) ** 2) / (2 * self.scale**2)

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """Return means and their tilts: a tilt for each selected gap of the grid, and more towards the ends."""
        step, width = self.grid[1] - self.grid[0], self.grid[-1] - self.grid[0]
        slopes = -np.diff(self._base) / step
        further = np.geomspace(1e-3 / width, 30 / step, 200)
        selected = slopes[_select_gaps(slopes.size)]
        tilts = np.unique(np.concatenate([slopes[0] - further, selected, slopes[-1] + further]))
        means = [
            softmax(self._base + tilts[part, None] * self.grid, axis=1) @ self.grid
            for part in iter_blocks(tilts.size, self.grid.size)
        ]
        return np.maximum.accumulate(np.concatenate(means)), tilts


def _select_gaps(n_gaps: int) -> NDArray[np.int64]:
    """Return the indices of the gaps in a table of means: all, or if there are many, a subset denser at the ends."""
    if n_gaps <= _MAX_TABLE_GAPS:
        return np.arange(n_gaps)
    distances = np.geomspace(1, n_gaps / 2, _MAX_TABLE_GAPS // 8)
    indices = np.concatenate([[0.0], distances, np.linspace(0, n_gaps - 1, _MAX_TABLE_GAPS // 8), n_gaps - distances])
    return np.unique(indices.astype(np.int64).clip(0, n_gaps - 1))
