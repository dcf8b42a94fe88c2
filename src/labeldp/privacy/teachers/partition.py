"""Disjoint parts for teachers, dealt out without a look at labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import encode_users
from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING, Codes


def deal(rows: NDArray[np.bool_], teachers: int, seed: int, users: Any = None) -> NDArray[np.int64]:
    """Return the teacher of each row, -1 for rows outside `rows`; parts differ in size by one at most.

    With `users`, whole users are dealt out, so that a user touches one teacher alone; parts then differ more. The
    parts are never balanced by class: that would take a look at labels, and one label could move another row.
    """
    chosen = np.flatnonzero(rows)
    owner = np.arange(chosen.size) if users is None else encode_users(np.asarray(users)[chosen], chosen.size)
    count = int(owner.max(initial=-1)) + 1
    if not 1 <= teachers <= count:
        what = "rows" if users is None else "users"
        raise InputError(f"There are {count} {what} for {teachers} teachers: each needs at least one.")
    place = np.empty(count, np.int64)  # who teaches whom is public, so that a seed will do
    place[np.random.default_rng(seed).permutation(count)] = np.arange(count) % teachers
    teacher = np.full(rows.size, -1, np.int64)
    teacher[chosen] = place[owner]
    return teacher


def parts(teacher: NDArray[np.int64], codes: Codes) -> list[NDArray[np.int64]]:
    """Return the labelled rows of each teacher."""
    used = np.flatnonzero((teacher >= 0) & (codes != MISSING))
    sizes = np.bincount(teacher[used], minlength=int(teacher.max()) + 1)
    return np.split(used[np.argsort(teacher[used], kind="stable")], sizes.cumsum()[:-1])
