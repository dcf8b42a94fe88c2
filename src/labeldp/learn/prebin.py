"""Columns with few distinct values, for boosted trees that are fitted repeatedly.

Boosted trees compute bins before each fit, which takes most of the time of a small weighted fit. Features are public
and do not change between fits. So the values of each column are replaced once by as many values as there are bins.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

_SINGLE_THREAD_CELLS = 1_000_000  # cells of a table up to which a second thread gains nothing


def prebin(X: NDArray[np.floating], estimator: Any) -> NDArray[np.floating]:
    """Return rows unchanged, or for boosted trees with each value replaced by the least value of its bin.

    Rows of later predictions stay unchanged, because thresholds lie between the bins.
    """
    if not isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        return X
    binned = X.copy()
    for column in binned.T:
        values = np.unique(column)
        if values.size > estimator.max_bins and np.isfinite(values[-1]):
            edges = np.unique(np.quantile(column, np.linspace(0, 1, estimator.max_bins)[:-1], method="lower"))
            edges = edges[edges < values[-1]]  # a bin above the largest value would be empty
            lower_values = np.append(values[0], values[np.searchsorted(values, edges, side="right")])
            column[:] = lower_values[np.searchsorted(edges, column, side="left")]
    return binned


def limit_threads(X: NDArray[np.floating]) -> AbstractContextManager[Any]:
    """Return a context that limits fits of small tables to one thread: more would wait for each other at every node."""
    return threadpool_limits(1, user_api="openmp") if X.size <= _SINGLE_THREAD_CELLS else nullcontext()
