"""Embeddings: numeric rows from an encoder, augmented by noise and by corruption of columns."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.base import Features, check_device
from labeldp.data.feature_rows import (
    Moments,
    column_moments,
    find_extreme_rows,
    iter_blocks,
    replace_zero_deviations,
    row_indices,
    spaced_columns,
)
from labeldp.data.tensors import copy_with, state_without_tensors, to_tensor

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# In standard deviations of the column.
_WEAK_NOISE, _STRONG_NOISE = 0.1, 0.3
# Fractions of columns that are taken from other rows.
_STRONG_FRACTION, _VIEW_FRACTION = 0.2, 0.5


class Embeddings(Features):
    """A matrix of finite floats (rows, columns), stored as float16 if it is float16, else as float32.

    Its tensor is created at the first batch. On a CPU it shares the memory of the matrix.
    """

    kind: ClassVar[str] = "embeddings"

    def __init__(self, matrix: Any, device: str | torch.device = "cpu") -> None:
        if hasattr(matrix, "detach"):
            matrix = matrix.detach().cpu()
            matrix = matrix.float() if str(matrix.dtype) == "torch.bfloat16" else matrix  # NumPy has no bfloat16
            matrix = matrix.numpy()
        array = np.asarray(matrix)
        if array.dtype.kind != "f" or array.ndim != 2 or not array.shape[1]:
            raise InputError(
                f"Embeddings must be floats of shape (rows, columns), not {array.dtype} of shape {array.shape}."
            )
        dtype = np.float16 if array.dtype.itemsize == 2 else np.float32
        with np.errstate(over="ignore"):  # infinite values are refused below
            self._matrix: NDArray[np.floating] = np.ascontiguousarray(array, dtype)
        if not all(bool(np.isfinite(self._matrix[part]).all()) for part in iter_blocks(*array.shape)):
            raise InputError("Embeddings must be finite: some are infinite or not numbers.")
        self._device = check_device(str(device))

    def __len__(self) -> int:
        return len(self._matrix)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of columns."""
        return (self._matrix.shape[1],)

    @property
    def device(self) -> torch.device:
        """The device of the tensor."""
        return self._matrix_tensor.device

    def to(self, device: str | torch.device) -> Self:
        """Return these embeddings with their tensor on another device."""
        target = check_device(str(device))
        if target == self._device:
            return self
        return copy_with(self, _device=target)

    def select(self, row_selection: Any) -> Self:
        """Return the embeddings of some rows."""
        other = copy_with(self, _matrix=self._matrix[row_indices(row_selection, len(self))])
        vars(other).pop("_column_moments", None)
        return other

    def matrix(self, row_ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return rows as float32."""
        return self._matrix[row_ids].astype(np.float32, copy=False)

    def batch(self, row_ids: Tensor) -> Tensor:
        """Return the rows of `matrix` as a tensor on the device."""
        return self._matrix_tensor[row_ids.to(self.device)].float()

    def weak(self, batch: Tensor) -> Tensor:
        """Add a little Gaussian noise, in proportion to each column's deviation."""
        return self._add_noise(batch, _WEAK_NOISE)

    def strong(self, batch: Tensor) -> Tensor:
        """Add more noise, and take a fifth of each row's columns from other rows."""
        from labeldp.data.column_corruption import corrupt_columns

        return self._add_noise(corrupt_columns(batch, _STRONG_FRACTION), _STRONG_NOISE)

    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Take half of each row's columns from other rows."""
        from labeldp.data.column_corruption import corrupt_columns

        return corrupt_columns(batch, _VIEW_FRACTION)

    def moments(self) -> Moments:
        """Return mean and deviation of each column."""
        return replace_zero_deviations(self._column_moments)

    def extreme_row_ids(self) -> NDArray[np.int64]:
        """Return the rows with the smallest and the largest value of each of some columns."""
        return find_extreme_rows(self._matrix[:, spaced_columns(self._matrix.shape[1])])

    def _add_noise(self, batch: Tensor, scale: float) -> Tensor:
        import torch

        return batch + scale * self._deviation_tensor * torch.randn_like(batch)

    @cached_property
    def _column_moments(self) -> Moments:
        return column_moments((self._matrix[part] for part in iter_blocks(*self._matrix.shape)), self._matrix.shape[1])

    @cached_property
    def _matrix_tensor(self) -> Tensor:
        return to_tensor(self._matrix, self._device)

    @cached_property
    def _deviation_tensor(self) -> Tensor:
        return to_tensor(self._column_moments[1], self._device)

    __getstate__ = state_without_tensors
