"""Columns of few values, for trees that are fitted again and again.

Boosted trees look for bins before each fit, and with weights that takes most of the time of a small one. Features are
public and do not change between the fits: so each column is brought to as many values as there are bins, once.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

_SINGLE_THREAD_CELLS = 1_000_000  # cells of a table up to which a second thread gains nothing


def prebin(X: NDArray[np.floating], estimator: Any) -> NDArray[np.floating]:
    """Return rows as this estimator would see them: unchanged, or for boosted trees with the least value of each bin.

    Rows that are predicted later are taken as they are: between a value that many rows have and the next larger one,
    trees then cut where they would have cut.
    """
    if not isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        return X
    binned = X.copy()
    for column in binned.T:
        values = np.unique(column)
        if values.size > estimator.max_bins and np.isfinite(values[-1]):
            edges = np.unique(np.quantile(column, np.linspace(0, 1, estimator.max_bins)[:-1], method="lower"))
            edges = edges[edges < values[-1]]  # no value lies above the largest: a bin there would be empty
            lower_values = np.append(values[0], values[np.searchsorted(values, edges, side="right")])
            column[:] = lower_values[np.searchsorted(edges, column, side="left")]
    return binned


def limit_threads(X: NDArray[np.floating]) -> AbstractContextManager[Any]:
    """Fit a small table on one thread: more wait for each other at every node, on a busy machine for minutes."""
    return threadpool_limits(1, user_api="openmp") if X.size <= _SINGLE_THREAD_CELLS else nullcontext()
