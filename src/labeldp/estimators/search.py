"""A search over settings of a classifier, which all learn from one release and cost one epsilon together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from labeldp.core.errors import InputError
from labeldp.estimators.classifier import LabelPrivateClassifier


class LabelPrivateSearchCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search over settings of a `LabelPrivateClassifier` within one epsilon.

    Learning is post-processing, so any number of settings costs nothing more. A noisy maximum on held-out rows chooses
    the best setting, and other held-out rows score its model. There are no folds: `best_estimator_` is the model as it
    was trained.

    A setting that changes what is released would need a second release, and is refused. So are recipes whose later
    releases depend on a trained network: `lp-mst`, and `refine` where it releases sums twice.

    Parameters
    ----------
    estimator : LabelPrivateClassifier
        The classifier, with its epsilon, classes and recipe.
    param_grid : dict or list of dict
        Values of `model`, `training`, `options` and `encoder`, which change the learning alone.

    Attributes
    ----------
    best_estimator_ : LabelPrivateClassifier
        The classifier with the best setting, fitted.
    best_params_ : dict
        The best setting.
    guarantee_ : Guarantee
        What holds for the whole search.
    score_estimate_ : Score or None
    classes_
    """

    def __init__(self, estimator: LabelPrivateClassifier, param_grid: Any) -> None:
        self.estimator = estimator
        self.param_grid = param_grid

    def fit(self, X: Any, y: Any, users: Any = None) -> "LabelPrivateSearchCV":
        """Train every setting on one release and store the best one; `users` names the owner of each row."""
        grid = list(ParameterGrid(self.param_grid))
        if not grid:
            raise InputError(
                "There is no setting to search: give param_grid, for example {'model': ['mlp', 'linear']}."
            )
        if not isinstance(self.estimator, LabelPrivateClassifier):
            raise InputError("A search is for a LabelPrivateClassifier; for numbers, auto chooses among models itself.")
        best = clone(self.estimator)
        self.best_params_ = grid[best.fit_variants(grid, X, y, users)]
        self.best_estimator_ = best.set_params(**self.best_params_)
        self.guarantee_, self.score_estimate_ = best.guarantee_, best.score_estimate_
        self.classes_ = best.classes_
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class that the best model predicts for each row."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return the probabilities that the best model gives, in the order of `classes_`."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)
