"""Releases of one noisy number a row, on a declared range."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING, Codes
from labeldp.releases.base import Arrays, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class Numbers(Release):
    """Noisy numbers. Evidence is a likelihood over all values of the range, so learners take it like any other."""

    kind: ClassVar[Literal["likelihood", "prior"]] = "likelihood"

    codes: Codes

    def values(self, rows: Any = None) -> NDArray[np.float64]:
        """Return the released number of each row, NaN where there is none."""
        return self._read(self._values, rows)

    def unbiased_values(self, rows: Any = None) -> NDArray[np.float64]:
        """Return numbers whose mean, over the noise, is the label; NaN where there is none.

        They may lie outside the range: that is what makes up for the noise that cannot leave it.
        """
        return self._read(self._unbiased_values, rows)

    @abstractmethod
    def _values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers of rows that are active."""

    @abstractmethod
    def _unbiased_values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return unbiased numbers of rows that are active, or refuse."""

    @cached_property
    def _grid(self) -> NDArray[np.float64]:
        return np.array(self.space.classes, np.float64)

    def _read(self, values: Any, rows: Any) -> NDArray[np.float64]:
        chosen = self._chosen(rows)
        live = self._is_active(chosen)
        out = np.full(chosen.size, np.nan)
        out[live] = values(chosen[live])
        return out


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyBins(Numbers):
    """A number of the range went to one of k places, and that place through randomized response.

    For a row of group g, the value y went to `places[g, y]`, or by chance to the place after it: `chance[g, y]`, which
    is 0 where places are bins. `codes` holds the answered places, `outputs[g]` the number that each stands for (NaN
    beyond the last). Without `groups`, every row is of group 0.
    """

    epsilon: float
    places: NDArray[np.signedinteger]
    chance: NDArray[np.float64]
    outputs: NDArray[np.float64]
    unbiased_outputs: bool
    groups: NDArray[np.signedinteger] | None = None

    def arrays(self) -> Arrays:
        """Return the answers and what they mean."""
        held: Arrays = {name: getattr(self, name) for name in ("codes", "places", "chance", "outputs")}
        return held | ({} if self.groups is None else {"groups": self.groups})

    def labels(self, seed: int = 0) -> Codes:
        """Return the code, of those that the answer supports best, whose value is nearest to the released number."""
        nearest = np.zeros(self.outputs.shape, np.int32)
        for group, outputs in enumerate(self.outputs):
            said = np.flatnonzero(~np.isnan(outputs))
            hit = went_to(said[:, None], self.places[group], self.chance[group])
            best = hit == hit.max(axis=1, keepdims=True)
            away = np.abs(outputs[said][:, None] - self._grid)
            nearest[group, said] = np.where(best, away, np.inf).argmin(axis=1)
        rows = np.arange(self.rows)
        return np.where(self._is_active(rows), nearest[self._group(rows), self.codes], MISSING)

    def _values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.outputs[self._group(rows), self.codes[rows]]

    def _unbiased_values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        if not self.unbiased_outputs:
            raise InputError(
                f"{self.mechanism} has no unbiased numbers, because values of one bin give the same answers: "
                "use UnbiasedBins, or learn from the evidence."
            )
        return self._values(rows)

    def _log_scores(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        group = self._group(rows)
        count = (~np.isnan(self.outputs)).sum(axis=1)[group]
        hit = went_to(self.codes[rows][:, None], self.places[group], self.chance[group])
        return log_response(self.epsilon, count[:, None], hit)

    def _group(self, rows: NDArray[np.int64]) -> NDArray[np.signedinteger]:
        return np.zeros(rows.size, np.int64) if self.groups is None else self.groups[rows]


def went_to(said: NDArray[np.integer], places: NDArray[np.integer], chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability that a value went to the place that was answered, before randomized response."""
    return np.where(places == said, 1 - chance, 0.0) + np.where(places + 1 == said, chance, 0.0)


def log_response(epsilon: float, count: Any, hit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-probability of an answer among `count` places, true with probability `hit` before the noise."""
    other = np.exp(-epsilon)
    return np.log(other - np.expm1(-epsilon) * hit) - np.log1p((count - 1) * other)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyGrid(Numbers):
    """Codes plus discrete Laplace noise of the given scale, in steps, cut at both ends of the range."""

    scale: float

    def arrays(self) -> Arrays:
        """Return the noisy codes."""
        return {"codes": self.codes}

    def labels(self, seed: int = 0) -> Codes:
        """Return the noisy codes, -1 where there is none."""
        return np.where(self._is_active(np.arange(self.rows)), self.codes, MISSING)

    def _values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._grid[self.codes[rows]]

    def _unbiased_values(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return uncut(self._grid, self.scale)[self.codes[rows]]

    def _log_scores(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        return log_cut_laplace(self.scale, self.codes[rows].astype(np.int64), len(self.space))


def uncut(grid: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the mean of label plus noise before the cut, for each value that was seen after it.

    Inside the range nothing was cut. At an end, the noise is known to reach at least that far, and the law has no
    memory: it goes 1 / (exp(1 / scale) - 1) steps further on average, wherever it started. So the mean of these numbers
    is that of label plus noise, the label.
    """
    further = (grid[1] - grid[0]) / np.expm1(1 / scale)
    return np.concatenate([[grid[0] - further], grid[1:-1], [grid[-1] + further]])


def log_cut_laplace(scale: float, said: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Return log p(said | code) for all codes: q^|d| (1 - q) / (1 + q) inside, q^|d| / (1 + q) at the ends."""
    at_end = (said == 0) | (said == classes - 1)
    q = np.exp(-1 / scale)
    level = np.where(at_end, 0.0, np.log(-np.expm1(-1 / scale))) - np.log1p(q)
    return level[:, None] - np.abs(said[:, None] - np.arange(classes)) / scale
