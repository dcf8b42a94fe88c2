"""What all kinds of features do with their rows: choose some, and measure their columns."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError


def row_indices(rows: Any, count: int) -> NDArray[np.int64]:
    """Return the indices of the chosen rows, given as indices or as a mask, after checking that they are there."""
    chosen: NDArray[Any] = rows.detach().cpu().numpy() if hasattr(rows, "detach") else np.asarray(rows)
    if chosen.dtype == np.bool_:
        if chosen.shape != (count,):
            raise InputError(f"The mask must have one entry for each of the {count} rows, not shape {chosen.shape}.")
        chosen = np.flatnonzero(chosen)
    if chosen.size == 0:
        chosen = chosen.astype(np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise InputError("Rows must be chosen by a list of integers or by a mask.")
    if chosen.size and (chosen.min() < -count or chosen.max() >= count):
        raise InputError(f"A chosen row is beyond the {count} rows that there are.")
    return chosen.astype(np.int64) % max(count, 1)


def blocks(count: int, width: int) -> Iterator[slice]:
    """Cut rows into slices of about 16 million numbers."""
    step = max(1, (1 << 24) // max(width, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


_TRIED = 50  # columns whose extreme values are looked for


def some_columns(count: int) -> NDArray[np.int64]:
    """Return columns from all over so many, or all of few."""
    return np.unique(np.linspace(0, count - 1, min(count, _TRIED)).astype(np.int64))


def extremes(numbers: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the rows in which a column has its least value, its largest one, or none (NaN)."""
    if not numbers.size:
        return np.empty(0, np.int64)
    missing = np.isnan(numbers)
    least = np.where(missing, np.inf, numbers).argmin(axis=0)
    largest = np.where(missing, -np.inf, numbers).argmax(axis=0)
    return np.unique(np.concatenate([least, largest, missing.argmax(axis=0)]))


Moments = tuple[NDArray[np.float32], NDArray[np.float32]]


def column_moments(parts: Iterable[NDArray[np.floating]], width: int) -> Moments:
    """Return mean and deviation of each column over all parts, summed in float64 about the first row."""
    count, centre = 0, np.zeros(width)
    total, squares = np.zeros(width), np.zeros(width)
    for part in parts:
        if count == 0:
            centre = part[0].astype(np.float64)
        count += len(part)
        wide = part - centre
        total += wide.sum(axis=0)
        squares += np.einsum("ij,ij->j", wide, wide)
    if count == 0:
        raise InputError("There are no rows, so their columns have no mean.")
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return (mean + centre).astype(np.float32), deviation.astype(np.float32)


def normalising(moments: Moments) -> Moments:
    """Replace the deviation of columns that never change by 1, so that one can divide by it."""
    mean, deviation = moments
    return mean, np.where(deviation > 0, deviation, np.float32(1.0))
