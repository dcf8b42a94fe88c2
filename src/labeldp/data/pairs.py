"""Pairs of a person and an item: two public ids for each row, stored as codes of two lists of known ids."""

from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeldp.core.errors import InputError
from labeldp.data.base import Features, choose_device
from labeldp.data.feature_rows import row_indices
from labeldp.data.tensors import copy_with


class Pairs(Features):
    """Rows of a table with two columns of ids. `fit` learns the ids, and `apply` encodes other rows.

    Network input is two integers for each row: the codes of its ids. Code 0 stands for unseen and missing ids. The
    augmentations return a batch unchanged.
    """

    kind: ClassVar[str] = "pairs"

    def __init__(self, ids: dict[str, dict[str, Any]], indices: Tensor) -> None:
        """Hold encoded rows; use `fit` and `apply` to create them."""
        self._ids, self._indices = ids, indices

    @classmethod
    def fit(cls, frame: pl.DataFrame, device: str | torch.device = "cpu") -> Self:
        """Learn the ids of a table, strings or integers, and encode its rows."""
        if frame.width != 2:
            names = ", ".join([*frame.columns[:5], *["..."] * (frame.width > 5)])
            raise InputError(
                f"Pairs are two columns of ids, and here are {frame.width} ({names}): "
                "keep the person and the item, and leave out the rest."
            )
        if not frame.height:
            raise InputError("The training table has no rows.")
        ids = {
            column.name: {
                "values": _to_strings(column).drop_nulls().unique().sort().to_list(),
                "text": column.dtype in (pl.String, pl.Categorical, pl.Enum),
            }
            for column in frame
        }
        return cls(ids, _encode_ids(ids, frame)).to(device)

    def apply(self, frame: pl.DataFrame) -> Self:
        """Encode other rows, on the same device."""
        return type(self)(self._ids, _encode_ids(self._ids, frame)).to(self.device)

    def to_json(self) -> dict[str, Any]:
        """Describe the ids, without rows; `from_json` reads them back."""
        return self._ids

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what `to_json` wrote: pairs without rows, whose `apply` encodes new ones."""
        ids = {name: {"values": list(column["values"]), "text": bool(column["text"])} for name, column in data.items()}
        return cls(ids, torch.empty(0, 2, dtype=torch.long))

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of codes, including the code of unseen ids: (people, items)."""
        return tuple(len(column["values"]) + 1 for column in self._ids.values())

    @property
    def text_columns(self) -> list[str]:
        """The columns whose ids were strings in training. Files must not parse them as numbers: 007 is not 7."""
        return [name for name, column in self._ids.items() if column["text"]]

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self._indices.device

    def to(self, device: str | torch.device) -> Self:
        """Return these pairs on another device."""
        return self._with_indices(self._indices.to(choose_device(str(device))))

    def select(self, row_selection: Any) -> Self:
        """Return some rows."""
        return self._with_indices(
            self._indices[torch.from_numpy(row_indices(row_selection, len(self))).to(self.device)]
        )

    def batch(self, row_ids: Tensor) -> Tensor:
        """Return the codes of both ids, as integers."""
        return self._indices[row_ids.to(self.device)]

    def weak(self, batch: Tensor) -> Tensor:
        """Return the batch unchanged."""
        return batch

    strong = weak

    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Return the batch unchanged."""
        return batch

    def moments(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return 0 and 1: codes are not numeric, so nothing is normalized."""
        return np.zeros(1, np.float32), np.ones(1, np.float32)

    def _with_indices(self, indices: Tensor) -> Self:
        return copy_with(self, _indices=indices)


def _encode_ids(ids: dict[str, dict[str, Any]], frame: pl.DataFrame) -> Tensor:
    indices = np.zeros((frame.height, len(ids)), np.int64)
    for column_index, (name, column) in enumerate(ids.items()):
        if name not in frame.columns:
            raise InputError(f"The data lack the column {name!r}, which the model was trained on.")
        values = pl.Series("id", column["values"], pl.String)
        index_of_id = pl.DataFrame({"id": values, "at": np.arange(1, len(values) + 1)})
        found = pl.DataFrame({"id": _to_strings(frame[name])}).join(
            index_of_id, on="id", how="left", maintain_order="left"
        )
        indices[:, column_index] = found["at"].fill_null(0).to_numpy()
    return torch.from_numpy(indices)


def _to_strings(column: pl.Series) -> pl.Series:
    """Return ids as strings, so that 7 is the same id in every type of column."""
    if column.dtype.is_float():
        integers = column.cast(pl.Int64, strict=False)
        if not (integers.cast(column.dtype) == column).all():
            raise InputError(f"The ids in column {column.name!r} are fractions: ids are texts or whole numbers.")
        column = integers
    return column.cast(pl.String)
