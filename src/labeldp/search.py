"""Tuning without paying twice: every setting is trained on one release, and a private choice decides."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from labeldp.errors import BudgetExceeded, InputError
from labeldp.estimators import LabelPrivateClassifier, threads
from labeldp.recipes.run import train_best

_OF_LEARNING = ("model", "training", "options", "encoder")


class LabelPrivateSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search over settings of a `LabelPrivateClassifier` within one epsilon.

    `param_grid` is a grid (or a list of grids) of `model`, `training`, `options` and `encoder`: how to learn. Learning
    is post-processing, so any number of settings cost nothing; which is best is decided by a noisy maximum on rows
    that were set aside, and the winner is scored on yet other rows. There are no folds: `best_estimator_` is the winner
    as it was trained. An option that changes what is released would be a second release, and is refused.
    """

    def __init__(self, estimator: LabelPrivateClassifier, param_grid: Any) -> None:
        self.estimator = estimator
        self.param_grid = param_grid

    def fit(self, X: Any, y: Any) -> "LabelPrivateSearchCV":
        """Train every setting on one release and keep the one that is chosen."""
        grid = list(ParameterGrid(self.param_grid))
        for name in {name for setting in grid for name in setting}:
            if name not in _OF_LEARNING:
                raise InputError(f"{name!r} cannot be searched within one release: search over {_OF_LEARNING}.")
        best = clone(self.estimator)
        task, vault = best._open(X, y)
        variants = [clone(self.estimator).set_params(**setting) for setting in grid]
        tasks = [each._task(task.features, task.space, task.seed) for each in variants]
        try:
            with threads(best.n_jobs):
                options = [each.options or {} for each in variants]
                trained = train_best(vault, tasks, best.recipe, options, score=best.estimate)
        except BudgetExceeded:
            raise InputError(
                "A setting asks for another release than the first, which would cost another epsilon: search over "
                "settings that change the learning alone."
            ) from None
        best._keep(trained)
        per_setting = trained.candidates // len(grid)
        self.best_params_ = grid[trained.winner // per_setting]
        self.best_estimator_ = best.set_params(**self.best_params_)
        self.guarantee_, self.score_estimate_ = best.guarantee_, best.score_estimate_
        self.classes_ = best.classes_
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the winner's predictions."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return the winner's probabilities."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)
