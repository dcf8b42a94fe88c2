"""Scoring public predictions against secret labels: which candidate is right most often, and how often one is.

Proof. Predictions are public, so a changed label takes one right answer from some candidates and gives one to
others: each count of right answers moves by at most one, in either direction.

RightCount adds discrete Laplace noise of scale 1/epsilon to one such count: the probabilities of any result differ
by a factor exp(epsilon) at most.

BestCandidate adds independent discrete Laplace noise of scale 2/epsilon to each count and tells only which is
largest, the first of several. Fix the noise of all candidates but j. Then j wins exactly if its noise z reaches a
threshold: z >= max(earlier i: count_i + z_i + 1; later i: count_i + z_i) - count_j. So ties are no case of their
own: the order of the candidates is public, and a tie only decides which whole number the threshold is. A changed
label moves every count by one at most, hence the threshold by two at most. One step of the threshold changes
P(z >= t) by a factor exp(epsilon / 2) at most: for t > 0 the tail is a constant times exp(-t epsilon / 2), and for
t <= 0 it lies above 1/2 and changes by less. Two steps give exp(epsilon), whatever the others' noise, so also on
average over it.

A unit with m labels moves each count by m at most: m epsilon, for both.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.bits import Bits
from labeldp.errors import InputError
from labeldp.guarantees import Trust
from labeldp.labels import MISSING, Codes, LabelSpace
from labeldp.losses import PureLoss
from labeldp.mechanisms.base import Mechanism, check_privacy, private_copy
from labeldp.noise import discrete_laplace
from labeldp.reals import exactly
from labeldp.releases.scores import Choice, NoisyRight


@dataclass(frozen=True, eq=False)
class _Scoring(Mechanism):
    trust: ClassVar[Trust] = "central"

    predictions: NDArray[np.signedinteger]
    epsilon: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        object.__setattr__(self, "predictions", private_copy(self.predictions))

    def loss(self, labels: int = 1) -> PureLoss:
        """Return epsilon for each label: every count moves by one at most for each."""
        return PureLoss(labels * self.epsilon)

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
        noise = discrete_laplace(2 / exactly(self.epsilon), right.size, bits)
        return Choice(**common, best=int(np.argmax(right + noise)), candidates=int(right.size))
