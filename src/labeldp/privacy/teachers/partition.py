"""Disjoint parts of the rows for teachers, assigned without reading labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import encode_users
from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING, Codes


def assign_teachers(row_mask: NDArray[np.bool_], n_teachers: int, seed: int, users: Any = None) -> NDArray[np.int64]:
    """Return the index of each row's teacher; -1 for rows outside the mask. Part sizes differ by one at most.

    The parts are never balanced by class, because one label could then move another row to another teacher.

    Args:
        row_mask: The rows to assign.
        n_teachers: The number of teachers.
        seed: The seed of the assignment, which is public.
        users: The owner of each row. Then all rows of a user have one teacher, and part sizes differ more.

    Raises:
        InputError: There are fewer rows or users than teachers.
    """
    row_ids = np.flatnonzero(row_mask)
    user_ids = np.arange(row_ids.size) if users is None else encode_users(np.asarray(users)[row_ids], row_ids.size)
    n_units = int(user_ids.max(initial=-1)) + 1
    if not 1 <= n_teachers <= n_units:
        unit_name = "rows" if users is None else "users"
        raise InputError(f"There are {n_units} {unit_name} for {n_teachers} teachers: each needs at least one.")
    # The assignment is public, so a seeded generator suffices.
    teacher_of_unit = np.empty(n_units, np.int64)
    teacher_of_unit[np.random.default_rng(seed).permutation(n_units)] = np.arange(n_units) % n_teachers
    teacher_ids = np.full(row_mask.size, -1, np.int64)
    teacher_ids[row_ids] = teacher_of_unit[user_ids]
    return teacher_ids


def rows_by_teacher(teacher_ids: NDArray[np.int64], codes: Codes) -> list[NDArray[np.int64]]:
    """Return the labeled rows of each teacher."""
    row_ids = np.flatnonzero((teacher_ids >= 0) & (codes != MISSING))
    sizes = np.bincount(teacher_ids[row_ids], minlength=int(teacher_ids.max()) + 1)
    return np.split(row_ids[np.argsort(teacher_ids[row_ids], kind="stable")], sizes.cumsum()[:-1])
