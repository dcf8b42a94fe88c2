"""Exact samplers on integers, vectorised, fed by cryptographic bits.

Exact means that the law of the output is the stated law, not a float64 neighbour of it. One idea does it:
a uniform real is drawn bit by bit and compared with exact probabilities (`reals.Real`), with more bits drawn
while the comparison is open. The first 16 bits settle nearly every row by one table look-up, 64 bits nearly
all of the rest, and a loop over Python integers the last few. Integer noise is unbounded: no tail is cut.
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

_BLOCK = 1 << 15  # rows worked on at once: what fits in the cache
WIDEST = 2**50  # steps of noise; int64 holds 2^13 scales beyond this: a tail that no machine lives to see


class Categorical:
    """A law on the cells 0..K-1, given by the K-1 exact cumulative probabilities between them."""

    def __init__(self, edges: Sequence[Real]) -> None:
        self._edges = edges
        self._edges64 = np.array([edge.floor(64)[0] for edge in edges], np.uint64)
        self.cells = len(edges) + 1
        first = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        last = first | np.uint64((1 << 48) - 1)
        below = np.searchsorted(self._edges64, first, "left")
        upto = np.searchsorted(self._edges64, last, "right")
        # A bucket of 16-bit words that holds an edge is open: marked by a cell that does not exist.
        self._guide = np.where(below == upto, upto, self.cells).astype(np.min_scalar_type(self.cells))

    def sample(self, count: int, bits: Bits = SYSTEM) -> NDArray[np.unsignedinteger]:
        """Draw `count` cells."""
        words = bits.uint16(count)
        cells = self._guide.take(words)
        open_ = np.flatnonzero(cells == self.cells)
        if open_.size:
            cells[open_] = self._settle(words[open_].astype(np.uint64), bits)
        return cells

    def _settle(self, words: NDArray[np.uint64], bits: Bits) -> NDArray[np.int64]:
        uniform = (words << np.uint64(48)) | (bits.uint64(words.size) >> np.uint64(16))
        cells = np.searchsorted(self._edges64, uniform, "left")
        upto = np.searchsorted(self._edges64, uniform, "right")
        for i in np.flatnonzero(cells < upto):
            cells[i] += _settle_tie(self._edges[cells[i] : upto[i]], int(uniform[i]), bits)
        return cells


def _settle_tie(edges: Sequence[Real], uniform: int, bits: Bits) -> int:
    """Return how many edges a uniform real reaches whose first 64 bits are given, drawing more as needed."""
    length = 64
    while True:
        floors = [edge.floor(length) for edge in edges]
        if all(floor != uniform or whole for floor, whole in floors):
            return bisect_right(floors, uniform, key=lambda floor: floor[0])
        uniform, length = uniform << 64 | int(bits.uint64(1)[0]), length + 64


def coin(probability: Fraction, count: int, bits: Bits = SYSTEM) -> NDArray[np.bool_]:
    """Draw `count` coins that are true with exactly `probability`."""
    if probability in (0, 1):
        return np.full(count, probability == 1)
    return categorical([probability, 1 - probability], count, bits) == 0


def uniform(cells: int, count: int, bits: Bits = SYSTEM) -> Integers:
    """Draw `count` integers from 0..cells-1, all equally likely."""
    return in_blocks(count, np.int64, lambda rows: uniform_offset(cells).sample(_size(rows), bits))


def categorical(weights: Sequence[Fraction], count: int, bits: Bits = SYSTEM) -> Integers:
    """Draw `count` cells with probabilities exactly proportional to positive rational weights."""
    law = _weighted(tuple(weights))
    return in_blocks(count, np.int64, lambda rows: law.sample(_size(rows), bits))


@lru_cache(64)
def _weighted(weights: tuple[Fraction, ...]) -> Categorical:
    total, cumulative, edges = sum(weights, Fraction(0)), Fraction(0), []
    for weight in weights[:-1]:
        cumulative += weight
        edges.append(Real(cumulative / total))
    return Categorical(edges)


@lru_cache(256)
def response_offset(epsilon: Fraction, classes: int) -> Categorical:
    """Randomized response as an offset: 0 has odds exp(epsilon) against each of 1..classes-1."""
    return Categorical([shifted_odds(epsilon, j, classes - 1) for j in range(classes - 1)])


@lru_cache(256)
def uniform_offset(classes: int) -> Categorical:
    """A uniform law on 0..classes-1."""
    return Categorical([Real(Fraction(j, classes)) for j in range(1, classes)])


# The geometric law, P(g) = (1 - q) q^g with q = exp(-rate). It is memoryless, which gives two exact cuts:
# "g, or at least m, and then start again", and "g = 512 a + b with a and b independent".
_DIGIT = 512


@lru_cache(64)
def _geometric_start(rate: Fraction) -> Categorical:
    longest = min(_DIGIT, math.ceil(44 / rate))  # going on is rare enough, whatever the rate
    return Categorical([one_minus_exp_minus(rate * g) for g in range(1, longest + 1)])


@lru_cache(64)
def _geometric_digit(rate: Fraction) -> Categorical:
    return Categorical([one_minus_exp_minus(rate * g, rate * _DIGIT) for g in range(1, _DIGIT)])


def _geometric(rate: Fraction, count: int, bits: Bits) -> Integers:
    if rate * _DIGIT < 4:  # the mean is beyond one digit
        low = _geometric_digit(rate).sample(count, bits)
        return _DIGIT * _geometric(rate * _DIGIT, count, bits) + low
    table = _geometric_start(rate)
    go_on = table.cells - 1
    total = table.sample(count, bits).astype(np.int64)
    going = np.flatnonzero(total == go_on)
    while going.size:
        more = table.sample(going.size, bits)
        total[going] += more
        going = going[more == go_on]
    return total


def laplace_deviation(decay: float) -> float:
    """Return the deviation of discrete Laplace noise whose chances fall by exp(-decay) a step."""
    return 1 / (math.sqrt(2) * math.sinh(min(decay / 2, 700.0)))  # beyond, sinh is no float, and there is no noise


def discrete_laplace(scale: Fraction, count: int, bits: Bits = SYSTEM) -> Integers:
    """Draw integers with P(x) proportional to exp(-|x| / scale).

    The difference of two independent geometric variables with q = exp(-1/scale) has that law: summing
    (1-q)^2 q^(x+2j) over j >= 0 gives (1-q)/(1+q) q^|x|.
    """

    _check_width(scale)

    def draw(rows: slice) -> Integers:
        n = _size(rows)
        return _geometric(1 / scale, n, bits) - _geometric(1 / scale, n, bits)

    return in_blocks(count, np.int64, draw)


def discrete_gaussian(sigma: Fraction, count: int, bits: Bits = SYSTEM) -> Integers:
    """Draw integers with P(x) proportional to exp(-x^2 / (2 sigma^2)).

    Rejection (Canonne, Kamath and Steinke 2020, Algorithm 3): propose y from the discrete Laplace law of
    scale t = floor(sigma) + 1 and accept with probability exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)); the
    product of the two is proportional to exp(-y^2 / (2 sigma^2)).
    """
    _check_width(sigma)
    scale = Fraction(math.floor(sigma) + 1)

    def draw(rows: slice) -> Integers:
        parts, missing = [], _size(rows)
        while missing:
            proposed = discrete_laplace(scale, missing + missing // 2 + 16, bits)
            accepted = proposed[_accept(np.abs(proposed), sigma**2 / scale, 2 * sigma**2, bits)]
            parts.append(accepted[:missing])
            missing -= parts[-1].size
        return np.concatenate(parts)

    return in_blocks(count, np.int64, draw)


def _check_width(scale: Fraction) -> None:
    if not 0 < scale < WIDEST:
        raise ValueError("Noise must be wider than 0 and narrower than 2^50 steps.")


def _accept(distance: Integers, centre: Fraction, width: Fraction, bits: Bits) -> NDArray[np.bool_]:
    """Draw coins that are true with probability exp(-x), exactly, for x = (distance - centre)^2 / width.

    float64 decides wherever its error cannot matter. Rounding the difference at 2^-52 of the distance moves x
    by less than 2^-44 up to x = 64 (the difference is then below 12 sigma, and sigma^2 = width / 2), so a
    margin of 2^-30 of the probability is ample. Beyond, both probabilities are below 2^-90. An absolute margin
    of 2^-52 covers that, and the conversion of the uniform word. Inside the margin, exact arithmetic decides.
    """
    words = bits.uint64(distance.size)
    chance = np.exp((distance - float(centre)) ** 2 / -float(width))
    gap = chance - words * 2.0**-64
    heads = gap > 0
    for i in np.flatnonzero(np.abs(gap) <= chance * 2.0**-30 + 2.0**-52):
        exact = exp_minus((int(distance[i]) - centre) ** 2 / width)
        heads[i] = _settle_tie([exact], int(words[i]), bits) == 0
    return heads


def in_blocks(count: int, dtype: Any, draw: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """Fill an array of `count` rows by calling `draw` on slices that fit in the cache."""
    out = np.empty(count, dtype)
    for start in range(0, count, _BLOCK):
        rows = slice(start, min(start + _BLOCK, count))
        out[rows] = draw(rows)
    return out


def _size(rows: slice) -> int:
    return int(rows.stop - rows.start)
