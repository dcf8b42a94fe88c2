"""The scikit-learn classifier, whose `fit` learns from labels under label differential privacy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from labeldp.core.errors import InputError
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.estimators.base import LabelPrivate, limit_threads
from labeldp.evaluate import Criterion, check_criterion
from labeldp.recipes.feature_crosses import add_crosses
from labeldp.recipes.task import RowMask, Task

_INFERRED_CLASSES_WARNING = (
    "The classes were inferred from the labels, which reveals which classes occur: declare them for a real guarantee."
)


class LabelPrivateClassifier(ClassifierMixin, LabelPrivate):  # type: ignore[misc]
    """A classifier that learns from labels under label differential privacy.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for each label, or for all labels of a user: smaller is more private. With delta 0 it is pure.
    classes : list or LabelSpace
        Every value that a label may take. They are declared, because inferring them would reveal which occur.
        `"infer"` infers them nevertheless, with a warning on the card. With `LabelSpace([...], missing="public")` some
        rows may have no label (None), and which rows these are is public. `classes_` has the classes sorted, as
        scikit-learn expects.
    recipe : str
        `"auto"`, or the name of a published pipeline.
    options : dict, optional
        Parameters of the recipe.
    cross : list of pairs, optional
        Names of two columns of a table whose joint effect is in the model, `[("month", "day")]` for example. For the
        recipes `"auto"` and `"additive"`. The columns of a matrix have the names x0, x1 and so on.
    model : str, callable or scikit-learn classifier
        The model to train: the name of a backbone, a function that makes a network, or a classifier with sample
        weights.
    training : Training, optional
        Epochs, learning rates and other settings of the training of networks.
    features : {"auto", "table", "embeddings", "images", "pairs"}
        How to read X. By default, a matrix is a table of numbers. Pairs are two columns of ids, a person and an item;
        their classes are ordered, as ratings are.
    encoder : Model, optional
        An encoder that was trained without labels, for images.
    estimate : bool
        Whether to set rows aside and measure the model privately: `score_estimate_`.
    choose_by : {"auto", "accuracy", "log-loss", "auc"}
        The criterion by which the best of several models is chosen, on held-out rows. `"auto"` is accuracy, and AUC
        where all models find the same one of two classes rare. AUC is for two classes.
    ledger : path, optional
        The ledger of the data set, which adds up every use of its labels. Without one, each fit counts for itself.
    label : str, optional
        The name of the label in the ledger; by default that of a Series. All labels of the same rows use one ledger,
        and their costs add up, because they are about the same people. A label without a name matches every name. Label
        values are never compared.
    budget : float or Budget, optional
        The most that the ledger allows, as an epsilon or with a delta; by default, epsilon and delta of the first fit.
    labels_per_user : int, optional
        With `fit(X, y, users=...)`, the most labels of a user that take part; other rows are dropped at random. It must
        be given where a user owns several rows.
    random_state : int, optional
        The seed of the training and of the choice of held-out rows; None is 0, so that a repeated fit makes no new
        request. Privacy noise has no seed.
    n_jobs : int, optional
        Threads for training; -1 for all cores.

    Attributes
    ----------
    guarantee_ : Guarantee
    score_estimate_ : Score or None
        Accuracy, recall and more, each with its interval, measured without clean labels.
    release_ : Release
        The last release that the model was trained on. The labels themselves are not stored.
    effects_ : list of Effect, or None
        The contribution of each column of a table, or of a cross of two, to the scores of an additive model, strongest
        first. None for other models. Effects are post-processing, and exclude boosted trees.
    card_ : Card
    classes_, n_features_in_, feature_names_in_
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        classes: Any = None,
        recipe: str = "auto",
        *,
        delta: float = 0.0,
        options: dict[str, Any] | None = None,
        cross: Sequence[tuple[str, str]] | None = None,
        model: Any = "auto",
        training: Any = None,
        features: str = "auto",
        encoder: Any = None,
        estimate: bool = True,
        choose_by: Criterion = "auto",
        ledger: str | Path | None = None,
        label: str | None = None,
        budget: float | Budget | None = None,
        labels_per_user: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.classes = classes
        self.recipe = recipe
        self.delta = delta
        self.options = options
        self.cross = cross
        self.model = model
        self.training = training
        self.features = features
        self.encoder = encoder
        self.estimate = estimate
        self.choose_by = choose_by
        self.ledger = ledger
        self.label = label
        self.budget = budget
        self.labels_per_user = labels_per_user
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _recipe_options(self, options: dict[str, Any] | None) -> dict[str, Any]:
        return add_crosses(self.recipe, super()._recipe_options(options), self.cross)

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return the probability of each class, in the order of `classes_`."""
        check_is_fitted(self)
        with limit_threads(self.n_jobs):
            return self._model.predict_proba(self._to_features(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest probability for each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _label_space(self, y: Any) -> LabelSpace:
        if self.classes is None:
            raise InputError('Declare every class that a label may have: classes=["no", "yes"].')
        classes = self.classes
        if isinstance(classes, str):
            if classes != "infer":
                raise InputError('classes must be a list, for example ["no", "yes"].')
            classes = _infer_classes(y)
        declared_space = classes if isinstance(classes, LabelSpace) else LabelSpace(classes)
        if declared_space.step is not None:
            raise InputError("These labels are numbers of a range: take LabelPrivateRegressor.")
        ordered = declared_space.ordered or self.features == "pairs"
        space = LabelSpace(sorted(declared_space), ordered=ordered, missing=declared_space.missing)
        self.classes_ = np.array(space.classes)
        return space

    def _make_task(
        self, features: Features, space: LabelSpace, row_mask: RowMask, seed: int, learning: Mapping[str, Any]
    ) -> Task:
        check_criterion(self.choose_by, space)
        return replace(super()._make_task(features, space, row_mask, seed, learning), choose_by=self.choose_by)

    @property
    def _inference_warning(self) -> str:
        return _INFERRED_CLASSES_WARNING if isinstance(self.classes, str) and self.classes == "infer" else ""


def _infer_classes(y: NDArray[Any]) -> list[Any]:
    check_classification_targets(y)  # its messages hold types of targets, but no labels
    try:
        classes = np.unique(y).tolist()
    except TypeError:
        classes = None
    if classes is None:
        raise InputError("The labels are not of one type, or one is missing: pass strings, integers or booleans.")
    if len(classes) < 2:
        raise InputError("The labels hold one class only: at least two classes are needed.")
    return [int(c) for c in classes] if isinstance(classes[0], float) else classes
