"""Public rows of bounded length for linear queries: features brought to one scale and to the unit sphere."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.data.tables import Table

_LARGEST = 4.0  # deviations at which a number of a table is cut: an outlier must not drown its row's other columns
CONSTANT = 0.25  # weight of the constant column beside a row of length 1, for classes of unequal size
_SAMPLE = 10_000  # rows from which principal directions are found
_WIDE = 4096  # columns from which directions are found in fewer rows, as the work grows with the third power of either
_SAMPLE_OF_WIDE = 2048
_NOTHING = 1e-10  # of the largest variance: directions with less are rounding errors
_BLOCK, _NUMBERS = 1 << 13, 1 << 25  # rows that are lifted at once, and the most numbers in them


@dataclass(frozen=True)
class Lift:
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
    reach: float | None = None
    constant: float = 1.0  # beside rows that are cut

    @classmethod
    def fit(cls, features: Features, columns: int = 256, *, cut: bool = False, constant: float = 1.0) -> "Lift":
        """Learn means, scales and directions; and, if rows shall be `cut`, their median length."""
        total = np.zeros(_width(features), np.float64)
        for block in _blocks(features):
            total += block.sum(axis=0, dtype=np.float64)
        mean = (total / len(features)).astype(np.float32)
        scale = np.ones_like(mean)
        if isinstance(features, Table):
            numbers = len(features.encoder.numbers)
            mean[numbers:] = 0.0
            scale[:numbers] = features.moments()[1][:numbers]
        scale[scale == 0] = 1.0
        plain, basis = cls(mean, scale), None
        if len(mean) > columns:
            basis = principal_directions(plain._scaled(features.matrix(_spread(features, len(mean)))), columns)
        if not cut:
            return cls(mean, scale, basis)
        rows = cls(mean, scale, basis)._reduced(features.matrix(_spread(features, len(mean))))
        return cls(mean, scale, basis, float(np.median(np.linalg.norm(rows, axis=1))) or 1.0, constant)

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """Return a row of bounded length for each row of features."""
        if _width(features) != len(self.mean):
            raise InputError(f"These features have {_width(features)} columns, and {len(self.mean)} are expected.")
        return np.concatenate([self._lifted(block) for block in _blocks(features)])

    @property
    def columns(self) -> int:
        """The length of a lifted row."""
        return (len(self.mean) if self.basis is None else self.basis.shape[1]) + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `Lift(**arrays)` reads back."""
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean, "scale": self.scale}
        arrays |= {} if self.basis is None else {"basis": self.basis}
        cut = {} if self.reach is None else {"reach": np.array(self.reach), "constant": np.array(self.constant)}
        return arrays | cut

    def _scaled(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):  # the difference of two huge numbers of a table is cut
            scaled = (block - self.mean) / self.scale
        return np.clip(scaled, -_LARGEST, _LARGEST) if (self.scale != 1).any() else scaled

    def _reduced(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = self._scaled(block)
        return rows if self.basis is None else rows @ self.basis

    def _lifted(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = self._reduced(block)
        if self.reach is not None:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(self.reach))
            return np.concatenate([rows, np.full((len(rows), 1), self.constant, np.float32)], axis=1)
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
        rows = np.concatenate([rows, np.full((len(rows), 1), CONSTANT, np.float32)], axis=1)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def principal_directions(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return the directions in which rows are longest, by the smaller of the two Gram matrices.

    Args:
        rows: The rows, not centred here.
        count: How many directions to return at most.

    Returns:
        An orthonormal basis, one direction a column, the longest first. Fewer rows than columns span fewer directions
        than `count` may ask for; then there are only as many as the rows span, and at least one.
    """
    height, width = rows.shape
    if width <= height:
        _, directions = np.linalg.eigh(rows.T @ rows)
        return directions[:, ::-1][:, :count].astype(np.float32).copy()
    wide = rows.astype(np.float64)
    lengths, places = np.linalg.eigh(wide @ wide.T)
    lengths, places = lengths[::-1][:count], places[:, ::-1][:, :count]
    kept = lengths > max(lengths[0], 0.0) * _NOTHING
    if not kept.any():
        return np.eye(width, 1, dtype=np.float32)
    return ((wide.T @ places[:, kept]) / np.sqrt(lengths[kept])).astype(np.float32)


def _spread(features: Features, width: int) -> NDArray[np.int64]:
    """Return the places of rows from all over the features, from which directions and lengths are learnt."""
    most = _SAMPLE if width <= _WIDE else _SAMPLE_OF_WIDE
    return np.linspace(0, len(features) - 1, min(len(features), most)).astype(np.int64)


def _blocks(features: Features) -> Any:
    return features.matrices(max(1, min(_BLOCK, _NUMBERS // _width(features))))


def _width(features: Features) -> int:
    return math.prod(features.shape)
