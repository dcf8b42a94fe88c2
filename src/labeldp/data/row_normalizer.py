"""Public rows of bounded length for linear queries: features brought to one scale and to the unit sphere."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.data.tables import Table

_MAX_DEVIATIONS = (
    4.0  # deviations at which a number of a table is cut: an outlier must not drown its row's other columns
)
CONSTANT_WEIGHT = 0.25  # weight of the constant column beside a row of length 1, for classes of unequal size
_SAMPLE_ROWS = 10_000  # rows from which principal directions are found
_MANY_COLUMNS = (
    4096  # columns from which directions are found in fewer rows, as the work grows with the third power of either
)
_SAMPLE_ROWS_IF_WIDE = 2048
_RELATIVE_TOLERANCE = 1e-10  # of the largest variance: directions with less are rounding errors
_BLOCK_ROWS, _BLOCK_SIZE = 1 << 13, 1 << 25  # rows that are lifted at once, and the most numbers in them


@dataclass(frozen=True)
class RowNormalizer:
    """A map from features to rows of length 1, learnt from features alone.

    Numbers of a table are standardised and its one-hot columns stay as they are; embeddings and pixels are centred.
    More than `columns` of them are reduced to that many principal directions. Then a constant is added and each row is
    brought to length 1, so that no row can move a sum further than another. With `reach`, rows of half as much as that
    length stay half as long, and only longer ones are cut: numbers grow with their rows, and so do the odds of a class
    in a table. Embeddings tell classes apart by their directions alone.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    basis: NDArray[np.float32] | None = None
    clip_length: float | None = None
    constant: float = 1.0  # beside rows that are cut

    @classmethod
    def fit(
        cls, features: Features, n_columns: int = 256, *, clip: bool = False, constant: float = 1.0
    ) -> "RowNormalizer":
        """Learn means, scales and directions; and, if rows shall be `cut`, their median length."""
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
                standardizer._standardize(features.matrix(_spaced_row_ids(features, len(mean)))), n_columns
            )
        if not clip:
            return cls(mean, scale, basis)
        projected = cls(mean, scale, basis)._project(features.matrix(_spaced_row_ids(features, len(mean))))
        return cls(mean, scale, basis, float(np.median(np.linalg.norm(projected, axis=1))) or 1.0, constant)

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """Return a row of bounded length for each row of features."""
        if _n_columns(features) != len(self.mean):
            raise InputError(f"These features have {_n_columns(features)} columns, and {len(self.mean)} are expected.")
        return np.concatenate([self._normalize(block) for block in _iter_blocks(features)])

    @property
    def n_columns(self) -> int:
        """The length of a lifted row."""
        return (len(self.mean) if self.basis is None else self.basis.shape[1]) + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `Lift(**arrays)` reads back."""
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean, "scale": self.scale}
        arrays |= {} if self.basis is None else {"basis": self.basis}
        clipping = (
            {}
            if self.clip_length is None
            else {"clip_length": np.array(self.clip_length), "constant": np.array(self.constant)}
        )
        return arrays | clipping

    def _standardize(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):  # the difference of two huge numbers of a table is cut
            standardized = (block - self.mean) / self.scale
        return np.clip(standardized, -_MAX_DEVIATIONS, _MAX_DEVIATIONS) if (self.scale != 1).any() else standardized

    def _project(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        standardized = self._standardize(block)
        return standardized if self.basis is None else standardized @ self.basis

    def _normalize(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        normalized = self._project(block)
        if self.clip_length is not None:
            normalized = normalized / np.maximum(
                np.linalg.norm(normalized, axis=1, keepdims=True), np.float32(self.clip_length)
            )
            return np.concatenate([normalized, np.full((len(normalized), 1), self.constant, np.float32)], axis=1)
        normalized = normalized / np.maximum(np.linalg.norm(normalized, axis=1, keepdims=True), 1e-6)
        normalized = np.concatenate([normalized, np.full((len(normalized), 1), CONSTANT_WEIGHT, np.float32)], axis=1)
        return normalized / np.linalg.norm(normalized, axis=1, keepdims=True)


def principal_directions(matrix: NDArray[np.float32], max_directions: int) -> NDArray[np.float32]:
    """Return the directions in which rows are longest, by the smaller of the two Gram matrices.

    Args:
        rows: The rows, not centred here.
        count: How many directions to return at most.

    Returns:
        An orthonormal basis, one direction a column, the longest first. Fewer rows than columns span fewer directions
        than `count` may ask for; then there are only as many as the rows span, and at least one.
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
    """Return the places of rows from all over the features, from which directions and lengths are learnt."""
    max_rows = _SAMPLE_ROWS if n_columns <= _MANY_COLUMNS else _SAMPLE_ROWS_IF_WIDE
    return np.linspace(0, len(features) - 1, min(len(features), max_rows)).astype(np.int64)


def _iter_blocks(features: Features) -> Any:
    return features.matrices(max(1, min(_BLOCK_ROWS, _BLOCK_SIZE // _n_columns(features))))


def _n_columns(features: Features) -> int:
    return math.prod(features.shape)
