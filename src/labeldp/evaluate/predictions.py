"""Checks and conversions of public predictions: probabilities, codes of classes, or numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.privacy.vault.interface import ReleasingVault


def as_row_ids(row_selection: Any, n_rows: int) -> NDArray[np.int64]:
    """Return increasing row numbers from numbers, from a mask, or from None for all."""
    if row_selection is None:
        return np.arange(n_rows)
    selection = np.asarray(row_selection)
    if selection.dtype == bool and selection.shape == (n_rows,):
        return np.flatnonzero(selection)
    is_integer = selection.ndim == 1 and np.issubdtype(selection.dtype, np.integer)
    if not is_integer or (selection.size and not 0 <= selection.min() <= selection.max() < n_rows):
        raise InputError(f"Choose rows by numbers from 0 to {n_rows - 1}, or by a mask of {n_rows} rows.")
    return np.unique(selection).astype(np.int64)


def check_probabilities(proba: Any, n_rows: int, n_classes: int) -> NDArray[np.floating]:
    """Check the shape of a table of probabilities; `distributions` checks the values of the rows in use."""
    array = np.asarray(proba)
    if array.shape != (n_rows, n_classes) or not np.issubdtype(array.dtype, np.number):
        raise InputError(f"Give the model's probabilities for all {n_rows} rows and {n_classes} classes, as one table.")
    return array


def distributions(proba: NDArray[np.floating], row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probabilities of the given rows; the values of other rows are not checked."""
    selected = proba[row_ids].astype(np.float64)
    if not (np.isfinite(selected).all() and (selected >= 0).all() and np.allclose(selected.sum(axis=1), 1, atol=1e-3)):
        raise InputError("The probabilities of a row must be no less than 0 and add up to 1: normalize them.")
    return selected / selected.sum(axis=1, keepdims=True)


def as_predicted_codes(candidate: Any, row_ids: NDArray[np.int64], n_rows: int, n_classes: int) -> NDArray[np.int32]:
    """Return a code for each row, from codes or from probabilities; 0 for rows that are not given."""
    predictions = np.asarray(candidate)
    codes = np.zeros(n_rows, np.int32)
    if predictions.ndim == 2:
        codes[row_ids] = distributions(check_probabilities(predictions, n_rows, n_classes), row_ids).argmax(axis=1)
        return codes
    if predictions.shape != (n_rows,) or not np.issubdtype(predictions.dtype, np.integer):
        raise InputError(f"A candidate is a table of probabilities or one code for each of the {n_rows} rows.")
    if row_ids.size and not 0 <= predictions[row_ids].min() <= predictions[row_ids].max() < n_classes:
        raise InputError(f"Predictions must be codes of classes: whole numbers from 0 to {n_classes - 1}.")
    codes[row_ids] = predictions[row_ids]
    return codes


def as_predicted_targets(candidate: Any, vault: ReleasingVault) -> NDArray[np.float64]:
    """Return a number within the declared range for each row."""
    predictions = np.asarray(candidate)
    if (
        predictions.shape != (vault.n_rows,)
        or not np.issubdtype(predictions.dtype, np.number)
        or not np.isfinite(predictions).all()
    ):
        raise InputError(f"Give one predicted number for each of the {vault.n_rows} rows.")
    return np.clip(predictions.astype(np.float64), float(vault.space.classes[0]), float(vault.space.classes[-1]))
