"""The scikit-learn regressor, whose `fit` learns from numbers under label differential privacy."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from labeldp.core.errors import InputError
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import LabelSpace
from labeldp.estimators.base import LabelPrivate, limit_threads
from labeldp.learn.density import predict_intervals

_INFERRED_RANGE_WARNING = (
    "The range was inferred from the labels, which reveals the least and the largest of them: declare it for a real "
    "guarantee."
)
# Number of steps of an inferred range.
_INFERRED_STEPS = 100


class LabelPrivateRegressor(RegressorMixin, LabelPrivate):  # type: ignore[misc]
    """A regressor that learns from numbers under label differential privacy.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for each label, or for all labels of a user: smaller is more private. With delta 0 it is pure.
    range : (low, high, step) or LabelSpace
        The numbers that a label may be; each label is rounded to the nearest. A finer step takes more time, and a wider
        range needs more noise. It is declared, because inferring it would reveal the largest label. `"infer"` infers it
        nevertheless, with a warning on the card. With `LabelSpace.range(..., missing="public")` some rows may have no
        label (None), and which rows these are is public.
    recipe : str
        `"auto"`, or `bins`, `sums` or `laplace`.
    options : dict, optional
        Parameters of the recipe.
    model : str, callable or scikit-learn regressor
        The model to train: `ridge`, `trees`, the name of a backbone, a function that makes a network, or a regressor
        with sample weights.
    loss : {"squared", "absolute", "poisson"}
        The loss of predictions. They estimate the mean, the median, or the mean of a count.
    training, features, encoder, estimate, ledger, label, budget, labels_per_user, random_state, n_jobs
        As for `LabelPrivateClassifier`.

    Attributes
    ----------
    guarantee_ : Guarantee
    score_estimate_ : ErrorScore or None
        Root mean squared and mean absolute error, each with its interval, measured without clean labels.
    release_ : Release
        The last release that the model was trained on. The labels themselves are not stored.
    card_ : Card
    n_features_in_, feature_names_in_
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        range: Any = None,
        recipe: str = "auto",
        *,
        delta: float = 0.0,
        loss: str = "squared",
        options: dict[str, Any] | None = None,
        model: Any = "auto",
        training: Any = None,
        features: str = "auto",
        encoder: Any = None,
        estimate: bool = True,
        ledger: str | Path | None = None,
        label: str | None = None,
        budget: float | Budget | None = None,
        labels_per_user: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.range = range
        self.recipe = recipe
        self.delta = delta
        self.loss = loss
        self.options = options
        self.model = model
        self.training = training
        self.features = features
        self.encoder = encoder
        self.estimate = estimate
        self.ledger = ledger
        self.label = label
        self.budget = budget
        self.labels_per_user = labels_per_user
        self.random_state = random_state
        self.n_jobs = n_jobs

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted number of each row."""
        check_is_fitted(self)
        with limit_threads(self.n_jobs):
            return np.asarray(self._model.predict(self._to_features(X)), np.float64)

    def predict_interval(self, X: Any, coverage: float = 0.8) -> NDArray[np.float64]:
        """Return prediction intervals.

        The intervals of the model are widened by the ratio of its measured error on held-out rows (`score_estimate_`)
        to its own estimate. Without such a score they are not widened, and are too short where the noise is large.

        Parameters
        ----------
        X
            The features.
        coverage : float
            The fraction of labels that should lie in their intervals.

        Returns
        -------
        array of shape (rows, 2)
            The lower and the upper end for each row.
        """
        check_is_fitted(self)
        if not 0 < coverage < 1:
            raise InputError("coverage must lie between 0 and 1.")
        with limit_threads(self.n_jobs):
            return np.stack(
                predict_intervals(self._model, self._to_features(X), coverage, self._interval_widening), axis=1
            )

    def _recipe_options(self, options: dict[str, Any] | None) -> dict[str, Any]:
        # A recipe without an option `loss` minimizes the squared loss.
        return ({} if self.loss == "squared" else {"loss": self.loss}) | super()._recipe_options(options)

    def _label_space(self, y: Any) -> LabelSpace:
        if self.range is None:
            raise InputError("Declare the numbers that a label may be, for example range=(0, 100, 1).")
        if isinstance(self.range, LabelSpace):
            if self.range.step is None:
                raise InputError("range must be a range of numbers: LabelSpace.range(low, high, step).")
            return self.range
        if isinstance(self.range, str):
            if self.range != "infer":
                raise InputError("range must be three numbers: (low, high, step).")
            return _infer_range(y)
        try:
            low, high, step = (float(number) for number in self.range)
        except (TypeError, ValueError):
            raise InputError("range must be three numbers: (low, high, step).") from None
        return LabelSpace.range(low, high, step)

    @property
    def _inference_warning(self) -> str:
        return _INFERRED_RANGE_WARNING if isinstance(self.range, str) and self.range == "infer" else ""


def _infer_range(y: NDArray[Any]) -> LabelSpace:
    # A message of NumPy can quote a label, so that the error is raised outside of the handler.
    try:
        targets = np.asarray(y, np.float64)
    except (TypeError, ValueError):
        targets = np.array([np.nan])
    if not np.isfinite(targets).all():
        raise InputError("The labels must be numbers without missing or infinite ones (NaN, inf).")
    low, high = float(targets.min()), float(targets.max())
    if low == high:
        high = low + 1.0
    return LabelSpace.range(low, high, (high - low) / _INFERRED_STEPS)
