"""Softmax regression from noisy sums for many classes, and from posteriors of labels.

The loss of weights W is sum_i log sum_k exp(A_i W_k) - <Z, W> + sum_dk P_dk W_dk^2 / 2 with Z the sums A'Y. It is
convex, and Z is all that it needs of the labels. The columns of A are rotated to the eigenvectors of A'A, so that a
direction d has curvature g_d / K where classes are even. Noise of deviation s enters <Z, W>, so that the penalty P must
grow with it. With prior variance t of the weights and curvature c g_d / K, where c is 1 for even classes and
less the surer the model is, the posterior mean of noisy sums has the penalty (1 + s^2 K / (c g_d)) / t. The usual
penalty has this size for the mean of g_d, and goes with g_d^(-1/2): directions in which rows differ little then have
weights nearly as large as others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from labeldp.learn.additive.design import Floats

_STEPS, _AGAIN = 40, 15  # of L-BFGS, from zero and from earlier weights
_VARIANCE = 25.0  # of weights for rows of length 1
_LEAST_OPEN = 1e-3

Matrix = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Rotated:
    """Public rows in the eigenvectors of their Gram matrix.

    Attributes:
        rows: (rows, directions).
        basis: The eigenvectors, (columns, directions).
        lengths: The eigenvalues, (directions,).
    """

    rows: Matrix
    basis: Matrix
    lengths: Floats

    @classmethod
    def of(cls, matrix: Matrix) -> "Rotated":
        """Rotate the rows of a matrix of few columns."""
        lengths, basis = np.linalg.eigh((matrix.T @ matrix).astype(np.float64))
        used = lengths > 1e-7 * max(float(lengths[-1]), 1e-300)
        narrow = basis[:, used].astype(np.float32)
        return cls(matrix @ narrow, narrow, lengths[used])


def usual_penalty(rotated: Rotated, classes: int, noise: float, openness: float) -> Floats:
    """Return the penalty of each direction for sums with noise of this deviation.

    Args:
        rotated: The rows that were summed.
        classes: The number of classes.
        noise: The deviation of the noise in a sum.
        openness: The curvature of the model as a share of its curvature where classes are even: 1 if it knows
            nothing, and near 0 if it is sure of nearly all rows.

    Returns:
        A positive number for each direction.
    """
    mean = float(rotated.lengths.mean())
    found: Floats = (1 + noise**2 * classes / (openness * mean)) / _VARIANCE * (rotated.lengths / mean) ** -0.5
    return found


def openness_of(probabilities: NDArray[np.floating]) -> float:
    """Return by how much probabilities leave the classes open: 1 if all are even, and near 0 if all are sure."""
    classes = probabilities.shape[1]
    spread = (probabilities * (1 - probabilities)).sum(dtype=np.float64) / len(probabilities)
    return float(np.clip(spread * classes / (classes - 1), _LEAST_OPEN, 1.0))


def fit_softmax(
    rotated: Rotated, sums: Floats, penalty: Floats, start: Floats | None = None, steps: int | None = None
) -> Floats:
    """Minimise the penalised loss.

    Args:
        rotated: The rows that were summed.
        sums: Z in the rotated directions, (directions, classes).
        penalty: P, one for each direction.
        start: Weights to begin from.
        steps: The most steps; by default more without a start.

    Returns:
        The weights, (directions, classes).
    """
    shape = sums.shape
    unit = (1 / np.sqrt(penalty + rotated.lengths / shape[1])).astype(np.float32)[:, None]
    wanted, held = sums.astype(np.float32), penalty.astype(np.float32)[:, None]
    begin = np.zeros(shape) if start is None else start / unit

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape).astype(np.float32) * unit
        scores = rotated.rows @ weights
        top = scores.max(axis=1, keepdims=True)
        scores -= top
        np.exp(scores, out=scores)
        total = scores.sum(axis=1, keepdims=True)
        value = (np.log(total) + top).sum(dtype=np.float64) - (wanted * weights).sum(dtype=np.float64)
        value += 0.5 * (held * weights * weights).sum(dtype=np.float64)
        scores /= total
        slope = (rotated.rows.T @ scores - wanted + held * weights) * unit
        return float(value), slope.astype(np.float64).ravel()

    most = steps or (_STEPS if start is None else _AGAIN)
    given: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": most}}
    found = minimize(loss, begin.ravel(), **given)
    return found.x.reshape(shape) * unit
