"""Selection of pairs of public columns by the residuals of their cells: pairs where a model of the labels fits worst.

Proof. Public columns put each row into bins. A cross is a pair of columns, and a cell of it a combination of their
bins. For cell c and class k let N be the secret count of labels and E the expected count, the sum of public
probabilities over the rows of the cell, rounded to a whole number. Both take only rows with a label, and which these
are is public. The score of a cross is the sum of |N - E| over its cells and classes, minus a public whole number.

A changed label moves one row out of a count and into another of the same cell. Each |N - E| moves by 1 at most, so a
score moves by 2 at most, whatever the cross. Of two classes the score sums over the second class alone, of which one
count moves: by 1 at most. Call this bound s. Scores of two crosses can move in opposite directions, so the difference
of two scores moves by 2 s at most.

Each of the n = `n_picks` picks is a noisy maximum over the remaining crosses, with fresh discrete Laplace noise of
scale 2 s n / epsilon. By the proof of `HighestScore` in `selection.py`, with sensitivity 2 s, a pick is private at
epsilon / n, given the picks before it. All picks together compose to epsilon.

The offset estimates the contribution of sampling to the sum: E|X - mean| is about sqrt(2 v / pi) for a count of
variance v, with v = sum of p (1 - p) over the rows of the cell. It is computed from public numbers, so it does not
change the guarantee.

A unit with m labels moves a score by m s at most, which costs m epsilon.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.losses import PureLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Trust
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, check_distributions, check_privacy, frozen_copy
from labeldp.privacy.mechanisms.selection import noisy_argmax
from labeldp.privacy.noise.samplers import MAX_SCALE
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.scores import Choices

# Largest number of counts of one cross, which are in memory at the same time.
_MAX_CELLS = 1 << 24


@dataclass(frozen=True, eq=False)
class LargestResiduals(Mechanism):
    """Select the crosses of public columns whose counts have the largest residuals from expected counts.

    Args:
        column_bins: The bin of each row in each public column, (rows, columns): small whole numbers from 0.
        column_pairs: The two column numbers of each candidate, (candidates, 2).
        expected_probabilities: The probability of each class for each row, (rows, classes), computed from earlier
            releases. Name these in `derived_from` of `Vault.release`.
        n_picks: The number of candidates to pick. The mechanism picks one after another, without replacement.
        epsilon: The privacy of each label, for all picks together.

    Privacy:
        Epsilon for each label. The scale of the noise is proportional to `n_picks`.
    """

    trust: ClassVar[Trust] = "central"

    column_bins: NDArray[np.integer]
    column_pairs: NDArray[np.integer]
    expected_probabilities: NDArray[np.floating]
    n_picks: int
    epsilon: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        for name in ("column_bins", "column_pairs", "expected_probabilities"):
            object.__setattr__(self, name, frozen_copy(getattr(self, name)))

    def loss(self, n_labels: int = 1) -> PureLoss:
        """Return epsilon for each label."""
        return PureLoss(n_labels * self.epsilon)

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check the columns, the candidates, the expected probabilities and that the noise can be drawn."""
        column_bins, column_pairs = self.column_bins, self.column_pairs
        if column_bins.ndim != 2 or len(column_bins) != n_rows or not np.issubdtype(column_bins.dtype, np.integer):
            raise InputError(f"column_bins must be a table of whole numbers with {n_rows} rows.")
        if (
            column_pairs.ndim != 2
            or column_pairs.shape[1] != 2
            or not len(column_pairs)
            or not np.issubdtype(column_pairs.dtype, np.integer)
        ):
            raise InputError("column_pairs must hold two column numbers for each candidate.")
        if (
            column_pairs.min() < 0
            or column_pairs.max() >= column_bins.shape[1]
            or (column_pairs[:, 0] == column_pairs[:, 1]).any()
        ):
            last = column_bins.shape[1] - 1
            raise InputError(f"column_pairs must name two different columns, by numbers from 0 to {last}.")
        if column_bins.min(initial=0) < 0 or column_bins.max(initial=0) >= _MAX_CELLS:
            most = f"{_MAX_CELLS - 1:,}"
            raise InputError(f"column_bins must be whole numbers from 0 to {most}: number the bins from 0.")
        if self._bins_per_column()[column_pairs].prod(axis=1).max() * len(space) > _MAX_CELLS:
            raise InputError("A pair of columns has too many cells: use fewer bins.")
        if not np.issubdtype(self.expected_probabilities.dtype, np.floating):
            raise InputError("expected_probabilities must be a table of floats: a probability for each row and class.")
        check_distributions(self.expected_probabilities, space, n_rows, "the table of expected probabilities")
        if isinstance(self.n_picks, bool) or not isinstance(self.n_picks, int | np.integer):
            raise InputError("n_picks must be a whole number.")
        if not 1 <= self.n_picks <= len(column_pairs):
            raise InputError(f"n_picks must lie between 1 and {len(column_pairs)}, the number of candidates.")
        if not self._total_sensitivity(len(space)) / as_fraction(self.epsilon) < MAX_SCALE:
            raise InputError("This much noise cannot be drawn: raise epsilon, or pick fewer crosses.")

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Choices:
        """Score the candidates and pick noisy maxima, with fresh noise for each pick."""
        n_classes = len(release_fields["space"])
        scores, remaining, picks = self._score_pairs(codes, n_classes), np.arange(len(self.column_pairs)), list[int]()
        for _ in range(int(self.n_picks)):
            position = noisy_argmax(scores[remaining], self._total_sensitivity(n_classes), self.epsilon, bits)
            picks.append(int(remaining[position]))
            remaining = np.delete(remaining, position)
        return Choices(**release_fields, picks=tuple(picks), n_candidates=len(self.column_pairs))

    def _total_sensitivity(self, n_classes: int) -> int:
        """Return the most by which one label moves the difference of two scores, times the number of picks."""
        return 2 * (1 if n_classes == 2 else 2) * int(self.n_picks)

    def _bins_per_column(self) -> NDArray[np.int64]:
        """Return the number of bins of each column."""
        return self.column_bins.max(axis=0, initial=0).astype(np.int64) + 1

    def _score_pairs(self, codes: Codes, n_classes: int) -> NDArray[np.int64]:
        labeled_rows = np.flatnonzero(codes != MISSING)
        labels, bins = codes[labeled_rows].astype(np.int64), self._bins_per_column()
        columns = self.column_bins[labeled_rows].T.astype(np.int64, order="C")
        scored_classes = range(1, 2) if n_classes == 2 else range(n_classes)
        probabilities = (
            self.expected_probabilities[labeled_rows].T[scored_classes.start :].astype(np.float64, order="C")
        )
        variances = probabilities * (1 - np.minimum(probabilities, 1.0))
        scores = np.zeros(len(self.column_pairs), np.int64)
        for index, (first, second) in enumerate(self.column_pairs):
            cell, n_cells = columns[first] * bins[second] + columns[second], int(bins[first] * bins[second])
            counts = np.bincount(cell * n_classes + labels, minlength=n_cells * n_classes).reshape(n_cells, n_classes)
            residual, expected_residual = 0, 0.0
            for class_index, label in enumerate(scored_classes):
                expected = np.rint(np.bincount(cell, probabilities[class_index], minlength=n_cells)).astype(np.int64)
                residual += int(np.abs(counts[:, label] - expected).sum())
                expected_residual += float(
                    np.sqrt(2 / np.pi * np.bincount(cell, variances[class_index], minlength=n_cells)).sum()
                )
            scores[index] = residual - round(expected_residual)
        return scores
