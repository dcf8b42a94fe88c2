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
from labeldp.core.exact_real import exactly
from labeldp.estimators.base import threads
from labeldp.estimators.classifier import LabelPrivateClassifier
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.release_plan import Plan, step_losses
from labeldp.recipes.runner import split_held_out, train_best
from labeldp.releases.base import Release

_OF_LEARNING = ("model", "training", "options", "encoder")
_ANOTHER = (
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
            if name not in _OF_LEARNING:
                raise InputError(f"{name!r} cannot be searched within one release: search over {_OF_LEARNING}.")
        if not isinstance(self.estimator, LabelPrivateClassifier):
            raise InputError("A search is for a LabelPrivateClassifier; for numbers, auto chooses among models itself.")
        best = clone(self.estimator)
        task, vault = best._open(X, y, users, searched=True)
        variants = [clone(self.estimator).set_params(**setting) for setting in grid]
        tasks = [replace(each._task(task.features, task.space, task.seed), rows=task.rows) for each in variants]
        options = [each._recipe_options() for each in variants]
        if len(grid) > 1 and split_held_out(replace(task, users=vault.users), True, best.estimate)[1] is None:
            raise InputError(f"{vault.rows} rows are too few to set some aside and choose by them: search on more.")
        with threads(best.n_jobs):
            once: Any = _Once(vault, best.epsilon, best.delta)
            trained = train_best(once, tasks, best.recipe, options, score=best.estimate)
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


class _Once:
    """A vault of which one search learns no more than its epsilon and delta, whatever else the budget would allow."""

    def __init__(self, vault: Vault, epsilon: float, delta: float) -> None:
        self._vault, self._epsilon, self._delta = vault, exactly(epsilon), exactly(delta)
        self._spending, self._known = Spending(vault.rows, vault.users), set[str]()

    def around(self, vault: Vault) -> "_Once":
        """Return the same limit around another vault, for a rehearsal."""
        return _Once(vault, float(self._epsilon), float(self._delta))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vault, name)

    def release(self, mechanism: Mechanism, rows: Any = None, *, derived_from: Sequence[Release] = ()) -> Release:
        """Release what was released before, or what fits into epsilon and delta."""
        self._admit((type(mechanism), mechanism.parameters()), rows, lambda m: Cost(*mechanism.price(m)))
        return self._vault.release(mechanism, rows, derived_from=derived_from)

    def plan(self, *steps: Mechanism | Loss, rows: Any = None, delta: float = 0.0, name: str = "") -> Any:
        """Reserve what was reserved before, or what fits into epsilon and delta."""

        def cost(labels: int) -> Cost:
            epsilon = compose(step_losses(steps, labels), delta)
            return Cost(exactly(epsilon) if math.isfinite(epsilon) else epsilon, exactly(delta))

        self._admit(("plan", name, step_losses(steps), delta), rows, cost)
        return _OncePlanned(self._vault.plan(*steps, rows=rows, delta=delta, name=name))

    def _admit(self, what: Any, rows: Any, cost: Callable[[int], Cost]) -> None:
        """Count a request that is new, or say that it does not fit."""
        mask = np.zeros(self.rows, bool)
        mask[slice(None) if rows is None else rows] = True
        request = repr((what, mask.tobytes()))
        if request in self._known:
            return
        self._spending.add(mask, {m: cost(m) for m in rows_per_unit(mask, self._vault.users)})
        spent = self._spending.max_cost()
        if spent.epsilon > self._epsilon or spent.delta > self._delta:
            raise InputError(_ANOTHER)
        self._known.add(request)


class _OncePlanned:
    """A plan of one search, whose steps are drawn once for all settings."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @property
    def left(self) -> int:
        """How many steps this object has not returned yet."""
        return self._plan.left

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[Release] = ()) -> Release:
        """Draw the next step, or say that a setting asks for another one; see `Plan.release`."""
        try:
            return self._plan.release(mechanism, derived_from=derived_from)
        except BudgetExceeded:
            raise InputError(_ANOTHER) from None
