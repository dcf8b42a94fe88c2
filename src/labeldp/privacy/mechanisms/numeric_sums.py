"""Noisy sums of numeric labels (A'y for a public matrix A, and squares) and of losses of public predictions.

Proof for `NumberSums`. Let c be the label in half steps from the center of the range, from -m to m for a range of
m + 1 values. Let A be rounded to an integer grid, with rows no longer than L. Released are A'c and the sum of
floor(w c^2 / m), plus noise. A label that goes from a to b moves the first by (b - a) A_i and the second by
w (b^2 - a^2) / m = (b - a) w (a + b) / m, up to a rounding of less than 1. With u = |b - a| / m, at most 2,
|a + b| / m is at most 2 - u.

Length (l2), with w = L: at most m u L sqrt(1 + (2 - u)^2), which grows with u on [0, 2] (the derivative of
u^2 (1 + (2 - u)^2) is 2 u (2 u^2 - 6 u + 5), and that has no zero but u = 0), so at most 2 m L. A'c alone moves as
far, so the squares cost nothing. Magnitudes (l1), with L the largest sum of magnitudes of a row and w = L / 2: at most
m u L (1 + (2 - u) / 2), which grows up to u = 2: at most 2 m L. The rounding adds 1 to both. Noise for moves of that
size is calibrated as for `LinearQuery`.

Proof for `LossSum` and `NoisyMinLoss`. Predictions are public, and so is the largest loss that any label of the range
could have in any row. Losses are measured in steps of 1 / 65,536 of it and rounded: a whole number from 0 to 65,536 for
each row. So a changed label moves a sum by 65,536 at most. Discrete Laplace noise of scale 65,536 / epsilon changes the
probability of any result by exp(epsilon) at most. `NoisyMinLoss` releases only the index of the smallest of several
sums, the first of equal ones, after noise of twice that scale. The proof is that of `HighestScore` in `selection.py`,
for negated losses.

A unit with n labels moves each of these sums by n times as much.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labeldp.accounting.losses import PureLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Trust
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, check_privacy, frozen_copy
from labeldp.privacy.mechanisms.linear import BLOCK_ROWS, GRID_STEPS, LinearQuery, iter_sparse_blocks
from labeldp.privacy.noise.samplers import MAX_SCALE, discrete_laplace
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisySums
from labeldp.releases.scores import Choice, NoisyLoss

# Steps in the largest possible loss of a row.
_LOSS_STEPS = 1 << 16


@dataclass(frozen=True, eq=False)
class NumberSums(LinearQuery):
    """The sums A'y of public rows of A times the numeric labels, and the sum of the squared labels.

    `n_values` is the number of values in the declared range. The noise is that of `LinearQuery`: Gaussian if delta is
    above 0.
    """

    n_values: int = field(kw_only=True)

    @cached_property
    def sensitivity(self) -> float:
        """The most by which one label moves the sums, in grid steps times half steps of the range."""
        return 2 * (self.n_values - 1) * self.max_grid_norm + 1

    def sigma_for(self, n_classes: int) -> float:
        """Return sigma: numeric labels have one column of sums for any number of values."""
        return self.sigma

    @cached_property
    def square_weight(self) -> float:
        """The weight of a squared label at an end of the range, relative to the label itself."""
        return self.max_grid_norm if self.delta else self.max_grid_norm / 2

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check the matrix, and that the labels are numbers of a range with `n_values` values."""
        if space.step is None:
            raise InputError("NumberSums needs numbers: declare LabelSpace.range(low, high, step).")
        if len(space) != self.n_values:
            raise InputError(f"The range has {len(space)} values: give n_values={len(space)}.")
        if not self.sigma < MAX_SCALE:
            raise InputError("This much noise on this many values cannot be drawn: widen the step, or raise epsilon.")
        super().check(space, n_rows)
        if n_rows * max(GRID_STEPS, self.square_weight) * self.n_values >= 2**52:
            raise InputError("This many rows of this many values cannot be summed exactly: widen the step.")

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisySums:  # type: ignore[override]
        """Sum exactly on the grid and add the noise."""
        max_code = self.n_values - 1
        centered_codes = 2 * np.arange(self.n_values, dtype=np.int64) - max_code
        weighted_squares = np.floor(self.square_weight * centered_codes.astype(np.float64) ** 2 / max_code)
        label_codes = codes[codes != MISSING]
        # The last entry is the value of a missing label, whose code is -1.
        exact_sums, gram = self._sum_targets(codes, np.append(centered_codes, 0).astype(np.float64))
        sums = np.append(exact_sums, weighted_squares[label_codes].sum())
        return NoisySums(
            **release_fields,
            sums=sums.astype(np.int64) + self._draw_noise(sums.size, bits),
            stored_gram=gram,
            n_labels=label_codes.size,
            grid_scale=self.grid_scale,
            sigma=self.sigma,
            square_weight=self.square_weight,
            query=self.query,
        )

    def _sum_targets(
        self, codes: Codes, centered_codes: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return A'c in grid steps, and A'A. For a sparse A it is None, as it can be large.

        Whole numbers below 2^53 are exact in float64, so the order of a sum does not matter.
        """
        n_columns = self.query.shape[1]
        sums = np.zeros(n_columns)
        if isinstance(self.query, csr_array):
            for start, starts in iter_sparse_blocks(self.query):
                entry_slice = slice(starts[0], starts[-1])
                entry_values = np.repeat(centered_codes[codes[start : start + BLOCK_ROWS]], np.diff(starts))
                sums += np.bincount(
                    self.query.indices[entry_slice],
                    self._round_to_grid(self.query.data[entry_slice]) * entry_values,
                    n_columns,
                )
            return sums, None
        gram = np.zeros((n_columns, n_columns))
        for start in range(0, codes.size, BLOCK_ROWS):
            block_codes = codes[start : start + BLOCK_ROWS]
            block = self._round_to_grid(self.query[start : start + BLOCK_ROWS][block_codes != MISSING])
            sums += block.T @ centered_codes[block_codes[block_codes != MISSING]]
            gram += block.T @ block / self.grid_scale**2
        return sums, gram

    def restore(self, release: Release) -> Release:
        """Attach the public matrix to stored sums."""
        return release.with_query(self.query) if isinstance(release, NoisySums) else release


@dataclass(frozen=True, eq=False)
class _PredictionLoss(Mechanism):
    trust: ClassVar[Trust] = "central"

    predictions: NDArray[np.floating]
    epsilon: float
    objective: Literal["squared", "absolute"] = "squared"

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        if self.objective not in ("squared", "absolute"):
            raise InputError('A loss is "squared" or "absolute".')
        object.__setattr__(self, "predictions", frozen_copy(self.predictions))

    def loss(self, n_labels: int = 1) -> PureLoss:
        """Return epsilon for each label."""
        return PureLoss(n_labels * self.epsilon)

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that labels are numbers and that each row has predictions within their range."""
        if space.step is None:
            raise InputError(f"{type(self).__name__} needs numbers: declare LabelSpace.range(low, high, step).")
        if len(self.predictions) != n_rows or not np.issubdtype(self.predictions.dtype, np.number):
            raise InputError(f"predictions must hold a number for each of the {n_rows} rows.")
        low, high = float(space.classes[0]), float(space.classes[-1])
        if not ((self.predictions >= low) & (self.predictions <= high)).all():
            raise InputError("A prediction is outside the declared range: cut the predictions at its ends.")
        if not 1e-290 < float(self._row_losses(np.array([low]), high)[0]) < math.inf:
            raise InputError("Losses over this range are too large or too small to compute: use other units.")
        if n_rows * _LOSS_STEPS >= 2**52:
            raise InputError("This many rows cannot be summed exactly: score fewer.")

    def _total_losses(self, codes: Codes, space: LabelSpace) -> tuple[NDArray[np.int64], float]:
        """Return the total loss of each candidate in steps, and the step size. Which rows have a label is public."""
        labeled_rows = np.flatnonzero(codes != MISSING)
        grid = np.array(space.classes, np.float64)
        predictions = self.predictions[labeled_rows].reshape(labeled_rows.size, -1)
        max_loss = max(self._row_losses(predictions, end).max(initial=0.0) for end in (grid[0], grid[-1]))
        step_size = float(max_loss) / _LOSS_STEPS or 1.0
        losses = np.rint(self._row_losses(predictions, grid[codes[labeled_rows]][:, None]) / step_size)
        return np.clip(losses, 0, _LOSS_STEPS).astype(np.int64).sum(axis=0), step_size

    def _row_losses(self, predictions: NDArray[np.floating], labels: Any) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):  # `check` refuses infinite losses
            distance = np.abs(predictions.astype(np.float64) - labels)
            return distance**2 if self.objective == "squared" else distance


@dataclass(frozen=True, eq=False)
class LossSum(_PredictionLoss):
    """The sum over rows of the "squared" or "absolute" loss of public predictions."""

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that each row has one prediction."""
        if self.predictions.ndim != 1:
            raise InputError(f"predictions must hold one number for each of the {n_rows} rows.")
        super().check(space, n_rows)

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyLoss:
        """Sum the losses and add the noise."""
        (total,), step_size = self._total_losses(codes, release_fields["space"])
        noise = discrete_laplace(_LOSS_STEPS / as_fraction(self.epsilon), 1, bits)
        return NoisyLoss(
            **release_fields,
            total=int(total + noise[0]),
            n_labels=int((codes != MISSING).sum()),
            step_size=step_size,
            max_row_loss=_LOSS_STEPS * step_size,
            scale=_LOSS_STEPS / self.epsilon,
        )


@dataclass(frozen=True, eq=False)
class NoisyMinLoss(_PredictionLoss):
    """The candidate with the smallest noisy loss. `predictions` has shape (rows, candidates)."""

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that each candidate has a prediction for each row."""
        if self.predictions.ndim != 2 or not self.predictions.shape[1]:
            raise InputError(f"predictions must be a table of numbers: {n_rows} rows, and a column for each candidate.")
        super().check(space, n_rows)

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Choice:
        """Sum the losses of each candidate, add noise and return only the index of the smallest sum."""
        totals, _ = self._total_losses(codes, release_fields["space"])
        noise = discrete_laplace(2 * _LOSS_STEPS / as_fraction(self.epsilon), totals.size, bits)
        return Choice(**release_fields, best_index=int(np.argmin(totals + noise)), n_candidates=int(totals.size))
