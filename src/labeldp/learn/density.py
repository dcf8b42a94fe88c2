"""What a regressor believes of a row: a distribution over the declared numbers around its prediction.

The mean of the distribution is the prediction for "squared" and "poisson" loss, its median for "absolute" loss, however
near an end of the range that is. A plain normal curve cut at the ends would lean inwards; then a learner that asks the
distribution what a label might be, and fits the answer, would drift to the middle of the range where noise is large.
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
from labeldp.data.label_bins import Floats, LossName
from labeldp.data.row_selection import iter_blocks

LOSSES = ("squared", "absolute", "poisson")
_ALL_GAPS = 2_000  # of a range, up to which a table of means has a line for each


def check_loss(loss: str, space: LabelSpace) -> None:
    """Check that labels are numbers, and counts where the loss is that of counts."""
    if loss not in LOSSES:
        raise InputError('loss must be "squared", "absolute" or "poisson".')
    if space.step is None:
        raise InputError("Regression needs numbers: declare LabelSpace.range(low, high, step).")
    if loss == "poisson" and float(space.classes[0]) < 0:
        raise InputError("The Poisson loss needs labels from 0: declare a range without negative numbers.")


def grid_of(space: LabelSpace) -> Floats:
    """Return the declared numbers."""
    return np.array(space.classes, np.float64)


def centre(chances: NDArray[np.floating], grid: Floats, loss: LossName) -> Floats:
    """Return the best single number for each distribution: the mean, or the median for absolute loss."""
    return quantiles(chances, grid, 0.5) if loss == "absolute" else chances.astype(np.float64) @ grid


def quantiles(chances: NDArray[np.floating], grid: Floats, share: float) -> Floats:
    """Return the number below which so much of each distribution lies, each declared number standing for its step."""
    upto = np.cumsum(chances, axis=1, dtype=np.float64)
    upto /= upto[:, -1:]
    place = np.argmax(upto >= share, axis=1)
    rows = np.arange(len(upto))
    own = np.maximum(chances[rows, place] / np.maximum(chances.sum(axis=1), 1e-300), 1e-300)
    part = (share - (upto[rows, place] - own)) / own - 0.5
    return np.clip(grid[place] + part * (grid[1] - grid[0]), grid[0], grid[-1])


def between(chances: NDArray[np.floating], grid: Floats, share: float, widening: float = 1.0) -> tuple[Floats, Floats]:
    """Return the ends between which so much of each distribution lies, as many times as wide from its median."""
    low, middle, high = (quantiles(chances, grid, (1 + side * share) / 2) for side in (-1, 0, 1))
    ends = middle + widening * (low - middle), middle + widening * (high - middle)
    return np.maximum(ends[0], grid[0]), np.minimum(ends[1], grid[-1])


def believed_error(chances: NDArray[np.floating], grid: Floats, predictions: NDArray[np.floating]) -> float:
    """Return the root mean squared error that predictions have if labels follow these distributions."""
    middle, law = (grid[0] + grid[-1]) / 2, chances.astype(np.float64)
    law /= law.sum(axis=1, keepdims=True)
    away, guess = grid - middle, predictions - middle  # of numbers far from zero, squares would cancel
    off = law @ away**2 - 2 * guess * (law @ away) + guess**2
    return float(np.sqrt(np.maximum(off, 0.0).mean()))


def intervals(model: Any, features: Features, share: float, widening: float = 1.0) -> tuple[Floats, Floats]:
    """Return what `between` says of a model's beliefs about each row, some rows at a time: ranges may be fine."""
    grid = grid_of(model.space)
    parts = [
        between(model.predict_proba(features.select(range(part.start, part.stop))), grid, share, widening)
        for part in iter_blocks(len(features), grid.size)
    ]
    low, high = zip(*parts, strict=True) if parts else ([np.zeros(0)], [np.zeros(0)])
    return np.concatenate(low), np.concatenate(high)


@dataclass(frozen=True)
class Density:
    """Distributions over `grid` by their centres; `scale` says how wide they are, in units of the labels.

    Squared loss takes the normal curve, Poisson loss the law of counts (with variance about scale^2 times the mean),
    both tilted by exp(t y) such that the mean is right. Absolute loss takes half of a Laplace law on each side of the
    median.
    """

    grid: Floats
    loss: LossName
    scale: float

    def chances(self, centres: NDArray[np.floating]) -> Floats:
        """Return a distribution for each centre, (rows, values)."""
        inside = np.clip(np.asarray(centres, np.float64), self.grid[0], self.grid[-1])
        if self.loss == "absolute":
            away = self.grid - inside[:, None]
            near = np.exp(-np.abs(away) / self.scale)
            sides = [np.where(side, near, 0.0) for side in (away <= 0, away >= 0)]
            return sum(side / np.maximum(2 * side.sum(axis=1, keepdims=True), 1e-300) for side in sides)
        means, tilts = self._table
        return softmax(self._base + np.interp(inside, means, tilts)[:, None] * self.grid, axis=1)

    @cached_property
    def _base(self) -> Floats:
        if self.loss == "poisson":
            return -gammaln(self.grid + 1) / self.scale**2
        middle = (self.grid[0] + self.grid[-1]) / 2
        return -((self.grid - middle) ** 2) / (2 * self.scale**2)

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """Means by tilt: one tilt for each gap of the grid, or for enough of them, and more towards the ends."""
        step, width = self.grid[1] - self.grid[0], self.grid[-1] - self.grid[0]
        slopes = -np.diff(self._base) / step
        further = np.geomspace(1e-3 / width, 30 / step, 200)
        inside = slopes[_spread_out(slopes.size)]
        tilts = np.unique(np.concatenate([slopes[0] - further, inside, slopes[-1] + further]))
        means = [
            softmax(self._base + tilts[part, None] * self.grid, axis=1) @ self.grid
            for part in iter_blocks(tilts.size, self.grid.size)
        ]
        return np.maximum.accumulate(np.concatenate(means)), tilts


def _spread_out(count: int) -> NDArray[np.int64]:
    """Return the places of so many gaps: all, or of very many some, most of them near the ends, where means bend."""
    if count <= _ALL_GAPS:
        return np.arange(count)
    near = np.geomspace(1, count / 2, _ALL_GAPS // 8)
    chosen = np.concatenate([[0.0], near, np.linspace(0, count - 1, _ALL_GAPS // 8), count - near])
    return np.unique(chosen.astype(np.int64).clip(0, count - 1))
