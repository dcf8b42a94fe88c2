"""What teachers are given, and what is wanted of them: votes."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.label_space import Codes, LabelSpace

ABSTAINS = -1


@dataclass(frozen=True, eq=False)
class Lesson:
    """Inside the vault: rows, their raw labels, the teacher of each row (-1 for none), and the rows to vote on.

    `points` and `asked` are matrices, or `Features`.
    """

    points: Any
    codes: Codes
    teacher: NDArray[np.int64]
    asked: Any
    space: LabelSpace


class Teaching(Protocol):
    """A way to train teachers, each on the labels of its own part alone."""

    def check(self, points: Any, asked: Any, space: LabelSpace, whole_records: bool) -> None:
        """Raise InputError if it does not fit these rows. Looks at no label."""

    def count(self, lesson: Lesson) -> NDArray[np.int64]:
        """Train all teachers and count their votes: (rows asked, classes). Must not fail because of labels."""

    def settings(self) -> str:
        """Describe all that a teacher depends on beside its rows and labels, in the same words at every time."""


def tally(winners: list[NDArray[np.integer]], classes: int) -> NDArray[np.int64]:
    """Count, for each row asked, how many teachers named each class; -1 names none."""
    counts = np.zeros((len(winners[0]), classes), np.int64)
    for named in winners:
        rows = np.flatnonzero(named != ABSTAINS)
        counts[rows, named[rows]] += 1
    return counts


def check_matrix(points: Any, what: str) -> None:
    """Check a matrix of rows."""
    good = isinstance(points, np.ndarray) and points.ndim == 2 and np.issubdtype(points.dtype, np.floating)
    if not good or not np.isfinite(points).all():
        raise InputError(f"{what} must be a finite matrix of floats.")
