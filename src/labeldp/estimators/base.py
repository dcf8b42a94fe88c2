"""What the classifier and the regressor share: how `fit` protects the labels that it is given."""

import platform
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
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
from labeldp.estimators.seen_rows import fingerprint, warn_if_fitted_before
from labeldp.learn.training import Training
from labeldp.privacy.vault import Identity, Vault
from labeldp.privacy.vault.account import BudgetChooser
from labeldp.privacy.vault.labeled_table import budget_chooser
from labeldp.recipes.feature_crosses import check_crosses
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.registry import get_recipe
from labeldp.recipes.result import TrainingResult
from labeldp.recipes.task import Task
from labeldp.recipes.training import train
from labeldp.report.card import make_card
from labeldp.report.card.origin import describe_model, package_versions

_MIN_ROWS = 2  # rows of a training

_REFIT_WARNING = (
    "These rows were fitted before in the same process, and this training's ledger does not count that: if it was with "
    "the same labels, what is learnt of them adds up, and this card states the last training alone."
)

_REUSED_WARNING = (
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
    def _label_space(self, y: Any) -> LabelSpace:
        """Return the declared labels."""

    @property
    @abstractmethod
    def _inference_warning(self) -> str:
        """What was inferred from the labels, in a sentence; empty if they were declared."""

    def fit(self, X: Any, y: Any, users: Any = None) -> Self:
        """Train. Only what the guarantee allows is learnt of `y`, and `y` is not kept.

        `users` names the owner of each row, a public fact: then the guarantee is for users.
        """
        task, vault = self._open(X, y, users)
        with limit_threads(self.n_jobs):
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

    def _open(self, X: Any, y: Any, users: Any = None, is_search: bool = False) -> tuple[Task, Vault]:
        """Check the input, put the labels into a vault, describe the task; a search gives encoder and model later."""
        label = self._label_name(y)
        X, y = self._check_data(X, y)
        space = self._label_space(y)
        recipe, options = get_recipe(self.recipe), self._recipe_options()
        model = None if is_search else self.model
        recipe.check(space, options, delta=self.delta, encoder=is_search or self.encoder is not None, model=model)
        if isinstance(X, Features):
            self._reader, features = None, X
        else:
            self._reader, features = FeatureReader.fit(X, self.features)  # type: ignore[arg-type]
        check_crosses(self.recipe, options, getattr(features, "columns", ()))
        row_hashes, digest = fingerprint(X)
        identity = Identity("estimator", label, len(features), digest)
        task, user_ids = self._task(features, space), None if users is None else encode_users(users, len(features))
        cap_labels_per_user(
            user_ids, None, len(features), self.labels_per_user
        )  # or it is said before there is a ledger
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

    def _task(self, features: Features, space: LabelSpace, seed: int | None = None) -> Task:
        if self.training is not None and not isinstance(self.training, Training):
            raise InputError("training must be a labeldp.learn.Training, Training(epochs=20) for example.")
        # Without a random state the seed is 0, so that a fit that is repeated asks for nothing that was not told.
        state = 0 if self.random_state is None else self.random_state
        seed = int(check_random_state(state).randint(2**31 - 1)) if seed is None else seed
        row_mask = all_rows(len(features))
        learning_options = {"model": self.model, "training": self.training, "encoder": self.encoder, "seed": seed}
        return Task(features, space, row_mask, self.epsilon, self.delta, **learning_options)

    def _keep(self, trained: TrainingResult, vault: Vault) -> None:
        self._model = trained.model
        self.guarantee_ = trained.overall_guarantee
        self.score_estimate_, self._interval_widening = trained.score, trained.interval_widening
        self.effects_ = None if trained.effects is None else list(trained.effects)
        self.release_ = next(release for release in reversed(trained.releases) if release.has_row_evidence)
        spent = {} if self.ledger is None else {"spent": vault.guarantee().to_json()}
        facts = trained.to_json() | spent | self._training_facts(trained, vault)
        extra_warnings = [self._inference_warning] * bool(self._inference_warning) + [
            _REFIT_WARNING
        ] * self._was_fitted_before
        if vault.reused_entries:
            extra_warnings.append(_REUSED_WARNING.format(count=len(vault.reused_entries)))
            warnings.warn(extra_warnings[-1], ReusedReleaseWarning, stacklevel=3)
        self.card_ = make_card(facts | {"warnings": [*facts["warnings"], *extra_warnings]})

    def _training_facts(self, trained: TrainingResult, vault: Vault) -> dict[str, Any]:
        """Say what a card tells beside the training itself."""
        return {
            "version": __version__,
            "python": platform.python_version(),
            "packages": package_versions(),
            "data": {"name": "data in memory", "rows": vault.n_rows, "label": vault.label or "y"},
            "classes_inferred": bool(self._inference_warning),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "space": vault.space.to_json(),
            "model": describe_model(trained.model),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "entries": [release.entry for release in trained.releases],
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


# scikit-learn's messages can quote labels, and an exception raised while another is handled carries that one along. So
# this raises outside of the handler.


def _to_column(y: Any) -> NDArray[Any]:
    try:
        return column_or_1d(y, warn=True)
    except (ValueError, TypeError):
        shape = np.shape(y) if hasattr(y, "shape") else ()
    if len(shape) > 1:
        raise InputError(f"y should be a 1d array, got an array of shape {shape} instead: give one label for each row.")
    raise InputError("The labels are not one column of one type: pass strings, integers or booleans.")


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Train with so many threads; None leaves the process as it is."""
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
