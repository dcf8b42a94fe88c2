"""The distributions of noisy counts: of the noise itself, and of the index of the largest noisy count."""

import math

import numpy as np


def noise_law(scale, reach):
    """Discrete Laplace noise on the integers up to `reach`, and their probabilities."""
    x = np.arange(-reach, reach + 1)
    q = math.exp(-1 / scale)
    return x, (1 - q) / (1 + q) * q ** np.abs(x).astype(float)


def winners(counts, epsilon):
    """P(each candidate wins), by summing over the noisy count of the winner: the first of the largest wins."""
    reach = math.ceil(80 / epsilon) + int(np.ptp(counts))
    x, mass = noise_law(2 / epsilon, reach)
    cumulative = np.cumsum(mass)
    law = []
    for j, own in enumerate(counts):
        probability = mass.copy()
        for i, other in enumerate(counts):
            if i != j:
                below = x + own - other - (i < j)  # how large the other's noise may be
                probability *= np.where(below < -reach, 0.0, cumulative[np.clip(below + reach, 0, 2 * reach)])
        law.append(probability.sum())
    return np.array(law)
