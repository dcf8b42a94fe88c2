"""Expectation maximization for releases of classes, with any scikit-learn classifier that takes sample weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import Ridge

from labeldp.core.errors import InputError
from labeldp.learn.prebin import limit_threads, prebin
from labeldp.learn.short_training import em_rounds, limit_iterations
from labeldp.releases.base import Release

_MIN_WEIGHT = 1e-3  # posterior probability below which a label is left out of a fit


@dataclass(frozen=True)
class WeightedEM:
    """Alternate between posteriors of labels (evidence times predictions) and fits with posteriors as weights.

    From a uniform prior, a weak signal is not found: the fit stays at the majority class. So the first prior is a ridge
    regression on unbiased labels, if the release has them. A "prior" release is itself a posterior and is fitted once:
    multiplying it by predictions would count the same evidence twice.

    Attributes:
        classifier: An unfitted scikit-learn classifier that takes sample weights.
        n_rounds: The rounds.
    """

    classifier: Any
    n_rounds: int = 10

    def fit(
        self, features: NDArray[np.floating], release: Release, initial_log_proba: NDArray[np.floating] | None = None
    ) -> Any:
        """Fit the classifier.

        Args:
            features: The matrix of rows.
            release: Evidence about these rows.
            initial_log_proba: Log-probabilities (rows, classes) of the first prior, for example those of a model that
                was trained on another release.

        Returns:
            The fitted classifier, whose classes are the codes of the label space.

        Raises:
            InputError: The release has another number of rows.
        """
        if len(features) != release.n_rows:
            raise InputError(f"There are {len(features)} rows of features and {release.n_rows} in the release.")
        row_ids = np.arange(release.n_rows) if release.row_mask is None else np.flatnonzero(release.row_mask)
        features = prebin(features[row_ids], self.classifier)
        evidence = release.log_evidence(row_ids).astype(np.float64)
        if release.kind == "prior":
            return self._fit(features, softmax(evidence, axis=1))
        log_prior = (
            self._initial_log_proba(features, release, row_ids)
            if initial_log_proba is None
            else initial_log_proba[row_ids]
        )
        for _ in range(em_rounds(self.n_rounds)):
            fitted = self._fit(features, softmax(evidence + log_prior, axis=1))
            log_prior = log_proba(fitted, features, len(release.space))
        return fitted

    def _initial_log_proba(self, features: NDArray[np.floating], release: Release, row_ids: NDArray[np.int64]) -> Any:
        try:
            unbiased = release.unbiased_labels(row_ids)
        except InputError:
            return 0.0
        # The penalty is proportional to the variance of unbiased labels, most of which is noise.
        predictions = Ridge(alpha=float(unbiased.var())).fit(features, unbiased).predict(features)
        return np.log(np.clip(predictions, 0.02, 1.0))

    def _fit(self, features: NDArray[np.floating], posterior: NDArray[np.float64]) -> Any:
        row_ids, labels = np.nonzero(posterior > _MIN_WEIGHT)
        if np.unique(labels).size == 1:  # many classifiers raise an error for one class
            return DummyClassifier().fit(features[row_ids], labels)
        weights = posterior[row_ids, labels]
        singletons = np.flatnonzero(np.bincount(labels)[labels] == 1)
        if singletons.size:  # early stopping needs two rows of each class, so a single row becomes two of half weight
            weights[singletons] /= 2
            row_ids = np.append(row_ids, row_ids[singletons])
            labels = np.append(labels, labels[singletons])
            weights = np.append(weights, weights[singletons])
        with limit_threads(features):
            return limit_iterations(clone(self.classifier)).fit(features[row_ids], labels, sample_weight=weights)


def log_proba(classifier: Any, features: NDArray[np.floating], n_classes: int) -> NDArray[np.float64]:
    """Return log-probabilities for every class, including classes without training rows."""
    probabilities = np.full((len(features), n_classes), 1e-9)
    # Some classifiers of one class return two columns.
    probabilities[:, classifier.classes_] = 1.0 if len(classifier.classes_) == 1 else classifier.predict_proba(features)
    return np.log(np.maximum(probabilities, 1e-9))
