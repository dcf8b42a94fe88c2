"""Tuning without paying twice: every setting is trained on one release, and a private choice decides."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from labeldp.accounting.costs import Cost, Spending, rows_per_unit
from labeldp.accounting.losses import Loss, compose
from labeldp.core.errors import BudgetExceeded, InputError
from labeldp.core.exact_real import as_fraction
from labeldp.estimators.base import limit_threads
from labeldp.estimators.classifier import LabelPrivateClassifier
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.release_plan import ReleasePlan, step_losses
from labeldp.recipes.held_out import split_held_out
from labeldp.recipes.training import train_best
from labeldp.releases.base import Release

_LEARNING_PARAMETERS = ("model", "training", "options", "encoder")
_SECOND_RELEASE = (
    "A setting asks for another release than the first, which would cost another epsilon: search over settings that "
    "change the learning alone."
)


class LabelPrivateSearchCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search over settings of a `LabelPrivateClassifier` within one epsilon.

    `param_grid` is a grid (or a list of grids) of `model`, `training`, `options` and `encoder`: how to learn. Learning
    is post-processing, so any number of settings cost nothing; which is best is decided by a noisy maximum on rows
    that were set aside, and the winner is scored on yet other rows. There are no folds: `best_estimator_` is the winner
    as it was trained. An option that changes what is released would be a second release, and is refused; so are recipes
    that ask again for what a trained network leaves open (`lp-mst`, and `refine` where it hears sums twice).
    """

    def __init__(self, estimator: LabelPrivateClassifier, param_grid: Any) -> None:
        self.estimator = estimator
        self.param_grid = param_grid

    def fit(self, X: Any, y: Any, users: Any = None) -> "LabelPrivateSearchCV":
        """Train every setting on one release and keep the one that is chosen; `users` names the owner of each row."""
        grid = list(ParameterGrid(self.param_grid))
        if not grid:
            raise InputError(
                "There is no setting to search: give param_grid, for example {'model': ['mlp', 'linear']}."
            )
        for name in {name for setting in grid for name in setting}:
            if name not in _LEARNING_PARAMETERS:
                raise InputError(f"{name!r} cannot be searched within one release: search over {_LEARNING_PARAMETERS}.")
        if not isinstance(self.estimator, LabelPrivateClassifier):
            raise InputError("A search is for a LabelPrivateClassifier; for numbers, auto chooses among models itself.")
        best = clone(self.estimator)
        task, vault = best._open(X, y, users, is_search=True)
        estimators = [clone(self.estimator).set_params(**setting) for setting in grid]
        tasks = [
            replace(estimator._task(task.features, task.space, task.seed), row_mask=task.row_mask)
            for estimator in estimators
        ]
        options = [estimator._recipe_options() for estimator in estimators]
        if len(grid) > 1 and split_held_out(replace(task, users=vault.users), True, best.estimate)[1] is None:
            raise InputError(f"{vault.rows} rows are too few to set some aside and choose by them: search on more.")
        with limit_threads(best.n_jobs):
            limited_vault: Any = _LimitedVault(vault, best.epsilon, best.delta)
            trained = train_best(limited_vault, tasks, best.recipe, options, score=best.estimate)
        best._keep(trained, vault)
        self.best_params_ = grid[trained.variant]
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


class _LimitedVault:
    """A vault of which one search learns no more than its epsilon and delta, whatever else the budget would allow."""

    def __init__(self, vault: Vault, epsilon: float, delta: float) -> None:
        self._vault, self._epsilon, self._delta = vault, as_fraction(epsilon), as_fraction(delta)
        self._spending, self._known_requests = Spending(vault.n_rows, vault.users), set[str]()

    def around(self, vault: Vault) -> "_LimitedVault":
        """Return the same limit around another vault, for a rehearsal."""
        return _LimitedVault(vault, float(self._epsilon), float(self._delta))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vault, name)

    def release(
        self, mechanism: Mechanism, row_selection: Any = None, *, derived_from: Sequence[Release] = ()
    ) -> Release:
        """Release what was released before, or what fits into epsilon and delta."""
        self._admit((type(mechanism), mechanism.parameters()), row_selection, lambda m: Cost(*mechanism.price(m)))
        return self._vault.release(mechanism, row_selection, derived_from=derived_from)

    def plan(self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = "") -> Any:
        """Reserve what was reserved before, or what fits into epsilon and delta."""

        def cost(n_labels: int) -> Cost:
            epsilon = compose(step_losses(steps, n_labels), delta)
            return Cost(as_fraction(epsilon) if math.isfinite(epsilon) else epsilon, as_fraction(delta))

        self._admit(("plan", name, step_losses(steps), delta), row_selection, cost)
        return _LimitedPlan(self._vault.plan(*steps, row_selection=row_selection, delta=delta, name=name))

    def _admit(self, request_key: Any, row_selection: Any, cost: Callable[[int], Cost]) -> None:
        """Count a request that is new, or say that it does not fit."""
        row_mask = np.zeros(self.rows, bool)
        row_mask[slice(None) if row_selection is None else row_selection] = True
        request = repr((request_key, row_mask.tobytes()))
        if request in self._known_requests:
            return
        self._spending.add(row_mask, {m: cost(m) for m in rows_per_unit(row_mask, self._vault.users)})
        spent = self._spending.max_cost()
        if spent.epsilon > self._epsilon or spent.delta > self._delta:
            raise InputError(_SECOND_RELEASE)
        self._known_requests.add(request)


class _LimitedPlan:
    """A plan of one search, whose steps are drawn once for all settings."""

    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    @property
    def n_remaining(self) -> int:
        """How many steps this object has not returned yet."""
        return self._plan.n_remaining

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[Release] = ()) -> Release:
        """Draw the next step, or say that a setting asks for another one; see `Plan.release`."""
        try:
            return self._plan.release(mechanism, derived_from=derived_from)
        except BudgetExceeded:
            raise InputError(_SECOND_RELEASE) from None
