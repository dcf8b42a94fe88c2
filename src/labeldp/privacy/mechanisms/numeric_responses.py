"""Noisy numeric labels of a declared range: randomized response over bins or points, and discrete Laplace noise.

Proof for `RROnBins` and `UnbiasedBins`. The table of a row's group (the index of each value, and the output of each
index) is computed from the prior, which does not depend on raw labels. A label is mapped to one of k indices: to its
bin, or at random to one of its two neighboring points. The index goes through randomized response, whose responses have
probabilities within a factor exp(epsilon) for any two indices (proof in `randomized_response.py`; the exact sampler is
the same). For a label that is rounded at random, the probability of a response is a mean of two of these, so any two
labels stay within the factor too. Outputs are a public function of response and group. Rows are drawn independently.

Proof for `DiscreteLaplace`. Two labels differ by n = (values of the range - 1) steps at most, so noise with P(x)
proportional to exp(-|x| epsilon / n) changes any probability by exp(epsilon) at most. The noise is unbounded. Clipping
the sum to the range is post-processing.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.data.label_bins import Floats, LossName, optimize_bins, optimize_points
from labeldp.privacy.mechanisms.base import PerLabelMechanism, frozen_copy
from labeldp.privacy.noise.samplers import MAX_SCALE, discrete_laplace, response_offset, uniform_offset
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.numeric import (
    NoisyBins,
    NoisyGrid,
    bin_probability,
    log_clipped_laplace,
    log_response_probability,
    unbiased_grid,
)

# Largest number of values in a range: the search evaluates every pair of values for every number of bins.
MAX_RANGE_VALUES = 2000
# Responses whose losses are computed together, to bound memory.
_BLOCK = 256

_LOSS_FUNCTIONS: dict[LossName, Callable[[Floats, Floats], Floats]] = {
    "squared": lambda v, y: (v - y) ** 2,
    "absolute": lambda v, y: np.abs(v - y),
    "poisson": lambda v, y: v - xlogy(y, np.maximum(v, 0)),
}


@dataclass(frozen=True, eq=False)
class _RangeMechanism(PerLabelMechanism):
    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that labels are numbers of a range."""
        if not self._accepts(space):
            raise InputError(f"{type(self).__name__} needs numbers: declare LabelSpace.range(low, high, step).")

    def _accepts(self, space: LabelSpace) -> bool:
        return space.step is not None


class _BinTable(NamedTuple):
    """The table of a group.

    Args:
        bin_indices: The bin, or the point below, of each value.
        steps_above: The steps from that point to the value.
        gap: The steps from that point to the next one; 1 for a value that is not rounded.
        outputs: The output of each bin or point.
    """

    bin_indices: NDArray[np.int64]
    steps_above: NDArray[np.int64]
    gap: NDArray[np.int64]
    outputs: Floats


@dataclass(frozen=True, eq=False)
class _BinResponse(_RangeMechanism):
    unbiased_outputs: ClassVar[bool] = False

    prior: NDArray[np.floating]
    groups: NDArray[np.signedinteger] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "prior", _as_float_array(self.prior))
        if self.groups is not None:
            object.__setattr__(self, "groups", frozen_copy(self.groups))

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that each row has a prior distribution over the range, and compute the tables.

        The search does not depend on raw labels and can be slow, so it runs before the charge.
        """
        super().check(space, n_rows)
        if len(space) > MAX_RANGE_VALUES:
            raise InputError(
                f"The range has {len(space)} values and the search takes {MAX_RANGE_VALUES}: widen the step."
            )
        _check_prior(self.prior, space)
        if self.groups is not None:
            self._check_groups(self.groups, n_rows)
        elif self.prior.ndim != 1:
            raise InputError("The prior has several rows: give groups, the row of the prior for each label.")
        self.tables(space)

    def _check_groups(self, groups: NDArray[np.signedinteger], n_rows: int) -> None:
        if self.prior.ndim != 2:
            raise InputError("groups needs a prior with one row for each group.")
        if groups.shape != (n_rows,) or not np.issubdtype(groups.dtype, np.integer):
            raise InputError(f"groups must hold one whole number for each of the {n_rows} rows.")
        if not 0 <= groups.min() <= groups.max() < len(self.prior):
            raise InputError(f"groups must number the rows of the prior, from 0 to {len(self.prior) - 1}.")

    def tables(self, space: LabelSpace) -> list[_BinTable]:
        """Return the table of each row of the prior. Equal rows are searched once."""
        cached = self.__dict__.get("_cached_tables")
        if cached is None or cached[0] != space:
            grid = np.array(space.classes, np.float64)
            distinct_priors, which = np.unique(np.atleast_2d(self.prior), axis=0, return_inverse=True)
            distinct_tables = [self._find_table(grid, prior) for prior in distinct_priors]
            cached = (space, [distinct_tables[i] for i in which.ravel()])
            object.__setattr__(self, "_cached_tables", cached)
        return cached[1]

    @abstractmethod
    def _find_table(self, grid: Floats, prior: Floats) -> _BinTable:
        """Return the best table for a prior."""

    def expected_loss(self, space: LabelSpace, prior: Any = None, loss: LossName = "squared") -> float:
        """Return the exact expected loss of the outputs, by default under the mechanism's own prior.

        With groups, it is the mean over all rows. A given `prior` holds for all rows. It replaces that of the mechanism
        in the expectation, so the result is then the loss of a mechanism with a wrong prior.
        """
        self.check(space, 1 if self.groups is None else max(1, self.groups.size))
        tables = self.tables(space)
        priors = list(np.atleast_2d(self.prior)) if prior is None else [_checked_prior(prior, space)] * len(tables)
        group_sizes = np.ones(1) if self.groups is None else np.bincount(self.groups, minlength=len(tables))
        total = 0.0
        for weight, group_prior, table in zip(group_sizes / group_sizes.sum(), priors, tables, strict=True):
            responses = np.arange(table.outputs.size)[:, None]
            bin_probabilities = bin_probability(responses, table.bin_indices, table.steps_above / table.gap)
            channel = np.exp(log_response_probability(self.epsilon, responses.size, bin_probabilities))
            total += weight * _mean_loss(channel, table.outputs, group_prior, space, loss)
        return total

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyBins:
        """Map each label to its bin or point, and apply randomized response to the index."""
        tables = self.tables(release_fields["space"])
        bin_indices = np.stack([table.bin_indices for table in tables])
        steps_above, gap = np.stack([table.steps_above for table in tables]), np.stack([table.gap for table in tables])
        n_bins = np.array([table.outputs.size for table in tables])
        outputs = np.full((len(tables), n_bins.max()), np.nan)
        for output_row, table in zip(outputs, tables, strict=True):
            output_row[: table.outputs.size] = table.outputs
        labeled_rows = np.flatnonzero(codes != MISSING)
        label_codes = codes[labeled_rows]
        row_groups = np.zeros(label_codes.size, np.int64) if self.groups is None else self.groups[labeled_rows]
        bins = bin_indices[row_groups, label_codes] + _draw_round_up(
            steps_above[row_groups, label_codes], gap[row_groups, label_codes], bits
        )
        responses = np.empty(label_codes.size, np.int64)
        for k in np.unique(n_bins[row_groups]):
            positions = np.flatnonzero(n_bins[row_groups] == k)
            offset = response_offset(as_fraction(self.epsilon), int(k)).sample(positions.size, bits)
            responses[positions] = (bins[positions] + offset) % k
        noisy_codes = np.full(codes.size, MISSING, codes.dtype)
        noisy_codes[labeled_rows] = responses
        return NoisyBins(
            **release_fields,
            codes=noisy_codes,
            epsilon=self.epsilon,
            bin_indices=bin_indices.astype(codes.dtype),
            round_up_probabilities=steps_above / gap,
            outputs=outputs,
            unbiased_outputs=self.unbiased_outputs,
            groups=self.groups,
        )


def _draw_round_up(steps_above: NDArray[np.int64], gap: NDArray[np.int64], bits: Bits) -> NDArray[np.bool_]:
    """Draw booleans that are true with probability exactly steps_above / gap."""
    up = np.zeros(gap.size, bool)
    for steps in np.unique(gap[gap > 1]):
        positions = np.flatnonzero(gap == steps)
        up[positions] = uniform_offset(int(steps)).sample(positions.size, bits) < steps_above[positions]
    return up


@dataclass(frozen=True, eq=False, init=False)
class RROnBins(_BinResponse):
    """Randomized response over bins of the range (Ghazi and others, 2022).

    The number of bins, the cuts and the outputs minimize the expected loss under the prior: "squared", "absolute", or
    "poisson" (v - y log v, for labels from 0). No other mechanism with this epsilon has a smaller expected loss under
    that prior. Outputs are biased towards the center of the prior. Labels are numbers of a range, or ordered classes
    that are numbers, such as ratings.

    `prior` is one distribution over the range, public or from an earlier release. Or it has a row for each group, and
    `groups` has the group of each label.
    """

    objective: LossName

    def __init__(
        self,
        epsilon: float,
        prior: Any,
        loss: LossName = "squared",
        *,
        groups: Any = None,
        delta: float = 0.0,
    ) -> None:
        # The field has another name because `loss` is a method.
        for name, value in dict(epsilon=epsilon, prior=prior, groups=groups, objective=loss, delta=delta).items():
            object.__setattr__(self, name, value)
        self.__post_init__()
        _check_loss(loss)

    def with_epsilon(self, epsilon: float, **changes: Any) -> "RROnBins":
        """Return the same mechanism at another epsilon."""
        return RROnBins(epsilon, self.prior, self.objective, groups=self.groups, **{"delta": self.delta} | changes)

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check prior and groups, and that labels are nonnegative for the Poisson loss."""
        if self.objective == "poisson" and space.class_values is not None and space.class_values[0] < 0:
            raise InputError("The Poisson loss needs labels from 0: declare a range without negative numbers.")
        super().check(space, n_rows)

    def _accepts(self, space: LabelSpace) -> bool:
        return space.class_values is not None  # ordered classes are accepted: bins need no equal steps

    def _find_table(self, grid: Floats, prior: Floats) -> _BinTable:
        bins = optimize_bins(grid, prior, self.epsilon, self.objective)
        return _BinTable(
            bins.bin_indices, np.zeros_like(bins.bin_indices), np.ones_like(bins.bin_indices), bins.outputs
        )


@dataclass(frozen=True, eq=False)
class UnbiasedBins(_BinResponse):
    """Randomized response over k points, to which labels are rounded at random, with unbiased outputs.

    Let c = exp(epsilon) + k - 1. The response for point a_j has the output v_j = (c a_j - sum a) / (exp(epsilon) - 1).
    These add up to sum a, so the mean of v for a label rounded to a_l is ((exp(epsilon) - 1) v_l + sum v) / c = a_l.
    And the mean of the rounded label is the label, because a step up of the whole gap has probability (y - a_l) / gap.
    Outputs can lie far outside the range.

    The points, which include both ends of the range, minimize the expected variance under the prior. Other unbiased
    mechanisms can have a smaller variance. `prior` and `groups` are those of `RROnBins`. A wrong prior increases the
    variance but causes no bias.
    """

    unbiased_outputs: ClassVar[bool] = True

    def _find_table(self, grid: Floats, prior: Floats) -> _BinTable:
        points = optimize_points(grid, prior, self.epsilon).points
        codes = np.arange(grid.size)
        bin_indices = np.searchsorted(points, codes, "right") - 1
        steps_above = codes - points[bin_indices]
        gap = np.where(steps_above > 0, points[np.minimum(bin_indices + 1, points.size - 1)] - points[bin_indices], 1)
        point_values = grid[points]
        r = -math.exp(-self.epsilon) / math.expm1(-self.epsilon)  # r = 1 / (exp(epsilon) - 1)
        # Relative to the center: at a small epsilon, r is large, and an offset of the range would cost digits.
        center = point_values.mean()
        return _BinTable(bin_indices, steps_above, gap, center + (1 + points.size * r) * (point_values - center))


@dataclass(frozen=True, eq=False)
class DiscreteLaplace(_RangeMechanism):
    """Discrete Laplace noise on the steps of the range, clipped to the range. It needs no prior: a baseline."""

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that labels are numbers of a range, and that the noise can be drawn."""
        super().check(space, n_rows)
        if (len(space) - 1) / self.epsilon >= MAX_SCALE / 2:
            raise InputError("The noise would be wider than the sampler draws: widen the step of the range.")

    def expected_loss(
        self, space: LabelSpace, prior: Any, loss: LossName = "squared", *, unbiased: bool = False
    ) -> float:
        """Return the exact expected loss of `values()`, or of `unbiased_values()`, under a prior."""
        self.check(space, 1)
        checked_prior, n_values = _checked_prior(prior, space), len(space)
        scale = (n_values - 1) / self.epsilon
        grid = np.array(space.classes, np.float64)
        outputs, total = unbiased_grid(grid, scale) if unbiased else grid, 0.0
        for start in range(0, n_values, _BLOCK):  # the losses of blocks add up
            responses = np.arange(start, min(start + _BLOCK, n_values))
            channel = np.exp(log_clipped_laplace(scale, responses, n_values))
            total += _mean_loss(channel, outputs[responses], checked_prior, space, loss)
        return total

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyGrid:
        """Add the noise and clip the result to the range."""
        max_code = len(release_fields["space"]) - 1
        noise = discrete_laplace(max_code / as_fraction(self.epsilon), codes.size, bits)
        noisy_codes = np.where(codes == MISSING, MISSING, np.clip(codes + noise, 0, max_code)).astype(codes.dtype)
        return NoisyGrid(**release_fields, codes=noisy_codes, scale=max_code / self.epsilon)


def _mean_loss(channel: Floats, outputs: Floats, prior: Floats, space: LabelSpace, loss: LossName) -> float:
    """Return the mean over labels and responses; `channel` has shape (responses, labels)."""
    _check_loss(loss)
    support = np.flatnonzero(prior)
    grid = np.array(space.classes, np.float64)[support]
    losses = _LOSS_FUNCTIONS[loss](outputs[:, None], grid)
    return float((channel[:, support] * losses).sum(axis=0) @ prior[support] / prior.sum())


def _check_loss(loss: str) -> None:
    if loss not in _LOSS_FUNCTIONS:
        raise InputError('loss must be "squared", "absolute" or "poisson".')


def _as_float_array(prior: Any) -> NDArray[np.float64]:
    try:
        return frozen_copy(prior, np.float64)
    except (TypeError, ValueError):
        pass
    raise InputError("The prior must be an array of numbers: one probability for each value of the range.")


def _checked_prior(prior: Any, space: LabelSpace) -> NDArray[np.float64]:
    values = _as_float_array(prior)
    if values.ndim != 1:
        raise InputError("The prior must be one distribution over the range.")
    _check_prior(values, space)
    return values


def _check_prior(prior: NDArray[np.floating], space: LabelSpace) -> None:
    if prior.ndim not in (1, 2) or not len(prior) or prior.shape[-1] != len(space):
        raise InputError(f"The prior has shape {prior.shape}: give a probability to each of the {len(space)} values.")
    if not (np.isfinite(prior).all() and (prior >= 0).all()):
        raise InputError("The prior has a negative or missing probability: give each value a number from 0.")
    if not np.allclose(prior.sum(axis=-1), 1, atol=1e-5):
        raise InputError("The prior must sum to 1 over the values of the range: divide it by its sum.")
