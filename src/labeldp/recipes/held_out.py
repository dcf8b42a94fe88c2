"""Rows that a training sets aside, to choose a model and to score it."""

from typing import TYPE_CHECKING

import numpy as np

from labeldp.core.errors import InputError
from labeldp.recipes.task import RowMask, Task

if TYPE_CHECKING:
    pass

_HELD_OUT_FRACTION, _MAX_HELD_OUT, _MIN_HELD_OUT = (
    0.1,
    2_500,
    20,
)  # rows set aside to choose, and to score: a tenth, but no more and no fewer


def split_held_out(
    task: Task, with_selection: bool, with_scoring: bool
) -> tuple[RowMask, RowMask | None, RowMask | None]:
    """Return the rows to train on, to choose with and to score with; parts that would be too small are left out."""
    n_rows = int(task.row_mask.sum())
    fraction = min(_HELD_OUT_FRACTION, _MAX_HELD_OUT / max(1, n_rows))
    if n_rows * fraction < _MIN_HELD_OUT or not (with_selection or with_scoring):
        return task.row_mask, None, None
    try:
        training, *held_out_masks = task.split_rows(
            [1 - fraction * (with_selection + with_scoring), *[fraction] * (with_selection + with_scoring)]
        )
    except InputError:  # a few users own all rows
        return task.row_mask, None, None
    held_out_masks = [_one_row_per_user(task, row_mask) for row_mask in held_out_masks]
    if min(row_mask.sum() for row_mask in held_out_masks) < _MIN_HELD_OUT:
        return task.row_mask, None, None
    return training, held_out_masks.pop(0) if with_selection else None, held_out_masks.pop(0) if with_scoring else None


def _one_row_per_user(task: Task, row_mask: RowMask) -> RowMask:
    """Keep one row of each user: intervals take rows as independent, and a label alone has the whole of epsilon."""
    if task.users is None:
        return row_mask
    row_ids = np.random.default_rng(task.seed).permutation(np.flatnonzero(row_mask))
    selected = np.zeros_like(row_mask)
    selected[row_ids[np.unique(task.users[row_ids], return_index=True)[1]]] = True
    return selected


def all_rows(n_rows: int) -> RowMask:
    """Return the mask of every row."""
    return np.ones(n_rows, bool)
