"""Encoding of table columns as numbers, which is fitted on a training table and stored as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from labeldp.core.errors import InputError

MAX_CATEGORIES = 30_000
# Distinct values of a column that are counted. Beyond, the rarest counts are dropped, which bounds the memory.
_MAX_COUNTED_VALUES = 1 << 19


@dataclass(frozen=True)
class NumericColumn:
    """A numeric column: its median, which replaces missing values, and whether any was missing in training."""

    name: str
    median: float
    has_missing: bool


_MIN_VALUES_TO_WARN = 5  # rows of which at least one should have a known value


@dataclass(frozen=True)
class CategoricalColumn:
    """A categorical column: its frequent values, followed by the codes of other and of missing values."""

    name: str
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        """The number of codes."""
        return len(self.values) + 2


@dataclass(frozen=True)
class TableEncoder:
    """The numeric and the categorical columns of a table, each in the order of the table."""

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]

    def to_json(self) -> dict[str, Any]:
        """Describe the encoder; `from_json` reads it back."""
        return {"numbers": [asdict(c) for c in self.numeric], "categories": [asdict(c) for c in self.categorical]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TableEncoder":
        """Read what `to_json` wrote, also from JSON text."""
        categories = (CategoricalColumn(c["name"], tuple(c["values"])) for c in data["categories"])
        return cls(tuple(NumericColumn(**c) for c in data["numbers"]), tuple(categories))

    @property
    def code_dtype(self) -> type[np.integer]:
        """The smallest integer type that holds every code."""
        return np.uint8 if all(column.width <= 256 for column in self.categorical) else np.int16

    def numeric_matrix(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """Return the numeric columns, NaN where a value is missing."""
        matrix = np.empty((frame.height, len(self.numeric)), np.float32)
        for index, column in enumerate(self.numeric):
            matrix[:, index] = to_floats(self._get_column(frame, column.name))
        return matrix

    def code_matrix(self, frame: pl.DataFrame) -> NDArray[np.integer]:
        """Return the codes of the categorical columns."""
        codes = np.empty((frame.height, len(self.categorical)), self.code_dtype)
        for index, column in enumerate(self.categorical):
            n_known = len(column.values)
            texts = to_strings(self._get_column(frame, column.name))
            column_codes = texts.replace_strict(column.values, range(n_known), default=n_known, return_dtype=pl.Int16)
            codes[:, index] = np.where(texts.is_null(), n_known + 1, column_codes)
        return codes

    def unseen_categories(self, frame: pl.DataFrame) -> list[str]:
        """Return the categorical columns in which several rows have values, none of which is known."""
        texts = {column: to_strings(self._get_column(frame, column.name)).drop_nulls() for column in self.categorical}
        return [
            c.name
            for c, values in texts.items()
            if len(values) >= _MIN_VALUES_TO_WARN and not values.is_in(c.values).any()
        ]

    @staticmethod
    def _get_column(frame: pl.DataFrame, name: str) -> pl.Series:
        try:
            return frame.get_column(name)  # by name: comparing with all names is slow for many columns
        except pl.exceptions.ColumnNotFoundError:
            raise InputError(f"The table has no column {name!r}, which the training table had.") from None


def is_numeric(name: str, dtype: pl.DataType) -> bool:
    """Return whether a column is numeric or temporal; raise InputError if it is not categorical either."""
    if dtype.is_numeric() or dtype.is_temporal() or dtype == pl.Null:
        return True
    if dtype in (pl.String, pl.Boolean, pl.Categorical, pl.Enum):
        return False
    raise InputError(
        f"Column {name!r} holds {dtype}: only numbers, times, texts, booleans and categories are read, and pictures as "
        "features images."
    )


def to_floats(column: pl.Series) -> NDArray[np.float32]:
    """Return a column as float32, times in days, NaN where a value is missing or not finite."""
    if column.dtype.is_temporal():
        # Dates are in days, times of day in nanoseconds; the other types state their unit.
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


def to_strings(column: pl.Series) -> pl.Series:
    """Return a categorical column as strings."""
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        raise InputError(f"Column {column.name!r} held categories in the training table, and does not here.") from None


def fit_numeric_column(name: str, values: NDArray[np.float32]) -> NumericColumn:
    """Fit a numeric column on all of its values."""
    present = values[~np.isnan(values)]
    # In float64, because the mean of the two middle values can overflow float32.
    median = float(np.float32(np.median(present.astype(np.float64)))) if present.size else 0.0
    return NumericColumn(name, median, present.size < values.size)


def fit_categorical_columns(
    names: Sequence[str], frames: Iterable[pl.DataFrame], max_categories: int
) -> tuple[CategoricalColumn, ...]:
    """Fit the most frequent values of each column on a table in parts; ties are in alphabetical order.

    Counts are exact for up to half a million distinct values of a column. Beyond, the count of a rare value may be too
    small.
    """
    if not 1 <= max_categories <= MAX_CATEGORIES:
        raise InputError(f"The number of categories must be between 1 and {MAX_CATEGORIES}, not {max_categories}.")
    counts = {name: pl.DataFrame(schema={"value": pl.String, "count": pl.UInt32}) for name in names}
    for frame in frames:
        for name in names:
            fresh = to_strings(frame[name]).drop_nulls().alias("value").value_counts(name="count")
            both = pl.concat([counts[name], fresh.with_columns(pl.col("count").cast(pl.UInt32))])
            merged = both.group_by("value").agg(pl.col("count").sum())
            counts[name] = (
                merged if merged.height <= _MAX_COUNTED_VALUES else merged.top_k(_MAX_COUNTED_VALUES // 2, by="count")
            )
    for name, column_counts in counts.items():
        if column_counts.height > max_categories:
            # Among many values, one that occurs once identifies a row and does not generalize.
            counts[name] = column_counts.filter(pl.col("count") > 1)
    ordered = (counts[name].sort("count", "value", descending=[True, False]).head(max_categories) for name in names)
    return tuple(CategoricalColumn(name, tuple(part["value"])) for name, part in zip(names, ordered, strict=True))
