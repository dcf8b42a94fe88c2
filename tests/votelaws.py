"""The exact distributions of noisy votes, summed term by term, for comparison in tests."""

import math
from itertools import product

import numpy as np

from labeldp.mechanisms import ConfidentGNMax, LNMax

# Small votes: ties, a clear winner, a winner that comes last.
COUNTS = [[4, 4], [3, 3, 3], [6, 1, 2], [9, 0, 0], [0, 5, 4], [1, 1, 7, 0]]


def noise_law(noise, scale, reach):
    """The normalized discrete distribution: integers and their probabilities."""
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-np.abs(x) / scale) if noise == "laplace" else np.exp(-(x.astype(float) ** 2) / (2 * scale**2))
    return x, mass / mass.sum()


def winners(counts, noise, scale):
    """P(each class wins), by summing over the noisy count of the winner: the first of the largest wins."""
    reach = math.ceil((45 if noise == "laplace" else 12) * scale) + int(np.ptp(counts)) + 2
    x, mass = noise_law(noise, scale, reach)
    cumulative = np.cumsum(mass)
    law = []
    for j, own in enumerate(counts):
        probability = mass.copy()
        for i, other in enumerate(counts):
            if i != j:
                below = x + own - other - (i < j)
                probability *= np.where(below < -reach, 0.0, cumulative[np.clip(below + reach, 0, 2 * reach)])
        law.append(probability.sum())
    return np.array(law)


def confident(counts, m):
    """P(each class is released), and last P(none is)."""
    reach = math.ceil(12 * m.sigma1) + 60
    x, mass = noise_law("gaussian", m.sigma1, reach)
    passes = mass[x + max(counts) >= m.threshold].sum()
    return np.append(passes * winners(counts, "gaussian", m.sigma2), mass[x + max(counts) < m.threshold].sum())


def law_of(counts, m):
    if isinstance(m, ConfidentGNMax):
        return confident(counts, m)
    return winners(counts, *(("laplace", m.scale) if isinstance(m, LNMax) else ("gaussian", m.sigma)))


def neighbors(counts):
    for i, j in product(range(len(counts)), repeat=2):
        if i != j and counts[i]:
            other = np.array(counts)
            other[i] -= 1
            other[j] += 1
            yield other


def divergence(p, q, order):
    seen = p > 1e-280  # smaller probabilities are negligible
    return float(np.logaddexp.reduce(order * np.log(p[seen]) + (1 - order) * np.log(q[seen]))) / (order - 1)
