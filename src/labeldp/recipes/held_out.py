"""Rows that a training holds out for model selection and for scoring."""

import numpy as np

from labeldp.core.errors import InputError
from labeldp.recipes.task import RowMask, Task

# Fraction of the rows that a training sets aside for each of the two purposes: selection and scoring.
_HELD_OUT_FRACTION = 0.1
# Most rows set aside for one purpose.
_MAX_HELD_OUT = 2_500
# Fewest rows set aside for one purpose; with fewer, the training sets none aside.
_MIN_HELD_OUT = 20


def split_held_out(
    task: Task, with_selection: bool, with_scoring: bool
) -> tuple[RowMask, RowMask | None, RowMask | None]:
    """Split the rows of a task into training, selection and scoring rows.

    Args:
        task: The task. Rows of one user fall into one part.
        with_selection: Whether to hold out rows for model selection.
        with_scoring: Whether to hold out rows for scoring.

    Returns:
        The masks of the training, selection and scoring rows. A mask is None if the part was not requested, or if a
        held-out part would be too small.
    """
    n_rows = int(task.row_mask.sum())
    fraction = min(_HELD_OUT_FRACTION, _MAX_HELD_OUT / max(1, n_rows))
    if n_rows * fraction < _MIN_HELD_OUT or not (with_selection or with_scoring):
        return task.row_mask, None, None
    try:
        training, *held_out_masks = task.split_row_masks(
            [1 - fraction * (with_selection + with_scoring), *[fraction] * (with_selection + with_scoring)]
        )
    except InputError:  # too few users for so many parts
        return task.row_mask, None, None
    held_out_masks = [_one_row_per_user(task, row_mask) for row_mask in held_out_masks]
    if min(row_mask.sum() for row_mask in held_out_masks) < _MIN_HELD_OUT:
        return task.row_mask, None, None
    return training, held_out_masks.pop(0) if with_selection else None, held_out_masks.pop(0) if with_scoring else None


def _one_row_per_user(task: Task, row_mask: RowMask) -> RowMask:
    """Select one row of each user.

    Confidence intervals assume independent rows. A single label of a user also has the user's whole epsilon.
    """
    if task.users is None:
        return row_mask
    row_ids = np.random.default_rng(task.seed).permutation(np.flatnonzero(row_mask))
    selected = np.zeros_like(row_mask)
    selected[row_ids[np.unique(task.users[row_ids], return_index=True)[1]]] = True
    return selected


def all_rows(n_rows: int) -> RowMask:
    """Return the mask of every row."""
    return np.ones(n_rows, bool)
