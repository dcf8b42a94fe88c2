"""Streams of given bits, and the exact distribution of a sampler that is driven by them."""

from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np

from labeldp.privacy.noise.secure_stream import Bits


class Uniform:
    """Bits of one uniform real, the same in every row: 64 bits at a time, then zeros."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def uint16(self, count: int) -> np.ndarray:
        if count == 0:
            return np.empty(0, np.uint16)
        first = self._words[0]
        self._words[0] = (first << 16) & (2**64 - 1)  # a table look-up reads the other 48 bits next
        return np.full(count, first >> 48, np.uint16)

    def uint64(self, count: int) -> np.ndarray:
        return np.full(count, self._words.pop(0) if self._words else 0, np.uint64)


class Seeded:
    """Bits that are the same in every run, for tests of learners on noisy data."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def uint16(self, count: int) -> np.ndarray:
        return self._generator.integers(0, 2**16, count, np.uint16)

    def uint64(self, count: int) -> np.ndarray:
        return self._generator.integers(0, 2**64, count, np.uint64)


class Words:
    """Bits from a list: each call takes the next uniform, of 64 bits, for all of its rows."""

    def __init__(self, *uniforms: int) -> None:
        self._uniforms = list(uniforms)
        self._current = 0

    def uint16(self, count: int) -> np.ndarray:
        self._current = self._uniforms.pop(0)
        return np.full(count, self._current >> 48, np.uint16)

    def uint64(self, count: int) -> np.ndarray:
        return np.full(count, (self._current << 16) & (2**64 - 1), np.uint64)


def exact_law(draw: Callable[[Bits], Hashable]) -> dict[Hashable, Fraction]:
    """Return the law of `draw`, which must use one uniform and give each outcome on one interval of it.

    The interval of each outcome is found by bisection on the first 64 bits, so each probability is right to
    2^-64. This is the law that the code samples from, whatever its formulas say.
    """
    law: dict[Hashable, Fraction] = {}
    start = 0
    while start < 2**64:
        outcome = draw(Uniform(start))
        assert outcome not in law, "an outcome has two intervals"
        low, high = start, 2**64
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if draw(Uniform(middle)) == outcome else (low, middle)
        law[outcome] = Fraction(high - start, 2**64)
        start = high
    return law
