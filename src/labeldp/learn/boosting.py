"""Gradient boosted trees for classification whose loss is the likelihood of noisy labels.

LightGBM minimizes the loss of `channel_loss` in one fit, without expectation maximization. Early stopping on held-out
rows of the same release selects the number of trees; this is post-processing. The fitted model consists of arrays, and
prediction needs no LightGBM.

The likelihood of noisy labels hardly depends on whether a probability is 0.01 or 0.04. So few trees leave small
probabilities too large, and the mean probabilities are biased. The whole release, or the start, determines the mean
probability of each class over the training rows more accurately. A final shift of all scores restores this mean.
"""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.channel_loss import ChannelLoss, Floats, fit_shift, match_proportions, to_probabilities, to_scores
from labeldp.learn.predictor import (
    Predictor,
    decode_probabilities,
    load_predictor,
    not_a_model_error,
    read_metadata,
    write_metadata,
)
from labeldp.learn.short_training import boosting_rounds
from labeldp.learn.trees import Trees, tree_matrix
from labeldp.releases.base import Release

_ROWS_PER_LEAF, _MIN_ROWS_PER_LEAF = 50, 5
_INFORMATION_PER_LEAF = 10.0  # least Fisher information of a leaf's score: its standard error is at most 0.3
_BINS = 255
_COLUMN_FRACTION, _MIN_COLUMNS = 0.5, 4  # of the columns, drawn anew for each tree
_MIN_ROWS_FOR_VALIDATION = 50  # rows; fewer are too few to select the number of trees
_CELLS_PER_THREAD = 1_000_000  # cells of a table up to which a second thread gains nothing


@dataclass(frozen=True)
class Boosting:
    """Boosted trees for a release with evidence about single rows.

    Attributes:
        max_rounds: The most rounds of boosting; for more than two classes, each round grows a tree for each class.
        learning_rate: The factor of the leaf values of each tree.
        max_leaves: The most leaves of a tree.
        seed: The seed of the columns of each tree and of the held-out rows.
        validation_fraction: The share of the released rows that selects the number of rounds, or 0 to grow all rounds.
        patience: The rounds without improvement after which boosting stops.
    """

    max_rounds: int = 100
    learning_rate: float = 0.1
    max_leaves: int = 31
    seed: int = 0
    validation_fraction: float = 0.2
    patience: int = 20

    def __post_init__(self) -> None:
        if self.max_rounds < 0 or self.max_leaves < 2 or self.patience < 1:
            raise InputError("Boosting needs max_rounds from 0, max_leaves from 2 and a patience from 1.")
        if not 0 < self.learning_rate <= 1 or not 0 <= self.validation_fraction < 1:
            raise InputError(
                "Boosting needs a learning_rate above 0, up to 1, and a validation_fraction from 0, below 1."
            )

    def fit(self, features: Features, release: Release, start: Predictor | None = None) -> "BoostedModel":
        """Fit trees to the evidence of a release, on top of the scores of `start`.

        Args:
            features: The rows. Numbers of a table are read as they are, NaN included, and categories as codes.
            release: Evidence about these rows; rows without evidence are left out.
            start: A model of the same classes to whose scores the trees add. It may depend on other releases of the
                vault. Its scores are shifted first if the release clearly contradicts its class proportions, unless
                the start was trained on this release. Without a start, the trees add to the scores of the class
                proportions of maximum likelihood.

        Returns:
            A model of the true labels. It has no trees if held-out rows show no gain.

        Raises:
            InputError: Rows and release do not belong together, the release has no evidence, or LightGBM is missing.

        Privacy:
            Post-processing of the release and of `start`, without additional cost.
        """
        data = _TrainingData.of(features, release, start)
        return self._fit(data, release, start)

    def fit_averaged(self, features: Features, release: Release, start: Predictor) -> "BoostedModel":
        """Fit trees that add to `start` and trees without it, and average the scores of both models.

        The first model contains the signal of `start` and the noise of its releases. The second does not contain that
        noise. Their mean ranks rows better than either model if the start is noisy.

        Args:
            features: The rows, as for `fit`.
            release: Evidence about these rows.
            start: A model of the same classes.

        Returns:
            One model with the trees of both. It is the first model alone if the second has no trees.

        Raises:
            InputError: As for `fit`.

        Privacy:
            Post-processing of the release and of `start`, without additional cost.
        """
        data = _TrainingData.of(features, release, start)
        first, second = self._fit(data, release, start), self._fit(data, release, None)
        if not len(second.trees):
            return first
        trees = first.trees.scaled(0.5).with_trees(second.trees.scaled(0.5))
        constant = (first.constant + second.constant) / 2
        target_proportions = (
            to_probabilities(self._scores(data, first)) + to_probabilities(self._scores(data, second))
        ).mean(axis=0) / 2
        averaged = BoostedModel(release.space, first.provenance, trees, constant, start, 0.5)
        return replace(
            averaged, constant=constant + match_proportions(self._scores(data, averaged), target_proportions)
        )

    def _fit(self, data: "_TrainingData", release: Release, start: Predictor | None) -> "BoostedModel":
        loss, n_rows = data.loss, len(data.matrix)
        offset, shift = np.tile(loss.constant, (n_rows, 1)), loss.constant
        if start is not None and data.start_scores is not None:
            start_uses_release = set(release.lineage) <= set(start.lineage)  # its proportions are fitted already
            shift = np.zeros_like(shift) if start_uses_release else fit_shift(loss, data.start_scores)
            offset = data.start_scores + shift
        trees = _Booster(self, data.matrix, loss, offset).fit_trees()
        if len(trees):
            shift = shift + match_proportions(offset + trees.scores(data.matrix), to_probabilities(offset).mean(axis=0))
        return BoostedModel(release.space, Provenance.of(release, start), trees, shift, start)

    @staticmethod
    def _scores(data: "_TrainingData", model: "BoostedModel") -> Floats:
        """Return the scores of a model for the rows that it was trained on."""
        scores = model.trees.scores(data.matrix) + model.constant
        return (
            scores
            if model.start is None or data.start_scores is None
            else scores + model.start_weight * data.start_scores
        )


@dataclass(frozen=True, eq=False)
class _TrainingData:
    """The rows with evidence.

    Attributes:
        matrix: The rows as trees read them.
        loss: The loss of their labels.
        start_scores: The scores of the start, (rows, outputs); None without a start.
    """

    matrix: NDArray[np.float32]
    loss: ChannelLoss
    start_scores: Floats | None

    @classmethod
    def of(cls, features: Features, release: Release, start: Predictor | None) -> "_TrainingData":
        if len(features) != release.n_rows:
            raise InputError(f"There are {len(features)} rows of features and {release.n_rows} in the release.")
        if start is not None and start.space != release.space:
            raise InputError("The start must be a model of the release's classes.")
        evidence = release.log_evidence()
        row_ids = np.flatnonzero(np.ptp(evidence, axis=1) > 0)  # the others have no gradient
        if not row_ids.size:
            raise InputError("The release has no evidence about any row: there is nothing to learn from.")
        start_scores = None if start is None else _model_scores(start, features)[row_ids]
        return cls(tree_matrix(features)[row_ids], ChannelLoss.of(evidence[row_ids], release.kind), start_scores)


class _Booster:
    """LightGBM on the informative rows of one release."""

    def __init__(self, settings: Boosting, X: NDArray[np.float32], loss: ChannelLoss, offset: Floats) -> None:
        self.lightgbm = require_lightgbm()
        self.settings, self.loss, self.offset, self.n_columns = settings, loss, offset, X.shape[1]
        min_leaf_rows = int(np.clip(len(X) // _ROWS_PER_LEAF, _MIN_ROWS_PER_LEAF, _ROWS_PER_LEAF))
        min_leaf_information = _INFORMATION_PER_LEAF * min_leaf_rows / _ROWS_PER_LEAF
        self.params: dict[str, Any] = {
            "objective": "none",
            "metric": "none",
            "num_class": offset.shape[1],
            "learning_rate": settings.learning_rate,
            "num_leaves": settings.max_leaves,
            "min_data_in_leaf": min_leaf_rows,
            "min_sum_hessian_in_leaf": min_leaf_information,
            "lambda_l2": min_leaf_information,
            "max_bin": _BINS,
            "min_data_in_bin": 1,
            "feature_fraction": min(1.0, max(_COLUMN_FRACTION, _MIN_COLUMNS / max(1, self.n_columns))),
            "feature_pre_filter": False,
            "boost_from_average": False,
            "force_row_wise": True,
            "deterministic": True,
            "seed": settings.seed,
            "num_threads": thread_count(X.size),
            "verbosity": -1,
        }
        self.dataset = self._make_dataset(X)

    def fit_trees(self) -> Trees:
        """Return trees that are fitted to all rows; held-out rows select their number."""
        n_rows, n_rounds = len(self.offset), boosting_rounds(self.settings.max_rounds)
        if not any(self.dataset.feature_num_bin(column) > 1 for column in range(self.n_columns)):
            n_rounds = 0  # LightGBM fails where no column has two values
        n_validation = int(self.settings.validation_fraction * n_rows) if n_rows >= _MIN_ROWS_FOR_VALIDATION else 0
        if n_validation and n_rounds:
            n_rounds = self._select_rounds(n_validation, n_rounds)
        last_booster = deque(self._boost(self.dataset, self.loss, n_rounds), maxlen=1)
        text = last_booster[0].model_to_string() if last_booster else ""
        return Trees.from_lightgbm(text, self.n_columns, self.offset.shape[1])

    def _select_rounds(self, n_validation: int, max_rounds: int) -> int:
        """Return the number of rounds with the least loss of held-out rows; 0 if trees do not lower it."""
        order = np.random.default_rng(self.settings.seed).permutation(len(self.offset))
        fit_ids, validation_ids = np.sort(order[n_validation:]), np.sort(order[:n_validation])
        validation_loss = self.loss.select(validation_ids)
        min_loss, best_round = float(validation_loss.losses(self.offset[validation_ids]).mean()), 0

        def mean_loss(scores: Floats, _: Any) -> tuple[str, float, bool]:
            return "loss", float(validation_loss.losses(scores.reshape(n_validation, -1)).mean()), False

        fit_dataset, validation = self._subset(fit_ids), self._subset(validation_ids)
        for round_number, booster in enumerate(
            self._boost(fit_dataset, self.loss.select(fit_ids), max_rounds, validation), start=1
        ):
            current_loss = booster.eval_valid(mean_loss)[0][2]
            if current_loss < min_loss:
                min_loss, best_round = current_loss, round_number
            elif round_number - best_round >= self.settings.patience:
                break
        return best_round

    def _boost(self, dataset: Any, loss: ChannelLoss, n_rounds: int, validation: Any = None) -> Iterator[Any]:
        """Boost, and yield the booster after each round."""
        booster = self.lightgbm.Booster(self.params, dataset)
        if validation is not None:
            booster.add_valid(validation, "held out")

        def slopes(scores: Floats, _: Any) -> tuple[Floats, Floats]:
            gradient, curvature = loss.gradient_and_curvature(scores.reshape(len(loss.evidence), -1))
            return (gradient, curvature) if gradient.shape[1] > 1 else (gradient[:, 0], curvature[:, 0])

        for _ in range(n_rounds):  # a round without a split has no effect, and the next one draws other columns
            booster.update(fobj=slopes)
            yield booster

    def _make_dataset(self, X: NDArray[np.float32]) -> Any:
        dataset = self.lightgbm.Dataset(
            X, np.zeros(len(X)), params=self.params, init_score=self._init_scores(slice(None))
        )
        return dataset.construct()

    def _subset(self, row_ids: NDArray[np.int64]) -> Any:
        """Return the data of some rows, with the bins of all rows."""
        subset = self.dataset.subset(row_ids, self.params).construct()
        subset.set_init_score(self._init_scores(row_ids))
        return subset

    def _init_scores(self, row_selection: Any) -> Floats:
        return self.offset[row_selection] if self.offset.shape[1] > 1 else self.offset[row_selection, 0]


@dataclass(frozen=True, eq=False)
class BoostedModel(HasProvenance):
    """Probabilities of the true label from the sum of a constant, the scores of trees and those of a start.

    Attributes:
        space: The classes.
        provenance: The uses of labels that the model depends on.
        trees: The trees, whose leaf values are added to the scores.
        constant: The constant of each output.
        start: A model whose scores are added; None for no start.
        start_weight: The factor of the scores of `start`.
    """

    space: LabelSpace
    provenance: Provenance
    trees: Trees
    constant: Floats
    start: Predictor | None = None
    start_weight: float = 1.0

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        scores = self.trees.scores(tree_matrix(features)) + self.constant
        if self.start is not None:
            scores += self.start_weight * _model_scores(self.start, features)
        return to_probabilities(scores)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row, or the expected number."""
        return decode_probabilities(self.space, self.predict_proba(features))

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, with its start."""
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(
                partial, self, {"kind": "boosted", "start": self.start is not None, "start_weight": self.start_weight}
            )
            np.savez(partial / "arrays.npz", constant=self.constant, **self.trees.arrays())
            if self.start is not None:
                self.start.save(partial / "start")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "BoostedModel":
        """Read a model that `save` wrote; `device` is for a start that is a network."""
        metadata = read_metadata(folder)
        try:
            with np.load(Path(folder) / "arrays.npz") as arrays:
                trees, constant = Trees.from_arrays(dict(arrays)), np.asarray(arrays["constant"], np.float64)
            space = metadata["space"]
            has_start = metadata["start"]
            start_weight = float(metadata.get("start_weight", 1.0))
            n_outputs = 1 if len(space) == 2 else len(space)
            is_valid = isinstance(has_start, bool) and constant.shape == (n_outputs,) and trees.n_outputs == n_outputs
            is_valid = is_valid and bool(np.isfinite(constant).all()) and 0 < start_weight <= 1
        except Exception:
            is_valid = False
        if not is_valid:
            raise not_a_model_error(folder)
        start = load_predictor(Path(folder) / "start", device) if has_start else None
        if start is not None and start.space != space:
            raise not_a_model_error(folder)
        return cls(space, metadata["provenance"], trees, constant, start, start_weight)


def require_lightgbm() -> Any:
    """Return the module `lightgbm`.

    Raises:
        InputError: It cannot be imported.
    """
    try:
        import lightgbm
    except (ImportError, OSError):
        raise InputError(
            "Boosted trees are trained by LightGBM, which cannot be loaded: pip install lightgbm and, on Linux, the "
            "system library libgomp1 (on macOS, libomp)."
        ) from None
    return lightgbm


def _model_scores(model: Predictor, features: Features) -> NDArray[np.float64]:
    return to_scores(np.log(np.maximum(model.predict_proba(features), 1e-9)))


def thread_count(n_cells: int) -> int:
    """Return the number of threads that this process may use, or 1 for a small table."""
    env_threads = os.environ.get("OMP_NUM_THREADS", "")
    max_threads = int(env_threads) if env_threads.isdigit() and int(env_threads) else cpu_count()
    return min(max_threads, cpu_count()) if n_cells > _CELLS_PER_THREAD else 1
