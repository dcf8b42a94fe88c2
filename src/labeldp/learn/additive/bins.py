"""Public columns of a table cut into bins: quantiles of numbers, frequent categories, and a bin for missing values."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.data.tables import Table

_EDGE_ROWS = 200_000  # rows from which the edges of numeric columns are computed


@dataclass(frozen=True, eq=False)
class Column:
    """The bins of one column.

    Attributes:
        name: The name of the column.
        edges: The largest value of each numeric bin but the last, rising; None for categories.
        map: The bin of each category code of the table; None for numbers.
        width: The number of bins. The last bin of a number is for missing values.
    """

    name: str
    edges: NDArray[np.float32] | None
    map: NDArray[np.int64] | None
    width: int

    @property
    def ordered(self) -> int:
        """The number of leading bins that are in the order of their values; 0 for categories."""
        return 0 if self.edges is None else self.width - 1

    def codes(self, values: NDArray[Any]) -> NDArray[np.integer]:
        """Return the bin of each value.

        Args:
            values: Numbers with NaN for missing, or the category codes of the table.

        Returns:
            An array of the same length, with bins from 0 to `width` - 1.
        """
        if self.map is not None:
            return self.map[values]
        edges = np.empty(0, np.float32) if self.edges is None else self.edges
        return np.where(np.isnan(values), self.width - 1, np.searchsorted(edges, values, side="left"))


@dataclass(frozen=True)
class Functions:
    """Functions of ordered bins whose sums tell smooth effects with less noise than the counts of all bins do.

    They are cosines of the position of a bin, slow ones first, with the j-th divided by j^power, and counts of bins for
    a share of the length. All bins have values of length 1 in the norm, so that rows of a table have the same length.

    Attributes:
        cosines: The most cosines, at least 2: one alone is zero in the middle.
        power: Above 0, slow cosines are preferred.
        detail: The share of counts, from 0 to below 1.
        norm: 1 where noise follows the sum of magnitudes of a row, 2 where it follows its Euclidean length.
    """

    cosines: int
    power: float
    detail: float
    norm: Literal[1, 2]

    def of(self, column: Column, missing: bool) -> NDArray[np.float64] | None:
        """Return the values of the functions at the bins of a column.

        Args:
            column: The bins.
            missing: Whether values are missing; if so, an indicator is added.

        Returns:
            Values of (width, functions); None for categories, whose bins are counted.
        """
        ordered = column.ordered
        if not ordered:
            return None
        turns = np.arange(1, min(self.cosines, ordered - 1) + 1)
        waves = np.cos(np.pi * np.outer((np.arange(ordered) + 0.5) / ordered, turns)) / turns**self.power
        waves /= np.maximum(np.linalg.norm(waves, self.norm, axis=1, keepdims=True), 1e-12)
        detail = self.detail if ordered > 2 else 0.0
        parts = [waves * (1 - detail) ** (1 / self.norm)]
        if detail:
            parts.append(np.eye(ordered) * detail ** (1 / self.norm))
        inner = np.hstack(parts)
        values = np.zeros((column.width, inner.shape[1] + missing))
        values[:ordered, : inner.shape[1]] = inner
        if missing:
            values[-1, -1] = 1.0
        return values


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of all columns of a table, numbers first, as its encoder orders them."""

    columns: tuple[Column, ...]

    @classmethod
    def learn(cls, table: Table, numeric: int, categories: int) -> "Bins":
        """Learn the bins from features alone.

        Args:
            table: The public rows.
            numeric: The most bins of a numeric column, without the one for missing values.
            categories: The most bins of a categorical column; the rarest categories share one.

        Returns:
            The bins of every column.
        """
        step = max(1, len(table) // _EDGE_ROWS)
        found = [
            _number(column.name, values, numeric)
            for column, values in zip(table.encoder.numbers, table.number_values[::step].T, strict=True)
        ]
        found += [_category(column.name, column.width, categories) for column in table.encoder.categories]
        return cls(tuple(found))

    def codes(self, table: Table, place: int) -> NDArray[np.integer]:
        """Return the bin of each row in one column.

        Args:
            table: Rows that are encoded as those from which the bins were learnt.
            place: The number of the column.

        Returns:
            The bins, as the smallest unsigned integers that hold them.
        """
        column, numbers = self.columns[place], table.number_values.shape[1]
        values = table.number_values[:, place] if place < numbers else table.category_codes[:, place - numbers]
        return column.codes(values).astype(np.min_scalar_type(column.width))


def _number(name: str, values: NDArray[np.float32], most: int) -> Column:
    edges = quantile_edges(values[~np.isnan(values)], most)
    return Column(name, edges, None, edges.size + 2)


def _category(name: str, width: int, most: int) -> Column:
    """Keep the most frequent categories, which have the lowest codes; the last two codes are other and missing."""
    own = min(width - 2, max(most - 2, 1))
    places = np.minimum(np.arange(width), own)
    places[-1] = own + 1
    return Column(name, None, places, own + 2)


def quantile_edges(values: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """Return the largest value of each bin but the last, for bins of about equal counts.

    A value that fills a bin alone gets one, and the others share the remaining bins.

    Args:
        values: Finite numbers.
        most: The most bins.

    Returns:
        Rising edges, at most `most` - 1; a number belongs to the first bin whose edge is not below it.
    """
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= most:
        return distinct[:-1]
    # Light values between heavy ones can need more bins than their counts say: then aim at fewer.
    cuts = (_cuts(counts, aim) for aim in range(most, 0, -1))
    return distinct[next(found for found in cuts if len(found) < most)]


def _cuts(counts: NDArray[np.integer], most: int) -> list[int]:
    """Return the places of the last distinct value of each bin but the last, for about `most` bins."""
    heavy = np.zeros(counts.size, bool)
    while True:
        limit = counts[~heavy].sum() / max(most - int(heavy.sum()), 1)
        more = (counts >= limit) & ~heavy
        if not more.any() or heavy.sum() + more.sum() >= most:
            break
        heavy |= more
    cuts, filled = list[int](), 0
    for place in range(counts.size - 1):
        filled += 0 if heavy[place] else int(counts[place])
        if heavy[place] or heavy[place + 1] or filled >= limit:
            cuts.append(place)
            filled = 0
    return cuts
