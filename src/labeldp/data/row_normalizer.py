"""Normalization of features to public rows of bounded length for linear queries."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.data.tables import Table

# Standard deviations at which numbers of a table are clipped, so that an outlier does not dominate its row.
_MAX_DEVIATIONS = 4.0
# The constant column beside a row of length 1, for classes of unequal size.
CONSTANT_WEIGHT = 0.25
_SAMPLE_ROWS = 10_000  # rows from which principal directions are computed
# Above this number of columns fewer rows are sampled, because the time is cubic in the smaller of both.
_MANY_COLUMNS = 4096
_SAMPLE_ROWS_IF_WIDE = 2048
# A fraction of the largest variance; directions of smaller variance are rounding errors.
_RELATIVE_TOLERANCE = 1e-10
# Rows that are normalized at once, and the largest number of their entries.
_BLOCK_ROWS, _BLOCK_SIZE = 1 << 13, 1 << 25


@dataclass(frozen=True)
class RowNormalizer:
    """A map from features to rows of bounded length, fitted on features alone.

    Numbers of a table are standardized, and its one-hot columns are unchanged. Embeddings and pixels are centered. Many
    columns are reduced to principal directions. Then a constant column is added and rows are scaled to length 1, which
    bounds the sensitivity of their sums. With `clip_length`, only rows beyond that length are scaled down to it, and
    all rows are divided by it. This keeps the lengths of rows of a table, which are informative. Embeddings separate
    classes by direction alone.

    Attributes:
        mean: The mean that is subtracted from each column.
        scale: The scale by which each column is divided.
        basis: The principal directions; None if columns are not reduced.
        clip_length: The length at which rows are clipped; None if all rows have length 1.
        constant: The constant column of clipped rows.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    basis: NDArray[np.float32] | None = None
    clip_length: float | None = None
    constant: float = 1.0

    @classmethod
    def fit(
        cls, features: Features, n_columns: int = 256, *, clip: bool = False, constant: float = 1.0
    ) -> "RowNormalizer":
        """Fit means, scales and directions.

        Args:
            features: The training features.
            n_columns: The number of columns above which principal directions are used.
            clip: Whether rows are clipped at their median length instead of scaled to length 1.
            constant: The constant column of clipped rows.
        """
        total = np.zeros(_n_columns(features), np.float64)
        for block in _iter_blocks(features):
            total += block.sum(axis=0, dtype=np.float64)
        mean = (total / len(features)).astype(np.float32)
        scale = np.ones_like(mean)
        if isinstance(features, Table):
            n_numeric = len(features.encoder.numeric)
            mean[n_numeric:] = 0.0
            scale[:n_numeric] = features.moments()[1][:n_numeric]
        scale[scale == 0] = 1.0
        standardizer, basis = cls(mean, scale), None
        if len(mean) > n_columns:
            basis = principal_directions(
                standardizer.standardize(features.matrix(_spaced_row_ids(features, len(mean)))), n_columns
            )
        if not clip:
            return cls(mean, scale, basis)
        projected = cls(mean, scale, basis).project(features.matrix(_spaced_row_ids(features, len(mean))))
        return cls(mean, scale, basis, float(np.median(np.linalg.norm(projected, axis=1))) or 1.0, constant)

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """Return a row of bounded length for each row of features."""
        if _n_columns(features) != len(self.mean):
            raise InputError(f"These features have {_n_columns(features)} columns, and {len(self.mean)} are expected.")
        return np.concatenate([self._normalize(block) for block in _iter_blocks(features)])

    @property
    def n_columns(self) -> int:
        """The number of columns of a normalized row."""
        return (len(self.mean) if self.basis is None else self.basis.shape[1]) + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fitted arrays, which `RowNormalizer(**arrays)` reads back."""
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean, "scale": self.scale}
        arrays |= {} if self.basis is None else {"basis": self.basis}
        clipping = (
            {}
            if self.clip_length is None
            else {"clip_length": np.array(self.clip_length), "constant": np.array(self.constant)}
        )
        return arrays | clipping

    def standardize(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Center and scale rows; scaled columns are clipped."""
        with np.errstate(over="ignore"):  # the difference of two huge numbers of a table is clipped
            standardized = (block - self.mean) / self.scale
        return np.clip(standardized, -_MAX_DEVIATIONS, _MAX_DEVIATIONS) if (self.scale != 1).any() else standardized

    def project(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Standardize rows and project them on the principal directions."""
        standardized = self.standardize(block)
        return standardized if self.basis is None else standardized @ self.basis

    def _normalize(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        normalized = self.project(block)
        if self.clip_length is not None:
            normalized = normalized / np.maximum(
                np.linalg.norm(normalized, axis=1, keepdims=True), np.float32(self.clip_length)
            )
            return np.concatenate([normalized, np.full((len(normalized), 1), self.constant, np.float32)], axis=1)
        normalized = normalized / np.maximum(np.linalg.norm(normalized, axis=1, keepdims=True), 1e-6)
        normalized = np.concatenate([normalized, np.full((len(normalized), 1), CONSTANT_WEIGHT, np.float32)], axis=1)
        return normalized / np.linalg.norm(normalized, axis=1, keepdims=True)


def principal_directions(matrix: NDArray[np.float32], max_directions: int) -> NDArray[np.float32]:
    """Return the principal directions of rows, by the smaller of the two Gram matrices.

    Args:
        matrix: The rows, which are not centered here.
        max_directions: The largest number of directions.

    Returns:
        An orthonormal basis (columns, directions), in the order of falling variance. It has at most as many directions
        as the rows span, and at least one.
    """
    n_rows, n_columns = matrix.shape
    if n_columns <= n_rows:
        _, directions = np.linalg.eigh(matrix.T @ matrix)
        return directions[:, ::-1][:, :max_directions].astype(np.float32).copy()
    matrix_64 = matrix.astype(np.float64)
    eigenvalues, eigenvectors = np.linalg.eigh(matrix_64 @ matrix_64.T)
    eigenvalues, eigenvectors = eigenvalues[::-1][:max_directions], eigenvectors[:, ::-1][:, :max_directions]
    is_significant = eigenvalues > max(eigenvalues[0], 0.0) * _RELATIVE_TOLERANCE
    if not is_significant.any():
        return np.eye(n_columns, 1, dtype=np.float32)
    return ((matrix_64.T @ eigenvectors[:, is_significant]) / np.sqrt(eigenvalues[is_significant])).astype(np.float32)


def _spaced_row_ids(features: Features, n_columns: int) -> NDArray[np.int64]:
    """Return the numbers of evenly spaced rows, from which directions and lengths are computed."""
    max_rows = _SAMPLE_ROWS if n_columns <= _MANY_COLUMNS else _SAMPLE_ROWS_IF_WIDE
    return np.linspace(0, len(features) - 1, min(len(features), max_rows)).astype(np.int64)


def _iter_blocks(features: Features) -> Any:
    return features.matrices(max(1, min(_BLOCK_ROWS, _BLOCK_SIZE // _n_columns(features))))


def _n_columns(features: Features) -> int:
    return math.prod(features.shape)
