"""Bins of the public columns of a table: quantiles of numbers, frequent categories, and a bin for missing values."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.data.tables import Table

_EDGE_ROWS = 200_000  # rows from which the edges of numeric columns are computed


@dataclass(frozen=True, eq=False)
class BinnedColumn:
    """The bins of one column.

    Attributes:
        name: The name of the column.
        edges: The largest value of each numeric bin but the last, in ascending order; None for categories.
        bin_of_code: The bin of each category code of the table; None for numbers.
        width: The number of bins. The last bin of a numeric column is for missing values.
    """

    name: str
    edges: NDArray[np.float32] | None
    bin_of_code: NDArray[np.int64] | None
    width: int

    @property
    def n_ordered(self) -> int:
        """The number of leading bins with ordered values; 0 for categories."""
        return 0 if self.edges is None else self.width - 1

    def encode(self, values: NDArray[Any]) -> NDArray[np.integer]:
        """Return the bin of each value.

        Args:
            values: Numbers with NaN for missing, or the category codes of the table.

        Returns:
            An array of the same length, with bins from 0 to `width` - 1.
        """
        if self.bin_of_code is not None:
            return self.bin_of_code[values]
        edges = np.empty(0, np.float32) if self.edges is None else self.edges
        return np.where(np.isnan(values), self.width - 1, np.searchsorted(edges, values, side="left"))


@dataclass(frozen=True)
class BasisFunctions:
    """Functions of ordered bins whose sums measure smooth effects with less noise than counts of all bins.

    They are cosines of the position of a bin by ascending frequency, the j-th divided by j^power, and indicators of
    bins for a share of the length. The values at each bin have length 1 in the norm, so all rows have the same length.

    Attributes:
        n_cosines: The most cosines, at least 2: a single cosine is zero in the middle.
        power: Above 0, low frequencies have larger values.
        detail_fraction: The share of indicators, from 0 to below 1.
        norm: 1 if the noise is proportional to the L1 norm of a row, 2 if to its L2 norm.
    """

    n_cosines: int
    power: float
    detail_fraction: float
    norm: Literal[1, 2]

    def evaluate(self, column: BinnedColumn, has_missing: bool) -> NDArray[np.float64] | None:
        """Return the values of the functions at the bins of a column.

        Args:
            column: The bins.
            has_missing: Whether values are missing; if so, an indicator is added.

        Returns:
            Values of (width, functions); None for categories, whose bins are counted.
        """
        n_ordered = column.n_ordered
        if not n_ordered:
            return None
        frequencies = np.arange(1, min(self.n_cosines, n_ordered - 1) + 1)
        waves = (
            np.cos(np.pi * np.outer((np.arange(n_ordered) + 0.5) / n_ordered, frequencies)) / frequencies**self.power
        )
        waves /= np.maximum(np.linalg.norm(waves, self.norm, axis=1, keepdims=True), 1e-12)
        detail_fraction = self.detail_fraction if n_ordered > 2 else 0.0
        parts = [waves * (1 - detail_fraction) ** (1 / self.norm)]
        if detail_fraction:
            parts.append(np.eye(n_ordered) * detail_fraction ** (1 / self.norm))
        inner = np.hstack(parts)
        values = np.zeros((column.width, inner.shape[1] + has_missing))
        values[:n_ordered, : inner.shape[1]] = inner
        if has_missing:
            values[-1, -1] = 1.0
        return values


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of all columns of a table, numbers first, as its encoder orders them."""

    columns: tuple[BinnedColumn, ...]

    @classmethod
    def fit(cls, table: Table, max_numeric_bins: int, max_category_bins: int) -> "Bins":
        """Compute the bins from public features.

        Args:
            table: The public rows.
            max_numeric_bins: The most bins of a numeric column, without the one for missing values.
            max_category_bins: The most bins of a categorical column; the rarest categories share one.

        Returns:
            The bins of every column.
        """
        step = max(1, len(table) // _EDGE_ROWS)
        columns = [
            _bin_numeric(column.name, values, max_numeric_bins)
            for column, values in zip(table.encoder.numeric, table.numeric_values[::step].T, strict=True)
        ]
        columns += [
            _bin_categories(column.name, column.width, max_category_bins) for column in table.encoder.categorical
        ]
        return cls(tuple(columns))

    def encode(self, table: Table, index: int) -> NDArray[np.integer]:
        """Return the bin of each row in one column.

        Args:
            table: Rows with the encoder of the table from which the bins were computed.
            index: The index of the column.

        Returns:
            The bins, in the smallest sufficient unsigned integer type.
        """
        column, n_numeric = self.columns[index], table.numeric_values.shape[1]
        values = table.numeric_values[:, index] if index < n_numeric else table.category_codes[:, index - n_numeric]
        return column.encode(values).astype(np.min_scalar_type(column.width))


def _bin_numeric(name: str, values: NDArray[np.float32], max_bins: int) -> BinnedColumn:
    edges = quantile_edges(values[~np.isnan(values)], max_bins)
    return BinnedColumn(name, edges, None, edges.size + 2)


def _bin_categories(name: str, width: int, max_bins: int) -> BinnedColumn:
    """Give frequent categories, which have the lowest codes, their own bins; the last bins are other and missing."""
    n_own = min(width - 2, max(max_bins - 2, 1))
    bin_of_code = np.minimum(np.arange(width), n_own)
    bin_of_code[-1] = n_own + 1
    return BinnedColumn(name, None, bin_of_code, n_own + 2)


def quantile_edges(values: NDArray[np.float32], max_bins: int) -> NDArray[np.float32]:
    """Return the largest value of each bin but the last, for bins of about equal counts.

    A value with the count of a bin or more gets its own bin, and the others share the remaining bins.

    Args:
        values: Finite numbers.
        max_bins: The most bins.

    Returns:
        Ascending edges, at most `max_bins` - 1; a number belongs to the first bin whose edge is not below it.
    """
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= max_bins:
        return distinct[:-1]
    # Rare values between frequent ones can need more bins than their counts suggest: then retry with fewer.
    cuts = (_cut_indices(counts, n_bins) for n_bins in range(max_bins, 0, -1))
    return distinct[next(found for found in cuts if len(found) < max_bins)]


def _cut_indices(counts: NDArray[np.integer], max_bins: int) -> list[int]:
    """Return the index of the last distinct value of each bin but the last, for about `max_bins` bins."""
    heavy = np.zeros(counts.size, bool)
    while True:
        limit = counts[~heavy].sum() / max(max_bins - int(heavy.sum()), 1)
        new_heavy = (counts >= limit) & ~heavy
        if not new_heavy.any() or heavy.sum() + new_heavy.sum() >= max_bins:
            break
        heavy |= new_heavy
    cuts, bin_size = list[int](), 0
    for index in range(counts.size - 1):
        bin_size += 0 if heavy[index] else int(counts[index])
        if heavy[index] or heavy[index + 1] or bin_size >= limit:
            cuts.append(index)
            bin_size = 0
    return cuts
