"""Any scikit-learn classifier that takes sample weights, trained on a release by expectation maximisation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import Ridge

from labeldp.core.errors import InputError
from labeldp.learn.effort import brief, rounds
from labeldp.learn.prebin import coarse, threads_that_pay
from labeldp.releases.base import Release

_FAINT = 1e-3  # posterior weights below this are left out of a fit


@dataclass(frozen=True)
class Weighted:
    """Alternate between a posterior for each row (evidence times the model) and a fit weighted by it.

    From equal weights, a weak signal is never found: the fit stays at the majority class. So the first model
    is a ridge regression on unbiased labels, where the release has them. A "prior" release is already a
    posterior and is fitted once: feeding the model back into it would only make it more sure of itself.
    """

    classifier: Any
    rounds: int = 10

    def fit(self, features: NDArray[np.floating], release: Release, guess: NDArray[np.floating] | None = None) -> Any:
        """Return the fitted classifier, whose classes are the codes of the label space.

        `guess` gives log-probabilities to begin from, for example those of a model from another release.
        """
        if len(features) != release.rows:
            raise InputError(f"There are {len(features)} rows of features and {release.rows} in the release.")
        rows = np.flatnonzero(release._is_active(np.arange(release.rows)))
        features, evidence = coarse(features[rows], self.classifier), release.log_evidence(rows).astype(np.float64)
        if release.kind == "prior":
            return self._fit(features, softmax(evidence, axis=1))
        model_log = self._first_guess(features, release, rows) if guess is None else guess[rows]
        for _ in range(rounds(self.rounds)):
            fitted = self._fit(features, softmax(evidence + model_log, axis=1))
            model_log = log_proba(fitted, features, len(release.space))
        return fitted

    def _first_guess(self, features: NDArray[np.floating], release: Release, rows: NDArray[np.int64]) -> Any:
        try:
            unbiased = release.unbiased_labels(rows)
        except InputError:
            return 0.0
        # The noise of an unbiased label is known to be large: the penalty grows with its variance.
        guess = Ridge(alpha=float(unbiased.var())).fit(features, unbiased).predict(features)
        return np.log(np.clip(guess, 0.02, 1.0))

    def _fit(self, features: NDArray[np.floating], posterior: NDArray[np.float64]) -> Any:
        row, label = np.nonzero(posterior > _FAINT)
        if np.unique(label).size == 1:  # many classifiers refuse that, and the answer is known
            return DummyClassifier().fit(features[row], label)
        weight = posterior[row, label]
        alone = np.flatnonzero(np.bincount(label)[label] == 1)
        if alone.size:  # the only one of its class cannot be in two parts, as early stopping wants: two halves can
            weight[alone] /= 2
            row, label, weight = (
                np.append(row, row[alone]),
                np.append(label, label[alone]),
                np.append(weight, weight[alone]),
            )
        with threads_that_pay(features):
            return brief(clone(self.classifier)).fit(features[row], label, sample_weight=weight)


def log_proba(fitted: Any, features: NDArray[np.floating], classes: int) -> NDArray[np.float64]:
    """Return log-probabilities for every class, also those that the fit never saw."""
    proba = np.full((len(features), classes), 1e-9)
    # Of one class, some classifiers give two columns, for a class and for none.
    proba[:, fitted.classes_] = 1.0 if len(fitted.classes_) == 1 else fitted.predict_proba(features)
    return np.log(np.maximum(proba, 1e-9))
