"""Scoring public predictions against secret labels: which candidate is best, and how often one is right.

Proof. Predictions are public, so a changed label takes one right answer from some candidates and gives one to
others: each count of right answers moves by at most one, in either direction.

RightCount adds discrete Laplace noise of scale 1/epsilon to one such count: the probabilities of any result differ
by a factor exp(epsilon) at most.

HighestScore has a public table of whole numbers s_i[row, class] for each candidate i. The total x_i of a candidate is
the sum of s_i[row, label of the row] over the rows. The mechanism adds independent discrete Laplace noise to each total
and tells only which is largest, the first of several. Fix the noise of all candidates but j. Then j wins exactly if its
noise z reaches a threshold: z >= max(earlier i: x_i + z_i + 1; later i: x_i + z_i) - x_j. So ties are no case of their
own: the order of the candidates is public, and a tie only decides which whole number the threshold is.

A label of row r that changes from a to b moves x_i by d_i = s_i[r, b] - s_i[r, a]. Every term of the maximum moves by
one of the d_i, so the threshold moves by some number between the least and the largest of d_i - d_j over i. Let `reach`
be the largest |d_i - d_j| of any row, any two classes and any two candidates. It is computed from the tables alone, so
it is public. If no |d_i| is larger than D, `reach` is 2 D at most; candidates that are alike move together and have
less. The threshold moves by `reach` at most, and the noise has the scale reach/epsilon. One step of the threshold
changes P(z >= t) by a factor exp(epsilon / reach) at most: for t > 0 the tail is a constant times
exp(-t epsilon / reach), and for t <= 0 it lies above 1/2 and changes by less. `reach` steps give exp(epsilon),
whatever the others' noise, so also on average over it.

BestCandidate is the case in which s_i[row, class] is 1 for the predicted class and 0 for others. Each d_i is -1, 0 or
1, so 2 bounds `reach`: the scale is 2/epsilon.

A unit with m labels moves a count, and the threshold, by m times as much at most: m epsilon, for all three.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.losses import PureLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import exactly
from labeldp.core.guarantee import Trust
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, check_privacy, private_copy
from labeldp.privacy.mechanisms.linear import BLOCK
from labeldp.privacy.noise.samplers import WIDEST, discrete_laplace
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.scores import Choice, NoisyRight

_LARGEST = 2**31  # magnitude of a score, so that int64 holds every total and its noise


class _Pure(Mechanism):
    trust: ClassVar[Trust] = "central"

    def loss(self, labels: int = 1) -> PureLoss:
        """Return epsilon for each label."""
        return PureLoss(labels * self.epsilon)


@dataclass(frozen=True, eq=False)
class _Scoring(_Pure):
    predictions: NDArray[np.signedinteger]
    epsilon: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        object.__setattr__(self, "predictions", private_copy(self.predictions))

    def _check_codes(self, space: LabelSpace) -> None:
        codes = self.predictions
        if not np.issubdtype(codes.dtype, np.integer) or codes.min() < 0 or codes.max() >= len(space):
            raise InputError(f"Predictions must be codes of classes: whole numbers from 0 to {len(space) - 1}.")


@dataclass(frozen=True, eq=False)
class RightCount(_Scoring):
    """Count the rows whose label is the public prediction: `predictions` holds one code for each row."""

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check that each row has a prediction."""
        if self.predictions.shape != (rows,):
            raise InputError(f"predictions must hold one code for each of the {rows} rows.")
        self._check_codes(space)

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> NoisyRight:
        """Count, and add the noise."""
        labelled = codes != MISSING
        right = np.count_nonzero(labelled & (codes == self.predictions))
        noise = discrete_laplace(1 / exactly(self.epsilon), 1, bits)
        size = np.count_nonzero(labelled)
        return NoisyRight(**common, right=int(right + noise[0]), size=int(size), scale=1 / self.epsilon)


@dataclass(frozen=True, eq=False)
class BestCandidate(_Scoring):
    """Tell which candidate is right most often, by a noisy maximum: `predictions` is (rows, candidates), of codes."""

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check that each candidate has a prediction for each row."""
        if self.predictions.ndim != 2 or len(self.predictions) != rows or not self.predictions.shape[1]:
            raise InputError(f"predictions must be a table of codes: {rows} rows, and a column for each candidate.")
        self._check_codes(space)

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Choice:
        """Count for each candidate, add the noise and keep the place of the largest alone."""
        labelled = codes != MISSING
        right = np.array([np.count_nonzero(labelled & (codes == column)) for column in self.predictions.T])
        best = noisy_maximum(right, 2, self.epsilon, bits)
        return Choice(**common, best=best, candidates=right.size)


@dataclass(frozen=True, eq=False)
class HighestScore(_Pure):
    """Tell which candidate has the highest total score, by a noisy maximum.

    Args:
        scores: A public table of whole numbers for each candidate, (candidates, rows, classes). A row adds the score of
            its label to the candidate's total.
        epsilon: The privacy of each label.
        by: What the scores measure, for the ledger.
        rows: The row numbers that the tables are for, rising; None for all rows of the vault. Labels of other rows have
            no say.

    Privacy:
        Epsilon for each label. The noise grows with `reach`, which public scores decide.
    """

    scores: NDArray[np.integer]
    epsilon: float
    by: str = "score"
    rows: NDArray[np.integer] | None = None

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        object.__setattr__(self, "scores", private_copy(self.scores))
        if self.rows is not None:
            object.__setattr__(self, "rows", private_copy(self.rows))

    @cached_property
    def reach(self) -> int:
        """How far one label can move a total against another one; at least 1."""
        found = 1
        for start in range(0, self.scores.shape[1], BLOCK):
            block = self.scores[:, start : start + BLOCK].astype(np.int64)
            for place, table in enumerate(block):
                for other in block[:place]:
                    found = max(found, int(np.ptp(table - other, axis=1).max()))
        return found

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check that each candidate has a score for each class of each row, and that the noise can be drawn."""
        here = rows if self.rows is None else self.rows.size
        if self.rows is not None and not _rising(self.rows, rows):
            raise InputError(f"rows must be row numbers from 0 to {rows - 1}, each once and in rising order.")
        if self.scores.ndim != 3 or not len(self.scores) or self.scores.shape[1:] != (here, len(space)):
            raise InputError(f"scores must hold a table for each candidate: {here} rows, {len(space)} classes.")
        whole = np.issubdtype(self.scores.dtype, np.integer)
        if not whole or self.scores.max(initial=0) > _LARGEST or self.scores.min(initial=0) < -_LARGEST:
            raise InputError("scores must be whole numbers, none beyond 2^31: round them to a coarser grid.")
        if not self.reach / exactly(self.epsilon) < WIDEST:
            raise InputError("This much noise cannot be drawn: round the scores to a coarser grid, or raise epsilon.")

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Choice:
        """Add up the scores of each candidate, add the noise and keep the place of the largest alone."""
        own = codes if self.rows is None else codes[self.rows]
        here = np.flatnonzero(own != MISSING)
        totals = np.array([table[here, own[here]].sum(dtype=np.int64) for table in self.scores])
        best = noisy_maximum(totals, self.reach, self.epsilon, bits)
        return Choice(**common, best=best, candidates=totals.size)


def _rising(rows: NDArray[Any], total: int) -> bool:
    whole = rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer)
    return whole and bool((np.diff(rows.astype(np.int64), prepend=-1) > 0).all() and (rows < total).all())


def noisy_maximum(totals: NDArray[np.integer], reach: int, epsilon: float, bits: Bits) -> int:
    """Return the place of the largest total after discrete Laplace noise, the first of equal ones.

    Args:
        totals: Whole numbers that depend on labels.
        reach: How far one label can move a total against another.
        epsilon: The privacy of each label.
        bits: The source of the noise.

    Privacy:
        Epsilon for each label, if `reach` holds.
    """
    noise = discrete_laplace(reach / exactly(epsilon), totals.size, bits)
    return int(np.argmax(totals + noise))
