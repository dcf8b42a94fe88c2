"""Noisy numbers on a declared range: randomized response over bins or over points, and plain noise.

Proof for `RROnBins` and `UnbiasedBins`. The table of a row's group (which place each value goes to, what each place
stands for) is worked out from the prior, which knows no label. A label goes to one of k places: to its bin, or at
random to one of its two neighbouring points. The place goes through randomized response, whose answers have
probabilities within a factor exp(epsilon) for any two places (proof in `randomized_response.py`, whose exact sampler
this is). For a label that is rounded at random, the probability of an answer is a mean of two of these, so that any two
labels stay within the factor too. Outputs are a public function of answer and group. Rows are drawn independently.

Proof for `DiscreteLaplace`. Two labels differ by n = (values of the range - 1) steps at most, so noise with P(x)
proportional to exp(-|x| epsilon / n) changes any probability by exp(epsilon) at most. The noise is unbounded; cutting
the sum at the ends of the range looks at nothing else.
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
from labeldp.core.exact_real import exactly
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.data.label_bins import Floats, LossName, best_bins, best_points
from labeldp.privacy.mechanisms.base import ByLabel, private_copy
from labeldp.privacy.noise.samplers import WIDEST, discrete_laplace, response_offset, uniform_offset
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.numbers import NoisyBins, NoisyGrid, log_cut_laplace, log_response, uncut, went_to

LARGEST_RANGE = 2000  # values; the search looks at every pair of them, for every number of bins
_BLOCK = 256

_LOSSES: dict[LossName, Callable[[Floats, Floats], Floats]] = {
    "squared": lambda v, y: (v - y) ** 2,
    "absolute": lambda v, y: np.abs(v - y),
    "poisson": lambda v, y: v - xlogy(y, np.maximum(v, 0)),
}


@dataclass(frozen=True, eq=False)
class _OnRange(ByLabel):
    def check(self, space: LabelSpace, rows: int) -> None:
        """Check that labels are numbers of a range."""
        if not self._fits(space):
            raise InputError(f"{type(self).__name__} needs numbers: declare LabelSpace.range(low, high, step).")

    def _fits(self, space: LabelSpace) -> bool:
        return space.step is not None


class _Table(NamedTuple):
    """What a group does: the place of each value; how far above it, of how many steps, the value lies; the outputs."""

    places: NDArray[np.int64]
    above: NDArray[np.int64]
    gap: NDArray[np.int64]
    outputs: Floats


@dataclass(frozen=True, eq=False)
class _OverPlaces(_OnRange):
    unbiased_outputs: ClassVar[bool] = False

    prior: NDArray[np.floating]
    groups: NDArray[np.signedinteger] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "prior", _as_numbers(self.prior))
        if self.groups is not None:
            object.__setattr__(self, "groups", private_copy(self.groups))

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check that the prior is a distribution over the range and that each row has one, and search the tables.

        The search knows no label and can take a while: it is done before anything is charged.
        """
        super().check(space, rows)
        if len(space) > LARGEST_RANGE:
            raise InputError(f"The range has {len(space)} values and the search takes {LARGEST_RANGE}: widen the step.")
        _check_prior(self.prior, space)
        if self.groups is not None:
            self._check_groups(self.groups, rows)
        elif self.prior.ndim != 1:
            raise InputError("The prior has several rows: say by groups which of them each label has.")
        self.tables(space)

    def _check_groups(self, groups: NDArray[np.signedinteger], rows: int) -> None:
        if self.prior.ndim != 2:
            raise InputError("groups needs a prior with one row for each group.")
        if groups.shape != (rows,) or not np.issubdtype(groups.dtype, np.integer):
            raise InputError(f"groups must hold one whole number for each of the {rows} rows.")
        if not 0 <= groups.min() <= groups.max() < len(self.prior):
            raise InputError(f"groups must number the rows of the prior, from 0 to {len(self.prior) - 1}.")

    def tables(self, space: LabelSpace) -> list[_Table]:
        """Return the table of each row of the prior; equal rows are searched once."""
        known = self.__dict__.get("_known")
        if known is None or known[0] != space:
            grid = np.array(space.classes, np.float64)
            different, which = np.unique(np.atleast_2d(self.prior), axis=0, return_inverse=True)
            found = [self._search(grid, prior) for prior in different]
            known = (space, [found[i] for i in which.ravel()])
            object.__setattr__(self, "_known", known)
        return known[1]

    @abstractmethod
    def _search(self, grid: Floats, prior: Floats) -> _Table:
        """Return the best table for a prior."""

    def expected_loss(self, space: LabelSpace, prior: Any = None, loss: LossName = "squared") -> float:
        """Return the exact expected loss of the outputs, by default under the mechanism's own prior.

        With groups, it is the mean over all rows. A `prior` that is given, one for all rows, takes the place of what
        the mechanism believed: so a wrong belief can be priced.
        """
        self.check(space, 1 if self.groups is None else max(1, self.groups.size))
        tables = self.tables(space)
        beliefs = list(np.atleast_2d(self.prior)) if prior is None else [_one_prior(prior, space)] * len(tables)
        rows = np.ones(1) if self.groups is None else np.bincount(self.groups, minlength=len(tables))
        total = 0.0
        for share, belief, table in zip(rows / rows.sum(), beliefs, tables, strict=True):
            said = np.arange(table.outputs.size)[:, None]
            hit = went_to(said, table.places, table.above / table.gap)
            law = np.exp(log_response(self.epsilon, said.size, hit))
            total += share * _mean_loss(law, table.outputs, belief, space, loss)
        return total

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> NoisyBins:
        """Send each label to its place, and the place through randomized response."""
        tables = self.tables(common["space"])
        places = np.stack([table.places for table in tables])
        above, gap = np.stack([table.above for table in tables]), np.stack([table.gap for table in tables])
        counts = np.array([table.outputs.size for table in tables])
        outputs = np.full((len(tables), counts.max()), np.nan)
        for row, table in zip(outputs, tables, strict=True):
            row[: table.outputs.size] = table.outputs
        labelled = np.flatnonzero(codes != MISSING)
        own = codes[labelled]
        group = np.zeros(own.size, np.int64) if self.groups is None else self.groups[labelled]
        rounded = places[group, own] + _moved_up(above[group, own], gap[group, own], bits)
        answers = np.empty(own.size, np.int64)
        for count in np.unique(counts[group]):
            here = np.flatnonzero(counts[group] == count)
            offset = response_offset(exactly(self.epsilon), int(count)).sample(here.size, bits)
            answers[here] = (rounded[here] + offset) % count
        noisy = np.full(codes.size, MISSING, codes.dtype)
        noisy[labelled] = answers
        return NoisyBins(
            **common,
            codes=noisy,
            epsilon=self.epsilon,
            places=places.astype(codes.dtype),
            chance=above / gap,
            outputs=outputs,
            unbiased_outputs=self.unbiased_outputs,
            groups=self.groups,
        )


def _moved_up(above: NDArray[np.int64], gap: NDArray[np.int64], bits: Bits) -> NDArray[np.bool_]:
    """Draw coins that are true with probability above / gap, exactly: a uniform number below `gap` is below `above`."""
    up = np.zeros(gap.size, bool)
    for steps in np.unique(gap[gap > 1]):
        here = np.flatnonzero(gap == steps)
        up[here] = uniform_offset(int(steps)).sample(here.size, bits) < above[here]
    return up


@dataclass(frozen=True, eq=False, init=False)
class RROnBins(_OverPlaces):
    """Cut the range into bins, and answer at random with the outputs of the bins (Ghazi and others, 2022).

    Number of bins, cuts and outputs have the least expected loss that is possible under the prior: "squared",
    "absolute", or "poisson" (v - y log v, for labels from 0). No other mechanism with this epsilon does better under
    that prior. Outputs lean towards the middle of the prior, so they are not unbiased. Labels are numbers of a range,
    or ordered classes that are numbers, such as ratings.

    `prior` is one distribution over the range, public or from an earlier release; or a row for each group, and `groups`
    names the group of each label.
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
        # A method is called `loss`, so the field is not.
        for name, value in dict(epsilon=epsilon, prior=prior, groups=groups, objective=loss, delta=delta).items():
            object.__setattr__(self, name, value)
        self.__post_init__()
        _check_loss(loss)

    def at(self, epsilon: float, **changes: Any) -> "RROnBins":
        """Return the same mechanism at another epsilon."""
        return RROnBins(epsilon, self.prior, self.objective, groups=self.groups, **{"delta": self.delta} | changes)

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check prior, groups, and that a Poisson loss is asked of counts."""
        if self.objective == "poisson" and space.numbers is not None and space.numbers[0] < 0:
            raise InputError("The Poisson loss needs labels from 0: declare a range without negative numbers.")
        super().check(space, rows)

    def _fits(self, space: LabelSpace) -> bool:
        return space.numbers is not None  # ordered classes will do: bins need no equal steps

    def _search(self, grid: Floats, prior: Floats) -> _Table:
        bins = best_bins(grid, prior, self.epsilon, self.objective)
        return _Table(bins.places, np.zeros_like(bins.places), np.ones_like(bins.places), bins.outputs)


@dataclass(frozen=True, eq=False)
class UnbiasedBins(_OverPlaces):
    """Round each label at random to one of k points, answer at random, and decode so that the mean is the label.

    Let c = exp(epsilon) + k - 1. The answer for point a_j stands for v_j = (c a_j - sum a) / (exp(epsilon) - 1). These
    add up to sum a, so the mean of v for a label rounded to a_l is ((exp(epsilon) - 1) v_l + sum v) / c = a_l; and the
    mean of the rounded label is the label, because a step up of the whole gap has probability (y - a_l) / gap. Outputs
    can lie far outside the range.

    The points, with both ends of the range among them, have the least expected variance under the prior. Other unbiased
    mechanisms can have less. `prior` and `groups` are as for `RROnBins`; a wrong prior costs variance, never bias.
    """

    unbiased_outputs: ClassVar[bool] = True

    def _search(self, grid: Floats, prior: Floats) -> _Table:
        points = best_points(grid, prior, self.epsilon).points
        codes = np.arange(grid.size)
        place = np.searchsorted(points, codes, "right") - 1
        above = codes - points[place]
        gap = np.where(above > 0, points[np.minimum(place + 1, points.size - 1)] - points[place], 1)
        at, r = grid[points], -math.exp(-self.epsilon) / math.expm1(-self.epsilon)  # r = 1 / (exp(epsilon) - 1)
        # Counted from the middle, so that a small epsilon, where r is large, loses no digits to a far origin.
        middle = at.mean()
        return _Table(place, above, gap, middle + (1 + points.size * r) * (at - middle))


@dataclass(frozen=True, eq=False)
class DiscreteLaplace(_OnRange):
    """Noise as wide as the range, on its steps, cut at its ends: needs no prior, and is the one to beat."""

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check that labels are numbers of a range, and that the noise can be drawn."""
        super().check(space, rows)
        if (len(space) - 1) / self.epsilon >= WIDEST / 2:
            raise InputError("The noise would be wider than the sampler draws: widen the step of the range.")

    def expected_loss(
        self, space: LabelSpace, prior: Any, loss: LossName = "squared", *, unbiased: bool = False
    ) -> float:
        """Return the exact expected loss of `values()`, or of `unbiased_values()`, under a prior."""
        self.check(space, 1)
        belief, size = _one_prior(prior, space), len(space)
        scale = (size - 1) / self.epsilon
        grid = np.array(space.classes, np.float64)
        outputs, total = uncut(grid, scale) if unbiased else grid, 0.0
        for start in range(0, size, _BLOCK):  # answers, whose losses add: a fine range has too many to hold at once
            said = np.arange(start, min(start + _BLOCK, size))
            law = np.exp(log_cut_laplace(scale, said, size))
            total += _mean_loss(law, outputs[said], belief, space, loss)
        return total

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> NoisyGrid:
        """Add the noise, and cut."""
        last = len(common["space"]) - 1
        noise = discrete_laplace(last / exactly(self.epsilon), codes.size, bits)
        noisy = np.where(codes == MISSING, MISSING, np.clip(codes + noise, 0, last)).astype(codes.dtype)
        return NoisyGrid(**common, codes=noisy, scale=last / self.epsilon)


def _mean_loss(law: Floats, outputs: Floats, prior: Floats, space: LabelSpace, loss: LossName) -> float:
    """Return the mean over labels and answers; `law` is (answers, labels)."""
    _check_loss(loss)
    possible = np.flatnonzero(prior)
    grid = np.array(space.classes, np.float64)[possible]
    each = _LOSSES[loss](outputs[:, None], grid)
    return float((law[:, possible] * each).sum(axis=0) @ prior[possible] / prior.sum())


def _check_loss(loss: str) -> None:
    if loss not in _LOSSES:
        raise InputError('loss must be "squared", "absolute" or "poisson".')


def _as_numbers(prior: Any) -> NDArray[np.float64]:
    try:
        return private_copy(prior, np.float64)
    except (TypeError, ValueError):
        pass
    raise InputError("The prior must be an array of numbers: one probability for each value of the range.")


def _one_prior(prior: Any, space: LabelSpace) -> NDArray[np.float64]:
    values = _as_numbers(prior)
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
