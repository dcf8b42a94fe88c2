"""Sums over rows: label moments A'Y for a public matrix A, and their one-hot case, counts by group.

Proof. A changed label of row i takes the row A_i out of one column of A'Y and adds it to another: the result moves by
(-A_i, +A_i), of length sqrt(2) |A_i| (l2). A is rounded to an integer grid first, and that rounded matrix is the query;
its longest row is measured after rounding. Discrete Gaussian noise for any integer move of that length is calibrated by
the lattice bound (`accounting.losses.GaussianLoss`). Without delta, noise with P(x) proportional to exp(-|x| / b)
changes the probability of each coordinate by exp(move / b) at most, and the moves add up to twice the largest sum of
magnitudes of a rounded row (l1): b is that over epsilon. In the one-hot case the move is exactly (+1, -1): Gaussian
noise is calibrated by its exact loss, and geometric noise with P(x) proportional to exp(-|x| epsilon / 2) changes each
of the two probabilities by exp(epsilon / 2) at most, and is unbounded.

Two classes without delta. A changed label moves the column of the second class by A_i or -A_i, so its magnitudes add
up to the largest l1 of a row, once. Only that column receives noise, of scale b = l1 / epsilon. The column of the first
class is the total A'1 over the labeled rows minus the noisy column. Which rows have a label is public, so the total
is public, and the difference is computed from released values. Both columns have the noise n and -n. The column-wise
projection that uses the total leaves noise of covariance sigma^2 (I - 11'/2), which for sigma = sqrt(2) dev(n) is the
covariance of (n, -n): that sigma is stated. Gaussian noise gains nothing from this: noise in two columns for a move
of sqrt(2) |A_i| has, after the projection, the same deviation as noise in one column for a move of |A_i|.

A sparse A goes through the same steps. Duplicate entries are summed first, then all entries are rounded, then rows are
measured. The matrix that is measured is therefore the one that is summed.

Group sizes, A'A and A'1 are public. A user with m labels can move a count by m: l2 length m sqrt(2), l1 2m.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labeldp.accounting.calibration import lattice_sigma, unit_shift_sigma
from labeldp.accounting.losses import GaussianLoss, Loss, PureLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Trust
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, check_privacy, frozen_copy, frozen_csr
from labeldp.privacy.noise.samplers import MAX_SCALE, discrete_gaussian, discrete_laplace, laplace_deviation
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.moments import Matrix, NoisyMoments

# Grid steps in the longest row of A: finer than any noise that protects it.
GRID_STEPS = 4096
# Rows that are summed together, to bound memory.
BLOCK_ROWS = 1 << 14


@dataclass(frozen=True, eq=False)
class GroupHistogram(Mechanism):
    """The counts of each label in each public group. `groups` has a group number from 0 for each row.

    The noise is "gaussian" if delta is above 0 and "geometric" if delta is 0. By default delta decides.
    """

    trust: ClassVar[Trust] = "central"

    groups: NDArray[np.signedinteger]
    epsilon: float
    delta: float = 0.0
    noise: Literal["gaussian", "geometric"] | None = None

    def __post_init__(self) -> None:
        noise = self.noise or ("gaussian" if self.delta else "geometric")
        if noise not in ("gaussian", "geometric"):
            raise InputError('noise must be "gaussian" or "geometric".')
        if noise == "geometric" and self.delta:
            raise InputError("Geometric noise is purely private: leave delta at 0.")
        check_privacy(self.epsilon, self.delta if noise == "gaussian" else None)
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "groups", frozen_copy(self.groups))

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of Gaussian noise."""
        return unit_shift_sigma(self.epsilon, self.delta)

    def loss(self, n_labels: int = 1) -> Loss:
        """Return the loss of one count that moves up and another that moves down by `n_labels`."""
        if self.noise == "geometric":
            return PureLoss(n_labels * self.epsilon)
        return GaussianLoss(self.sigma, n_labels * 2**0.5, n_shifts=1 if n_labels == 1 else None)

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that each row has a group."""
        if self.groups.shape != (n_rows,) or not np.issubdtype(self.groups.dtype, np.integer):
            raise InputError(f"groups must hold one whole number for each of the {n_rows} rows.")
        if n_rows and (self.groups.min() < 0 or self.groups.max() >= max(n_rows, 1 << 20)):
            raise InputError("Number the groups from 0 without large gaps.")

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyCounts:
        """Count, and add the noise."""
        n_classes, n_groups = len(release_fields["space"]), int(self.groups.max(initial=-1)) + 1
        labeled = codes != MISSING
        groups = self.groups[labeled].astype(np.int64)
        counts = np.bincount(groups * n_classes + codes[labeled], minlength=n_groups * n_classes)
        if self.noise == "gaussian":
            scale, noise = self.sigma, discrete_gaussian(as_fraction(self.sigma), counts.size, bits)
        else:
            scale, noise = 2 / self.epsilon, discrete_laplace(2 / as_fraction(self.epsilon), counts.size, bits)
        return NoisyCounts(
            **release_fields,
            groups=self.groups,
            counts=(counts + noise).reshape(n_groups, n_classes),
            sizes=np.bincount(groups, minlength=n_groups),
            noise=self.noise or "geometric",
            scale=scale,
        )


@dataclass(frozen=True, eq=False)
class LinearQuery(Mechanism):
    """The sums A'Y of the public rows of A by label. Rows have any length (l2) up to `max_row_norm`.

    With delta above 0, the noise is Gaussian, in proportion to the longest row (l2). With delta 0 it is discrete
    Laplace, in proportion to the largest sum of magnitudes of a row (l1). The l1 norm is much larger for dense rows of
    many columns, and only slightly larger for rows with few entries. Two classes without delta need half of that scale.

    Args:
        query: The matrix A: a NumPy array, or a matrix of scipy.sparse, which is stored as a copy in CSR format.
        epsilon: The privacy of each label.
        delta: Above 0 for Gaussian noise.
        max_row_norm: The largest length (l2) of a row; None to measure it.

    Privacy:
        Epsilon and delta for each label. A must be public, or computed from releases.
    """

    trust: ClassVar[Trust] = "central"

    query: Matrix
    epsilon: float
    delta: float = 0.0
    max_row_norm: float | None = None

    def __post_init__(self) -> None:
        check_privacy(self.epsilon, self.delta or None)
        frozen = frozen_csr(self.query) if issparse(self.query) else frozen_copy(self.query)
        object.__setattr__(self, "query", frozen)

    @cached_property
    def grid_scale(self) -> float:
        """The number of grid steps in one unit of A."""
        return GRID_STEPS / (self.max_row_norm or self._max_l2_norm(lambda entries: entries) or 1.0)

    @cached_property
    def max_grid_norm(self) -> float:
        """The largest norm of a row in grid steps: l2 with delta, l1 without."""
        if self.delta:
            return max(1.0, self._max_l2_norm(self._round_to_grid)) * (1 + 1e-12)
        return max(1.0, self._max_row_sum(lambda entries: np.abs(self._round_to_grid(entries))))

    @cached_property
    def sensitivity(self) -> float:
        """The most by which one label moves the sums of all classes, in grid steps."""
        if not self.delta:
            return 2 * self.max_grid_norm
        return 2**0.5 * max(1.0, self._max_l2_norm(self._round_to_grid)) * (1 + 1e-12)

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of the noise in each sum, in grid steps, which suffices for any number of classes."""
        if self.delta:
            return lattice_sigma(self.epsilon, self.delta, self.sensitivity)
        return laplace_deviation(self.epsilon / self.sensitivity)

    def sigma_for(self, n_classes: int) -> float:
        """Return the sigma that a release of `n_classes` states. It is below `sigma` for two classes without delta."""
        if self._needs_one_noisy_column(n_classes):
            return 2**0.5 * laplace_deviation(self.epsilon / self.max_grid_norm)
        return self.sigma

    def loss(self, n_labels: int = 1) -> Loss:
        """Return the loss of a move that is `n_labels` times as long."""
        if not self.delta:
            return PureLoss(n_labels * self.epsilon)
        return GaussianLoss(self.sigma, n_labels * self.sensitivity)

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check the matrix and the bound."""
        entries = self.query.data if isinstance(self.query, csr_array) else self.query
        if self.query.ndim != 2 or self.query.shape[0] != n_rows or not np.issubdtype(self.query.dtype, np.number):
            raise InputError(f"The query must be a matrix of numbers with {n_rows} rows.")
        if not np.isfinite(entries).all():
            raise InputError("The query holds a missing or infinite value: fill or drop it.")
        if self.max_row_norm is not None and not 0 < self.max_row_norm < np.inf:
            raise InputError("max_row_norm must be a finite length above zero.")
        if self.max_row_norm and self._max_l2_norm(lambda entries: entries) > self.max_row_norm * (1 + 1e-6):
            raise InputError("A row of the query is longer than max_row_norm: scale the rows or raise max_row_norm.")
        if not 1e-100 < self.grid_scale < 1e100:
            raise InputError("The rows of the query are too long or too short for sums of squares: scale them.")
        if n_rows * GRID_STEPS >= 2**52:
            raise InputError("This many rows cannot be summed exactly: split them.")
        if not self.sigma_for(len(space)) < MAX_SCALE:
            raise InputError("This much noise cannot be drawn: raise epsilon, or take fewer columns.")

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyMoments:
        """Sum exactly on the grid and add the noise."""
        n_columns, n_classes = self.query.shape[1], len(release_fields["space"])
        sums, gram = self._sum_rows(codes, n_classes)
        totals = sums.sum(axis=1)  # whole numbers, so the order of the sum does not matter
        moments = sums.astype(np.int64)
        if self._needs_one_noisy_column(n_classes):
            scale = as_fraction(self.max_grid_norm) / as_fraction(self.epsilon)
            moments[:, 1] += discrete_laplace(scale, n_columns, bits)
            moments[:, 0] = totals.astype(np.int64) - moments[:, 1]
        else:
            moments += self._draw_noise(n_columns * n_classes, bits).reshape(n_columns, n_classes)
        return NoisyMoments(
            **release_fields,
            moments=moments,
            stored_gram=gram,
            totals=totals / self.grid_scale,
            grid_scale=self.grid_scale,
            sigma=self.sigma_for(n_classes),
        ).with_query(self.query)

    def restore(self, release: Release) -> Release:
        """Attach the public matrix to stored moments."""
        return release.with_query(self.query) if isinstance(release, NoisyMoments) else release

    def _sum_rows(self, codes: Codes, n_classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return the sums by column and class in grid steps, and A'A. For a sparse A it is None, as it can be large.

        Whole numbers below 2^53 are exact in float64.
        """
        if isinstance(self.query, csr_array):
            return self._sum_sparse_rows(self.query, codes, n_classes), None
        n_columns = self.query.shape[1]
        sums, gram = np.zeros((n_columns, n_classes)), np.zeros((n_columns, n_columns))
        for start in range(0, codes.size, BLOCK_ROWS):
            block_codes = codes[start : start + BLOCK_ROWS]
            labeled = block_codes != MISSING
            block = self._round_to_grid(self.query[start : start + BLOCK_ROWS][labeled])
            sums += block.T @ (block_codes[labeled][:, None] == np.arange(n_classes)).astype(np.float64)
            gram += block.T @ block / self.grid_scale**2
        return sums, gram

    def _sum_sparse_rows(self, matrix: csr_array, codes: Codes, n_classes: int) -> NDArray[np.float64]:
        sums = np.zeros(matrix.shape[1] * n_classes)
        for start, starts in iter_sparse_blocks(matrix):
            entry_slice = slice(starts[0], starts[-1])
            entry_codes = np.repeat(codes[start : start + BLOCK_ROWS].astype(np.int64), np.diff(starts))
            cells = matrix.indices[entry_slice] * np.int64(n_classes) + entry_codes
            labeled = entry_codes != MISSING
            sums += np.bincount(
                cells[labeled], self._round_to_grid(matrix.data[entry_slice])[labeled], minlength=sums.size
            )
        return sums.reshape(-1, n_classes)

    def _needs_one_noisy_column(self, n_classes: int) -> bool:
        return not self.delta and n_classes == 2

    def _draw_noise(self, n: int, bits: Bits) -> NDArray[np.int64]:
        if self.delta:
            return discrete_gaussian(as_fraction(self.sigma), n, bits)
        return discrete_laplace(as_fraction(self.sensitivity) / as_fraction(self.epsilon), n, bits)

    def _round_to_grid(self, entries: NDArray[np.floating]) -> NDArray[np.float64]:
        return np.rint(np.asarray(entries, np.float64) * self.grid_scale)

    def _max_l2_norm(self, transform: Callable[[Any], Any]) -> float:
        with np.errstate(over="ignore"):  # `check` refuses rows that overflow
            return self._max_row_sum(lambda entries: np.square(np.asarray(transform(entries), np.float64))) ** 0.5

    def _max_row_sum(self, transform: Callable[[Any], Any]) -> float:
        """Return the largest row sum of `transform`, which acts on each entry and maps zero to zero."""
        if isinstance(self.query, csr_array):
            block_sums = (
                _sparse_row_sums(self.query, starts, transform) for _, starts in iter_sparse_blocks(self.query)
            )
        else:
            blocks = (self.query[start : start + BLOCK_ROWS] for start in range(0, len(self.query), BLOCK_ROWS))
            block_sums = (transform(block).sum(axis=1) for block in blocks)
        return float(max((row_sums.max(initial=0.0) for row_sums in block_sums), default=0.0))


def iter_sparse_blocks(matrix: csr_array) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each block of sparse rows: its first row, and the offsets of the entries of its rows with the last end."""
    for start in range(0, matrix.shape[0], BLOCK_ROWS):
        yield start, matrix.indptr[start : start + BLOCK_ROWS + 1].astype(np.int64)


def _sparse_row_sums(
    matrix: csr_array, starts: NDArray[np.int64], transform: Callable[[Any], Any]
) -> NDArray[np.float64]:
    nonempty_starts = starts[:-1][np.diff(starts) > 0] - starts[0]  # reduceat needs rows with entries
    if not nonempty_starts.size:
        return np.zeros(0)
    return np.add.reduceat(transform(matrix.data[starts[0] : starts[-1]]), nonempty_starts)
