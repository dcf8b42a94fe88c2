"""Releases of one noisy label for each row: randomized response, over all classes or the candidates of a row."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.core.label_space import MISSING, Codes
from labeldp.releases.base import Arrays, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class Responses(Release):
    """Noisy codes. `candidates` holds the candidate set of each row as bits; None if all classes are candidates.

    With k candidates, P(o | c) is exp(epsilon) / (exp(epsilon) + k - 1) for o = c, 1 over the same for another
    candidate c, and 1/k for a label c that is no candidate.
    """

    kind: ClassVar[Literal["likelihood", "prior"]] = "likelihood"

    codes: Codes
    epsilon: float
    candidates: NDArray[np.uint8] | None = None

    def arrays(self) -> Arrays:
        """Return the codes, and the candidates if there are any."""
        return {"codes": self.codes} | ({} if self.candidates is None else {"candidates": self.candidates})

    def labels(self, seed: int = 0) -> Codes:
        """Return the released codes, -1 for rows that are not active."""
        return self.codes.copy() if self.row_mask is None else np.where(self.row_mask, self.codes, MISSING)

    def noise_matrix(self) -> NDArray[np.float64]:
        """Return the channel, averaged over the active rows if candidates differ."""
        n_classes = len(self.space)
        if self.candidates is None:
            return np.where(np.eye(n_classes, dtype=bool), *response_probabilities(self.epsilon, n_classes))
        total = np.zeros((n_classes, n_classes))
        active_rows = np.flatnonzero(self._is_active(np.arange(self.n_rows)))
        patterns, counts = np.unique(self.candidates[active_rows], axis=0, return_counts=True)
        for is_candidate, n_pattern_rows in zip(self._unpack(patterns), counts, strict=True):
            k = int(is_candidate.sum())
            p_same, p_other = response_probabilities(self.epsilon, k)
            channel = np.where(is_candidate[:, None] & is_candidate, p_other, 0.0)
            channel[is_candidate, is_candidate] = p_same
            channel[np.ix_(is_candidate, ~is_candidate)] = 1 / k
            total += n_pattern_rows * channel
        return total / max(1, active_rows.size)

    def _unbiased_labels(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        # The inverse channel over the k candidates. It is unbiased for labels among them. For another label the
        # response is uniform, and the mean is 1/k for each candidate.
        is_candidate = self._candidate_mask(row_ids)
        k, inverse_odds = is_candidate.sum(axis=1, keepdims=True), np.exp(-self.epsilon)
        is_response = self.codes[row_ids][:, None] == np.arange(len(self.space))
        scale = (1 + (k - 1) * inverse_odds) / (1 - inverse_odds)
        return np.where(is_candidate, scale * is_response - inverse_odds / (1 - inverse_odds), 0.0)

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        n_classes = len(self.space)
        is_response = self.codes[row_ids][:, None] == np.arange(n_classes)
        is_candidate = self._candidate_mask(row_ids)
        k = is_candidate.sum(axis=1, keepdims=True)
        log_denominator = np.log1p((k - 1) * np.exp(-self.epsilon))
        scores = np.where(is_response, 0.0, -self.epsilon) - log_denominator
        return np.where(is_candidate, scores, -np.log(k))

    def _candidate_mask(self, row_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which classes are candidates of each row."""
        if self.candidates is None:
            return np.ones((1, len(self.space)), bool)
        return self._unpack(self.candidates[row_ids])

    def _unpack(self, packed: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return np.unpackbits(packed, axis=1, count=len(self.space)).astype(bool)


def response_probabilities(epsilon: float, n_classes: int) -> tuple[float, float]:
    """Return the probabilities that randomized response outputs the label and that it outputs a given other class.

    The first is the largest accuracy of any guess from a release with this epsilon under a uniform prior.
    """
    p_same = 1 / (1 + (n_classes - 1) * math.exp(-epsilon))
    return p_same, p_same * math.exp(-epsilon)
