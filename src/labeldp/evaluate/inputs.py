"""Public predictions as the evaluation takes them: probabilities, or codes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.privacy.vault import Vault


def chosen_rows(rows: Any, total: int) -> NDArray[np.int64]:
    """Return row numbers from numbers, from a mask, or from None for all."""
    if rows is None:
        return np.arange(total)
    chosen = np.asarray(rows)
    if chosen.dtype == bool and chosen.shape == (total,):
        return np.flatnonzero(chosen)
    whole = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
    if not whole or (chosen.size and not 0 <= chosen.min() <= chosen.max() < total):
        raise InputError(f"Choose rows by numbers from 0 to {total - 1}, or by a mask of {total} rows.")
    return np.unique(chosen).astype(np.int64)


def check_proba(proba: Any, total: int, classes: int) -> NDArray[np.floating]:
    """Check that there is a row of probabilities for each row; values are checked where they are used."""
    array = np.asarray(proba)
    if array.shape != (total, classes) or not np.issubdtype(array.dtype, np.number):
        raise InputError(f"Give the model's probabilities for all {total} rows and {classes} classes, as one table.")
    return array


def distributions(proba: NDArray[np.floating], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probabilities of the given rows; what stands in the others does not matter."""
    here = proba[rows].astype(np.float64)
    if not (np.isfinite(here).all() and (here >= 0).all() and np.allclose(here.sum(axis=1), 1, atol=1e-3)):
        raise InputError("The probabilities of a row must be no less than 0 and add up to 1: normalise them.")
    return here / here.sum(axis=1, keepdims=True)


def predicted_codes(candidate: Any, rows: NDArray[np.int64], total: int, classes: int) -> NDArray[np.int32]:
    """Return a code for each row, from codes or from probabilities; 0 where the row is not among those asked."""
    given = np.asarray(candidate)
    codes = np.zeros(total, np.int32)
    if given.ndim == 2:
        codes[rows] = distributions(check_proba(given, total, classes), rows).argmax(axis=1)
        return codes
    if given.shape != (total,) or not np.issubdtype(given.dtype, np.integer):
        raise InputError(f"A candidate is a table of probabilities or one code for each of the {total} rows.")
    if rows.size and not 0 <= given[rows].min() <= given[rows].max() < classes:
        raise InputError(f"Predictions must be codes of classes: whole numbers from 0 to {classes - 1}.")
    codes[rows] = given[rows]
    return codes


def predicted_numbers(candidate: Any, vault: Vault) -> NDArray[np.float64]:
    """Return a number within the declared range for each row."""
    given = np.asarray(candidate)
    if given.shape != (vault.rows,) or not np.issubdtype(given.dtype, np.number) or not np.isfinite(given).all():
        raise InputError(f"Give one predicted number for each of the {vault.rows} rows.")
    return np.clip(given.astype(np.float64), float(vault.space.classes[0]), float(vault.space.classes[-1]))
