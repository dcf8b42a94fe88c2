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
class NumericResponses(Release):
    """Noisy numbers. Evidence is a likelihood over all values of the range, so learners take it like any other."""

    kind: ClassVar[Literal["likelihood", "prior"]] = "likelihood"

    codes: Codes

    def values(self, row_selection: Any = None) -> NDArray[np.float64]:
        """Return the released number of each row, NaN where there is none."""
        return self._read_rows(self._values, row_selection)

    def unbiased_values(self, row_selection: Any = None) -> NDArray[np.float64]:
        """Return numbers whose mean, over the noise, is the label; NaN where there is none.

        They may lie outside the range: that is what makes up for the noise that cannot leave it.
        """
        return self._read_rows(self._unbiased_values, row_selection)

    @abstractmethod
    def _values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers of rows that are active."""

    @abstractmethod
    def _unbiased_values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return unbiased numbers of rows that are active, or refuse."""

    @cached_property
    def _grid(self) -> NDArray[np.float64]:
        return np.array(self.space.classes, np.float64)

    def _read_rows(self, read: Any, row_selection: Any) -> NDArray[np.float64]:
        row_ids = self._resolve_rows(row_selection)
        is_active = self._is_active(row_ids)
        out = np.full(row_ids.size, np.nan)
        out[is_active] = read(row_ids[is_active])
        return out


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyBins(NumericResponses):
    """A number of the range went to one of k places, and that place through randomized response.

    For a row of group g, the value y went to `places[g, y]`, or by chance to the place after it: `chance[g, y]`, which
    is 0 where places are bins. `codes` holds the answered places, `outputs[g]` the number that each stands for (NaN
    beyond the last). Without `groups`, every row is of group 0.
    """

    epsilon: float
    bin_indices: NDArray[np.signedinteger]
    round_up_probabilities: NDArray[np.float64]
    outputs: NDArray[np.float64]
    unbiased_outputs: bool
    groups: NDArray[np.signedinteger] | None = None

    def arrays(self) -> Arrays:
        """Return the answers and what they mean."""
        arrays: Arrays = {
            name: getattr(self, name) for name in ("codes", "bin_indices", "round_up_probabilities", "outputs")
        }
        return arrays | ({} if self.groups is None else {"groups": self.groups})

    def labels(self, seed: int = 0) -> Codes:
        """Return the code, of those that the answer supports best, whose value is nearest to the released number."""
        nearest = np.zeros(self.outputs.shape, np.int32)
        for group, outputs in enumerate(self.outputs):
            responses = np.flatnonzero(~np.isnan(outputs))
            bin_probabilities = bin_probability(
                responses[:, None], self.bin_indices[group], self.round_up_probabilities[group]
            )
            is_best = bin_probabilities == bin_probabilities.max(axis=1, keepdims=True)
            distances = np.abs(outputs[responses][:, None] - self._grid)
            nearest[group, responses] = np.where(is_best, distances, np.inf).argmin(axis=1)
        row_ids = np.arange(self.n_rows)
        return np.where(self._is_active(row_ids), nearest[self._row_groups(row_ids), self.codes], MISSING)

    def _values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.outputs[self._row_groups(row_ids), self.codes[row_ids]]

    def _unbiased_values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        if not self.unbiased_outputs:
            raise InputError(
                f"{self.mechanism} has no unbiased numbers, because values of one bin give the same answers: "
                "use UnbiasedBins, or learn from the evidence."
            )
        return self._values(row_ids)

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        row_groups = self._row_groups(row_ids)
        n_bins = (~np.isnan(self.outputs)).sum(axis=1)[row_groups]
        bin_probabilities = bin_probability(
            self.codes[row_ids][:, None], self.bin_indices[row_groups], self.round_up_probabilities[row_groups]
        )
        return log_response_probability(self.epsilon, n_bins[:, None], bin_probabilities)

    def _row_groups(self, row_ids: NDArray[np.int64]) -> NDArray[np.signedinteger]:
        return np.zeros(row_ids.size, np.int64) if self.groups is None else self.groups[row_ids]


def bin_probability(
    responses: NDArray[np.integer], bin_indices: NDArray[np.integer], round_up_probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probability that a value went to the place that was answered, before randomized response."""
    return np.where(bin_indices == responses, 1 - round_up_probabilities, 0.0) + np.where(
        bin_indices + 1 == responses, round_up_probabilities, 0.0
    )


def log_response_probability(
    epsilon: float, n_bins: Any, bin_probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log-probability of an answer among `count` places, true with probability `hit` before the noise."""
    ratio = np.exp(-epsilon)
    return np.log(ratio - np.expm1(-epsilon) * bin_probabilities) - np.log1p((n_bins - 1) * ratio)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyGrid(NumericResponses):
    """Codes plus discrete Laplace noise of the given scale, in steps, cut at both ends of the range."""

    scale: float

    def arrays(self) -> Arrays:
        """Return the noisy codes."""
        return {"codes": self.codes}

    def labels(self, seed: int = 0) -> Codes:
        """Return the noisy codes, -1 where there is none."""
        return np.where(self._is_active(np.arange(self.n_rows)), self.codes, MISSING)

    def _values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._grid[self.codes[row_ids]]

    def _unbiased_values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return unbiased_grid(self._grid, self.scale)[self.codes[row_ids]]

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        return log_clipped_laplace(self.scale, self.codes[row_ids].astype(np.int64), len(self.space))


def unbiased_grid(grid: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the mean of label plus noise before the cut, for each value that was seen after it.

    Inside the range nothing was cut. At an end, the noise is known to reach at least that far, and the law has no
    memory: it goes 1 / (exp(1 / scale) - 1) steps further on average, wherever it started. So the mean of these numbers
    is that of label plus noise, the label.
    """
    overshoot = (grid[1] - grid[0]) / np.expm1(1 / scale)
    return np.concatenate([[grid[0] - overshoot], grid[1:-1], [grid[-1] + overshoot]])


def log_clipped_laplace(scale: float, responses: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return log p(said | code) for all codes: q^|d| (1 - q) / (1 + q) inside, q^|d| / (1 + q) at the ends."""
    at_end = (responses == 0) | (responses == n_classes - 1)
    q = np.exp(-1 / scale)
    log_normalizer = np.where(at_end, 0.0, np.log(-np.expm1(-1 / scale))) - np.log1p(q)
    return log_normalizer[:, None] - np.abs(responses[:, None] - np.arange(n_classes)) / scale
