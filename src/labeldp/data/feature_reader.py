"""Conversion of arrays and data frames to features, fitted on training rows and repeated for new rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl
import pyarrow as pa

from labeldp.core.errors import InputError
from labeldp.core.lazy import require_torch
from labeldp.data.base import Features
from labeldp.data.embeddings import Embeddings
from labeldp.data.image_columns import image_column, read_images
from labeldp.data.table_encoder import TableEncoder
from labeldp.data.tables import Table

if TYPE_CHECKING:
    from labeldp.data.pairs import Pairs

FeatureKind = Literal["auto", "table", "embeddings", "images", "pairs"]


@dataclass(frozen=True)
class FeatureReader:
    """The fitted conversion of raw rows to features. Its categories and medians come from training features."""

    kind: Literal["table", "embeddings", "images", "pairs"]
    columns: tuple[str, ...] = ()  # of the data frames that it reads; empty if it reads arrays
    encoding: dict[str, Any] = field(default_factory=dict, repr=False)  # of a table or of pairs
    flip: bool = False  # whether images may be mirrored

    @classmethod
    def fit(cls, data: Any, kind: FeatureKind = "auto", flip: bool = False) -> tuple[FeatureReader, Features]:
        """Fit the conversion, and return it with the features of these rows.

        Args:
            data: A data frame, a matrix, or an array of images.
            kind: The type of features. By default, an array of four axes holds images. Other data are a table, whose
                numbers are standardized and whose strings are categories. Embeddings, whose scale has a meaning, and
                pairs, two columns of ids, must be named.
            flip: Whether images may be mirrored.
        """
        if kind not in get_args(FeatureKind):
            raise InputError('features must be "auto", "table", "embeddings", "images" or "pairs".')
        if kind == "auto":
            kind = "images" if not is_frame(data) and getattr(data, "ndim", 2) == 4 else "table"
        check_kind(kind)
        columns = tuple(to_frame(data).columns) if is_frame(data) else ()
        if kind == "images" and columns:
            columns = (image_column(to_frame(data).schema),)
        if kind in _NEEDS_FIT:
            features = _fitted_class(kind).fit(to_frame(data))
            return cls(kind, columns, features.to_json()), features
        reader = cls(kind, columns, flip=flip)
        return reader, reader(data)

    def __call__(self, data: Any) -> Features:
        """Return the features of other rows, whose columns are found by name, or by position in a matrix."""
        if self.columns and is_frame(data):
            data = to_frame(data)
            missing = [name for name in self.columns if name not in data.columns]
            if missing:
                raise InputError(f"The data lack the column {missing[0]!r}, which the model was trained on.")
            data = data.select(self.columns)
        if self.kind in _NEEDS_FIT:
            frame = to_frame(data)
            names = self.columns or [f"x{index}" for index in range(frame.width)]
            features = _fitted_class(self.kind).from_json(self.encoding)
            return features.apply(frame.rename(dict(zip(frame.columns, names, strict=False))))
        if self.kind == "embeddings":
            return Embeddings(_to_floats(to_frame(data).to_numpy() if is_frame(data) else data))
        check_kind("images")
        from labeldp.data.images import Images

        pixels = read_images(to_frame(data).to_series()) if is_frame(data) else np.asarray(data)
        return Images(_channels_first(pixels), self.flip)

    def unseen_categories(self, frame: pl.DataFrame) -> list[str]:
        """Return the categorical columns whose values are all unseen: they may be written in another way."""
        return TableEncoder.from_json(self.encoding).unseen_categories(frame) if self.kind == "table" else []

    @property
    def text_columns(self) -> list[str]:
        """The columns that a file reader must not parse as numbers: strings except truth values."""
        if self.kind == "pairs":
            return [name for name, ids in self.encoding.items() if ids["text"]]
        booleans = {"true", "false"}
        return [c["name"] for c in self.encoding.get("categories", ()) if not booleans.issuperset(c["values"])]

    def to_json(self) -> dict[str, Any]:
        """Describe the conversion; `from_json` reads it back."""
        return {"kind": self.kind, "columns": list(self.columns), "encoding": self.encoding, "flip": self.flip}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FeatureReader:
        """Read what `to_json` wrote."""
        if data["kind"] in _NEEDS_FIT:
            _fitted_class(data["kind"]).from_json(data["encoding"])  # raises an error now if it is incomplete
        return cls(data["kind"], tuple(data["columns"]), data["encoding"], data["flip"])


_NEEDS_FIT = ("table", "pairs")  # types of features that are fitted on training rows
_NETWORK_ONLY = {"images": "Learning from pictures", "pairs": "Learning from pairs of ids"}


def check_kind(kind: str) -> None:
    """Raise MissingExtra if features of this kind need a network and torch is not installed."""
    if kind in _NETWORK_ONLY:
        require_torch(_NETWORK_ONLY[kind])


def _fitted_class(kind: str) -> type[Table] | type[Pairs]:
    if kind == "table":
        return Table
    check_kind(kind)
    from labeldp.data.pairs import Pairs

    return Pairs


def is_frame(data: Any) -> bool:
    """Return whether this is a data frame of Polars or pandas."""
    of_pandas = type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")
    return isinstance(data, pl.DataFrame) or of_pandas


def to_frame(data: Any) -> pl.DataFrame:
    """Return a Polars frame; the columns of a matrix are named x0, x1 and so on."""
    if isinstance(data, pl.DataFrame):
        return data
    if is_frame(data):
        try:
            return pl.from_pandas(data.rename(columns=str))
        except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError) as problem:
            reason = str(problem).partition("\n")[0]
        except pl.exceptions.PanicException:  # no subclass of Exception
            reason = "a type that Polars does not have"
        raise InputError(f"The data frame cannot be read ({reason}): give each column one type and a name of its own.")
    matrix = np.asarray(data)
    if matrix.ndim != 2:
        raise InputError(f"A table has two axes, rows and columns, not {matrix.ndim}: reshape it.")
    return pl.DataFrame({f"x{index}": column for index, column in enumerate(matrix.T)})


def _to_floats(data: Any) -> Any:
    matrix = np.asarray(data)
    try:
        return matrix if matrix.dtype == np.float16 else matrix.astype(np.float32)
    except (TypeError, ValueError):
        raise InputError("Embeddings must be numbers: take features table for other columns.") from None


def _channels_first(pixels: Any) -> Any:
    """Return pixels with channels first; also accept (rows, height, width, channels), which most libraries use."""
    if pixels.ndim == 4 and pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3):
        return pixels.transpose(0, 3, 1, 2)
    return pixels
