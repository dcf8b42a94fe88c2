"""Distributions of noise by slow, direct computation, for comparison with fast code."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np

from labeldp.privacy.noise import samplers


def sampled_noise_law(scale: Fraction, reach: int) -> np.ndarray:
    """The law of discrete_laplace on -reach..reach, from the edges of the table that it samples from."""
    table = samplers._geometric_start(1 / scale)
    edges = [0, *[edge.floor(120)[0] for edge in table._edges]]
    geometric = np.array([float(Fraction(b - a, 2**120)) for a, b in pairwise(edges)])
    both = np.convolve(geometric, geometric[::-1])
    return both[len(geometric) - 1 - reach : len(geometric) + reach]


def direct_delta(epsilon, sigma):
    """max(0, P - e^epsilon Q) summed over the plane, Q being P moved by (+1, -1)."""
    reach = math.ceil(8.5 * sigma) + 2
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * sigma**2))
    mass /= mass.sum()
    up, down = np.append(0, mass[:-1]), np.append(mass[1:], 0)
    # Block by block: the plane of a wide law is large.
    blocks = np.array_split(np.arange(x.size), 1 + x.size // 500)
    return sum(np.maximum(0, np.outer(mass[b], mass) - math.exp(epsilon) * np.outer(up[b], down)).sum() for b in blocks)
