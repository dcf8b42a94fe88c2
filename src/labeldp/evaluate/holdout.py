"""A random split of the rows that depends on no label, so that each part can be released at its own epsilon."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import encode_users
from labeldp.core.errors import InputError


def split_rows(n_rows: int, fractions: Sequence[float], seed: int, users: Any = None) -> list[NDArray[np.int64]]:
    """Split the rows 0 .. n_rows - 1 at random into parts of about the given fractions.

    With `users`, the owner of each row, all rows of a user are in the same part. The parts are public: they depend on
    the seed and on the owners, and on no label.

    Args:
        n_rows: The number of rows.
        fractions: The fraction of each part; they add up to 1.
        seed: The seed of the split.
        users: The owner of each row, or None.

    Returns:
        The row numbers of each part, in increasing order.

    Raises:
        InputError: The fractions do not add up to 1, or a part would be empty.
    """
    part_fractions = np.asarray(fractions, np.float64)
    if (
        part_fractions.ndim != 1
        or not part_fractions.size
        or not (part_fractions > 0).all()
        or abs(part_fractions.sum() - 1) > 1e-6
    ):
        raise InputError("fractions must be numbers above zero that add up to 1, for example (0.8, 0.1, 0.1).")
    user_of_row = np.arange(n_rows) if users is None else encode_users(users, n_rows)
    order = np.random.default_rng(seed).permutation(int(user_of_row.max(initial=-1)) + 1)
    rows_per_user = np.bincount(user_of_row, minlength=order.size)[order]
    # With all rows in the random order of users, a user belongs to the part that holds the middle of its rows.
    centers = np.cumsum(rows_per_user) - rows_per_user / 2
    part_of_user = np.empty(order.size, np.int64)
    part_of_user[order] = np.searchsorted(np.cumsum(part_fractions)[:-1] * n_rows, centers, "right")
    parts = [np.flatnonzero(part_of_user[user_of_row] == i) for i in range(part_fractions.size)]
    if not all(p.size for p in parts):
        raise InputError("A part would be empty: give it a larger fraction, or split more rows.")
    return parts
