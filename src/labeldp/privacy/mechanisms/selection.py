"""Selection of the best of several public candidates, and the number of correct predictions of one.

Proof. Predictions are public, so a changed label makes one prediction of some candidates incorrect and one of others
correct. Each count of correct predictions moves by at most one, in either direction.

CorrectCount adds discrete Laplace noise of scale 1/epsilon to one such count: the probabilities of any result differ
by a factor exp(epsilon) at most.

HighestScore has a public table of whole numbers s_i[row, class] for each candidate i. The total x_i of a candidate is
the sum of s_i[row, label of the row] over the rows. The mechanism adds independent discrete Laplace noise to each total
and releases only which is largest, the first of equal ones. Fix the noise of all candidates but j. Then j wins exactly
if its noise z reaches a threshold: z >= max(earlier i: x_i + z_i + 1; later i: x_i + z_i) - x_j. So ties are no
separate case: the order of the candidates is public, and a tie only decides which whole number the threshold is.

A label of row r that changes from a to b moves x_i by d_i = s_i[r, b] - s_i[r, a]. Every term of the maximum moves by
one of the d_i, so the threshold moves by some number between the least and the largest of d_i - d_j over i. Let the
sensitivity s be the largest |d_i - d_j| of any row, any two classes and any two candidates. It is computed from the
tables alone, so it is public. If no |d_i| is larger than D, s is 2 D at most; it is smaller for candidates whose scores
move together. The threshold moves by s at most, and the noise has the scale s / epsilon. One step of the threshold
changes P(z >= t) by a factor exp(epsilon / s) at most: for t > 0 the tail is a constant times exp(-t epsilon / s), and
for t <= 0 it lies above 1/2 and changes by less. Together s steps give exp(epsilon), for any noise of the others, so
also on average over it.

BestCandidate is the case in which s_i[row, class] is 1 for the predicted class and 0 for others. Each d_i is -1, 0 or
1, so the sensitivity is 2 at most: the scale is 2/epsilon.

A unit with m labels moves a count, and the threshold, by m times as much at most: m epsilon, for all three.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.losses import PureLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Trust
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, check_privacy, frozen_copy
from labeldp.privacy.mechanisms.linear import BLOCK_ROWS
from labeldp.privacy.noise.samplers import MAX_SCALE, discrete_laplace
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.scores import Choice, NoisyCorrectCount

# Largest magnitude of a score, so that int64 represents every total and its noise.
_MAX_SCORE = 2**31


class _PureCentralMechanism(Mechanism):
    trust: ClassVar[Trust] = "central"

    def loss(self, n_labels: int = 1) -> PureLoss:
        """Return epsilon for each label."""
        return PureLoss(n_labels * self.epsilon)


@dataclass(frozen=True, eq=False)
class _PredictionScorer(_PureCentralMechanism):
    predictions: NDArray[np.signedinteger]
    epsilon: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        object.__setattr__(self, "predictions", frozen_copy(self.predictions))

    def _check_codes(self, space: LabelSpace) -> None:
        codes = self.predictions
        if not np.issubdtype(codes.dtype, np.integer) or codes.min() < 0 or codes.max() >= len(space):
            raise InputError(f"Predictions must be codes of classes: whole numbers from 0 to {len(space) - 1}.")


@dataclass(frozen=True, eq=False)
class CorrectCount(_PredictionScorer):
    """The number of rows whose label is the public prediction. `predictions` has one class code for each row."""

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that each row has a prediction."""
        if self.predictions.shape != (n_rows,):
            raise InputError(f"predictions must hold one code for each of the {n_rows} rows.")
        self._check_codes(space)

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyCorrectCount:
        """Count the correct predictions and add the noise."""
        labeled = codes != MISSING
        n_correct = np.count_nonzero(labeled & (codes == self.predictions))
        noise = discrete_laplace(1 / as_fraction(self.epsilon), 1, bits)
        n_labels = np.count_nonzero(labeled)
        return NoisyCorrectCount(
            **release_fields, n_correct=int(n_correct + noise[0]), n_labels=int(n_labels), scale=1 / self.epsilon
        )


@dataclass(frozen=True, eq=False)
class BestCandidate(_PredictionScorer):
    """The candidate with most correct predictions, by a noisy maximum. `predictions` is (rows, candidates)."""

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that each candidate has a prediction for each row."""
        if self.predictions.ndim != 2 or len(self.predictions) != n_rows or not self.predictions.shape[1]:
            raise InputError(f"predictions must be a table of codes: {n_rows} rows, and a column for each candidate.")
        self._check_codes(space)

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Choice:
        """Count the correct predictions of each candidate, add noise and return only the index of the largest count."""
        labeled = codes != MISSING
        n_correct = np.array([np.count_nonzero(labeled & (codes == column)) for column in self.predictions.T])
        best = noisy_argmax(n_correct, 2, self.epsilon, bits)
        return Choice(**release_fields, best_index=best, n_candidates=n_correct.size)


@dataclass(frozen=True, eq=False)
class HighestScore(_PureCentralMechanism):
    """The candidate with the largest noisy total score.

    Args:
        scores: A public table of whole numbers for each candidate, (candidates, rows, classes). A row adds the score of
            its label to the candidate's total.
        epsilon: The privacy of each label.
        by: The criterion that the scores measure, as stored in the ledger.
        row_ids: The row numbers of the tables in increasing order; None for all rows of the vault. Labels of other rows
            are not used.

    Privacy:
        Epsilon for each label. The noise is proportional to `sensitivity`, which depends on the public scores alone.
    """

    scores: NDArray[np.integer]
    epsilon: float
    by: str = "score"
    row_ids: NDArray[np.integer] | None = None

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        object.__setattr__(self, "scores", frozen_copy(self.scores))
        if self.row_ids is not None:
            object.__setattr__(self, "row_ids", frozen_copy(self.row_ids))

    @cached_property
    def sensitivity(self) -> int:
        """The most by which one label can move the difference of two totals; at least 1."""
        sensitivity = 1
        for start in range(0, self.scores.shape[1], BLOCK_ROWS):
            block = self.scores[:, start : start + BLOCK_ROWS].astype(np.int64)
            for index, table in enumerate(block):
                for other in block[:index]:
                    sensitivity = max(sensitivity, int(np.ptp(table - other, axis=1).max()))
        return sensitivity

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that each candidate has a score for each class of each row, and that the noise can be drawn."""
        n_scored = n_rows if self.row_ids is None else self.row_ids.size
        if self.row_ids is not None and not _is_increasing(self.row_ids, n_rows):
            raise InputError(f"row_ids must be row numbers from 0 to {n_rows - 1}, each once and in rising order.")
        if self.scores.ndim != 3 or not len(self.scores) or self.scores.shape[1:] != (n_scored, len(space)):
            raise InputError(f"scores must hold a table for each candidate: {n_scored} rows, {len(space)} classes.")
        is_integer = np.issubdtype(self.scores.dtype, np.integer)
        if not is_integer or self.scores.max(initial=0) > _MAX_SCORE or self.scores.min(initial=0) < -_MAX_SCORE:
            raise InputError("scores must be whole numbers, none beyond 2^31: round them to a coarser grid.")
        if not self.sensitivity / as_fraction(self.epsilon) < MAX_SCALE:
            raise InputError("This much noise cannot be drawn: round the scores to a coarser grid, or raise epsilon.")

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Choice:
        """Sum the scores of each candidate, add noise and return only the index of the largest total."""
        scored_codes = codes if self.row_ids is None else codes[self.row_ids]
        labeled_rows = np.flatnonzero(scored_codes != MISSING)
        totals = np.array(
            [table[labeled_rows, scored_codes[labeled_rows]].sum(dtype=np.int64) for table in self.scores]
        )
        best = noisy_argmax(totals, self.sensitivity, self.epsilon, bits)
        return Choice(**release_fields, best_index=best, n_candidates=totals.size)


def _is_increasing(row_ids: NDArray[Any], n_rows: int) -> bool:
    is_integer = row_ids.ndim == 1 and np.issubdtype(row_ids.dtype, np.integer)
    return is_integer and bool((np.diff(row_ids.astype(np.int64), prepend=-1) > 0).all() and (row_ids < n_rows).all())


def noisy_argmax(totals: NDArray[np.integer], sensitivity: int, epsilon: float, bits: Bits) -> int:
    """Return the index of the largest total after discrete Laplace noise, the first of equal ones.

    Args:
        totals: Whole numbers that depend on labels.
        sensitivity: The most by which one label can move the difference of two totals.
        epsilon: The privacy of each label.
        bits: The source of the noise.

    Privacy:
        Epsilon for each label, if `sensitivity` is correct.
    """
    noise = discrete_laplace(sensitivity / as_fraction(epsilon), totals.size, bits)
    return int(np.argmax(totals + noise))
