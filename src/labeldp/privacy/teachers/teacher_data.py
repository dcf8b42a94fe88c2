"""The data of teachers, the protocol of their trainers, and the count of their votes."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.label_space import Codes, LabelSpace

ABSTAIN = -1


@dataclass(frozen=True, eq=False)
class TeacherData:
    """The training data of all teachers and their queries. It holds raw labels and stays inside the vault.

    Attributes:
        points: The rows of the vault, as a matrix or as `Features`.
        codes: The raw label code of each row.
        teacher_ids: The index of each row's teacher; -1 for none.
        query_points: The rows to vote on, of the same type as `points`.
        space: The classes.
    """

    points: Any
    codes: Codes
    teacher_ids: NDArray[np.int64]
    query_points: Any
    space: LabelSpace


class TeacherTrainer(Protocol):
    """Trains teachers, each on the labels of its own part alone."""

    def check(self, points: Any, query_points: Any, space: LabelSpace, whole_records: bool) -> None:
        """Raise InputError if the trainer does not fit these rows. It reads no label."""

    def count_votes(self, data: TeacherData) -> NDArray[np.int64]:
        """Train all teachers and return their vote counts (queries, classes). It must not fail because of labels."""

    def describe(self) -> str:
        """Describe all that a teacher depends on beside its rows and labels. The text is the same in every process."""


def count_winners(winners: list[NDArray[np.integer]], n_classes: int) -> NDArray[np.int64]:
    """Return the number of votes of each class for each query (queries, classes). `ABSTAIN` is no vote."""
    counts = np.zeros((len(winners[0]), n_classes), np.int64)
    for votes in winners:
        row_ids = np.flatnonzero(votes != ABSTAIN)
        counts[row_ids, votes[row_ids]] += 1
    return counts


def check_matrix(points: Any, name: str) -> None:
    """Check that points are a finite matrix of floats."""
    is_float_matrix = isinstance(points, np.ndarray) and points.ndim == 2 and np.issubdtype(points.dtype, np.floating)
    if not is_float_matrix or not np.isfinite(points).all():
        raise InputError(f"{name} must be a finite matrix of floats.")
