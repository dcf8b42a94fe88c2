"""Releases about public predictions: how often they are right, or which candidate is best."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.core.label_space import MISSING, Codes
from labeldp.releases.base import Arrays, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class _AggregateRelease(Release):
    """Facts about all rows together: they speak of no single one, so every class of every row scores alike."""

    kind: ClassVar[Literal["likelihood", "prior"]] = "prior"
    has_row_evidence: ClassVar[bool] = False

    def arrays(self) -> Arrays:
        """Return nothing: a few numbers are all there is."""
        return {}

    def labels(self, seed: int = 0) -> Codes:
        """Return -1 for each row: no row has a label from this."""
        return np.full(self.n_rows, MISSING, np.int32)

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        return np.zeros((row_ids.size, len(self.space)))


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyCorrectCount(_AggregateRelease):
    """How many of `size` labels are as predicted, plus discrete Laplace noise of the given scale."""

    n_correct: int
    n_labels: int
    scale: float


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyLoss(_AggregateRelease):
    """The loss of `size` predictions in units of `unit`, plus discrete Laplace noise of the given scale.

    No label can make the loss of a row larger than `most`.
    """

    total: int
    n_labels: int
    step_size: float
    max_row_loss: float
    scale: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice(_AggregateRelease):
    """Which of the candidates had the best noisy total: of right predictions, of scores, or of losses."""

    best_index: int
    n_candidates: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Choices(_AggregateRelease):
    """Which of the candidates were picked by noisy scores, by their places and in the order of the picks."""

    picks: tuple[int, ...]
    n_candidates: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "picks", tuple(self.picks))  # a stored one comes back as a list
