"""Releases of one noisy number for each row, on a declared range."""

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
    """Noisy numbers. The evidence is a likelihood over all values of the range, as for classes."""

    kind: ClassVar[Literal["likelihood", "prior"]] = "likelihood"

    codes: Codes

    def values(self, row_selection: Any = None) -> NDArray[np.float64]:
        """Return the released number of each row, NaN for rows that are not active."""
        return self._read_rows(self._values, row_selection)

    def unbiased_values(self, row_selection: Any = None) -> NDArray[np.float64]:
        """Return numbers whose mean, over the noise, is the label; NaN for rows that are not active.

        They may lie outside the range, which compensates for the clipping of the noise.
        """
        return self._read_rows(self._unbiased_values, row_selection)

    @abstractmethod
    def _values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers of rows that are active."""

    @abstractmethod
    def _unbiased_values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return unbiased numbers of rows that are active; raise InputError if there are none."""

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
    """Values are mapped to one of k bins, and the bin is released by randomized response.

    A value y of a row of group g is mapped to the bin `bin_indices[g, y]`, or to the next one with probability
    `round_up_probabilities[g, y]`, which is 0 for bins without rounding. `codes` holds the released bins, `outputs[g]`
    the number of each bin (NaN after the last). Without `groups`, every row is of group 0.
    """

    epsilon: float
    bin_indices: NDArray[np.signedinteger]
    round_up_probabilities: NDArray[np.float64]
    outputs: NDArray[np.float64]
    unbiased_outputs: bool
    groups: NDArray[np.signedinteger] | None = None

    def arrays(self) -> Arrays:
        """Return the released bins and the public parameters that define them."""
        arrays: Arrays = {
            name: getattr(self, name) for name in ("codes", "bin_indices", "round_up_probabilities", "outputs")
        }
        return arrays | ({} if self.groups is None else {"groups": self.groups})

    def labels(self, seed: int = 0) -> Codes:
        """Return, among the codes of largest likelihood, the one whose value is nearest to the released number."""
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
                f"{self.mechanism} has no unbiased numbers, because all values of a bin have the same outputs: "
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
    """Return the probability that a value is mapped to the released bin, before randomized response."""
    return np.where(bin_indices == responses, 1 - round_up_probabilities, 0.0) + np.where(
        bin_indices + 1 == responses, round_up_probabilities, 0.0
    )


def log_response_probability(
    epsilon: float, n_bins: Any, bin_probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log-probability of a response among `n_bins` bins.

    Args:
        epsilon: The epsilon of randomized response.
        n_bins: The number of bins.
        bin_probabilities: The probability that the value is mapped to this bin.
    """
    ratio = np.exp(-epsilon)
    return np.log(ratio - np.expm1(-epsilon) * bin_probabilities) - np.log1p((n_bins - 1) * ratio)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyGrid(NumericResponses):
    """Codes plus discrete Laplace noise of the given scale, in steps, clipped to the range."""

    scale: float

    def arrays(self) -> Arrays:
        """Return the noisy codes."""
        return {"codes": self.codes}

    def labels(self, seed: int = 0) -> Codes:
        """Return the noisy codes, -1 for rows that are not active."""
        return np.where(self._is_active(np.arange(self.n_rows)), self.codes, MISSING)

    def _values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._grid[self.codes[row_ids]]

    def _unbiased_values(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return unbiased_grid(self._grid, self.scale)[self.codes[row_ids]]

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        return log_clipped_laplace(self.scale, self.codes[row_ids].astype(np.int64), len(self.space))


def unbiased_grid(grid: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the conditional mean of label plus noise before clipping, given the value after clipping.

    Inside the range nothing is clipped. At an end, the unclipped value lies 1 / (exp(1 / scale) - 1) steps further out
    on average, whatever the label, because the geometric distribution is memoryless. So the mean of these numbers over
    the noise is that of label plus noise, the label.
    """
    overshoot = (grid[1] - grid[0]) / np.expm1(1 / scale)
    return np.concatenate([[grid[0] - overshoot], grid[1:-1], [grid[-1] + overshoot]])


def log_clipped_laplace(scale: float, responses: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return log p(response | code) for all codes: q^|d| (1 - q) / (1 + q) inside, q^|d| / (1 + q) at the ends."""
    at_end = (responses == 0) | (responses == n_classes - 1)
    q = np.exp(-1 / scale)
    log_normalizer = np.where(at_end, 0.0, np.log(-np.expm1(-1 / scale))) - np.log1p(q)
    return log_normalizer[:, None] - np.abs(responses[:, None] - np.arange(n_classes)) / scale
