"""Rows set aside without a look at labels, so that each part can be released at an epsilon of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import encode_users
from labeldp.core.errors import InputError


def split_rows(n_rows: int, fractions: Sequence[float], seed: int, users: Any = None) -> list[NDArray[np.int64]]:
    """Cut the rows 0..rows-1 at random into parts of about the given shares; return each part's rows, in order.

    With `users`, the owner of each row, whole users are dealt out, so that one user touches one part alone. The
    parts are public: they depend on the seed and on who owns what, and on no label.
    """
    part_fractions = np.asarray(fractions, np.float64)
    if (
        part_fractions.ndim != 1
        or not part_fractions.size
        or not (part_fractions > 0).all()
        or abs(part_fractions.sum() - 1) > 1e-6
    ):
        raise InputError("shares must be numbers above zero that add up to 1, for example (0.8, 0.1, 0.1).")
    user_of_row = np.arange(n_rows) if users is None else encode_users(users, n_rows)
    order = np.random.default_rng(seed).permutation(int(user_of_row.max(initial=-1)) + 1)
    rows_per_user = np.bincount(user_of_row, minlength=order.size)[order]
    # A user belongs to the part that holds the middle of its rows when all rows are laid out in the random order.
    centers = np.cumsum(rows_per_user) - rows_per_user / 2
    part_of_user = np.empty(order.size, np.int64)
    part_of_user[order] = np.searchsorted(np.cumsum(part_fractions)[:-1] * n_rows, centers, "right")
    parts = [np.flatnonzero(part_of_user[user_of_row] == i) for i in range(part_fractions.size)]
    if not all(p.size for p in parts):
        raise InputError("A part would be empty: give it a larger share, or split more rows.")
    return parts
