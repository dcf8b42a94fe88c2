"""How the columns of a table become numbers: learned from a training table, kept as JSON, applied to others."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from labeldp.core.errors import InputError

MOST_CATEGORIES = 30_000
_COUNTED = 1 << 19  # distinct values counted at once: beyond, the rarest are forgotten, and memory stays bounded


@dataclass(frozen=True)
class Number:
    """A numeric column: what stands in for a missing value, and whether the training table had any."""

    name: str
    median: float
    missing: bool


_SEVERAL = 5  # rows of which one should hold a value that was seen before


@dataclass(frozen=True)
class Category:
    """A column of categories: the frequent values by name. Two codes follow theirs: other, and missing."""

    name: str
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        """How many codes there are."""
        return len(self.values) + 2


@dataclass(frozen=True)
class Encoder:
    """The columns of a table, numbers and categories each in the table's order."""

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]

    def to_json(self) -> dict[str, Any]:
        """Describe the encoder."""
        return {"numbers": [asdict(c) for c in self.numbers], "categories": [asdict(c) for c in self.categories]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Encoder":
        """Read what `to_json` wrote, also after a trip through JSON text."""
        categories = (Category(c["name"], tuple(c["values"])) for c in data["categories"])
        return cls(tuple(Number(**c) for c in data["numbers"]), tuple(categories))

    @property
    def code_type(self) -> type[np.integer]:
        """The smallest integers that hold every code."""
        return np.uint8 if all(column.width <= 256 for column in self.categories) else np.int16

    def number_matrix(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """Return the numeric columns, NaN where a value is missing."""
        numbers = np.empty((frame.height, len(self.numbers)), np.float32)
        for place, column in enumerate(self.numbers):
            numbers[:, place] = as_numbers(self._find(frame, column.name))
        return numbers

    def code_matrix(self, frame: pl.DataFrame) -> NDArray[np.integer]:
        """Return the codes of the categorical columns."""
        codes = np.empty((frame.height, len(self.categories)), self.code_type)
        for place, column in enumerate(self.categories):
            known = len(column.values)
            texts = as_texts(self._find(frame, column.name))
            found = texts.replace_strict(column.values, range(known), default=known, return_dtype=pl.Int16)
            codes[:, place] = np.where(texts.is_null(), known + 1, found)
        return codes

    def strangers(self, frame: pl.DataFrame) -> list[str]:
        """Return the categorical columns of which several rows hold values, and none of them is known."""
        texts = {column: as_texts(self._find(frame, column.name)).drop_nulls() for column in self.categories}
        return [c.name for c, held in texts.items() if len(held) >= _SEVERAL and not held.is_in(c.values).any()]

    @staticmethod
    def _find(frame: pl.DataFrame, name: str) -> pl.Series:
        try:
            return frame.get_column(name)  # by name: a list of all names, for each of many columns, would take long
        except pl.exceptions.ColumnNotFoundError:
            raise InputError(f"The table has no column {name!r}, which the training table had.") from None


def is_number(name: str, kind: pl.DataType) -> bool:
    """Whether a column holds numbers (or times) rather than categories; say so if it holds neither."""
    if kind.is_numeric() or kind.is_temporal() or kind == pl.Null:
        return True
    if kind in (pl.String, pl.Boolean, pl.Categorical, pl.Enum):
        return False
    raise InputError(
        f"Column {name!r} holds {kind}: only numbers, times, texts, booleans and categories are read, and pictures as "
        "features images."
    )


def as_numbers(column: pl.Series) -> NDArray[np.float32]:
    """Return a column as float32, times in days, NaN where a value is missing or not finite."""
    if column.dtype.is_temporal():
        # A date counts days, a time of day nanoseconds; the others say their unit.
        ticks = {"ms": 10**3, "us": 10**6, "ns": 10**9}[getattr(column.dtype, "time_unit", None) or "ns"]
        column = column.to_physical() / (1 if column.dtype == pl.Date else 86_400 * ticks)
    try:
        values = column.cast(pl.Float64).to_numpy()
    except pl.exceptions.PolarsError:
        raise InputError(
            f"Column {column.name!r} held numbers or dates in the training table, and holds texts here: give it as it "
            "was then (a CSV has no dates, Parquet has)."
        ) from None
    with np.errstate(over="ignore"):
        numbers = np.array(values, np.float32)
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def as_texts(column: pl.Series) -> pl.Series:
    """Return a column of categories as texts."""
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        raise InputError(f"Column {column.name!r} held categories in the training table, and does not here.") from None


def learn_number(name: str, values: NDArray[np.float32]) -> Number:
    """Learn a numeric column from all of its values."""
    present = values[~np.isnan(values)]
    # The mean of the two middle values can overflow float32, whose rounding it has all the same.
    median = float(np.float32(np.median(present.astype(np.float64)))) if present.size else 0.0
    return Number(name, median, present.size < values.size)


def learn_categories(names: Sequence[str], frames: Iterable[pl.DataFrame], most: int) -> tuple[Category, ...]:
    """Learn the most frequent values of each column, from a table in parts; among equals, by alphabet.

    Counts are exact up to half a million distinct values in a column; beyond, a value that comes rarely and late
    may be missed, which is no loss among so many.
    """
    if not 1 <= most <= MOST_CATEGORIES:
        raise InputError(f"The number of categories must be between 1 and {MOST_CATEGORIES}, not {most}.")
    counts = {name: pl.DataFrame(schema={"value": pl.String, "count": pl.UInt32}) for name in names}
    for frame in frames:
        for name in names:
            fresh = as_texts(frame[name]).drop_nulls().alias("value").value_counts(name="count")
            both = pl.concat([counts[name], fresh.with_columns(pl.col("count").cast(pl.UInt32))])
            merged = both.group_by("value").agg(pl.col("count").sum())
            counts[name] = merged if merged.height <= _COUNTED else merged.top_k(_COUNTED // 2, by="count")
    for name, found in counts.items():
        if found.height > most:  # among so many values, one that occurs once names a row and says nothing of others
            counts[name] = found.filter(pl.col("count") > 1)
    ordered = (counts[name].sort("count", "value", descending=[True, False]).head(most) for name in names)
    return tuple(Category(name, tuple(part["value"])) for name, part in zip(names, ordered, strict=True))
