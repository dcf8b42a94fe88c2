"""Softmax regression on normalized rows: the model, and its learner from noisy sums and noisy labels."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from labeldp.accounting.lineage import Provenance
from labeldp.data.base import Features
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.additive.design import DenseDesign, Floats
from labeldp.learn.additive.fit import PriorComponent, class_probabilities, fit_sums
from labeldp.learn.additive.probability_calibration import fit_calibration_factor
from labeldp.learn.additive.responses import fit_responses
from labeldp.learn.additive.softmax import RotatedRows, compute_uncertainty, default_penalty, fit_softmax
from labeldp.learn.additive.sums import compute_consistent_sums
from labeldp.learn.predictor import not_a_model_error
from labeldp.learn.ridge import LinearModel
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments

_INITIAL_UNCERTAINTY, _PENALTY_ROUNDS = 0.25, 2  # of the fit of a penalty
_MAX_CLASSES_FOR_SEARCH = 20  # classes up to which prior variances are fitted, with a matrix of columns for each class


@dataclass(frozen=True, eq=False)
class LogLinearModel(LinearModel):
    """Normalized rows times coefficients: log-odds of the second of two classes, or a score for each class."""

    kind: ClassVar[str] = "log-linear"

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote.

        Raises:
            InputError: The folder contains no such model, or its arrays are inconsistent.
        """
        model, is_valid = super().load(folder), None
        with suppress(Exception):
            shape = model.normalizer.n_columns, 1 if len(model.space) == 2 else len(model.space)
            is_valid = model.coefficients.shape == shape and np.isfinite(model.coefficients).all()
        if not is_valid:
            raise not_a_model_error(folder)
        return model

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return class_probabilities(self.normalizer(features) @ self.coefficients)


@dataclass(frozen=True)
class LogLinear:
    """Softmax regression from noisy sums of normalized rows.

    With few classes, the prior variance of the weights maximizes the likelihood of the sums. With many classes, which
    would take long, there is a fixed penalty that follows from the noise.

    Attributes:
        normalizer: The map from features to normalized rows.
    """

    normalizer: RowNormalizer

    def fit(self, X: NDArray[np.float32], sums: NoisyMoments) -> LogLinearModel:
        """Fit the sums.

        Args:
            X: All normalized rows.
            sums: Their noisy sums by label.

        Returns:
            The model.
        """
        matrix = X if sums.row_mask is None else X[sums.row_mask]
        column_sums = compute_consistent_sums(sums)
        n_classes = len(sums.space)
        if n_classes <= _MAX_CLASSES_FOR_SEARCH:
            return self._make_model(sums, _fit_with_variance_search(matrix, column_sums.values, column_sums.noise_std))
        return self._make_model(sums, _fit_penalized(matrix, column_sums.values, column_sums.noise_std))

    def refine(self, X: NDArray[np.float32], labels: Release, model: LogLinearModel) -> LogLinearModel:
        """Fit noisy labels of single rows, starting from a model of sums.

        Args:
            X: All normalized rows.
            labels: A release with evidence about single rows.
            model: The initial model.

        Returns:
            A new model.
        """
        row_ids = np.arange(len(X)) if labels.row_mask is None else np.flatnonzero(labels.row_mask)
        rotated = RotatedRows.of(X[row_ids])
        weights = model.coefficients
        if weights.shape[1] == 1:
            weights = weights / 2 * [[-1, 1]]
        fitted = fit_responses(rotated, labels.log_evidence(row_ids), rotated.basis.T @ weights)
        if model.coefficients.shape[1] == 1:
            fitted = fitted[:, 1:] - fitted[:, :1]
        return self._make_model(labels, rotated.basis @ fitted, model)

    def _make_model(self, release: Release, weights: Floats, start: LogLinearModel | None = None) -> LogLinearModel:
        return LogLinearModel(release.space, Provenance.of(release, start), self.normalizer, weights)


def _fit_penalized(matrix: NDArray[np.float32], sums: Floats, noise_std: float) -> Floats:
    """Fit with the default penalty, which depends on the uncertainty of the fitted and calibrated model."""
    rotated, n_classes = RotatedRows.of(matrix), sums.shape[1]
    rotated_sums, design = rotated.basis.T @ sums, DenseDesign(rotated.matrix)
    weights, uncertainty = np.zeros_like(rotated_sums), _INITIAL_UNCERTAINTY
    for _ in range(_PENALTY_ROUNDS):
        penalty = default_penalty(rotated, n_classes, noise_std, uncertainty)
        uncalibrated = fit_softmax(rotated, rotated_sums, penalty)

        def refit(new_sums: Floats, penalty: Floats = penalty, uncalibrated: Floats = uncalibrated) -> Floats:
            return fit_softmax(rotated, new_sums, penalty, uncalibrated)

        weights = uncalibrated * fit_calibration_factor(design, rotated_sums, noise_std, uncalibrated, refit)
        uncertainty = (uncertainty * compute_uncertainty(softmax(design.dot(weights), axis=1))) ** 0.5
    coefficients: Floats = rotated.basis @ weights
    return coefficients


def _fit_with_variance_search(matrix: NDArray[np.float32], sums: Floats, noise_std: float) -> Floats:
    """Fit with prior variances that maximize the likelihood of the sums.

    The last column of normalized rows is constant: its sums give the number of rows of each class, and its weights
    contain the intercept.
    """
    design, constant = DenseDesign(matrix), float(matrix[:, -1].mean())

    def fit(
        values: Floats, prior: Sequence[PriorComponent], fit_variances: bool
    ) -> tuple[Floats, tuple[PriorComponent, ...]]:
        totals = np.clip(values[-1] / constant, 1.0, len(matrix) - 1.0)
        result = fit_sums(design, values, totals, noise_std**2, prior, fit_variances=fit_variances)
        weights = result.weights.copy()
        weights[-1] += result.intercept / constant
        return weights, result.components

    weights, prior = fit(sums, [PriorComponent(slice(0, matrix.shape[1]), None, 20.0)], True)
    if sums.shape[1] == 1:
        return weights
    factor = fit_calibration_factor(design, sums, noise_std, weights, lambda new_sums: fit(new_sums, prior, False)[0])
    return weights * max(factor, 1.0)  # with the prior, probabilities of several classes are never overconfident
