"""What teachers are given, and what is wanted of them: votes."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.label_space import Codes, LabelSpace

ABSTAIN = -1


@dataclass(frozen=True, eq=False)
class TeacherData:
    """Inside the vault: rows, their raw labels, the teacher of each row (-1 for none), and the rows to vote on.

    `points` and `asked` are matrices, or `Features`.
    """

    points: Any
    codes: Codes
    teacher_ids: NDArray[np.int64]
    query_points: Any
    space: LabelSpace


class TeacherTrainer(Protocol):
    """A way to train teachers, each on the labels of its own part alone."""

    def check(self, points: Any, query_points: Any, space: LabelSpace, whole_records: bool) -> None:
        """Raise InputError if it does not fit these rows. Looks at no label."""

    def count_votes(self, data: TeacherData) -> NDArray[np.int64]:
        """Train all teachers and count their votes: (rows asked, classes). Must not fail because of labels."""

    def describe(self) -> str:
        """Describe all that a teacher depends on beside its rows and labels, in the same words at every time."""


def count_winners(winners: list[NDArray[np.integer]], n_classes: int) -> NDArray[np.int64]:
    """Count, for each row asked, how many teachers named each class; -1 names none."""
    counts = np.zeros((len(winners[0]), n_classes), np.int64)
    for votes in winners:
        row_ids = np.flatnonzero(votes != ABSTAIN)
        counts[row_ids, votes[row_ids]] += 1
    return counts


def check_matrix(points: Any, name: str) -> None:
    """Check a matrix of rows."""
    is_float_matrix = isinstance(points, np.ndarray) and points.ndim == 2 and np.issubdtype(points.dtype, np.floating)
    if not is_float_matrix or not np.isfinite(points).all():
        raise InputError(f"{name} must be a finite matrix of floats.")
