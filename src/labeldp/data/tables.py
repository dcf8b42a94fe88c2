"""Tables: numbers and category codes, stored compactly and one-hot encoded batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
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
from labeldp.data.files import TableFile
from labeldp.data.table_encoder import (
    NumericColumn,
    TableEncoder,
    fit_categorical_columns,
    fit_numeric_column,
    is_numeric,
)
from labeldp.data.tensors import state_without_tensors, to_tensor

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_BATCH = 1 << 18
# Fractions of the original columns that are taken from other rows.
_WEAK_FRACTION, _STRONG_FRACTION, _VIEW_FRACTION = 0.1, 0.3, 0.5


class Table(Features):
    """Rows of a table. Network input has the numbers, then their missing indicators, then the one-hot codes.

    `fit` learns the encoding, `apply` encodes other rows, and `from_parquet` reads a file. The rows are NumPy arrays.
    Their tensors are created at the first batch. On a CPU they share the memory of the arrays.
    """

    kind: ClassVar[str] = "table"

    def __init__(
        self, encoder: TableEncoder, numeric: NDArray[np.float32], codes: NDArray[np.integer], device: str = "cpu"
    ) -> None:
        """Hold encoded rows; use `fit`, `apply` or `from_parquet` to create them."""
        self.encoder = encoder
        self._numeric, self._codes, self._device = numeric, codes, device
        categories = encoder.categorical
        self._flagged_columns = np.array(
            [index for index, column in enumerate(encoder.numeric) if column.has_missing], np.int64
        )
        self._medians = np.array([column.median for column in encoder.numeric], np.float32)
        *starts, self._codes_width = accumulate((column.width for column in categories), initial=0)
        self._starts = np.array(starts, np.int64)

    @classmethod
    def fit(cls, frame: pl.DataFrame, max_categories: int = 100, device: str | torch.device = "cpu") -> Self:
        """Learn the encoding of a table, with at most `max_categories` named values of a column, and encode it."""
        if not frame.height or not frame.width:
            raise InputError("The training table has no rows or no columns.")
        return cls._fit_frames(
            frame.schema, lambda names: frame.select(names).iter_slices(_BATCH), frame.height, max_categories, device
        )

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        columns: Sequence[str] | None,
        max_categories: int = 100,
        *,
        like: Table | None = None,
        device: str | torch.device = "cpu",
    ) -> Self:
        """Read columns of a Parquet file in batches, so that strings never fill the memory.

        Args:
            path: The file.
            columns: The columns whose encoding is learned. They have no default, because one column may be the label.
                None if `like` is given.
            max_categories: The largest number of named values of a column.
            like: A table whose columns and encoding are used instead.
            device: The device of the tensors.
        """
        file = TableFile(path)
        if file.n_rows is None:
            raise InputError(f"{file.path} must be a .parquet file.")
        if (like is None) == (columns is None) or (columns is not None and not len(columns)):
            raise InputError("Name the columns that are features, without the label, or give a table to be like.")
        column_names = list(columns or ()) if like is None else like.columns
        for name in column_names:
            file.column_type(name)

        def frames(names: list[str]) -> Iterator[pl.DataFrame]:
            return file.frames(names)

        if like is not None:
            return cls(like.encoder, *_encode_frames(like.encoder, frames(column_names), file.n_rows)).to(device)
        if not file.n_rows:
            raise InputError(f"{file.path} has no rows.")
        return cls._fit_frames(file.frame_schema(column_names), frames, file.n_rows, max_categories, device)

    def apply(self, frame: pl.DataFrame) -> Self:
        """Encode other rows with this encoding, on the same device."""
        return type(self)(
            self.encoder, *_encode_frames(self.encoder, frame.iter_slices(_BATCH), frame.height), self._device
        )

    def to_json(self) -> dict[str, Any]:
        """Describe the encoding, without rows; `from_json` reads it back."""
        return self.encoder.to_json()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what `to_json` wrote: a table without rows, whose `apply` encodes new ones."""
        encoder = TableEncoder.from_json(data)
        return cls(encoder, *_encode_frames(encoder, (), 0))

    def __len__(self) -> int:
        return len(self._numeric)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of columns after encoding."""
        return (len(self.encoded_columns),)

    @property
    def columns(self) -> list[str]:
        """The original columns: numbers, then categories."""
        return [c.name for c in self.encoder.numeric] + [c.name for c in self.encoder.categorical]

    @property
    def encoded_columns(self) -> list[str]:
        """The names of the columns of a batch."""
        numeric, categorical = self.encoder.numeric, self.encoder.categorical
        missing = [f"{c.name} is missing" for c in numeric if c.has_missing]
        codes = [f"{c.name} = {v}" for c in categorical for v in (*c.values, "(other)", "(missing)")]
        return [c.name for c in numeric] + missing + codes

    @property
    def numeric_values(self) -> NDArray[np.float32]:
        """The numeric columns in the order of the encoder, NaN where a value is missing: (rows, numbers)."""
        return self._numeric

    @property
    def category_codes(self) -> NDArray[np.integer]:
        """The codes of the categorical columns in the order of the encoder: (rows, categories)."""
        return self._codes

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._numeric_tensor.device

    def to(self, device: str | torch.device) -> Self:
        """Return this table with its tensors on another device."""
        target = check_device(str(device))
        return self if target == self._device else type(self)(self.encoder, self._numeric, self._codes, target)

    def select(self, row_selection: Any) -> Self:
        """Return some rows."""
        chosen = row_indices(row_selection, len(self))
        return type(self)(self.encoder, self._numeric[chosen], self._codes[chosen], self._device)

    def matrix(self, row_ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return rows as float32: numbers, with medians for missing values, missing indicators and one-hot codes."""
        width = len(self._medians) + len(self._flagged_columns)
        matrix = np.zeros((len(row_ids), width + self._codes_width), np.float32)
        self._fill_into(self._numeric[row_ids], matrix[:, :width])
        np.put_along_axis(matrix, self._codes[row_ids] + (self._starts + width), 1.0, axis=1)
        return matrix

    def batch(self, row_ids: Tensor) -> Tensor:
        """Return the rows of `matrix` as a tensor on the device."""
        import torch

        row_ids = row_ids.to(self.device)
        codes = self._codes_tensor[row_ids].long() + self._starts_tensor
        one_hot = torch.zeros(len(row_ids), self._codes_width, device=self.device).scatter_(1, codes, 1.0)
        numeric = self._numeric_tensor[row_ids]
        is_missing = numeric.isnan()
        filled = torch.where(is_missing, self._medians_tensor, numeric)
        return torch.cat([filled, is_missing[:, self._flagged_columns_tensor].float(), one_hot], 1)

    def weak(self, batch: Tensor) -> Tensor:
        """Replace a tenth of the original columns of each row by those of other rows."""
        return self._corrupt(batch, _WEAK_FRACTION)

    def strong(self, batch: Tensor) -> Tensor:
        """Replace three tenths of the original columns of each row by those of other rows."""
        return self._corrupt(batch, _STRONG_FRACTION)

    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Replace half of the original columns of each row by those of other rows."""
        return self._corrupt(batch, _VIEW_FRACTION)

    def moments(self) -> Moments:
        """Return mean and deviation of each encoded column; one-hot columns are computed from counts."""
        width = len(self._medians) + len(self._flagged_columns)
        parts = (self._fill_missing(self._numeric[part]) for part in iter_blocks(len(self), width))
        mean, deviation = column_moments(parts, width)
        counts = [
            np.bincount(codes, minlength=column.width)
            for codes, column in zip(self._codes.T, self.encoder.categorical, strict=True)
        ]
        frequencies = np.concatenate([np.empty(0), *counts]) / len(self)
        code_deviation = np.sqrt(frequencies * (1 - frequencies))
        return replace_zero_deviations(
            (np.append(mean, frequencies.astype(np.float32)), np.append(deviation, code_deviation.astype(np.float32)))
        )

    def extreme_row_ids(self) -> NDArray[np.int64]:
        """Return rows with the smallest, the largest or a missing number, or the rarest category, of some columns."""
        row_ids = [find_extreme_rows(self._numeric[:, spaced_columns(self._numeric.shape[1])])]
        for index in spaced_columns(self._codes.shape[1]):
            codes = self._codes[:, index]
            counts = np.bincount(codes)
            rarest = np.where(counts > 0, counts, len(codes) + 1).argmin()
            row_ids.append((codes == rarest).argmax(keepdims=True))
        return np.unique(np.concatenate(row_ids))

    @classmethod
    def _fit_frames(
        cls,
        schema: pl.Schema,
        frames: Callable[[list[str]], Iterable[pl.DataFrame]],
        n_rows: int,
        max_categories: int,
        device: str | torch.device,
    ) -> Self:
        """Read a table twice: for its categories, and for its rows, whose numbers then give the medians."""
        numeric, categorical = _split_columns(schema)
        draft = TableEncoder(
            numeric, fit_categorical_columns(categorical, frames(categorical) if categorical else (), max_categories)
        )
        matrix, codes = _encode_frames(draft, frames(list(schema)), n_rows)
        numeric_columns = (fit_numeric_column(c.name, v) for c, v in zip(numeric, matrix.T, strict=True))
        return cls(TableEncoder(tuple(numeric_columns), draft.categorical), matrix, codes).to(device)

    def _fill_into(self, numeric: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write the numbers, with medians for missing values, and then the missing indicators into `out`."""
        is_missing, width = np.isnan(numeric), len(self._medians)
        np.copyto(out[:, :width], numeric)
        np.copyto(out[:, :width], self._medians, where=is_missing)
        out[:, width:] = is_missing[:, self._flagged_columns]

    def _fill_missing(self, numeric: NDArray[np.float32]) -> NDArray[np.float32]:
        out = np.empty((len(numeric), len(self._medians) + len(self._flagged_columns)), np.float32)
        self._fill_into(numeric, out)
        return out

    def _corrupt(self, batch: Tensor, fraction: float) -> Tensor:
        from labeldp.data.column_corruption import corrupt_columns

        return corrupt_columns(batch, fraction, self._original_column_tensor, len(self.columns))

    # Tensors on the device, which are created at their first use.

    @cached_property
    def _numeric_tensor(self) -> Tensor:
        return to_tensor(self._numeric, self._device)

    @cached_property
    def _codes_tensor(self) -> Tensor:
        return to_tensor(self._codes, self._device)

    @cached_property
    def _medians_tensor(self) -> Tensor:
        return to_tensor(self._medians, self._device)

    @cached_property
    def _flagged_columns_tensor(self) -> Tensor:
        return to_tensor(self._flagged_columns, self._device)

    @cached_property
    def _starts_tensor(self) -> Tensor:
        return to_tensor(self._starts, self._device)

    @cached_property
    def _original_column_tensor(self) -> Tensor:
        """The original column of each column of a batch."""
        n_numeric, widths = len(self.encoder.numeric), [column.width for column in self.encoder.categorical]
        of_codes = np.repeat(n_numeric + np.arange(len(widths)), widths)
        return to_tensor(np.concatenate([np.arange(n_numeric), self._flagged_columns, of_codes]), self._device)

    __getstate__ = state_without_tensors


def _split_columns(schema: pl.Schema) -> tuple[tuple[NumericColumn, ...], list[str]]:
    """Return the numeric columns, whose medians are not yet fitted, and the names of the others."""
    is_numeric_column = {name: is_numeric(name, dtype) for name, dtype in schema.items()}
    numeric = tuple(NumericColumn(name, 0.0, False) for name, is_number in is_numeric_column.items() if is_number)
    return numeric, [name for name, is_number in is_numeric_column.items() if not is_number]


def _encode_frames(
    encoder: TableEncoder, frames: Iterable[pl.DataFrame], n_rows: int
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Encode a table in parts, into arrays that are allocated once."""
    numeric = np.empty((n_rows, len(encoder.numeric)), np.float32)
    codes = np.empty((n_rows, len(encoder.categorical)), encoder.code_dtype)
    start = 0
    for frame in frames:
        part = slice(start, start + frame.height)
        numeric[part], codes[part] = encoder.numeric_matrix(frame), encoder.code_matrix(frame)
        start += frame.height
    return numeric, codes
