"""Softmax regression on lifted rows: the model, and its learner from noisy sums and noisy labels."""

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
from labeldp.data.row_normalizer import Lift
from labeldp.learn.additive.calibration import calibration_factor
from labeldp.learn.additive.design import DenseDesign, Floats
from labeldp.learn.additive.fit import Component, class_probabilities, fit_sums
from labeldp.learn.additive.responses import fit_responses
from labeldp.learn.additive.softmax import Rotated, fit_softmax, openness_of, usual_penalty
from labeldp.learn.additive.sums import consistent_sums
from labeldp.learn.predictor import not_a_model
from labeldp.learn.ridge import LinearModel
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments

_FIRST_OPENNESS, _PASSES = 0.25, 2  # of the search for a penalty
_FEW_CLASSES = 20  # up to which prior variances are searched for, by matrices of the columns for each class


@dataclass(frozen=True, eq=False)
class LogLinearModel(LinearModel):
    """Lifted rows times coefficients: log-odds of the second of two classes, or a score for each class."""

    kind: ClassVar[str] = "log-linear"

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote.

        Raises:
            InputError: The folder holds no such model, or its arrays do not fit each other.
        """
        model, found = super().load(folder), None
        with suppress(Exception):
            shape = model.lift.columns, 1 if len(model.space) == 2 else len(model.space)
            found = model.coefficients.shape == shape and np.isfinite(model.coefficients).all()
        if not found:
            raise not_a_model(folder)
        return model

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return class_probabilities(self.lift(features) @ self.coefficients)


@dataclass(frozen=True)
class LogLinear:
    """Softmax regression from noisy sums of lifted rows.

    With few classes, the prior variance of the weights maximises the likelihood of the sums. With many, that would take
    long, and a fixed penalty that follows from the noise takes its place.
    """

    lift: Lift

    def fit(self, rows: NDArray[np.float32], sums: NoisyMoments) -> LogLinearModel:
        """Fit the sums.

        Args:
            rows: Every lifted row.
            sums: Their noisy sums by label.

        Returns:
            The model.
        """
        matrix = rows if sums.active is None else rows[sums.active]
        found = consistent_sums(sums)
        classes = len(sums.space)
        if classes <= _FEW_CLASSES:
            return self._model(sums, _searched(matrix, found.values, found.noise))
        return self._model(sums, _penalised(matrix, found.values, found.noise))

    def refine(self, rows: NDArray[np.float32], labels: Release, model: LogLinearModel) -> LogLinearModel:
        """Fit noisy labels of single rows, beginning from a model of sums.

        Args:
            rows: Every lifted row.
            labels: A release that says something about each row.
            model: The model to begin from.

        Returns:
            A further model.
        """
        chosen = np.arange(len(rows)) if labels.active is None else np.flatnonzero(labels.active)
        rotated = Rotated.of(rows[chosen])
        weights = model.coefficients
        if weights.shape[1] == 1:
            weights = weights / 2 * [[-1, 1]]
        found = fit_responses(rotated, labels.log_evidence(chosen), rotated.basis.T @ weights)
        if model.coefficients.shape[1] == 1:
            found = found[:, 1:] - found[:, :1]
        return self._model(labels, rotated.basis @ found, model)

    def _model(self, release: Release, weights: Floats, start: LogLinearModel | None = None) -> LogLinearModel:
        return LogLinearModel(release.space, Provenance.of(release, start), self.lift, weights)


def _penalised(matrix: NDArray[np.float32], sums: Floats, noise: float) -> Floats:
    """Fit with the usual penalty, which depends on how sure the fitted and calibrated model is."""
    rotated, classes = Rotated.of(matrix), sums.shape[1]
    wanted, design = rotated.basis.T @ sums, DenseDesign(rotated.rows)
    weights, openness = np.zeros_like(wanted), _FIRST_OPENNESS
    for _ in range(_PASSES):
        penalty = usual_penalty(rotated, classes, noise, openness)
        plain = fit_softmax(rotated, wanted, penalty)

        def refit(changed: Floats, penalty: Floats = penalty, plain: Floats = plain) -> Floats:
            return fit_softmax(rotated, changed, penalty, plain)

        weights = plain * calibration_factor(design, wanted, noise, plain, refit)
        openness = (openness * openness_of(softmax(design.dot(weights), axis=1))) ** 0.5
    found: Floats = rotated.basis @ weights
    return found


def _searched(matrix: NDArray[np.float32], sums: Floats, noise: float) -> Floats:
    """Fit with prior variances that maximise the likelihood of the sums.

    The last column of lifted rows is constant: its sums give the number of rows of each class, and its weights hold
    the intercept.
    """
    design, constant = DenseDesign(matrix), float(matrix[:, -1].mean())

    def fitted(values: Floats, prior: Sequence[Component], search: bool) -> tuple[Floats, tuple[Component, ...]]:
        totals = np.clip(values[-1] / constant, 1.0, len(matrix) - 1.0)
        fit = fit_sums(design, values, totals, noise**2, prior, search=search)
        weights = fit.weights.copy()
        weights[-1] += fit.intercept / constant
        return weights, fit.components

    weights, prior = fitted(sums, [Component(slice(0, matrix.shape[1]), None, 20.0)], True)
    if sums.shape[1] == 1:
        return weights
    factor = calibration_factor(design, sums, noise, weights, lambda changed: fitted(changed, prior, False)[0])
    return weights * max(factor, 1.0)  # the prior makes probabilities of several classes too even, never too uneven
