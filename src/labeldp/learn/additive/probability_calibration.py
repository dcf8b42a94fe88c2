"""The factor of fitted weights for which probabilities are calibrated for new labels.

Weights W that are fitted to noisy sums Z = A'Y + e also fit the noise e and the variation of the labels Y. So <Z, W>
exceeds its value for new labels by the sum of the covariances of Z and W (Efron 2004). One random perturbation of Z,
with the covariance of noise and labels, gives an unbiased estimate of this sum (Hutchinson 1990). Then the loss on new
labels is known up to a constant for every factor, and the factor minimizes it. The standard error of the estimate is
about that of the noise in <Z, W>, which is subtracted: underconfident probabilities are better than overconfident ones.
All of it is post-processing of the released sums, and the random perturbation is no privacy noise.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from labeldp.learn.additive.design import Design, Floats

_PERTURBATION_SCALE = 0.5  # of the random perturbation, in standard deviations of the sums
_LOG_FACTORS = (math.log(1e-2), math.log(1e2))  # bounds of the logarithm of the factor
_SEED = 20_240_102  # of the random perturbation


def fit_calibration_factor(
    design: Design, sums: Floats, noise_std: float, weights: Floats, refit: Callable[[Floats], Floats]
) -> float:
    """Return the factor that minimizes the estimated loss on new labels.

    Args:
        design: The public matrix A, of the rows that were summed.
        sums: Z, (columns, classes), for three classes or more.
        noise_std: The standard deviation of the noise in Z.
        weights: The fitted weights, (columns, classes).
        refit: Fits weights to other sums with the same prior.

    Returns:
        A number above 0.
    """
    rng = np.random.default_rng(_SEED)
    scores, factor = design.dot(weights), 1.0
    simulated_noise = rng.normal(size=sums.shape) * noise_std
    simulated_noise -= simulated_noise.mean(axis=1, keepdims=True)
    noise_margin = noise_std * float(np.linalg.norm(weights))
    for _ in range(2):  # the variance of labels depends on the factor
        residual = softmax(factor * scores, axis=1)
        sampled_classes = (
            (rng.random((len(scores), 1)) > residual.cumsum(axis=1)).sum(axis=1).clip(0, residual.shape[1] - 1)
        )
        residual[np.arange(len(sampled_classes)), sampled_classes] -= 1
        perturbation = simulated_noise - design.transpose_dot(residual)
        covariance_penalty = (
            perturbation * (refit(sums + _PERTURBATION_SCALE * perturbation) - weights)
        ).sum() / _PERTURBATION_SCALE
        gain = float((sums * weights).sum() - covariance_penalty - noise_margin)

        def loss(log_factor: float, gain: float = gain) -> float:
            multiplier = math.exp(log_factor)
            return float(logsumexp(multiplier * scores, axis=1).sum() - multiplier * gain)

        factor = math.exp(float(minimize_scalar(loss, bounds=_LOG_FACTORS, method="bounded").x))
    return factor
