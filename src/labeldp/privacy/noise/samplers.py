"""Exact, vectorized samplers of discrete distributions, which read cryptographic bits.

Exact means that the output has the stated distribution, not a float64 approximation of it. The samplers draw a
uniform real bit by bit and compare it with exact probabilities (`core.exact_real.Real`). They draw more bits while
the comparison is undecided. The first 16 bits decide nearly every row by one table lookup. 64 bits decide nearly all
other rows, and a loop over Python integers decides the last few. Integer noise is unbounded: no tail is truncated.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.exact_real import Real, exp_minus, one_minus_exp_minus, shifted_odds
from labeldp.privacy.noise.secure_stream import SYSTEM, Bits

Integers = NDArray[np.int64]

# Rows that are drawn together: their arrays fit in the processor cache.
_BLOCK = 1 << 15
# Largest scale of noise, in steps. An int64 holds 2^13 such scales; larger noise has probability below exp(-8000).
MAX_SCALE = 2**50


class Categorical:
    """A distribution on the cells 0..K-1, given by the K-1 exact cumulative probabilities between them."""

    def __init__(self, edges: Sequence[Real]) -> None:
        self._edges = edges
        self._edges64 = np.array([edge.floor(64)[0] for edge in edges], np.uint64)
        self.n_cells = len(edges) + 1
        first = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        last = first | np.uint64((1 << 48) - 1)
        below = np.searchsorted(self._edges64, first, "left")
        up_to = np.searchsorted(self._edges64, last, "right")
        # A bucket of 16-bit words that contains an edge is undecided. A cell number that does not exist marks it.
        self._lookup = np.where(below == up_to, up_to, self.n_cells).astype(np.min_scalar_type(self.n_cells))

    def sample(self, n_draws: int, bits: Bits = SYSTEM) -> NDArray[np.unsignedinteger]:
        """Draw `n_draws` cells."""
        words = bits.uint16(n_draws)
        cells = self._lookup.take(words)
        open_ = np.flatnonzero(cells == self.n_cells)
        if open_.size:
            cells[open_] = self._resolve(words[open_].astype(np.uint64), bits)
        return cells

    def _resolve(self, words: NDArray[np.uint64], bits: Bits) -> NDArray[np.int64]:
        uniform = (words << np.uint64(48)) | (bits.uint64(words.size) >> np.uint64(16))
        cells = np.searchsorted(self._edges64, uniform, "left")
        up_to = np.searchsorted(self._edges64, uniform, "right")
        for i in np.flatnonzero(cells < up_to):
            cells[i] += _resolve_tie(self._edges[cells[i] : up_to[i]], int(uniform[i]), bits)
        return cells


def _resolve_tie(edges: Sequence[Real], uniform: int, bits: Bits) -> int:
    """Return how many edges a uniform real reaches. Its first 64 bits are `uniform`; more are drawn as needed."""
    length = 64
    while True:
        floors = [edge.floor(length) for edge in edges]
        if all(floor != uniform or whole for floor, whole in floors):
            return bisect_right(floors, uniform, key=lambda floor: floor[0])
        uniform, length = uniform << 64 | int(bits.uint64(1)[0]), length + 64


def bernoulli(probability: Fraction, n_draws: int, bits: Bits = SYSTEM) -> NDArray[np.bool_]:
    """Draw `n_draws` booleans that are true with exactly `probability`."""
    if probability in (0, 1):
        return np.full(n_draws, probability == 1)
    return categorical([probability, 1 - probability], n_draws, bits) == 0


def uniform(n_cells: int, n_draws: int, bits: Bits = SYSTEM) -> Integers:
    """Draw `n_draws` integers from 0 to `n_cells` - 1 with equal probabilities."""
    return fill_in_blocks(n_draws, np.int64, lambda block: uniform_offset(n_cells).sample(_block_length(block), bits))


def categorical(weights: Sequence[Fraction], n_draws: int, bits: Bits = SYSTEM) -> Integers:
    """Draw `n_draws` cells with probabilities exactly proportional to positive rational weights."""
    law = _categorical_from_weights(tuple(weights))
    return fill_in_blocks(n_draws, np.int64, lambda block: law.sample(_block_length(block), bits))


@lru_cache(64)
def _categorical_from_weights(weights: tuple[Fraction, ...]) -> Categorical:
    total, total_so_far, edges = sum(weights, Fraction(0)), Fraction(0), []
    for weight in weights[:-1]:
        total_so_far += weight
        edges.append(Real(total_so_far / total))
    return Categorical(edges)


@lru_cache(256)
def response_offset(epsilon: Fraction, n_classes: int) -> Categorical:
    """Return randomized response as a law of offsets: 0 has odds exp(epsilon) against each of 1..n_classes-1."""
    return Categorical([shifted_odds(epsilon, j, n_classes - 1) for j in range(n_classes - 1)])


@lru_cache(256)
def uniform_offset(n_classes: int) -> Categorical:
    """Return the uniform law on 0..n_classes-1."""
    return Categorical([Real(Fraction(j, n_classes)) for j in range(1, n_classes)])


# The geometric law, P(g) = (1 - q) q^g with q = exp(-rate). It is memoryless, which gives two exact cuts:
# "g, or at least m, and then start again", and "g = 512 a + b with a and b independent".
_DIGIT = 512


@lru_cache(64)
def _geometric_start(rate: Fraction) -> Categorical:
    n_cells = min(_DIGIT, math.ceil(44 / rate))  # a restart is rare for any rate
    return Categorical([one_minus_exp_minus(rate * g) for g in range(1, n_cells + 1)])


@lru_cache(64)
def _geometric_digit(rate: Fraction) -> Categorical:
    return Categorical([one_minus_exp_minus(rate * g, rate * _DIGIT) for g in range(1, _DIGIT)])


def _geometric(rate: Fraction, n_draws: int, bits: Bits) -> Integers:
    if rate * _DIGIT < 4:  # the mean is beyond one digit
        low = _geometric_digit(rate).sample(n_draws, bits)
        return _DIGIT * _geometric(rate * _DIGIT, n_draws, bits) + low
    table = _geometric_start(rate)
    restart_cell = table.n_cells - 1
    total = table.sample(n_draws, bits).astype(np.int64)
    active = np.flatnonzero(total == restart_cell)
    while active.size:
        more = table.sample(active.size, bits)
        total[active] += more
        active = active[more == restart_cell]
    return total


def laplace_deviation(decay: float) -> float:
    """Return the standard deviation of discrete Laplace noise whose probabilities fall by exp(-decay) per step."""
    return 1 / (math.sqrt(2) * math.sinh(min(decay / 2, 700.0)))  # above 700, sinh overflows and the noise is zero


def discrete_laplace(scale: Fraction, n_draws: int, bits: Bits = SYSTEM) -> Integers:
    """Draw integers with P(x) proportional to exp(-|x| / scale).

    The difference of two independent geometric variables with q = exp(-1/scale) has that law: summing
    (1-q)^2 q^(x+2j) over j >= 0 gives (1-q)/(1+q) q^|x|.
    """

    _check_scale(scale)

    def draw(block: slice) -> Integers:
        n = _block_length(block)
        return _geometric(1 / scale, n, bits) - _geometric(1 / scale, n, bits)

    return fill_in_blocks(n_draws, np.int64, draw)


def discrete_gaussian(sigma: Fraction, n_draws: int, bits: Bits = SYSTEM) -> Integers:
    """Draw integers with P(x) proportional to exp(-x^2 / (2 sigma^2)).

    Rejection (Canonne, Kamath and Steinke 2020, Algorithm 3): propose y from the discrete Laplace law of
    scale t = floor(sigma) + 1 and accept with probability exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)); the
    product of the two is proportional to exp(-y^2 / (2 sigma^2)).
    """
    _check_scale(sigma)
    scale = Fraction(math.floor(sigma) + 1)

    def draw(block: slice) -> Integers:
        parts, n_missing = [], _block_length(block)
        while n_missing:
            proposed = discrete_laplace(scale, n_missing + n_missing // 2 + 16, bits)
            accepted = proposed[_draw_acceptance(np.abs(proposed), sigma**2 / scale, 2 * sigma**2, bits)]
            parts.append(accepted[:n_missing])
            n_missing -= parts[-1].size
        return np.concatenate(parts)

    return fill_in_blocks(n_draws, np.int64, draw)


def _check_scale(scale: Fraction) -> None:
    if not 0 < scale < MAX_SCALE:
        raise ValueError("Noise must be wider than 0 and narrower than 2^50 steps.")


def _draw_acceptance(distance: Integers, center: Fraction, width: Fraction, bits: Bits) -> NDArray[np.bool_]:
    """Draw booleans that are true with probability exp(-x), exactly, for x = (distance - center)^2 / width.

    float64 decides wherever its error cannot matter. Rounding the difference at 2^-52 of the distance moves x
    by less than 2^-44 up to x = 64 (the difference is then below 12 sigma, and sigma^2 = width / 2), so a
    margin of 2^-30 of the probability is ample. For larger x, both probabilities are below 2^-90. An absolute margin
    of 2^-52 covers that, and the conversion of the uniform word. Inside the margin, exact arithmetic decides.
    """
    words = bits.uint64(distance.size)
    probability = np.exp((distance - float(center)) ** 2 / -float(width))
    gap = probability - words * 2.0**-64
    heads = gap > 0
    for i in np.flatnonzero(np.abs(gap) <= probability * 2.0**-30 + 2.0**-52):
        exact = exp_minus((int(distance[i]) - center) ** 2 / width)
        heads[i] = _resolve_tie([exact], int(words[i]), bits) == 0
    return heads


def fill_in_blocks(n_rows: int, dtype: Any, draw: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """Fill an array of `n_rows` rows by calling `draw` on slices that fit in the processor cache."""
    out = np.empty(n_rows, dtype)
    for start in range(0, n_rows, _BLOCK):
        block = slice(start, min(start + _BLOCK, n_rows))
        out[block] = draw(block)
    return out


def _block_length(block: slice) -> int:
    return int(block.stop - block.start)
