"""Embeddings: rows of numbers from some encoder, varied by noise and by corruption of columns."""

import copy
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeldp.errors import InputError
from labeldp.features.base import Features, choose_device
from labeldp.features.corrupt import corrupt
from labeldp.features.rows import blocks, column_moments, extremes, normalising, row_indices, some_columns

_WEAK_NOISE, _STRONG_NOISE = 0.1, 0.3  # in deviations of the column
_STRONG_SHARE, _VIEW_SHARE = 0.2, 0.5


class Embeddings(Features):
    """A matrix of finite floats (rows, columns), kept in half precision if it comes so, else in float32."""

    kind: ClassVar[str] = "embeddings"

    def __init__(self, matrix: Any, device: str | torch.device = "cpu") -> None:
        if not isinstance(matrix, Tensor):
            array = np.asarray(matrix)
            if array.dtype.kind != "f":
                raise InputError(f"Embeddings must be floats, not {array.dtype}.")
            matrix = torch.from_numpy(array if array.flags.writeable and array.dtype.isnative else array.astype("f4"))
        if not matrix.is_floating_point() or matrix.ndim != 2 or not matrix.shape[1]:
            raise InputError(
                "Embeddings must be floats of shape (rows, columns), "
                f"not {str(matrix.dtype).removeprefix('torch.')} of shape {tuple(matrix.shape)}."
            )
        kept = matrix if matrix.element_size() == 2 else matrix.float()
        self._matrix = kept.detach().contiguous().to(choose_device(str(device)))
        if not all(bool(self._matrix[part].isfinite().all()) for part in blocks(*kept.shape)):
            raise InputError("Embeddings must be finite: some are infinite or not numbers.")
        self._spread: Tensor | None = None

    def __len__(self) -> int:
        return len(self._matrix)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of columns."""
        return (self._matrix.shape[1],)

    @property
    def device(self) -> torch.device:
        """Where the matrix is."""
        return self._matrix.device

    def to(self, device: str | torch.device) -> Self:
        """Return these embeddings on another device."""
        return self._with(self._matrix.to(choose_device(str(device))))

    def select(self, rows: Any) -> Self:
        """Return the embeddings of some rows."""
        return self._with(self._matrix[row_indices(rows, len(self), self.device)])

    def batch(self, rows: Tensor) -> Tensor:
        """Return rows as float32."""
        return self._matrix[rows.to(self.device)].float()

    def weak(self, batch: Tensor) -> Tensor:
        """Add a little Gaussian noise, in proportion to each column's deviation."""
        return self._noisy(batch, _WEAK_NOISE)

    def strong(self, batch: Tensor) -> Tensor:
        """Add more noise, and take a fifth of each row's columns from other rows."""
        return self._noisy(corrupt(batch, _STRONG_SHARE), _STRONG_NOISE)

    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Take half of each row's columns from other rows."""
        return corrupt(batch, _VIEW_SHARE)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of each column."""
        return normalising(self._moments())

    def extreme_rows(self) -> NDArray[np.int64]:
        """Return rows with the least and the largest value of a column."""
        return extremes(self._matrix[:, some_columns(self._matrix.shape[1])])

    def _moments(self) -> tuple[Tensor, Tensor]:
        parts = (self._matrix[part].float() for part in blocks(*self._matrix.shape))
        return column_moments(parts, self._matrix.shape[1], self.device)

    def _noisy(self, batch: Tensor, scale: float) -> Tensor:
        if self._spread is None:
            self._spread = self._moments()[1]
        return batch + scale * self._spread * torch.randn_like(batch)

    def _with(self, matrix: Tensor) -> Self:
        other = copy.copy(self)
        other._matrix, other._spread = matrix, None
        return other
