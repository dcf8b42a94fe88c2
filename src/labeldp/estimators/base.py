"""The base class of the classifier and the regressor: how `fit` puts labels into a vault and stores the result."""

import platform
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from threadpoolctl import threadpool_limits

from labeldp.accounting.costs import cap_labels_per_user, encode_users
from labeldp.core.errors import InputError, ReusedReleaseWarning
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import has_torch
from labeldp.core.version import __version__
from labeldp.data.base import Features
from labeldp.data.feature_reader import FeatureReader, is_frame
from labeldp.estimators.limited_vault import LimitedVault
from labeldp.estimators.seen_rows import fingerprint, warn_if_fitted_before
from labeldp.estimators.stack_level import find_stack_level
from labeldp.learn.training import Training
from labeldp.privacy.vault import Identity, Vault
from labeldp.privacy.vault.account import BudgetChooser
from labeldp.privacy.vault.labeled_table import budget_chooser
from labeldp.recipes.feature_crosses import check_crosses
from labeldp.recipes.held_out import all_rows, split_held_out
from labeldp.recipes.registry import get_recipe
from labeldp.recipes.result import TrainingResult
from labeldp.recipes.task import RowMask, Task
from labeldp.recipes.training import train, train_best
from labeldp.report.card import make_card
from labeldp.report.card.origin import describe_model, package_versions

# The parameters that change the learning, and no release.
_LEARNING_PARAMETERS = ("model", "training", "options", "encoder")
# The fewest rows of a training.
_MIN_ROWS = 2

_REFIT_WARNING = (
    "These rows were fitted before in the same process, and this training's ledger does not count that: if it was with "
    "the same labels, what is learned of them adds up, and this card states the last training alone."
)

_REUSED_WARNING = (
    "The ledger had {count} of the releases of this training already, and they were used again at no cost: labels that "
    "changed since are not in them. If y is another label of the same rows, give it a name of its own: label=..."
)


class LabelPrivate(BaseEstimator):  # type: ignore[misc]
    """An estimator that learns from labels through a vault, and states what the training cost in privacy.

    A subclass declares the labels (`_label_space`) and warns if they were inferred (`_inference_warning`). It can
    extend the options of the recipe and the task. Its predictions use `_model`, which `fit` stores, and `_to_features`.
    """

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
    def _label_space(self, y: Any) -> LabelSpace:
        """Return the declared labels."""

    @property
    @abstractmethod
    def _inference_warning(self) -> str:
        """A warning that the classes or the range were inferred from the labels; empty if they were declared."""

    def fit(self, X: Any, y: Any, users: Any = None) -> Self:
        """Train within the guarantee on the labels `y`, which are not stored.

        `users` names the owner of each row, a public fact: then the guarantee is for users.
        """
        task, vault = self._open(X, y, users)
        with limit_threads(self.n_jobs):
            result = train(vault, task, self.recipe, self._recipe_options(self.options), score=self.estimate)
            self._store(result, vault)
        return self

    def fit_variants(self, variants: Sequence[Mapping[str, Any]], X: Any, y: Any, users: Any = None) -> int:
        """Train with each of several settings on one release, and store the model that a private choice prefers.

        A search calls this method. All variants together cost one epsilon and delta.

        Parameters
        ----------
        variants : list of dict
            For each variant, its values of `model`, `training`, `options` or `encoder`, which change the learning.
        X, y, users
            As for `fit`.

        Returns
        -------
        int
            The index of the best variant.

        Raises
        ------
        InputError
            A variant sets another parameter or requests another release than the first, or there are too few rows.

        Notes
        -----
        Privacy: each label, or all labels of a user, lose at most `epsilon` and `delta` to all variants and the choice.
        """
        for name in {name for variant in variants for name in variant}:
            if name not in _LEARNING_PARAMETERS:
                raise InputError(f"{name!r} cannot be searched within one release: search over {_LEARNING_PARAMETERS}.")
        task, vault = self._open(X, y, users, is_search=True)
        estimators = [clone(self).set_params(**variant) for variant in variants]
        tasks = [
            self._make_task(task.features, task.space, task.row_mask, task.seed, each.learning_parameters())
            for each in estimators
        ]
        options = [self._recipe_options(each.options) for each in estimators]
        if len(tasks) > 1 and split_held_out(replace(task, users=vault.users), True, self.estimate)[1] is None:
            raise InputError(f"{vault.n_rows} rows are too few to set some aside and choose by them: search on more.")
        with limit_threads(self.n_jobs):
            limited_vault = LimitedVault(vault, self.epsilon, self.delta)
            result = train_best(limited_vault, tasks, self.recipe, options, score=self.estimate)
        self._store(result, vault)
        return result.variant

    def learning_parameters(self) -> dict[str, Any]:
        """Return the parameters of the task that describe the model and its training."""
        return {"model": self.model, "training": self.training, "encoder": self.encoder}

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon that is guaranteed at this delta; infinite if the guarantee has a larger delta."""
        check_is_fitted(self)
        return self.guarantee_.epsilon if delta >= self.guarantee_.delta else float("inf")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarantee_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # privacy noise has no seed
        tags.input_tags.allow_nan = self.features in ("auto", "table")  # missing values become medians
        return tags

    # How the labels go into a vault, and what is stored of a training.

    def _open(self, X: Any, y: Any, users: Any = None, is_search: bool = False) -> tuple[Task, Vault]:
        """Check the input, put the labels into a vault and make the task.

        Args:
            X: The features.
            y: The labels.
            users: The owner of each row, or None.
            is_search: Whether a search replaces the model and the encoder, so that they are not checked here.

        Returns:
            The task on the rows that take part, and the vault.
        """
        label = self._label_name(y)
        X, y = self._check_data(X, y)
        space = self._label_space(y)
        recipe, options = get_recipe(self.recipe), self._recipe_options(self.options)
        model = None if is_search else self.model
        recipe.check(space, options, delta=self.delta, encoder=is_search or self.encoder is not None, model=model)
        if isinstance(X, Features):
            self._reader, features = None, X
        else:
            self._reader, features = FeatureReader.fit(X, self.features)  # type: ignore[arg-type]
        check_crosses(self.recipe, options, getattr(features, "columns", ()))
        row_hashes, digest = fingerprint(X)
        identity = Identity("estimator", label, len(features), digest)
        task = self._make_task(features, space, all_rows(len(features)), self._seed(), self.learning_parameters())
        user_ids = None if users is None else encode_users(users, len(features))
        # This raises what a vault would raise, before there is a ledger.
        cap_labels_per_user(user_ids, None, len(features), self.labels_per_user)
        vault = Vault(y, space, self._budget(), users=user_ids, ledger=self.ledger, identity=identity)
        task = replace(task, row_mask=vault.cap_labels_per_user(self.labels_per_user, task.seed))
        self._was_fitted_before = warn_if_fitted_before(
            row_hashes, None if self.ledger is None else str(Path(self.ledger).resolve())
        )
        return task, vault

    def _label_name(self, y: Any) -> str | None:
        """Return the name of the label in the ledger: as declared, or that of a Series or of a single column."""
        if self.label is not None:
            if not isinstance(self.label, str) or not self.label:
                raise InputError("label is the name of the label, for example label='income'.")
            return self.label
        names = list(y.columns) if is_frame(y) else [getattr(y, "name", None)]
        return None if len(names) != 1 or names[0] in (None, "") else str(names[0])

    def _budget(self) -> Budget | BudgetChooser:
        return self.budget if isinstance(self.budget, Budget) else budget_chooser(self.epsilon, self.delta, self.budget)

    def _recipe_options(self, options: dict[str, Any] | None) -> dict[str, Any]:
        """Return the options of the recipe, with those that other parameters of the estimator stand for."""
        return options or {}

    def _seed(self) -> int:
        # Without a random state the seed is 0, so that a repeated fit makes no new request.
        state = 0 if self.random_state is None else self.random_state
        return int(check_random_state(state).randint(2**31 - 1))

    def _make_task(
        self, features: Features, space: LabelSpace, row_mask: RowMask, seed: int, learning: Mapping[str, Any]
    ) -> Task:
        if learning["training"] is not None and not isinstance(learning["training"], Training):
            raise InputError("training must be a labeldp.learn.Training, Training(epochs=20) for example.")
        return Task(features, space, row_mask, self.epsilon, self.delta, seed=seed, **learning)

    def _store(self, result: TrainingResult, vault: Vault) -> None:
        """Store the model, the guarantee, the score and the card of a training."""
        self._model = result.model
        self.guarantee_ = result.overall_guarantee
        self.score_estimate_, self._interval_widening = result.score, result.interval_widening
        self.effects_ = None if result.effects is None else list(result.effects)
        self.release_ = next(release for release in reversed(result.releases) if release.has_row_evidence)
        spent = {} if self.ledger is None else {"spent": vault.guarantee().to_json()}
        facts = result.to_json() | spent | self._training_facts(result, vault)
        extra_warnings = [self._inference_warning] if self._inference_warning else []
        if self._was_fitted_before:
            extra_warnings.append(_REFIT_WARNING)
        if vault.reused_entries:
            extra_warnings.append(_REUSED_WARNING.format(count=len(vault.reused_entries)))
            warnings.warn(extra_warnings[-1], ReusedReleaseWarning, stacklevel=find_stack_level())
        self.card_ = make_card(facts | {"warnings": [*facts["warnings"], *extra_warnings]})

    def _training_facts(self, result: TrainingResult, vault: Vault) -> dict[str, Any]:
        """Return the facts of a card that are not in the result of the training."""
        return {
            "version": __version__,
            "python": platform.python_version(),
            "packages": package_versions(),
            "data": {"name": "data in memory", "rows": vault.n_rows, "label": vault.label or "y"},
            "classes_inferred": bool(self._inference_warning),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "space": vault.space.to_json(),
            "model": describe_model(result.model),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "entries": [release.entry for release in result.releases],
            "ledger": [entry.to_redacted_json() for entry in vault.ledger.entries()],
        }

    def _check_data(self, X: Any, y: Any) -> tuple[Any, Any]:
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
            label_columns = set(y.columns if is_frame(y) else [getattr(y, "name", None)]) & set(X.columns)
            if label_columns:
                raise InputError(
                    f"X holds the column of the labels, {label_columns.pop()!r}: drop it from the features."
                )
            _check_feature_names(self, X, reset=True)
            self.n_features_in_ = X.shape[1]
        else:
            X = validate_data(self, X, ensure_all_finite=self._ensure_finite, ensure_min_samples=0)
        if len(X) < _MIN_ROWS:
            raise InputError(f"X has {len(X)} sample{'s' * (len(X) != 1)}: give at least {_MIN_ROWS} rows.")
        y = _to_column(y)
        if len(y) != len(X):
            raise InputError(f"X has {len(X)} rows and y has {len(y)} labels: give one label for each row.")
        return X, y

    @property
    def _ensure_finite(self) -> Any:
        return True if self.features == "embeddings" else "allow-nan"

    def _to_features(self, X: Any) -> Features:
        if isinstance(X, Features):
            return X
        if self._reader is None:
            raise InputError("This model was trained on Features: give it Features to predict.")
        if is_frame(X):
            _check_feature_names(self, X, reset=False)
            _check_n_features(self, X, reset=False)
        elif self._reader.kind != "images":
            X = validate_data(self, X, ensure_all_finite=self._ensure_finite, reset=False)
        return self._reader(X)


def _to_column(y: Any) -> NDArray[Any]:
    # Messages of scikit-learn can quote labels, and an exception that is raised in a handler has the first one as its
    # context. So this function raises outside of the handler.
    try:
        return column_or_1d(y, warn=True)
    except (ValueError, TypeError):
        shape = np.shape(y) if hasattr(y, "shape") else ()
    if len(shape) > 1:
        raise InputError(f"y should be a 1d array, got an array of shape {shape} instead: give one label for each row.")
    raise InputError("The labels are not one column of one type: pass strings, integers or booleans.")


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Limit the threads of the libraries that train; None leaves the process as it is."""
    if n_jobs is None:
        yield
        return
    n_threads = effective_n_jobs(n_jobs)
    with _limit_torch_threads(n_threads), threadpool_limits(n_threads):
        yield


@contextmanager
def _limit_torch_threads(n_threads: int) -> Iterator[None]:
    if not has_torch():
        yield
        return
    import torch

    n_threads_before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads_before)
