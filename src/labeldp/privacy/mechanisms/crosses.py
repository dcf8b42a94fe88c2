"""Choosing crosses of public columns by the residuals of their cells: where a model of the labels fits worst.

Proof. Public columns put each row into bins. A cross is a pair of columns, and a cell of it a combination of their
bins. For cell c and class k let N be the secret count of labels and E the expected count, the sum of public
probabilities over the rows of the cell, rounded to a whole number. Both take only rows with a label, and which these
are is public. The score of a cross is the sum of |N - E| over its cells and classes, minus a public whole number.

A changed label moves one row out of a count and into another of the same cell. Each |N - E| moves by 1 at most, so a
score moves by 2 at most, whatever the cross. Of two classes the score sums over the second class alone, of which one
count moves: by 1 at most. Call this bound s. Scores of two crosses can move in opposite directions, so the difference
of two scores moves by 2 s at most.

Each of `count` picks is a noisy maximum over the crosses that are left, with fresh discrete Laplace noise of scale
2 s count / epsilon. By the proof of `HighestScore` in `selection.py`, with reach 2 s, a pick is private at
epsilon / count, given the picks before it. All picks together compose to epsilon.

The offset estimates what sampling alone adds to the sum: E|X - mean| of about sqrt(2 v / pi) for a count of variance v,
with v = sum of p (1 - p) over the rows of the cell. It is computed from public numbers, so any offset is as private.

A unit with m labels moves a score by m s at most, which costs m epsilon.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.losses import PureLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import exactly
from labeldp.core.guarantee import Trust
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, check_distributions, check_privacy, private_copy
from labeldp.privacy.mechanisms.selection import noisy_maximum
from labeldp.privacy.noise.samplers import WIDEST
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.scores import Choices

_MOST_CELLS = 1 << 24  # counts of one cross that are in memory at once


@dataclass(frozen=True, eq=False)
class LargestResiduals(Mechanism):
    """Pick the crosses of public columns whose cells leave the largest residual of expected counts.

    Args:
        codes: The bin of each row in each public column, (rows, columns): small whole numbers from 0.
        pairs: The two column numbers of each candidate, (candidates, 2).
        expected: The probability of each class for each row, (rows, classes), computed from earlier releases. Name
            these in `derived_from` of `Vault.release`.
        count: How many candidates to pick, one after another and each once.
        epsilon: The privacy of each label, for all picks together.

    Privacy:
        Epsilon for each label. Noise goes with `count`.
    """

    trust: ClassVar[Trust] = "central"

    codes: NDArray[np.integer]
    pairs: NDArray[np.integer]
    expected: NDArray[np.floating]
    count: int
    epsilon: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        for name in ("codes", "pairs", "expected"):
            object.__setattr__(self, name, private_copy(getattr(self, name)))

    def loss(self, labels: int = 1) -> PureLoss:
        """Return epsilon for each label."""
        return PureLoss(labels * self.epsilon)

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check the columns, the candidates, the expected probabilities and that the noise can be drawn."""
        codes, pairs = self.codes, self.pairs
        if codes.ndim != 2 or len(codes) != rows or not np.issubdtype(codes.dtype, np.integer):
            raise InputError(f"codes must be a table of whole numbers with {rows} rows.")
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs) or not np.issubdtype(pairs.dtype, np.integer):
            raise InputError("pairs must hold two column numbers for each candidate.")
        if pairs.min() < 0 or pairs.max() >= codes.shape[1] or (pairs[:, 0] == pairs[:, 1]).any():
            raise InputError(f"pairs must name two different columns, by numbers from 0 to {codes.shape[1] - 1}.")
        if codes.min(initial=0) < 0 or codes.max(initial=0) >= _MOST_CELLS:
            raise InputError(f"codes must be whole numbers from 0 to {_MOST_CELLS - 1:,}: number the bins from 0.")
        if self._bins()[pairs].prod(axis=1).max() * len(space) > _MOST_CELLS:
            raise InputError("A pair of columns has too many cells: use fewer bins.")
        if not np.issubdtype(self.expected.dtype, np.floating):
            raise InputError("expected must be a table of floats: a probability for each row and class.")
        check_distributions(self.expected, space, rows, "the table of expected probabilities")
        if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer):
            raise InputError("count must be a whole number.")
        if not 1 <= self.count <= len(pairs):
            raise InputError(f"count must lie between 1 and {len(pairs)}, the number of candidates.")
        if not self._reach(len(space)) / exactly(self.epsilon) < WIDEST:
            raise InputError("This much noise cannot be drawn: raise epsilon, or pick fewer crosses.")

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Choices:
        """Score the candidates and pick by noisy maxima, with fresh noise for each pick."""
        classes = len(common["space"])
        scores, left, picked = self._scores(codes, classes), np.arange(len(self.pairs)), list[int]()
        for _ in range(int(self.count)):
            best = noisy_maximum(scores[left], self._reach(classes), self.epsilon, bits)
            picked.append(int(left[best]))
            left = np.delete(left, best)
        return Choices(**common, picked=tuple(picked), candidates=len(self.pairs))

    def _reach(self, n_classes: int) -> int:
        """Return how far one label moves a score against another, times the number of picks that share epsilon."""
        return 2 * (1 if n_classes == 2 else 2) * int(self.count)

    def _bins(self) -> NDArray[np.int64]:
        """Return the number of bins of each column."""
        return self.codes.max(axis=0, initial=0).astype(np.int64) + 1

    def _scores(self, codes: Codes, n_classes: int) -> NDArray[np.int64]:
        here = np.flatnonzero(codes != MISSING)
        labels, bins = codes[here].astype(np.int64), self._bins()
        columns = self.codes[here].T.astype(np.int64, order="C")
        scored = range(1, 2) if n_classes == 2 else range(n_classes)
        chances = self.expected[here].T[scored.start :].astype(np.float64, order="C")
        variances = chances * (1 - np.minimum(chances, 1.0))
        scores = np.zeros(len(self.pairs), np.int64)
        for place, (first, second) in enumerate(self.pairs):
            cell, cells = columns[first] * bins[second] + columns[second], int(bins[first] * bins[second])
            found = np.bincount(cell * n_classes + labels, minlength=cells * n_classes).reshape(cells, n_classes)
            residual, sampled = 0, 0.0
            for each, label in enumerate(scored):
                expected = np.rint(np.bincount(cell, chances[each], minlength=cells)).astype(np.int64)
                residual += int(np.abs(found[:, label] - expected).sum())
                sampled += float(np.sqrt(2 / np.pi * np.bincount(cell, variances[each], minlength=cells)).sum())
            scores[place] = residual - round(sampled)
        return scores
