"""scikit-learn estimators whose `fit` protects the labels that it is given."""

import platform
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from threadpoolctl import threadpool_limits

from labeldp.accounting.costs import capped_rows, number_users
from labeldp.core.errors import InputError, ReusedReleaseWarning
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import has_torch
from labeldp.core.version import __version__
from labeldp.data.base import Features
from labeldp.data.feature_reader import Intake, is_frame
from labeldp.evaluate import Criterion, check_criterion
from labeldp.learn.training import Training
from labeldp.privacy.vault import Identity, Vault
from labeldp.privacy.vault.account import Chosen
from labeldp.privacy.vault.labeled_table import budget_of
from labeldp.recipes.base import find
from labeldp.recipes.crosses import check_crosses, with_crosses
from labeldp.recipes.runner import Trained, all_rows, train
from labeldp.recipes.task import Task
from labeldp.report.card import make_card
from labeldp.report.card.origin import describe_model, versions
from labeldp.seen_rows import fingerprint, seen_before

_INFERRED = (
    "The classes were inferred from the labels, which reveals which classes occur: declare them for a real guarantee."
)

_FEWEST = 2  # rows of a training

_ADDED_UP = (
    "These rows were fitted before in the same process, and this training's ledger does not count that: if it was with "
    "the same labels, what is learnt of them adds up, and this card states the last training alone."
)

_REUSED = (
    "The ledger had {count} of the releases of this training already, and they were used again at no cost: labels that "
    "changed since are not in them. If y is another label of the same rows, give it a name of its own: label=..."
)


class LabelPrivate(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: labels go into a vault, a recipe trains, and what is kept says its price."""

    epsilon: float
    delta: float
    recipe: str
    options: dict[str, Any] | None
    model: Any
    training: Any
    features: str
    encoder: Any
    estimate: bool
    ledger: str | Path | None
    label: str | None
    budget: float | Budget | None
    labels_per_user: int | None
    random_state: Any
    n_jobs: int | None

    @abstractmethod
    def _space(self, y: Any) -> LabelSpace:
        """Return the declared labels."""

    @property
    @abstractmethod
    def _inferred_what(self) -> str:
        """What was inferred from the labels, in a sentence; empty if they were declared."""

    def fit(self, X: Any, y: Any, users: Any = None) -> Self:
        """Train. Only what the guarantee allows is learnt of `y`, and `y` is not kept.

        `users` names the owner of each row, a public fact: then the guarantee is for users.
        """
        task, vault = self._open(X, y, users)
        with threads(self.n_jobs):
            self._keep(train(vault, task, self.recipe, self._recipe_options(), score=self.estimate), vault)
        return self

    def _recipe_options(self) -> dict[str, Any]:
        return self.options or {}

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon that is guaranteed at this delta: none if it asks for less than was given."""
        check_is_fitted(self)
        return self.guarantee_.epsilon if delta >= self.guarantee_.delta else float("inf")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarantee_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # privacy noise has no seed
        tags.input_tags.allow_nan = self.features in ("auto", "table")  # missing values become medians
        return tags

    # How the labels go into a vault, and what is kept of a training.

    def _open(self, X: Any, y: Any, users: Any = None, searched: bool = False) -> tuple[Task, Vault]:
        """Check the input, put the labels into a vault, describe the task; a search gives encoder and model later."""
        label = self._label_name(y)
        X, y = self._checked(X, y)
        space = self._space(y)
        recipe, options = find(self.recipe), self._recipe_options()
        model = None if searched else self.model
        recipe.check(space, options, delta=self.delta, encoder=searched or self.encoder is not None, model=model)
        if isinstance(X, Features):
            self._intake, features = None, X
        else:
            self._intake, features = Intake.fit(X, self.features)  # type: ignore[arg-type]
        check_crosses(self.recipe, options, getattr(features, "columns", ()))
        rows, digest = fingerprint(X)
        identity = Identity("estimator", label, len(features), digest)
        task, owner = self._task(features, space), None if users is None else number_users(users, len(features))
        capped_rows(owner, None, len(features), self.labels_per_user)  # or it is said before there is a ledger
        vault = Vault(y, space, self._budget(), users=owner, ledger=self.ledger, identity=identity)
        task = replace(task, rows=vault.capped(self.labels_per_user, task.seed))
        self._seen_before = seen_before(rows, None if self.ledger is None else str(Path(self.ledger).resolve()))
        return task, vault

    def _label_name(self, y: Any) -> str | None:
        """Return the name of the label in the ledger: as declared, or that of a Series or of a single column."""
        if self.label is not None:
            if not isinstance(self.label, str) or not self.label:
                raise InputError("label is the name of the label, for example label='income'.")
            return self.label
        names = list(y.columns) if is_frame(y) else [getattr(y, "name", None)]
        return None if len(names) != 1 or names[0] in (None, "") else str(names[0])

    def _budget(self) -> Budget | Chosen:
        return self.budget if isinstance(self.budget, Budget) else budget_of(self.epsilon, self.delta, self.budget)

    def _task(self, features: Features, space: LabelSpace, seed: int | None = None) -> Task:
        if self.training is not None and not isinstance(self.training, Training):
            raise InputError("training must be a labeldp.learn.Training, Training(epochs=20) for example.")
        # Without a random state the seed is 0, so that a fit that is repeated asks for nothing that was not told.
        state = 0 if self.random_state is None else self.random_state
        seed = int(check_random_state(state).randint(2**31 - 1)) if seed is None else seed
        everything = all_rows(len(features))
        learning = {"model": self.model, "training": self.training, "encoder": self.encoder, "seed": seed}
        return Task(features, space, everything, self.epsilon, self.delta, **learning)

    def _keep(self, trained: Trained, vault: Vault) -> None:
        self._model = trained.model
        self.guarantee_ = trained.stated
        self.score_estimate_, self._widening = trained.score, trained.widening
        self.effects_ = None if trained.effects is None else list(trained.effects)
        self.release_ = next(release for release in reversed(trained.releases) if release.speaks_of_rows)
        spent = {} if self.ledger is None else {"spent": vault.guarantee().to_json()}
        facts = trained.facts() | spent | self._about(trained, vault)
        own = [self._inferred_what] * bool(self._inferred_what) + [_ADDED_UP] * self._seen_before
        if vault.reused:
            own.append(_REUSED.format(count=len(vault.reused)))
            warnings.warn(own[-1], ReusedReleaseWarning, stacklevel=3)
        self.card_ = make_card(facts | {"warnings": [*facts["warnings"], *own]})

    def _about(self, trained: Trained, vault: Vault) -> dict[str, Any]:
        """Say what a card tells beside the training itself."""
        return {
            "version": __version__,
            "python": platform.python_version(),
            "packages": versions(),
            "data": {"name": "data in memory", "rows": vault.rows, "label": vault.label or "y"},
            "classes_inferred": bool(self._inferred_what),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "space": vault.space.to_json(),
            "model": describe_model(trained.model),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "entries": [release.entry for release in trained.releases],
            "ledger": [entry.redacted() for entry in vault.ledger.entries()],
        }

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any]:
        if y is None:
            raise InputError("This estimator needs labels: requires y to be passed, but the target y is None.")
        if isinstance(X, pl.LazyFrame):
            raise InputError("X is a LazyFrame, which holds no rows yet: give X.collect().")
        if is_frame(X) and len(set(X.columns)) < len(X.columns):
            raise InputError("X has two columns of one name: rename one.")
        if self.features == "images" and getattr(X, "ndim", 4) != 4 and not isinstance(X, Features) and not is_frame(X):
            raise InputError("Images are an array of bytes (uint8) of shape (rows, channels, height, width).")
        if isinstance(X, Features) or getattr(X, "ndim", 2) == 4:
            self.n_features_in_ = int(np.prod(X.shape if isinstance(X, Features) else np.shape(X)[1:]))
        elif is_frame(X):
            named = set(y.columns if is_frame(y) else [getattr(y, "name", None)]) & set(X.columns)
            if named:
                raise InputError(f"X holds the column of the labels, {named.pop()!r}: drop it from the features.")
            _check_feature_names(self, X, reset=True)
            self.n_features_in_ = X.shape[1]
        else:
            X = validate_data(self, X, ensure_all_finite=self._finite, ensure_min_samples=0)
        if len(X) < _FEWEST:
            raise InputError(f"X has {len(X)} sample{'s' * (len(X) != 1)}: give at least {_FEWEST} rows.")
        y = _one_column(y)
        if len(y) != len(X):
            raise InputError(f"X has {len(X)} rows and y has {len(y)} labels: give one label for each row.")
        return X, y

    @property
    def _finite(self) -> Any:
        return True if self.features == "embeddings" else "allow-nan"

    def _features_of(self, X: Any) -> Features:
        if isinstance(X, Features):
            return X
        if self._intake is None:
            raise InputError("This model was trained on Features: give it Features to predict.")
        if is_frame(X):
            _check_feature_names(self, X, reset=False)
            _check_n_features(self, X, reset=False)
        elif self._intake.kind != "images":
            X = validate_data(self, X, ensure_all_finite=self._finite, reset=False)
        return self._intake(X)


class LabelPrivateClassifier(ClassifierMixin, LabelPrivate):  # type: ignore[misc]
    """A classifier that learns from labels under label differential privacy.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for each label, or for all labels of a user: smaller is more private. With delta 0 it is pure.
    classes : list or LabelSpace
        Every value that a label may take. They are declared, because inferring them would reveal which occur;
        `"infer"` does so nevertheless, and the card says it. With `LabelSpace([...], missing="public")` some rows may
        have no label (None), and which these are is public. `classes_` has them sorted, as scikit-learn expects.
    recipe : str
        `"auto"`, or the name of a published pipeline; `options` are its parameters.
    cross : list of pairs, optional
        Names of two columns of a table whose joint effect is in the model, `[("month", "day")]` for example. For the
        recipes `"auto"` and `"additive"`. The columns of a matrix are called x0, x1 and so on.
    model : str, callable or scikit-learn classifier
        What is trained: the name of a backbone, a function that makes a network, or a classifier with sample weights.
    training : Training, optional
        Epochs, rates and so on, for networks.
    features : {"auto", "table", "embeddings", "images", "pairs"}
        How to read X. A matrix is a table of numbers unless it is called embeddings. Pairs are two columns of ids, a
        person and an item; their classes are taken as ordered, as ratings are.
    encoder : Model, optional
        An encoder that was trained without labels, for images.
    estimate : bool
        Whether to set rows aside and measure the model privately: `score_estimate_`.
    choose_by : {"auto", "accuracy", "log-loss", "auc"}
        What makes a model the best of several, on rows that are set aside. `"auto"` is accuracy, and AUC where all
        models find the same one of two classes rare. AUC is for two classes.
    ledger : path, optional
        The ledger of the data set, which adds up every use of its labels. Without one, each fit counts for itself.
    label : str, optional
        The name of the label in the ledger; by default that of a Series. All labels of the same rows share a ledger,
        and their costs add up, because they are about the same people. A label without a name matches every name. Label
        values are never compared.
    budget : float or Budget, optional
        The most that the ledger allows, as an epsilon or with a delta; at first, epsilon and delta.
    labels_per_user : int, optional
        With `fit(X, y, users=...)`, how many labels of a user may take part; other rows are dropped at random. It must
        be given where a user owns several rows.
    random_state : int, optional
        For training and for the choice of held-out rows; None is 0, so that a repeated fit asks for nothing new.
        Privacy noise has no seed.
    n_jobs : int, optional
        Threads for training; -1 for all cores.

    Attributes
    ----------
    guarantee_ : Guarantee
    score_estimate_ : Score or None
        Accuracy, recall and more, each with its interval, measured without clean labels.
    release_ : Release
        What the model was trained on. The labels themselves are not kept.
    effects_ : list of Effect, or None
        What each column of a table, or a cross of two, adds to the scores of an additive model, strongest first. None
        for other models. Effects describe the model and cost nothing more; what boosted trees add is not in them.
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

    def _recipe_options(self) -> dict[str, Any]:
        return with_crosses(self.recipe, super()._recipe_options(), self.cross)

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return the probability of each class, in the order of `classes_`."""
        check_is_fitted(self)
        with threads(self.n_jobs):
            return self._model.predict_proba(self._features_of(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _space(self, y: Any) -> LabelSpace:
        if self.classes is None:
            raise InputError('Declare every class that a label may have: classes=["no", "yes"].')
        classes = self.classes
        if isinstance(classes, str):
            if classes != "infer":
                raise InputError('classes must be a list, for example ["no", "yes"].')
            classes = _inferred(y)
        declared = classes if isinstance(classes, LabelSpace) else LabelSpace(classes)
        if declared.step is not None:
            raise InputError("These labels are numbers of a range: take LabelPrivateRegressor.")
        ordered = declared.ordered or self.features == "pairs"
        space = LabelSpace(sorted(declared), ordered=ordered, missing=declared.missing)
        self.classes_ = np.array(space.classes)
        return space

    def _task(self, features: Features, space: LabelSpace, seed: int | None = None) -> Task:
        check_criterion(self.choose_by, space)
        return replace(super()._task(features, space, seed), choose_by=self.choose_by)

    @property
    def _inferred_what(self) -> str:
        return _INFERRED if isinstance(self.classes, str) and self.classes == "infer" else ""


# scikit-learn's messages can quote labels, and an exception raised while another is handled carries that one along. So
# these two raise outside of the handler.


def _one_column(y: Any) -> NDArray[Any]:
    try:
        return column_or_1d(y, warn=True)
    except (ValueError, TypeError):
        shape = np.shape(y) if hasattr(y, "shape") else ()
    if len(shape) > 1:
        raise InputError(f"y should be a 1d array, got an array of shape {shape} instead: give one label for each row.")
    raise InputError("The labels are not one column of one type: pass strings, integers or booleans.")


def _inferred(y: NDArray[Any]) -> list[Any]:
    check_classification_targets(y)  # its messages name types of targets alone
    try:
        classes = np.unique(y).tolist()
    except TypeError:
        classes = None
    if classes is None:
        raise InputError("The labels are not of one type, or one is missing: pass strings, integers or booleans.")
    if len(classes) < 2:
        raise InputError("The labels hold one class only: at least two classes are needed.")
    return [int(c) for c in classes] if isinstance(classes[0], float) else classes


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Train with so many threads; None leaves the process as it is."""
    if n_jobs is None:
        yield
        return
    count = effective_n_jobs(n_jobs)
    with _torch_threads(count), threadpool_limits(count):
        yield


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    if not has_torch():
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
