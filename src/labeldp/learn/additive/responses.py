"""Softmax regression from noisy labels of single rows, starting from a model of noisy sums.

It uses expectation maximization: the posterior of a row's label is proportional to the model's probability times the
likelihood of the release, and the model is fitted to the sums of posteriors. The variance of the posteriors counts as
noise of these sums, from which the penalty follows. With a penalty, probabilities are underconfident. So the weights
are multiplied by the factor that maximizes the likelihood of held-out rows under a second fit. All of it is
post-processing.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from labeldp.learn.additive.design import Floats
from labeldp.learn.additive.softmax import Matrix, RotatedRows, compute_uncertainty, default_penalty, fit_softmax

_ROUNDS, _STEPS = 4, 15  # rounds of expectation maximization, and steps of L-BFGS in each
_HELD_OUT = 0.25  # share of rows that is held out for the factor
_LOG_FACTORS = (math.log(0.3), math.log(10.0))  # bounds of the logarithm of the factor
_SEED = 20_240_103  # of the selection of held-out rows


def fit_responses(rotated: RotatedRows, evidence: NDArray[np.float32], start: Floats) -> Floats:
    """Fit weights to released labels.

    Args:
        rotated: The rows.
        evidence: log p(released | class) of each row, (rows, classes).
        start: The weights of a model from other releases, (directions, classes).

    Returns:
        Calibrated weights, (directions, classes).
    """
    held_out = np.random.default_rng(_SEED).random(len(evidence)) < _HELD_OUT
    if not held_out.any() or held_out.all():
        return _fit_em(rotated, evidence, start)
    training_rows = RotatedRows(rotated.matrix[~held_out], rotated.basis, rotated.eigenvalues * (1 - _HELD_OUT))
    trial = _fit_em(training_rows, evidence[~held_out], start)
    factor = _fit_factor(rotated.matrix[held_out] @ trial.astype(np.float32), evidence[held_out])
    return factor * _fit_em(rotated, evidence, start)


def _fit_em(rotated: RotatedRows, evidence: NDArray[np.float32], start: Floats) -> Floats:
    weights = start
    for _ in range(_ROUNDS):
        posterior = _softmax(rotated.matrix @ weights.astype(np.float32) + evidence)
        mean_variance = float((posterior * (1 - posterior)).sum(dtype=np.float64) / weights.size)
        penalty = default_penalty(rotated, weights.shape[1], mean_variance**0.5, compute_uncertainty(posterior))
        sums = (rotated.matrix.T @ posterior).astype(np.float64)
        weights = fit_softmax(rotated, sums, penalty, weights, _STEPS)
    return weights


def _softmax(scores: Matrix) -> Matrix:
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Matrix = scores / scores.sum(axis=1, keepdims=True)
    return probabilities


def _fit_factor(scores: Matrix, evidence: NDArray[np.float32]) -> float:
    informative = np.ptp(evidence, axis=1) > 0  # equal likelihoods of all classes are no evidence
    informative_scores = scores[informative].astype(np.float64)
    informative_evidence = evidence[informative].astype(np.float64)
    if not len(informative_scores):
        return 1.0

    def loss(log_factor: float) -> float:
        multiplier = np.exp(log_factor)
        return float(
            (
                logsumexp(multiplier * informative_scores, axis=1)
                - logsumexp(multiplier * informative_scores + informative_evidence, axis=1)
            ).sum()
        )

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_FACTORS, method="bounded").x))
