"""Tables: numbers and category codes kept compactly, made into one-hot rows batch by batch."""

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
from labeldp.data.files import TableFile
from labeldp.data.row_selection import (
    Moments,
    blocks,
    column_moments,
    extremes,
    normalising,
    row_indices,
    some_columns,
)
from labeldp.data.table_encoder import Encoder, Number, is_number, learn_categories, learn_number
from labeldp.data.tensors import to_tensor, without_tensors

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_BATCH = 1 << 18
_WEAK_SHARE, _STRONG_SHARE, _VIEW_SHARE = 0.1, 0.3, 0.5


class Table(Features):
    """Rows of a table. Network input has the numbers first, then what was missing among them, then the one-hot codes.

    Made by `fit`, which learns the encoding, by `apply`, which uses it on other rows, or by `from_parquet`. The rows
    are NumPy arrays; their tensors are made at the first batch, once, and on a CPU they share the arrays' memory.
    """

    kind: ClassVar[str] = "table"

    def __init__(
        self, encoder: Encoder, numbers: NDArray[np.float32], codes: NDArray[np.integer], device: str = "cpu"
    ) -> None:
        """Hold encoded rows; `fit`, `apply` and `from_parquet` are the usual ways to get them."""
        self.encoder = encoder
        self._numbers, self._codes, self._device = numbers, codes, device
        categories = encoder.categories
        self._flagged = np.array([place for place, column in enumerate(encoder.numbers) if column.missing], np.int64)
        self._medians = np.array([column.median for column in encoder.numbers], np.float32)
        *starts, self._codes_width = accumulate((column.width for column in categories), initial=0)
        self._starts = np.array(starts, np.int64)

    @classmethod
    def fit(cls, frame: pl.DataFrame, categories: int = 100, device: str | torch.device = "cpu") -> Self:
        """Learn the encoding of a table, with at most so many named values in a column, and encode it."""
        if not frame.height or not frame.width:
            raise InputError("The training table has no rows or no columns.")
        return cls._learned(
            frame.schema, lambda names: frame.select(names).iter_slices(_BATCH), frame.height, categories, device
        )

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        columns: Sequence[str] | None,
        categories: int = 100,
        *,
        like: Table | None = None,
        device: str | torch.device = "cpu",
    ) -> Self:
        """Read columns of a Parquet file in batches, so that text never fills the memory, and learn their encoding.

        Or take the encoding of `like`: its columns are the ones read then, and `columns` is None. There is no
        default of all columns, since one of them is likely to be the label.
        """
        file = TableFile(path)
        if file.rows is None:
            raise InputError(f"{file.path} must be a .parquet file.")
        if (like is None) == (columns is None) or (columns is not None and not len(columns)):
            raise InputError("Name the columns that are features, without the label, or give a table to be like.")
        wanted = list(columns or ()) if like is None else like.columns
        for name in wanted:
            file.column_type(name)

        def frames(names: list[str]) -> Iterator[pl.DataFrame]:
            return file.frames(names)

        if like is not None:
            return cls(like.encoder, *_encode(like.encoder, frames(wanted), file.rows)).to(device)
        if not file.rows:
            raise InputError(f"{file.path} has no rows.")
        return cls._learned(file.frame_schema(wanted), frames, file.rows, categories, device)

    def apply(self, frame: pl.DataFrame) -> Self:
        """Encode other rows as the training table was, on the same device."""
        return type(self)(self.encoder, *_encode(self.encoder, frame.iter_slices(_BATCH), frame.height), self._device)

    def to_json(self) -> dict[str, Any]:
        """Describe the encoding, without any row."""
        return self.encoder.to_json()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what `to_json` wrote: a table without rows, whose `apply` encodes new ones."""
        encoder = Encoder.from_json(data)
        return cls(encoder, *_encode(encoder, (), 0))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of columns after encoding."""
        return (len(self.names),)

    @property
    def columns(self) -> list[str]:
        """The original columns: numbers, then categories."""
        return [c.name for c in self.encoder.numbers] + [c.name for c in self.encoder.categories]

    @property
    def names(self) -> list[str]:
        """What each column of a batch holds."""
        numbers, categories = self.encoder.numbers, self.encoder.categories
        missing = [f"{c.name} is missing" for c in numbers if c.missing]
        codes = [f"{c.name} = {v}" for c in categories for v in (*c.values, "(other)", "(missing)")]
        return [c.name for c in numbers] + missing + codes

    @property
    def number_values(self) -> NDArray[np.float32]:
        """The numeric columns in the order of the encoder, NaN where a value is missing: (rows, numbers)."""
        return self._numbers

    @property
    def category_codes(self) -> NDArray[np.integer]:
        """The codes of the categorical columns in the order of the encoder: (rows, categories)."""
        return self._codes

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._numbers_tensor.device

    def to(self, device: str | torch.device) -> Self:
        """Return this table with its tensors on another device."""
        target = check_device(str(device))
        return self if target == self._device else type(self)(self.encoder, self._numbers, self._codes, target)

    def select(self, rows: Any) -> Self:
        """Return some rows."""
        chosen = row_indices(rows, len(self))
        return type(self)(self.encoder, self._numbers[chosen], self._codes[chosen], self._device)

    def matrix(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return rows as float32: numbers as they are, medians for what is missing, one-hot codes."""
        width = len(self._medians) + len(self._flagged)
        found = np.zeros((len(rows), width + self._codes_width), np.float32)
        self._fill(self._numbers[rows], found[:, :width])
        np.put_along_axis(found, self._codes[rows] + (self._starts + width), 1.0, axis=1)
        return found

    def batch(self, rows: Tensor) -> Tensor:
        """Return the rows of `matrix` as a tensor on the device."""
        import torch

        rows = rows.to(self.device)
        codes = self._codes_tensor[rows].long() + self._starts_tensor
        one_hot = torch.zeros(len(rows), self._codes_width, device=self.device).scatter_(1, codes, 1.0)
        numbers = self._numbers_tensor[rows]
        missing = numbers.isnan()
        filled = torch.where(missing, self._medians_tensor, numbers)
        return torch.cat([filled, missing[:, self._flagged_tensor].float(), one_hot], 1)

    def weak(self, batch: Tensor) -> Tensor:
        """Take a tenth of each row's original columns from other rows."""
        return self._corrupted(batch, _WEAK_SHARE)

    def strong(self, batch: Tensor) -> Tensor:
        """Take three tenths of each row's original columns from other rows."""
        return self._corrupted(batch, _STRONG_SHARE)

    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Take half of each row's original columns from other rows."""
        return self._corrupted(batch, _VIEW_SHARE)

    def moments(self) -> Moments:
        """Return mean and deviation of each encoded column; those of one-hot columns follow from counts."""
        width = len(self._medians) + len(self._flagged)
        parts = (self._filled(self._numbers[part]) for part in blocks(len(self), width))
        mean, deviation = column_moments(parts, width)
        counts = [
            np.bincount(codes, minlength=column.width)
            for codes, column in zip(self._codes.T, self.encoder.categories, strict=True)
        ]
        shares = np.concatenate([np.empty(0), *counts]) / len(self)
        spread = np.sqrt(shares * (1 - shares))
        return normalising(
            (np.append(mean, shares.astype(np.float32)), np.append(deviation, spread.astype(np.float32)))
        )

    def extreme_rows(self) -> NDArray[np.int64]:
        """Return rows with the least, the largest or a missing value of a number, or the rarest value of a category."""
        found = [extremes(self._numbers[:, some_columns(self._numbers.shape[1])])]
        for place in some_columns(self._codes.shape[1]):
            codes = self._codes[:, place]
            counts = np.bincount(codes)
            rarest = np.where(counts > 0, counts, len(codes) + 1).argmin()
            found.append((codes == rarest).argmax(keepdims=True))
        return np.unique(np.concatenate(found))

    @classmethod
    def _learned(
        cls,
        schema: pl.Schema,
        frames: Callable[[list[str]], Iterable[pl.DataFrame]],
        rows: int,
        categories: int,
        device: str | torch.device,
    ) -> Self:
        """Go through a table twice: for its categories, and for its rows, whose numbers then give the medians."""
        numbers, named = _split(schema)
        draft = Encoder(numbers, learn_categories(named, frames(named) if named else (), categories))
        matrix, codes = _encode(draft, frames(list(schema)), rows)
        learned = (learn_number(c.name, v) for c, v in zip(numbers, matrix.T, strict=True))
        return cls(Encoder(tuple(learned), draft.categories), matrix, codes).to(device)

    def _fill(self, numbers: NDArray[np.float32], found: NDArray[np.float32]) -> None:
        """Write numbers, with medians for what is missing, and then what was missing into `found`."""
        missing, width = np.isnan(numbers), len(self._medians)
        np.copyto(found[:, :width], numbers)
        np.copyto(found[:, :width], self._medians, where=missing)
        found[:, width:] = missing[:, self._flagged]

    def _filled(self, numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        found = np.empty((len(numbers), len(self._medians) + len(self._flagged)), np.float32)
        self._fill(numbers, found)
        return found

    def _corrupted(self, batch: Tensor, share: float) -> Tensor:
        from labeldp.data.corrupt import corrupt

        return corrupt(batch, share, self._owner_tensor, len(self.columns))

    # Tensors on the device, each made at its first use.

    @cached_property
    def _numbers_tensor(self) -> Tensor:
        return to_tensor(self._numbers, self._device)

    @cached_property
    def _codes_tensor(self) -> Tensor:
        return to_tensor(self._codes, self._device)

    @cached_property
    def _medians_tensor(self) -> Tensor:
        return to_tensor(self._medians, self._device)

    @cached_property
    def _flagged_tensor(self) -> Tensor:
        return to_tensor(self._flagged, self._device)

    @cached_property
    def _starts_tensor(self) -> Tensor:
        return to_tensor(self._starts, self._device)

    @cached_property
    def _owner_tensor(self) -> Tensor:
        """The original column of each column of a batch."""
        numbers, widths = len(self.encoder.numbers), [column.width for column in self.encoder.categories]
        of_codes = np.repeat(numbers + np.arange(len(widths)), widths)
        return to_tensor(np.concatenate([np.arange(numbers), self._flagged, of_codes]), self._device)

    __getstate__ = without_tensors


def _split(schema: pl.Schema) -> tuple[tuple[Number, ...], list[str]]:
    """Return the numeric columns, their medians still to be learned, and the names of the others."""
    numeric = {name: is_number(name, kind) for name, kind in schema.items()}
    numbers = tuple(Number(name, 0.0, False) for name, number in numeric.items() if number)
    return numbers, [name for name, number in numeric.items() if not number]


def _encode(
    encoder: Encoder, frames: Iterable[pl.DataFrame], rows: int
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Encode a table that comes in parts, into memory taken once."""
    numbers = np.empty((rows, len(encoder.numbers)), np.float32)
    codes = np.empty((rows, len(encoder.categories)), encoder.code_type)
    start = 0
    for frame in frames:
        part = slice(start, start + frame.height)
        numbers[part], codes[part] = encoder.number_matrix(frame), encoder.code_matrix(frame)
        start += frame.height
    return numbers, codes
