"""Rows set aside without a look at labels, so that each part can be released at an epsilon of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import number_users
from labeldp.core.errors import InputError


def split_rows(rows: int, shares: Sequence[float], seed: int, users: Any = None) -> list[NDArray[np.int64]]:
    """Cut the rows 0..rows-1 at random into parts of about the given shares; return each part's rows, in order.

    With `users`, the owner of each row, whole users are dealt out, so that one user touches one part alone. The
    parts are public: they depend on the seed and on who owns what, and on no label.
    """
    wanted = np.asarray(shares, np.float64)
    if wanted.ndim != 1 or not wanted.size or not (wanted > 0).all() or abs(wanted.sum() - 1) > 1e-6:
        raise InputError("shares must be numbers above zero that add up to 1, for example (0.8, 0.1, 0.1).")
    owner = np.arange(rows) if users is None else number_users(users, rows)
    order = np.random.default_rng(seed).permutation(int(owner.max(initial=-1)) + 1)
    owned = np.bincount(owner, minlength=order.size)[order]
    # A user belongs to the part that holds the middle of its rows when all rows are laid out in the random order.
    middle = np.cumsum(owned) - owned / 2
    part = np.empty(order.size, np.int64)
    part[order] = np.searchsorted(np.cumsum(wanted)[:-1] * rows, middle, "right")
    parts = [np.flatnonzero(part[owner] == i) for i in range(wanted.size)]
    if not all(p.size for p in parts):
        raise InputError("A part would be empty: give it a larger share, or split more rows.")
    return parts
