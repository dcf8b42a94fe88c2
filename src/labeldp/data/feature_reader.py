"""From what people have (arrays, data frames) to features, and the same way again for new rows."""

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
    """How raw rows become features. What it learnt (categories, medians) came from the training rows' features."""

    kind: Literal["table", "embeddings", "images", "pairs"]
    columns: tuple[str, ...] = ()  # of the data frames that it takes; none if it takes arrays
    encoding: dict[str, Any] = field(default_factory=dict, repr=False)  # of a table, or the ids of pairs
    flip: bool = False  # whether images may be mirrored

    @classmethod
    def fit(cls, data: Any, kind: FeatureKind = "auto", flip: bool = False) -> tuple[FeatureReader, Features]:
        """Learn how to take in rows like these, and return their features.

        By default a data frame or a matrix is a table, whose numbers are standardised and whose texts are categories;
        an array of bytes with four axes holds images. Embeddings must be named as such: their scale means something.
        So must pairs, two columns of ids.
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
        """Return the features of rows like those of the training: columns by name, or by place where one has none."""
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
        """Return the columns of a table whose texts are all unknown: they may be written in another way."""
        return TableEncoder.from_json(self.encoding).unseen_categories(frame) if self.kind == "table" else []

    @property
    def text_columns(self) -> list[str]:
        """The columns that a file must not turn into numbers: texts, but for truth values."""
        if self.kind == "pairs":
            return [name for name, ids in self.encoding.items() if ids["text"]]
        booleans = {"true", "false"}
        return [c["name"] for c in self.encoding.get("categories", ()) if not booleans.issuperset(c["values"])]

    def to_json(self) -> dict[str, Any]:
        """Describe the intake; `from_json` reads it back."""
        return {"kind": self.kind, "columns": list(self.columns), "encoding": self.encoding, "flip": self.flip}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FeatureReader:
        """Read what `to_json` wrote."""
        if data["kind"] in _NEEDS_FIT:
            _fitted_class(data["kind"]).from_json(data["encoding"])  # it is whole, or says so now
        return cls(data["kind"], tuple(data["columns"]), data["encoding"], data["flip"])


_NEEDS_FIT = ("table", "pairs")  # what has to learn from training rows
_NETWORK_ONLY = {"images": "Learning from pictures", "pairs": "Learning from pairs of ids"}


def check_kind(kind: str) -> None:
    """Say if features of a kind are for networks alone, and torch is not installed."""
    if kind in _NETWORK_ONLY:
        require_torch(_NETWORK_ONLY[kind])


def _fitted_class(kind: str) -> type[Table] | type[Pairs]:
    if kind == "table":
        return Table
    check_kind(kind)
    from labeldp.data.pairs import Pairs

    return Pairs


def is_frame(data: Any) -> bool:
    """Whether this is a data frame of Polars or pandas."""
    of_pandas = type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")
    return isinstance(data, pl.DataFrame) or of_pandas


def to_frame(data: Any) -> pl.DataFrame:
    """Return a Polars frame; the columns of a matrix are numbered."""
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
    """Accept (rows, height, width, channels) too, as most libraries give images."""
    if pixels.ndim == 4 and pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3):
        return pixels.transpose(0, 3, 1, 2)
    return pixels
