"""What all kinds of features do with their rows: choose some, and measure their columns."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeldp.errors import InputError


def row_indices(rows: Any, count: int, device: torch.device) -> Tensor:
    """Return the indices of the chosen rows, given as indices or as a mask, after checking that they are there."""
    chosen = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
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
    return torch.from_numpy(chosen.astype(np.int64) % max(count, 1)).to(device)


def blocks(count: int, width: int) -> Iterator[slice]:
    """Cut rows into slices of about 16 million numbers."""
    step = max(1, (1 << 24) // max(width, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


_TRIED = 50  # columns whose extreme values are looked for


def some_columns(count: int) -> NDArray[np.int64]:
    """Return columns from all over so many, or all of few."""
    return np.unique(np.linspace(0, count - 1, min(count, _TRIED)).astype(np.int64))


def extremes(numbers: Tensor) -> NDArray[np.int64]:
    """Return the rows in which a column has its least value, its largest one, or none (NaN)."""
    if not numbers.numel():
        return np.empty(0, np.int64)
    missing = numbers.isnan()
    least = numbers.masked_fill(missing, torch.inf).argmin(0)
    largest = numbers.masked_fill(missing, -torch.inf).argmax(0)
    return np.unique(torch.cat([least, largest, missing.byte().argmax(0)]).cpu().numpy())


def column_moments(parts: Iterator[Tensor], width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return mean and deviation (float32) of each column over all parts, summed in float64 about the first row."""
    count, centre = 0, torch.zeros(width, dtype=torch.float64, device=device)
    total, squares = torch.zeros_like(centre), torch.zeros_like(centre)
    for part in parts:
        wide = part.double()
        if count == 0:
            centre = wide[0].clone()
        count += len(wide)
        wide = wide - centre
        total, squares = total + wide.sum(0), squares + wide.square().sum(0)
    if count == 0:
        raise InputError("There are no rows, so their columns have no mean.")
    mean = total / count
    deviation = (squares / count - mean.square()).clamp_min(0).sqrt()
    return (mean + centre).float(), deviation.float()


def normalising(moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Replace the deviation of columns that never change by 1, so that one can divide by it."""
    mean, deviation = moments
    return mean, torch.where(deviation > 0, deviation, 1.0)
