"""Columns of few values, for trees that are fitted again and again.

Boosted trees look for bins before each fit, and with weights that takes most of the time of a small one. Features are
public and do not change between the fits: so each column is brought to as many values as there are bins, once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor


def coarse(rows: NDArray[np.floating], estimator: Any) -> NDArray[np.floating]:
    """Return rows as this estimator would see them: unchanged, or for boosted trees with the mean value of each bin."""
    if not isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        return rows
    found = rows.copy()
    for column in found.T:
        if np.unique(column).size > estimator.max_bins:
            edges = np.quantile(column, np.linspace(0, 1, estimator.max_bins + 1)[1:-1])
            place = np.searchsorted(edges, column, side="right")
            means = np.bincount(place, column) / np.maximum(np.bincount(place), 1)
            column[:] = means[place]
    return found
