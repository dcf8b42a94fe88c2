"""Releases about public predictions: their accuracy, their loss, or the best candidate."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.core.label_space import MISSING, Codes
from labeldp.releases.base import Arrays, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class _AggregateRelease(Release):
    """Aggregates over all rows, without evidence about single rows: all classes have equal scores."""

    kind: ClassVar[Literal["likelihood", "prior"]] = "prior"
    has_row_evidence: ClassVar[bool] = False

    def arrays(self) -> Arrays:
        """Return no arrays: the fields hold all numbers."""
        return {}

    def labels(self, seed: int = 0) -> Codes:
        """Return -1 for each row."""
        return np.full(self.n_rows, MISSING, np.int32)

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        return np.zeros((row_ids.size, len(self.space)))


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyCorrectCount(_AggregateRelease):
    """The number of correct predictions among `n_labels`, plus discrete Laplace noise of the given scale."""

    n_correct: int
    n_labels: int
    scale: float


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyLoss(_AggregateRelease):
    """The total loss of `n_labels` predictions in steps of `step_size`, plus discrete Laplace noise of the given scale.

    `max_row_loss` bounds the loss of a row for any label.
    """

    total: int
    n_labels: int
    step_size: float
    max_row_loss: float
    scale: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice(_AggregateRelease):
    """The index of the candidate with the best noisy total of correct predictions, scores or losses."""

    best_index: int
    n_candidates: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Choices(_AggregateRelease):
    """The indices of the candidates that were selected by noisy scores, in the order of selection."""

    picks: tuple[int, ...]
    n_candidates: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "picks", tuple(self.picks))  # JSON stores a tuple as a list
