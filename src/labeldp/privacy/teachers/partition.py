"""Disjoint parts for teachers, dealt out without a look at labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import encode_users
from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING, Codes


def assign_teachers(row_mask: NDArray[np.bool_], n_teachers: int, seed: int, users: Any = None) -> NDArray[np.int64]:
    """Return the teacher of each row, -1 for rows outside `rows`; parts differ in size by one at most.

    With `users`, whole users are dealt out, so that a user touches one teacher alone; parts then differ more. The
    parts are never balanced by class: that would take a look at labels, and one label could move another row.
    """
    row_ids = np.flatnonzero(row_mask)
    user_ids = np.arange(row_ids.size) if users is None else encode_users(np.asarray(users)[row_ids], row_ids.size)
    n_units = int(user_ids.max(initial=-1)) + 1
    if not 1 <= n_teachers <= n_units:
        unit_name = "rows" if users is None else "users"
        raise InputError(f"There are {n_units} {unit_name} for {n_teachers} teachers: each needs at least one.")
    teacher_of_unit = np.empty(n_units, np.int64)  # who teaches whom is public, so that a seed will do
    teacher_of_unit[np.random.default_rng(seed).permutation(n_units)] = np.arange(n_units) % n_teachers
    teacher_ids = np.full(row_mask.size, -1, np.int64)
    teacher_ids[row_ids] = teacher_of_unit[user_ids]
    return teacher_ids


def rows_by_teacher(teacher_ids: NDArray[np.int64], codes: Codes) -> list[NDArray[np.int64]]:
    """Return the labelled rows of each teacher."""
    row_ids = np.flatnonzero((teacher_ids >= 0) & (codes != MISSING))
    sizes = np.bincount(teacher_ids[row_ids], minlength=int(teacher_ids.max()) + 1)
    return np.split(row_ids[np.argsort(teacher_ids[row_ids], kind="stable")], sizes.cumsum()[:-1])
