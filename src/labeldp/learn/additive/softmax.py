"""Softmax regression from noisy sums for many classes, and from posteriors of labels.

The loss of weights W is sum_i log sum_k exp(A_i W_k) - <Z, W> + sum_dk P_dk W_dk^2 / 2 with Z the sums A'Y. It is
convex, and depends on the labels through Z alone. The columns of A are rotated to the eigenvectors of A'A, so that a
direction d with eigenvalue g_d has curvature g_d / K for balanced classes. The noise of standard deviation s enters
<Z, W>, so the penalty P must grow with s. Let t be the prior variance of the weights and c g_d / K the curvature, where
c is 1 for uniform probabilities and less for confident ones. Then the posterior mean for noisy sums has the penalty
(1 + s^2 K / (c g_d)) / t. The default penalty has this value for the mean of g_d and is proportional to g_d^(-1/2), so
that directions of small variance have weights nearly as large as others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from labeldp.learn.additive.design import Floats

_MAX_STEPS, _MAX_STEPS_FROM_START = 40, 15  # of L-BFGS, from zero and from earlier weights
_VARIANCE = 25.0  # prior variance of weights, for rows of length 1
_MIN_UNCERTAINTY = 1e-3  # bound of the curvature as a share of that of uniform probabilities

Matrix = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RotatedRows:
    """Public rows in the eigenvectors of their Gram matrix.

    Attributes:
        matrix: The rotated rows, (rows, directions).
        basis: The eigenvectors, (columns, directions).
        eigenvalues: The eigenvalues, (directions,).
    """

    matrix: Matrix
    basis: Matrix
    eigenvalues: Floats

    @classmethod
    def of(cls, matrix: Matrix) -> "RotatedRows":
        """Rotate the rows of a matrix with few columns."""
        eigenvalues, basis = np.linalg.eigh((matrix.T @ matrix).astype(np.float64))
        is_used = eigenvalues > 1e-7 * max(float(eigenvalues[-1]), 1e-300)
        used_basis = basis[:, is_used].astype(np.float32)
        return cls(matrix @ used_basis, used_basis, eigenvalues[is_used])


def default_penalty(rotated: RotatedRows, n_classes: int, noise_std: float, uncertainty: float) -> Floats:
    """Return the penalty of each direction for noisy sums.

    Args:
        rotated: The rows that were summed.
        n_classes: The number of classes.
        noise_std: The standard deviation of the noise in a sum.
        uncertainty: The curvature of the model as a share of that of uniform probabilities, as `compute_uncertainty`
            returns it.

    Returns:
        A positive number for each direction.
    """
    mean = float(rotated.eigenvalues.mean())
    penalty: Floats = (
        (1 + noise_std**2 * n_classes / (uncertainty * mean)) / _VARIANCE * (rotated.eigenvalues / mean) ** -0.5
    )
    return penalty


def compute_uncertainty(probabilities: NDArray[np.floating]) -> float:
    """Return the mean variance of one-hot labels as a share of that of uniform probabilities, which is at most 1."""
    n_classes = probabilities.shape[1]
    mean_variance = (probabilities * (1 - probabilities)).sum(dtype=np.float64) / len(probabilities)
    return float(np.clip(mean_variance * n_classes / (n_classes - 1), _MIN_UNCERTAINTY, 1.0))


def fit_softmax(
    rotated: RotatedRows, sums: Floats, penalty: Floats, start: Floats | None = None, max_steps: int | None = None
) -> Floats:
    """Minimize the penalized loss.

    Args:
        rotated: The rows that were summed.
        sums: Z in the rotated directions, (directions, classes).
        penalty: P, one for each direction.
        start: The initial weights; None for zeros.
        max_steps: The most steps; None for a default, which is larger without a start.

    Returns:
        The weights, (directions, classes).
    """
    shape = sums.shape
    scale = (1 / np.sqrt(penalty + rotated.eigenvalues / shape[1])).astype(np.float32)[:, None]
    target_sums, penalty_column = sums.astype(np.float32), penalty.astype(np.float32)[:, None]
    initial = np.zeros(shape) if start is None else start / scale

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape).astype(np.float32) * scale
        scores = rotated.matrix @ weights
        max_score = scores.max(axis=1, keepdims=True)
        scores -= max_score
        np.exp(scores, out=scores)
        total = scores.sum(axis=1, keepdims=True)
        value = (np.log(total) + max_score).sum(dtype=np.float64) - (target_sums * weights).sum(dtype=np.float64)
        value += 0.5 * (penalty_column * weights * weights).sum(dtype=np.float64)
        scores /= total
        gradient = (rotated.matrix.T @ scores - target_sums + penalty_column * weights) * scale
        return float(value), gradient.astype(np.float64).ravel()

    max_iterations = max_steps or (_MAX_STEPS if start is None else _MAX_STEPS_FROM_START)
    options: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": max_iterations}}
    result = minimize(loss, initial.ravel(), **options)
    return result.x.reshape(shape) * scale
