"""Many small teachers: a linear head for each part, on points of one label-free encoder.

Features are public under label privacy, so one encoder may be trained on every row. Only the heads of the teachers
depend on labels, and each head depends on the labels of its own part alone.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.privacy.teachers.partition import rows_by_teacher
from labeldp.privacy.teachers.teacher_data import TeacherData, check_matrix, count_winners


@dataclass(frozen=True)
class Heads:
    """Ridge regression on one-hot labels for every teacher, in closed form.

    The penalty is a public number for all teachers. A penalty chosen by the accuracy of teachers would depend on the
    labels of all of them.

    Attributes:
        penalty: The ridge penalty.
    """

    penalty: float = 0.3

    def check(self, points: Any, query_points: Any, space: LabelSpace, whole_records: bool) -> None:
        """Check the penalty and both matrices. Without a penalty, a fit may fail for some rows."""
        if not 0 < self.penalty < np.inf:
            raise InputError("The penalty of heads must be a finite number above 0.")
        check_matrix(points, "points")
        check_matrix(query_points, "public")
        if query_points.shape[1] != points.shape[1]:
            raise InputError(f"The public rows have {query_points.shape[1]} columns, and points {points.shape[1]}.")

    def count_votes(self, data: TeacherData) -> NDArray[np.int64]:
        """Fit all heads and count their votes without warnings, which would reveal something about a secret row."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            weights = self.fit(data.points, data.codes, data.teacher_ids, len(data.space))
            return self.vote(weights, data.query_points)

    def describe(self) -> str:
        """Describe the trainer by its penalty."""
        return repr(self)

    def fit(
        self, points: NDArray[np.floating], codes: Any, teacher_ids: NDArray[np.int64], n_classes: int
    ) -> NDArray[Any]:
        """Return weights (teachers, columns, classes) for rows of length 1, each teacher on its own labeled rows."""
        weights = np.empty((int(teacher_ids.max()) + 1, points.shape[1], n_classes), np.float32)
        for index, row_ids in enumerate(rows_by_teacher(teacher_ids, codes)):
            weights[index] = self._fit_one(points[row_ids].astype(np.float64), np.eye(n_classes)[codes[row_ids]])
        return weights

    def _fit_one(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.floating]:
        """Fit one teacher by the form with the smaller matrix: (X'X + p)^-1 X'Y = X'(XX' + p)^-1 Y."""
        if len(x) < x.shape[1]:
            return x.T @ np.linalg.solve(x @ x.T + self.penalty * np.eye(len(x)), y)
        return np.linalg.solve(x.T @ x + self.penalty * np.eye(x.shape[1]), x.T @ y)

    @staticmethod
    def vote(weights: NDArray[Any], query_points: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return vote counts (queries, classes)."""
        return count_winners([(query_points @ head).argmax(axis=1) for head in weights], weights.shape[2])
