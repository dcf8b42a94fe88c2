"""Softmax regression from noisy sums, and from noisy labels of single rows where epsilon allows."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.guarantee import SMALLEST_EPSILON
from labeldp.data.row_normalizer import CONSTANT, Lift
from labeldp.learn.additive.log_linear import LogLinear, LogLinearModel
from labeldp.privacy.mechanisms import LinearQuery, RandomizedResponse, RRWithPrior
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.budget_split import FEW_CLASSES, share_of_sums, split_epsilon
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments

_FEWEST, _MOST = 32, 256  # principal directions


@recipe(
    "log-linear",
    "noisy sums of the features by label, then softmax regression; from a moderate epsilon also noisy labels",
    takes_model=False,
)
def log_linear(task: Task, share: float | None = None) -> Steps:
    """Fit sums by softmax regression, whose gradient needs nothing else of the labels.

    Args:
        task: What to learn.
        share: The share of epsilon for the sums; 1 asks for no labels of single rows.

    Returns:
        A log-linear model.

    Raises:
        InputError: The share is out of range.
    """
    if share is not None and not 0 < share <= 1:
        raise InputError("The share of epsilon for sums must be above 0 and at most 1.")
    found = yield from log_linear_steps(task, sums_share(task) if share is None else share)
    return task.on_points(found.refined() if found.labels else found.model)


@dataclass(frozen=True)
class SumsAndLabels:
    """A log-linear model of noisy sums, and noisy labels of the same rows if they were asked for.

    Attributes:
        model: The model of the sums alone.
        sums: The released sums.
        labels: The released labels of single rows; None if the sums have all of epsilon.
        rows: Every lifted row.
        learner: What fitted the model.
    """

    model: LogLinearModel
    sums: NoisyMoments
    labels: Release | None
    rows: NDArray[np.float32] = field(repr=False)
    learner: LogLinear = field(repr=False)

    def refined(self) -> LogLinearModel:
        """Return a model of the noisy labels that begins from that of the sums."""
        if self.labels is None:
            raise TypeError("No labels were asked for.")
        return self.learner.refine(self.rows, self.labels, self.model)


def sums_share(task: Task) -> float:
    """Return the share of epsilon that sums get; it is 1 where noisy labels of single rows would say too little."""
    task = task.whole
    return share_of_sums(task.label_epsilon, task.features.kind == "table" and len(task.space) <= FEW_CLASSES)


def log_linear_steps(task: Task, share: float) -> Generator[Ask, Any, SumsAndLabels]:
    """Ask for sums and, if their share is below 1, for noisy labels.

    Many classes are more than randomized response can tell apart, so that it chooses among those that the sums leave
    open.

    Args:
        task: What to learn.
        share: The share of epsilon for the sums, at most 1.

    Returns:
        The model of the sums, and the releases.
    """
    first, second = split_epsilon(task.epsilon, share)
    if second < SMALLEST_EPSILON:  # the share is 1, or is rounded to it
        first, second = task.epsilon, 0.0
    cut: dict[str, Any] = {"cut": True, "constant": CONSTANT} if task.points.kind == "table" else {}
    lift = Lift.fit(task.points, columns=_columns(task), **cut)
    rows, learner = lift(task.points), LogLinear(lift)
    sums = yield Ask(LinearQuery(rows, first, task.delta))
    model = learner.fit(rows, sums)
    labels: Release | None = None
    if second and len(task.space) <= FEW_CLASSES:
        labels = yield Ask(RandomizedResponse(second))
    elif second:
        prior = np.asarray(model.predict_proba(task.points), np.float64).round(6)
        labels = yield Ask(RRWithPrior(second, prior / prior.sum(axis=1, keepdims=True)), None, [sums])
    return SumsAndLabels(model, sums, labels, rows, learner)


def _columns(task: Task) -> int:
    """Return how many principal directions of the rows to sum up: pure noise grows with them."""
    signal = task.whole.told(task.whole.epsilon)
    return int(np.clip(signal, _FEWEST, _MOST)) if task.delta else _FEWEST
