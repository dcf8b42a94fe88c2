"""Row selection and column statistics that all features share."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError


def row_indices(row_selection: Any, n_rows: int) -> NDArray[np.int64]:
    """Return the indices of rows that are selected by indices or by a mask; raise InputError if they are invalid."""
    row_ids: NDArray[Any] = (
        row_selection.detach().cpu().numpy() if hasattr(row_selection, "detach") else np.asarray(row_selection)
    )
    if row_ids.dtype == np.bool_:
        if row_ids.shape != (n_rows,):
            raise InputError(f"The mask must have one entry for each of the {n_rows} rows, not shape {row_ids.shape}.")
        row_ids = np.flatnonzero(row_ids)
    if row_ids.size == 0:
        row_ids = row_ids.astype(np.int64)
    if row_ids.ndim != 1 or row_ids.dtype.kind not in "iu":
        raise InputError("Rows must be chosen by a list of integers or by a mask.")
    if row_ids.size and (row_ids.min() < -n_rows or row_ids.max() >= n_rows):
        raise InputError(f"A chosen row is beyond the {n_rows} rows that there are.")
    return row_ids.astype(np.int64) % max(n_rows, 1)


def iter_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield slices of rows that hold about 16 million numbers each."""
    step = max(1, (1 << 24) // max(n_columns, 1))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


_MAX_SAMPLED_COLUMNS = 50  # columns whose extreme values are searched


def spaced_columns(n_columns: int) -> NDArray[np.int64]:
    """Return the numbers of up to 50 evenly spaced columns."""
    return np.unique(np.linspace(0, n_columns - 1, min(n_columns, _MAX_SAMPLED_COLUMNS)).astype(np.int64))


def find_extreme_rows(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the rows in which a column has its smallest value, its largest value, or NaN."""
    if not values.size:
        return np.empty(0, np.int64)
    missing = np.isnan(values)
    least = np.where(missing, np.inf, values).argmin(axis=0)
    largest = np.where(missing, -np.inf, values).argmax(axis=0)
    return np.unique(np.concatenate([least, largest, missing.argmax(axis=0)]))


Moments = tuple[NDArray[np.float32], NDArray[np.float32]]


def column_moments(parts: Iterable[NDArray[np.floating]], n_columns: int) -> Moments:
    """Return mean and deviation of each column over all parts, summed in float64 about the first row."""
    n_rows, center = 0, np.zeros(n_columns)
    total, squares = np.zeros(n_columns), np.zeros(n_columns)
    for part in parts:
        if n_rows == 0:
            center = part[0].astype(np.float64)
        n_rows += len(part)
        centered = part - center
        total += centered.sum(axis=0)
        squares += np.einsum("ij,ij->j", centered, centered)
    if n_rows == 0:
        raise InputError("There are no rows, so their columns have no mean.")
    mean = total / n_rows
    deviation = np.sqrt(np.maximum(squares / n_rows - mean**2, 0))
    return (mean + center).astype(np.float32), deviation.astype(np.float32)


def replace_zero_deviations(moments: Moments) -> Moments:
    """Replace the deviation of constant columns by 1, to avoid a division by zero."""
    mean, deviation = moments
    return mean, np.where(deviation > 0, deviation, np.float32(1.0))
