"""Gradient boosted trees for numbers, fitted by least squares to noisy numbers whose mean is the label.

The noise of such numbers is independent of the features, so that it cancels in leaves of many rows. The number of trees
is what suits a held-out part of the same release, which costs nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.boosting import require_lightgbm, threads_for
from labeldp.learn.density import Density, grid_of
from labeldp.learn.effort import tree_rounds
from labeldp.learn.predictor import Predictor, load_predictor, not_a_model, read_facts, write_facts
from labeldp.learn.trees import Trees, tree_matrix
from labeldp.releases.numbers import NumericResponses

_ROWS_A_LEAF, _FEWEST_ROWS_A_LEAF = 50, 5
_LARGEST_ERROR = 0.3  # of a leaf's value, in deviations of labels from the start
_CLEAR_GAIN = 1.0  # standard errors of held-out rows by which trees must lower the error
_FEWEST_TO_HOLD_OUT = 50  # rows; with fewer, no number of trees can be preferred to another
_LEAST_LEFT = 0.05  # of the start's variance: what trees leave at least

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NumberBoosting:
    """Boosted trees that add to another model of numbers.

    Attributes:
        rounds: The most trees.
        learning_rate: The share of each tree's step that is taken.
        leaves: The most leaves of a tree.
        seed: For the rows that are held out.
        validation: The share of the released rows that decides on the number of trees.
        patience: The trees without improvement after which no more are tried.
    """

    rounds: int = 300
    learning_rate: float = 0.1
    leaves: int = 31
    seed: int = 0
    validation: float = 0.2
    patience: int = 20

    def fit(self, features: Features, responses: NumericResponses, start: Predictor) -> "BoostedNumberModel":
        """Fit trees to what a start leaves of noisy numbers.

        Args:
            features: The rows.
            responses: A noisy number for each row whose mean is the label; rows without one are left out.
            start: A model of the same numbers with a `deviation`, whose predictions the trees add to.

        Returns:
            A model of the true numbers. It has no trees where held-out rows show no gain.

        Raises:
            InputError: Rows and release do not belong together, there is nothing to learn from, or LightGBM is missing.

        Privacy:
            Post-processing of the release and of `start`: free of charge.
        """
        if len(features) != responses.rows or start.space != responses.space:
            raise InputError("The rows, the release and the start must belong to the same data set.")
        values = responses.unbiased_values()
        rows = np.flatnonzero(~np.isnan(values))
        if not rows.size:
            raise InputError("The release has no number: there is nothing to learn from.")
        left = values[rows] - np.asarray(start.predict(features), np.float64)[rows]
        before = float(getattr(start, "deviation", np.std(left))) ** 2
        trees, gain = _Booster(self, tree_matrix(features)[rows], left, before).trees()
        deviation = max(before - gain, _LEAST_LEFT * before) ** 0.5
        return BoostedNumberModel(responses.space, Provenance.of(responses, start), trees, start, deviation)


class _Booster:
    """LightGBM with squared loss on the rows that have a number."""

    def __init__(self, settings: NumberBoosting, rows: NDArray[np.float32], left: Floats, variance: float) -> None:
        needed = float((left**2).mean()) / (_LARGEST_ERROR**2 * max(variance, 1e-300))
        least = int(np.clip(len(rows) // _ROWS_A_LEAF, _FEWEST_ROWS_A_LEAF, _ROWS_A_LEAF))
        self.lightgbm, self.settings, self.left = require_lightgbm(), settings, left
        self.columns = rows.shape[1]
        self.params: dict[str, Any] = {
            "objective": "regression",
            "metric": "none",
            "learning_rate": settings.learning_rate,
            "num_leaves": settings.leaves,
            "min_data_in_leaf": int(min(max(least, needed), len(rows))),
            "lambda_l2": needed,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "boost_from_average": False,
            "force_row_wise": True,
            "deterministic": True,
            "seed": settings.seed,
            "num_threads": threads_for(rows.size),
            "verbosity": -1,
        }
        self.data = self.lightgbm.Dataset(rows, left, params=self.params, free_raw_data=False).construct()
        self.rows = rows

    def trees(self) -> tuple[Trees, float]:
        """Return as many trees as suit the held-out rows, fitted to all rows, and the squared error that they save."""
        count, rounds, gain = len(self.left), tree_rounds(self.settings.rounds), 0.0
        splits = any(self.data.feature_num_bin(column) > 1 for column in range(self.columns))
        if splits and rounds and count >= _FEWEST_TO_HOLD_OUT:
            rounds, gain = self._best_rounds(rounds)
        text = ""
        if splits and rounds:
            *_, last = self._grown(self.data, rounds)
            text = last.model_to_string()
        return Trees.from_lightgbm(text, self.columns, 1), gain

    def _best_rounds(self, most: int) -> tuple[int, float]:
        """Return the number of trees with the least error of held-out rows, and what it is below that of none."""
        order = np.random.default_rng(self.settings.seed).permutation(len(self.left))
        held_out = int(self.settings.validation * len(order))
        fit, unseen = np.sort(order[held_out:]), np.sort(order[:held_out])
        data = self.data.subset(fit, self.params).construct()
        predicted, before = np.zeros(held_out), self.left[unseen] ** 2
        gain, error, best = 0.0, 0.0, 0
        for done, booster in enumerate(self._grown(data, most), start=1):
            predicted += booster.predict(self.rows[unseen], start_iteration=done - 1, num_iteration=1)
            saved = before - (self.left[unseen] - predicted) ** 2
            if saved.mean() > gain:
                gain, error, best = float(saved.mean()), float(saved.std()) / held_out**0.5, done
            elif done - best >= self.settings.patience:
                break
        return (best, gain) if gain > _CLEAR_GAIN * error else (0, 0.0)

    def _grown(self, data: Any, rounds: int) -> Iterator[Any]:
        """Boost, and return the booster after each round."""
        booster = self.lightgbm.Booster(self.params, data)
        for _ in range(rounds):
            booster.update()
            yield booster


@dataclass(frozen=True, eq=False)
class BoostedNumberModel(HasProvenance):
    """The predictions of a start plus those of trees, with normal scatter around them.

    Attributes:
        space: The range of numbers.
        provenance: The releases that the model rests on.
        trees: Their leaf values are added to the predictions.
        start: A model of the same numbers.
        deviation: The deviation of labels from the prediction.
    """

    space: LabelSpace
    provenance: Provenance
    trees: Trees
    start: Predictor
    deviation: float

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each declared number for each row."""
        return Density(grid_of(self.space), "squared", self.deviation).chances(self.predict(features))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the expected number of each row, within the declared range."""
        found = np.asarray(self.start.predict(features), np.float64) + self.trees.scores(tree_matrix(features))[:, 0]
        return np.clip(found, self.space.classes[0], self.space.classes[-1])

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, with its start."""
        with written_whole(Path(folder)) as partial:
            partial.mkdir()
            write_facts(partial, self, {"kind": "boosted-numbers", "deviation": self.deviation})
            np.savez(partial / "arrays.npz", **self.trees.arrays())
            self.start.save(partial / "start")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "BoostedNumberModel":
        """Read a model that `save` wrote; `device` is for a start that is a network."""
        facts = read_facts(folder)
        try:
            with np.load(Path(folder) / "arrays.npz") as arrays:
                trees = Trees.from_arrays(dict(arrays))
            space, deviation = facts["space"], float(facts["deviation"])
            sound = trees.outputs == 1 and space.step is not None and 0 < deviation < np.inf
        except Exception:
            sound = False
        if not sound:
            raise not_a_model(folder)
        start = load_predictor(Path(folder) / "start", device)
        if start.space != space:
            raise not_a_model(folder)
        return cls(space, facts["provenance"], trees, start, deviation)
