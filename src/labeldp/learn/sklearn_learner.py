"""Scikit-learn classifiers, trained by `WeightedEM` on standardized features of any type."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.estimator_files import read_estimator, serialize_estimator
from labeldp.learn.prebin import prebin
from labeldp.learn.predictor import Predictor, decode_probabilities, not_a_model_error, read_metadata, write_metadata
from labeldp.learn.weighted_em import WeightedEM, log_proba
from labeldp.releases.base import Release

_MAX_DEVIATIONS = 1e6  # standard deviations at which standardized values are clipped


@dataclass(frozen=True, eq=False)
class StandardizedFeatures:
    """A standardized matrix of rows for scikit-learn estimators.

    Attributes:
        features: The rows.
        X: The matrix, (rows, columns).
        mean: The public means of the columns.
        deviation: Their public standard deviations.
    """

    features: Features
    X: NDArray[np.float32]
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(
        cls, features: Features, estimator: Any = None, row_selection: NDArray[np.bool_] | slice = slice(None)
    ) -> "StandardizedFeatures":
        """Standardize rows.

        Args:
            features: The rows.
            estimator: The estimator; for boosted trees, rows of the training are also binned.
            row_selection: The rows of the training.

        Returns:
            The matrix of all rows.
        """
        mean, deviation = features.moments()
        X = standardized_matrix(features, mean, deviation)
        if (binned := prebin(X[row_selection], estimator)) is not X:
            X[row_selection] = binned
        return cls(features, X, mean, deviation)


@dataclass(frozen=True)
class SklearnLearner:
    """`WeightedEM` on features, which are standardized by their public moments.

    Attributes:
        classifier: An unfitted scikit-learn classifier that takes sample weights.
        n_rounds: The rounds of expectation maximization.
        standardized: Standardized rows, which `prepare` computes.
    """

    classifier: Any
    n_rounds: int = 10
    standardized: StandardizedFeatures | None = field(default=None, repr=False, compare=False)

    def prepare(self, features: Features, row_mask: NDArray[np.bool_]) -> "SklearnLearner":
        """Return this learner with standardized features; `row_mask` marks the rows of the training."""
        return replace(self, standardized=StandardizedFeatures.of(features, self.classifier, row_mask))

    def fit(self, features: Features, release: Release, start: Predictor | None = None) -> "SklearnModel":
        """Fit by expectation maximization; probabilities of `start` are the initial prior."""
        if len(features) != release.n_rows:
            raise InputError(f"There are {len(features)} rows of features and {release.n_rows} in the release.")
        standardized = (
            self.standardized
            if self.standardized is not None and self.standardized.features is features
            else StandardizedFeatures.of(features)
        )
        start_log_proba = None if start is None else np.log(np.maximum(start.predict_proba(features), 1e-9))
        fitted = WeightedEM(self.classifier, self.n_rounds).fit(standardized.X, release, start_log_proba)
        return SklearnModel(
            release.space, Provenance.of(release, start), fitted, standardized.mean, standardized.deviation
        )


@dataclass(frozen=True, eq=False)
class SklearnModel(HasProvenance):
    """A fitted scikit-learn classifier, whose classes are codes, with the moments of its features."""

    space: LabelSpace
    provenance: Provenance
    classifier: Any
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return np.exp(
            log_proba(self.classifier, standardized_matrix(features, self.mean, self.deviation), len(self.space))
        )

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row, or the expected number."""
        return decode_probabilities(self.space, self.predict_proba(features))

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, with the classifier as a skops file and not as a pickle."""
        serialized = serialize_estimator(self.classifier)
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": "classical"})
            np.savez(partial / "arrays.npz", mean=self.mean, deviation=self.deviation)
            (partial / "classifier.skops").write_bytes(serialized)

    @classmethod
    def load(cls, folder: str | Path) -> "SklearnModel":
        """Read a model that `save` wrote; only scikit-learn's own types are loaded, so a file cannot run code."""
        metadata = read_metadata(folder)
        try:
            classifier = read_estimator(Path(folder) / "classifier.skops")
            with np.load(Path(folder) / "arrays.npz") as arrays:
                moments = arrays["mean"], arrays["deviation"]
        except Exception:
            raise not_a_model_error(folder) from None
        return cls(metadata["space"], metadata["provenance"], classifier, *moments)


def standardized_matrix(
    features: Features, mean: NDArray[np.float32], deviation: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the matrix of rows, standardized by public moments and clipped to finite values.

    A row among n rows is at most sqrt(n) standard deviations from their mean. So only differences of huge numbers can
    overflow, and rows that are not among those of the moments.
    """
    return np.concatenate([_standardize(block, mean, deviation) for block in features.matrices(1 << 14)])


def _standardize(
    X: NDArray[np.float32], mean: NDArray[np.float32], deviation: NDArray[np.float32]
) -> NDArray[np.float32]:
    if len(mean) != X.shape[1]:  # images have moments for each channel
        mean, deviation = (np.repeat(part, X.shape[1] // len(part)) for part in (mean, deviation))
    deviation = np.where(deviation > 0, deviation, np.float32(1.0))
    with np.errstate(over="ignore"):
        standardized = X - mean
        standardized /= deviation
        if (overflowed := ~np.isfinite(standardized)).any():
            column_indices = np.nonzero(overflowed)[1]
            standardized[overflowed] = (X[overflowed].astype(np.float64) - mean[column_indices]) / deviation[
                column_indices
            ]
    return np.clip(standardized, -_MAX_DEVIATIONS, _MAX_DEVIATIONS, out=standardized)
