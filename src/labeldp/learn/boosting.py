"""Gradient boosted trees that learn from the evidence of each row: the noise of a release is part of the loss.

One fit on the released labels, whose loss is in `channel`, by LightGBM; no rounds of expectation maximisation. The
number of trees is what suits a held-out part of the same release, which costs nothing. The fitted model is arrays:
prediction needs no LightGBM.

The likelihood of noisy labels hardly depends on whether a probability is 0.01 or 0.04. So few trees leave small
probabilities too large, and their mean with them. The mean probability of each class over the training rows is known
better, from the whole release or from the start. A last shift of all scores restores it.
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
from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.channel import ChannelLoss, Floats, as_chances, as_scores, fitted_shift, matching_shift
from labeldp.learn.effort import tree_rounds
from labeldp.learn.predictor import Predictor, best_labels, load_predictor, not_a_model, read_facts, write_facts
from labeldp.learn.trees import Trees, tree_matrix
from labeldp.releases.base import Release

_ROWS_A_LEAF, _FEWEST_ROWS_A_LEAF = 50, 5
_INFORMATION_A_LEAF = 10.0  # least Fisher information of a leaf's score: its deviation is at most 0.3
_BINS = 255
_COLUMN_SHARE, _FEWEST_COLUMNS = 0.5, 4  # of the columns, drawn anew for each tree
_FEWEST_TO_HOLD_OUT = 50  # rows; with fewer, no number of trees can be preferred to another
_CELLS_A_THREAD = 1_000_000  # of a table up to which a second thread gains nothing


@dataclass(frozen=True)
class Boosting:
    """Boosted trees for a release that says something of each row.

    Attributes:
        rounds: The most rounds of boosting; of more than two classes, each round grows a tree for each class.
        learning_rate: The share of each tree's step that is taken.
        leaves: The most leaves of a tree.
        seed: For the columns of each tree and the rows that are held out.
        validation: The share of the released rows that decides on the number of rounds, or 0 to grow all rounds.
        patience: The rounds without improvement after which no more are tried.
    """

    rounds: int = 100
    learning_rate: float = 0.1
    leaves: int = 31
    seed: int = 0
    validation: float = 0.2
    patience: int = 20

    def __post_init__(self) -> None:
        if self.rounds < 0 or self.leaves < 2 or self.patience < 1:
            raise InputError("Boosting needs rounds from 0, leaves from 2 and a patience from 1.")
        if not 0 < self.learning_rate <= 1 or not 0 <= self.validation < 1:
            raise InputError("Boosting needs a learning rate above 0, up to 1, and a validation share from 0, below 1.")

    def fit(self, features: Features, release: Release, start: Predictor | None = None) -> "BoostedModel":
        """Fit trees to what a release says of its rows, beyond what `start` says.

        Args:
            features: The rows. Of a table, numbers are read as they are, NaN included, and categories as codes.
            release: Evidence of any kind about these rows; rows of which it says nothing are left out.
            start: A model of the same classes, to whose scores the trees add; it may rest on other releases of the
                vault. Its scores are shifted first if the release clearly contradicts its class shares, unless the
                start rests on this release already. Without one, the trees add to the scores of the class shares that
                fit the release best.

        Returns:
            A model of the true labels. It has no trees where held-out rows show no gain.

        Raises:
            InputError: Rows and release do not belong together, the release says nothing, or LightGBM is missing.

        Privacy:
            Post-processing of the release and of `start`: free of charge.
        """
        data = _Data.of(features, release, start)
        return self._fit(data, release, start)

    def fit_averaged(self, features: Features, release: Release, start: Predictor) -> "BoostedModel":
        """Fit trees that add to `start` and trees without it, and average the scores of both models.

        The first model keeps what `start` knows, the noise of its releases included. The second has none of that noise.
        Their mean ranks rows better than either where the start is noisy.

        Args:
            features: The rows, as for `fit`.
            release: Evidence of any kind about these rows.
            start: A model of the same classes.

        Returns:
            One model with the trees of both. It is the first model alone if the second has no trees.

        Raises:
            InputError: As for `fit`.

        Privacy:
            Post-processing of the release and of `start`: free of charge.
        """
        data = _Data.of(features, release, start)
        first, second = self._fit(data, release, start), self._fit(data, release, None)
        if not len(second.trees):
            return first
        trees = first.trees.scaled(0.5).with_trees(second.trees.scaled(0.5))
        constant = (first.constant + second.constant) / 2
        wanted = (as_chances(self._scores(data, first)) + as_chances(self._scores(data, second))).mean(axis=0) / 2
        mean = BoostedModel(release.space, first.provenance, trees, constant, start, 0.5)
        return replace(mean, constant=constant + matching_shift(self._scores(data, mean), wanted))

    def _fit(self, data: "_Data", release: Release, start: Predictor | None) -> "BoostedModel":
        loss, rows = data.loss, len(data.matrix)
        offset, shift = np.tile(loss.constant, (rows, 1)), loss.constant
        if start is not None and data.start is not None:
            resting = set(release.lineage) <= set(start.lineage)  # its shares of the classes are fitted already
            shift = np.zeros_like(shift) if resting else fitted_shift(loss, data.start)
            offset = data.start + shift
        trees = _Booster(self, data.matrix, loss, offset).trees()
        if len(trees):
            shift = shift + matching_shift(offset + trees.scores(data.matrix), as_chances(offset).mean(axis=0))
        return BoostedModel(release.space, Provenance.of(release, start), trees, shift, start)

    @staticmethod
    def _scores(data: "_Data", model: "BoostedModel") -> Floats:
        """Return the scores of a model for the rows that it was trained on."""
        found = model.trees.scores(data.matrix) + model.constant
        return found if model.start is None or data.start is None else found + model.start_weight * data.start


@dataclass(frozen=True, eq=False)
class _Data:
    """The rows of which a release says something.

    Attributes:
        matrix: The rows as trees read them.
        loss: The loss of their labels.
        start: The scores that a start gives them, (rows, outputs); None without a start.
    """

    matrix: NDArray[np.float32]
    loss: ChannelLoss
    start: Floats | None

    @classmethod
    def of(cls, features: Features, release: Release, start: Predictor | None) -> "_Data":
        if len(features) != release.rows:
            raise InputError(f"There are {len(features)} rows of features and {release.rows} in the release.")
        if start is not None and start.space != release.space:
            raise InputError("The start must be a model of the release's classes.")
        evidence = release.log_evidence()
        rows = np.flatnonzero(np.ptp(evidence, axis=1) > 0)  # the others have no gradient
        if not rows.size:
            raise InputError("The release says nothing of any row: there is nothing to learn from.")
        scores = None if start is None else _scores_of(start, features)[rows]
        return cls(tree_matrix(features)[rows], ChannelLoss.of(evidence[rows], release.kind), scores)


class _Booster:
    """LightGBM on the informative rows of one release."""

    def __init__(self, settings: Boosting, rows: NDArray[np.float32], loss: ChannelLoss, offset: Floats) -> None:
        self.lightgbm = require_lightgbm()
        self.settings, self.loss, self.offset, self.columns = settings, loss, offset, rows.shape[1]
        least = int(np.clip(len(rows) // _ROWS_A_LEAF, _FEWEST_ROWS_A_LEAF, _ROWS_A_LEAF))
        information = _INFORMATION_A_LEAF * least / _ROWS_A_LEAF
        self.params: dict[str, Any] = {
            "objective": "none",
            "metric": "none",
            "num_class": offset.shape[1],
            "learning_rate": settings.learning_rate,
            "num_leaves": settings.leaves,
            "min_data_in_leaf": least,
            "min_sum_hessian_in_leaf": information,
            "lambda_l2": information,
            "max_bin": _BINS,
            "min_data_in_bin": 1,
            "feature_fraction": min(1.0, max(_COLUMN_SHARE, _FEWEST_COLUMNS / max(1, self.columns))),
            "feature_pre_filter": False,
            "boost_from_average": False,
            "force_row_wise": True,
            "deterministic": True,
            "seed": settings.seed,
            "num_threads": threads_for(rows.size),
            "verbosity": -1,
        }
        self.data = self._dataset(rows)

    def trees(self) -> Trees:
        """Return as many trees as suit the held-out rows, fitted to all rows."""
        count, rounds = len(self.offset), tree_rounds(self.settings.rounds)
        if not any(self.data.feature_num_bin(column) > 1 for column in range(self.columns)):
            rounds = 0  # LightGBM fails where no column has two values
        held_out = int(self.settings.validation * count) if count >= _FEWEST_TO_HOLD_OUT else 0
        if held_out and rounds:
            rounds = self._best_rounds(held_out, rounds)
        last = deque(self._grown(self.data, self.loss, rounds), maxlen=1)
        text = last[0].model_to_string() if last else ""
        return Trees.from_lightgbm(text, self.columns, self.offset.shape[1])

    def _best_rounds(self, held_out: int, most: int) -> int:
        """Return the number of rounds with the least loss of held-out rows; 0 where trees do not lower it."""
        order = np.random.default_rng(self.settings.seed).permutation(len(self.offset))
        fit, valid = np.sort(order[held_out:]), np.sort(order[:held_out])
        unseen = self.loss.select(valid)
        least, best = float(unseen.losses(self.offset[valid]).mean()), 0

        def mean_loss(scores: Floats, _: Any) -> tuple[str, float, bool]:
            return "loss", float(unseen.losses(scores.reshape(held_out, -1)).mean()), False

        data, others = self._part(fit), self._part(valid)
        for done, booster in enumerate(self._grown(data, self.loss.select(fit), most, others), start=1):
            now = booster.eval_valid(mean_loss)[0][2]
            if now < least:
                least, best = now, done
            elif done - best >= self.settings.patience:
                break
        return best

    def _grown(self, data: Any, loss: ChannelLoss, rounds: int, others: Any = None) -> Iterator[Any]:
        """Boost, and return the booster after each round."""
        booster = self.lightgbm.Booster(self.params, data)
        if others is not None:
            booster.add_valid(others, "held out")

        def slopes(scores: Floats, _: Any) -> tuple[Floats, Floats]:
            gradient, curvature = loss.slopes(scores.reshape(len(loss.evidence), -1))
            return (gradient, curvature) if gradient.shape[1] > 1 else (gradient[:, 0], curvature[:, 0])

        for _ in range(rounds):  # a round without a split is none, and the next one draws other columns
            booster.update(fobj=slopes)
            yield booster

    def _dataset(self, rows: NDArray[np.float32]) -> Any:
        data = self.lightgbm.Dataset(rows, np.zeros(len(rows)), params=self.params, init_score=self._init(slice(None)))
        return data.construct()

    def _part(self, rows: NDArray[np.int64]) -> Any:
        """Return the data of some rows, in the bins of all."""
        part = self.data.subset(rows, self.params).construct()
        part.set_init_score(self._init(rows))
        return part

    def _init(self, rows: Any) -> Floats:
        return self.offset[rows] if self.offset.shape[1] > 1 else self.offset[rows, 0]


@dataclass(frozen=True, eq=False)
class BoostedModel(HasProvenance):
    """Scores of a start, if there is one, of trees, and a constant: probabilities of the true label.

    Attributes:
        space: The classes.
        provenance: The releases that the model rests on.
        trees: Their leaf values are added to the scores.
        constant: A score for each output.
        start: A model whose scores are added, too.
        start_weight: The factor of these scores.
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
            scores += self.start_weight * _scores_of(self.start, features)
        return as_chances(scores)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the likeliest label of each row, or the mean of numbers."""
        return best_labels(self.space, self.predict_proba(features))

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, with its start."""
        with written_whole(Path(folder)) as partial:
            partial.mkdir()
            write_facts(
                partial, self, {"kind": "boosted", "start": self.start is not None, "start_weight": self.start_weight}
            )
            np.savez(partial / "arrays.npz", constant=self.constant, **self.trees.arrays())
            if self.start is not None:
                self.start.save(partial / "start")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "BoostedModel":
        """Read a model that `save` wrote; `device` is for a start that is a network."""
        facts = read_facts(folder)
        try:
            with np.load(Path(folder) / "arrays.npz") as arrays:
                trees, constant = Trees.from_arrays(dict(arrays)), np.asarray(arrays["constant"], np.float64)
            space, started, weight = facts["space"], facts["start"], float(facts.get("start_weight", 1.0))
            outputs = 1 if len(space) == 2 else len(space)
            sound = isinstance(started, bool) and constant.shape == (outputs,) and trees.outputs == outputs
            sound = sound and bool(np.isfinite(constant).all()) and 0 < weight <= 1
        except Exception:
            sound = False
        if not sound:
            raise not_a_model(folder)
        start = load_predictor(Path(folder) / "start", device) if started else None
        if start is not None and start.space != space:
            raise not_a_model(folder)
        return cls(space, facts["provenance"], trees, constant, start, weight)


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


def _scores_of(model: Predictor, features: Features) -> NDArray[np.float64]:
    return as_scores(np.log(np.maximum(model.predict_proba(features), 1e-9)))


def threads_for(cells: int) -> int:
    """Return how many threads this process may use, or one for a small table."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    most = int(stated) if stated.isdigit() and int(stated) else cpu_count()
    return min(most, cpu_count()) if cells > _CELLS_A_THREAD else 1
