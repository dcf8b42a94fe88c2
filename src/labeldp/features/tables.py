"""Tables: numbers and category codes kept compactly, made into one-hot rows batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeldp.errors import InputError
from labeldp.features.base import Features, choose_device
from labeldp.features.corrupt import corrupt
from labeldp.features.encoder import Encoder, Number, is_number, learn_categories, learn_number
from labeldp.features.rows import blocks, column_moments, extremes, normalising, row_indices, some_columns
from labeldp.files import TableFile

_BATCH = 1 << 18
_WEAK_SHARE, _STRONG_SHARE, _VIEW_SHARE = 0.1, 0.3, 0.5


class Table(Features):
    """Rows of a table. Network input has the numbers first, then what was missing among them, then the one-hot codes.

    Made by `fit`, which learns the encoding, by `apply`, which uses it on other rows, or by `from_parquet`.
    """

    kind: ClassVar[str] = "table"

    def __init__(self, encoder: Encoder, numbers: Tensor, codes: Tensor) -> None:
        """Hold encoded rows; `fit`, `apply` and `from_parquet` are the usual ways to get them."""
        self.encoder = encoder
        self._numbers, self._codes = numbers, codes
        self._place(numbers.device)

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
        like: "Table | None" = None,
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
        return type(self)(self.encoder, *_encode(self.encoder, frame.iter_slices(_BATCH), frame.height)).to(self.device)

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
    def device(self) -> torch.device:
        """Where the rows are."""
        return self._numbers.device

    def to(self, device: str | torch.device) -> Self:
        """Return this table on another device."""
        target = choose_device(str(device))
        return self._with(self._numbers.to(target), self._codes.to(target))

    def select(self, rows: Any) -> Self:
        """Return some rows."""
        chosen = row_indices(rows, len(self), self.device)
        return self._with(self._numbers[chosen], self._codes[chosen])

    def batch(self, rows: Tensor) -> Tensor:
        """Return rows as float32: numbers as they are, medians for what is missing, one-hot codes."""
        rows = rows.to(self.device)
        codes = self._codes[rows].long() + self._starts
        one_hot = torch.zeros(len(rows), self._codes_width, device=self.device).scatter_(1, codes, 1.0)
        return torch.cat([self._filled(self._numbers[rows]), one_hot], 1)

    def weak(self, batch: Tensor) -> Tensor:
        """Take a tenth of each row's original columns from other rows."""
        return self._corrupted(batch, _WEAK_SHARE)

    def strong(self, batch: Tensor) -> Tensor:
        """Take three tenths of each row's original columns from other rows."""
        return self._corrupted(batch, _STRONG_SHARE)

    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Take half of each row's original columns from other rows."""
        return self._corrupted(batch, _VIEW_SHARE)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of each encoded column; those of one-hot columns follow from counts."""
        width = len(self.names) - self._codes_width
        parts = (self._filled(self._numbers[part]) for part in blocks(len(self), width))
        mean, deviation = column_moments(parts, width, self.device)
        counts = [
            torch.bincount(codes, minlength=column.width)
            for codes, column in zip(self._codes.unbind(1), self.encoder.categories, strict=True)
        ]
        shares = torch.cat([torch.empty(0, device=self.device), *counts]).double() / len(self)
        spread = (shares * (1 - shares)).sqrt()
        return normalising((torch.cat([mean, shares.float()]), torch.cat([deviation, spread.float()])))

    def extreme_rows(self) -> NDArray[np.int64]:
        """Return rows with the least, the largest or a missing value of a number, or the rarest value of a category."""
        found = [extremes(self._numbers[:, some_columns(self._numbers.shape[1])])]
        for place in some_columns(self._codes.shape[1]):
            codes = self._codes[:, place].long()
            counts = torch.bincount(codes)
            rarest = torch.where(counts > 0, counts, len(codes) + 1).argmin()
            found.append((codes == rarest).byte().argmax()[None].cpu().numpy())
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
        learned = (learn_number(c.name, v) for c, v in zip(numbers, matrix.numpy().T, strict=True))
        return cls(Encoder(tuple(learned), draft.categories), matrix, codes).to(device)

    def _place(self, device: torch.device) -> None:
        numbers, categories = self.encoder.numbers, self.encoder.categories
        flagged = [place for place, column in enumerate(numbers) if column.missing]
        widths = [column.width for column in categories]
        owner = [*range(len(numbers)), *flagged, *np.repeat(len(numbers) + np.arange(len(widths)), widths)]
        self._medians = torch.tensor([column.median for column in numbers], device=device)
        self._flagged = torch.tensor(flagged, dtype=torch.long, device=device)
        self._starts = torch.tensor([0, *accumulate(widths)][: len(widths)], dtype=torch.long).to(device)
        self._owner = torch.tensor(owner, dtype=torch.long, device=device)
        self._codes_width = sum(widths)

    def _filled(self, numbers: Tensor) -> Tensor:
        missing = numbers.isnan()
        return torch.cat([torch.where(missing, self._medians, numbers), missing[:, self._flagged].float()], 1)

    def _corrupted(self, batch: Tensor, share: float) -> Tensor:
        return corrupt(batch, share, self._owner, len(self.columns))

    def _with(self, numbers: Tensor, codes: Tensor) -> Self:
        return type(self)(self.encoder, numbers, codes)


def _split(schema: pl.Schema) -> tuple[tuple[Number, ...], list[str]]:
    """Return the numeric columns, their medians still to be learned, and the names of the others."""
    numeric = {name: is_number(name, kind) for name, kind in schema.items()}
    numbers = tuple(Number(name, 0.0, False) for name, number in numeric.items() if number)
    return numbers, [name for name, number in numeric.items() if not number]


def _encode(encoder: Encoder, frames: Iterable[pl.DataFrame], rows: int) -> tuple[Tensor, Tensor]:
    """Encode a table that comes in parts, into memory taken once."""
    numbers = np.empty((rows, len(encoder.numbers)), np.float32)
    codes = np.empty((rows, len(encoder.categories)), encoder.code_type)
    start = 0
    for frame in frames:
        part = slice(start, start + frame.height)
        numbers[part], codes[part] = encoder.number_matrix(frame), encoder.code_matrix(frame)
        start += frame.height
    return torch.from_numpy(numbers), torch.from_numpy(codes)
