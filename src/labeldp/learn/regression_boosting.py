"""Gradient boosted trees for numbers, fitted by least squares to unbiased noisy numbers.

The noise of such numbers is independent of the features, so it averages out in leaves of many rows. Held-out rows of
the same release select the number of trees; this is post-processing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.boosting import require_lightgbm, thread_count
from labeldp.learn.density import Density, label_grid
from labeldp.learn.predictor import Predictor, load_predictor, not_a_model_error, read_metadata, write_metadata
from labeldp.learn.short_training import boosting_rounds
from labeldp.learn.trees import Trees, tree_matrix
from labeldp.releases.numeric import NumericResponses

_ROWS_PER_LEAF, _MIN_ROWS_PER_LEAF = 50, 5
_MAX_LEAF_ERROR = 0.3  # standard error of a leaf's value, in standard deviations of labels around the start
_MIN_GAIN = 1.0  # standard errors of held-out rows by which trees must lower the squared error
_MIN_ROWS_FOR_VALIDATION = 50  # rows; fewer are too few to select the number of trees
_MIN_RESIDUAL_VARIANCE = 0.05  # least residual variance, as a share of that of the start

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RegressionBoosting:
    """Boosted trees that add to another model of numbers.

    Attributes:
        max_rounds: The most trees.
        learning_rate: The factor of the leaf values of each tree.
        max_leaves: The most leaves of a tree.
        seed: The seed of the held-out rows.
        validation_fraction: The share of the released rows that selects the number of trees.
        patience: The trees without improvement after which boosting stops.
    """

    max_rounds: int = 300
    learning_rate: float = 0.1
    max_leaves: int = 31
    seed: int = 0
    validation_fraction: float = 0.2
    patience: int = 20

    def fit(self, features: Features, responses: NumericResponses, start: Predictor) -> "BoostedRegressionModel":
        """Fit trees to the residuals of a start on noisy numbers.

        Args:
            features: The rows.
            responses: An unbiased noisy number for each row; rows without one are left out.
            start: A model of the same numbers with a `deviation`, to whose predictions the trees add.

        Returns:
            A model of the true numbers. It has no trees if held-out rows show no gain.

        Raises:
            InputError: Rows and release do not belong together, there is nothing to learn from, or LightGBM is missing.

        Privacy:
            Post-processing of the release and of `start`, without additional cost.
        """
        if len(features) != responses.n_rows or start.space != responses.space:
            raise InputError("The rows, the release and the start must belong to the same data set.")
        targets = responses.unbiased_values()
        row_ids = np.flatnonzero(~np.isnan(targets))
        if not row_ids.size:
            raise InputError("The release has no number: there is nothing to learn from.")
        residuals = targets[row_ids] - np.asarray(start.predict(features), np.float64)[row_ids]
        start_variance = float(getattr(start, "deviation", np.std(residuals))) ** 2
        trees, gain = _Booster(self, tree_matrix(features)[row_ids], residuals, start_variance).fit_trees()
        deviation = max(start_variance - gain, _MIN_RESIDUAL_VARIANCE * start_variance) ** 0.5
        return BoostedRegressionModel(responses.space, Provenance.of(responses, start), trees, start, deviation)


class _Booster:
    """LightGBM with squared loss on the rows that have a number."""

    def __init__(
        self, settings: RegressionBoosting, X: NDArray[np.float32], residuals: Floats, variance: float
    ) -> None:
        min_rows_for_error = float((residuals**2).mean()) / (_MAX_LEAF_ERROR**2 * max(variance, 1e-300))
        min_leaf_rows = int(np.clip(len(X) // _ROWS_PER_LEAF, _MIN_ROWS_PER_LEAF, _ROWS_PER_LEAF))
        self.lightgbm, self.settings, self.residuals = require_lightgbm(), settings, residuals
        self.n_columns = X.shape[1]
        self.params: dict[str, Any] = {
            "objective": "regression",
            "metric": "none",
            "learning_rate": settings.learning_rate,
            "num_leaves": settings.max_leaves,
            "min_data_in_leaf": int(min(max(min_leaf_rows, min_rows_for_error), len(X))),
            "lambda_l2": min_rows_for_error,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "boost_from_average": False,
            "force_row_wise": True,
            "deterministic": True,
            "seed": settings.seed,
            "num_threads": thread_count(X.size),
            "verbosity": -1,
        }
        self.dataset = self.lightgbm.Dataset(X, residuals, params=self.params, free_raw_data=False).construct()
        self.X = X

    def fit_trees(self) -> tuple[Trees, float]:
        """Return trees fitted to all rows, in the number that held-out rows select, and the gain in squared error."""
        n_rows, n_rounds, gain = len(self.residuals), boosting_rounds(self.settings.max_rounds), 0.0
        has_splits = any(self.dataset.feature_num_bin(column) > 1 for column in range(self.n_columns))
        if has_splits and n_rounds and n_rows >= _MIN_ROWS_FOR_VALIDATION:
            n_rounds, gain = self._select_rounds(n_rounds)
        text = ""
        if has_splits and n_rounds:
            *_, last_booster = self._boost(self.dataset, n_rounds)
            text = last_booster.model_to_string()
        return Trees.from_lightgbm(text, self.n_columns, 1), gain

    def _select_rounds(self, max_rounds: int) -> tuple[int, float]:
        """Return the number of trees with the least squared error of held-out rows, and the gain over no trees."""
        permutation = np.random.default_rng(self.settings.seed).permutation(len(self.residuals))
        n_validation = int(self.settings.validation_fraction * len(permutation))
        fit_ids, validation_ids = np.sort(permutation[n_validation:]), np.sort(permutation[:n_validation])
        fit_dataset = self.dataset.subset(fit_ids, self.params).construct()
        predictions, start_errors = np.zeros(n_validation), self.residuals[validation_ids] ** 2
        gain, standard_error, best_round = 0.0, 0.0, 0
        for round_number, booster in enumerate(self._boost(fit_dataset, max_rounds), start=1):
            predictions += booster.predict(self.X[validation_ids], start_iteration=round_number - 1, num_iteration=1)
            saved = start_errors - (self.residuals[validation_ids] - predictions) ** 2
            if saved.mean() > gain:
                gain = float(saved.mean())
                standard_error = float(saved.std()) / n_validation**0.5
                best_round = round_number
            elif round_number - best_round >= self.settings.patience:
                break
        return (best_round, gain) if gain > _MIN_GAIN * standard_error else (0, 0.0)

    def _boost(self, dataset: Any, n_rounds: int) -> Iterator[Any]:
        """Boost, and yield the booster after each round."""
        booster = self.lightgbm.Booster(self.params, dataset)
        for _ in range(n_rounds):
            booster.update()
            yield booster


@dataclass(frozen=True, eq=False)
class BoostedRegressionModel(HasProvenance):
    """The predictions of a start plus those of trees, with normal residuals.

    Attributes:
        space: The range of numbers.
        provenance: The uses of labels that the model depends on.
        trees: The trees, whose leaf values are added to the predictions.
        start: A model of the same numbers.
        deviation: The standard deviation of labels around the prediction.
    """

    space: LabelSpace
    provenance: Provenance
    trees: Trees
    start: Predictor
    deviation: float

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each declared number for each row."""
        return Density(label_grid(self.space), "squared", self.deviation).probabilities(self.predict(features))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the expected number of each row, within the declared range."""
        predictions = (
            np.asarray(self.start.predict(features), np.float64) + self.trees.scores(tree_matrix(features))[:, 0]
        )
        return np.clip(predictions, self.space.classes[0], self.space.classes[-1])

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, with its start."""
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": "boosted-numbers", "deviation": self.deviation})
            np.savez(partial / "arrays.npz", **self.trees.arrays())
            self.start.save(partial / "start")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "BoostedRegressionModel":
        """Read a model that `save` wrote; `device` is for a start that is a network."""
        metadata = read_metadata(folder)
        try:
            with np.load(Path(folder) / "arrays.npz") as arrays:
                trees = Trees.from_arrays(dict(arrays))
            space, deviation = metadata["space"], float(metadata["deviation"])
            is_valid = trees.n_outputs == 1 and space.step is not None and 0 < deviation < np.inf
        except Exception:
            is_valid = False
        if not is_valid:
            raise not_a_model_error(folder)
        start = load_predictor(Path(folder) / "start", device)
        if start.space != space:
            raise not_a_model_error(folder)
        return cls(space, metadata["provenance"], trees, start, deviation)
