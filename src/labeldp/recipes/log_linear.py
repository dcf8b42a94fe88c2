"""Softmax regression from noisy sums, and from noisy labels of single rows where epsilon allows."""

from collections.abc import Generator
from typing import Any

import numpy as np

from labeldp.errors import InputError
from labeldp.guarantees import SMALLEST_EPSILON
from labeldp.learn.additive.log_linear import LogLinear, LogLinearModel
from labeldp.mechanisms import LinearQuery, RRWithPrior
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.shares import split_epsilon
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.represent.lift import CONSTANT, Lift

_ROWS_FROM = 1.5  # epsilon of a label from which noisy labels of single rows add to sums
_FEWEST, _MOST = 32, 256  # principal directions
_SUMS_SHARE, _MOST_FOR_SUMS = 0.5, 3.0  # of epsilon, for the sums; they gain little from more


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
    model, _ = yield from log_linear_steps(task, sums_share(task) if share is None else share)
    return task.on_points(model)


def sums_share(task: Task) -> float:
    """Return the share of epsilon that sums get; it is 1 where noisy labels of single rows would say too little."""
    own = task.whole.label_epsilon
    return 1.0 if own < _ROWS_FROM else min(_SUMS_SHARE, _MOST_FOR_SUMS / own)


def log_linear_steps(task: Task, share: float) -> Generator[Ask, Any, tuple[LogLinearModel, list[Release]]]:
    """Ask for sums and, if their share is below 1, for labels among the classes that the sums leave open.

    Args:
        task: What to learn.
        share: The share of epsilon for the sums, at most 1.

    Returns:
        The model, and the releases that it rests on.
    """
    first, second = split_epsilon(task.epsilon, share)
    if second < SMALLEST_EPSILON:  # the share is 1, or is rounded to it
        first, second = task.epsilon, 0.0
    cut: dict[str, Any] = {"cut": True, "constant": CONSTANT} if task.points.kind == "table" else {}
    lift = Lift.fit(task.points, columns=_columns(task), **cut)
    rows, learner = lift(task.points), LogLinear(lift)
    sums = yield Ask(LinearQuery(rows, first, task.delta))
    model = learner.fit(rows, sums)
    if not second:
        return model, [sums]
    prior = np.asarray(model.predict_proba(task.points), np.float64).round(6)
    prior /= prior.sum(axis=1, keepdims=True)
    labels = yield Ask(RRWithPrior(second, prior), None, [sums])
    return learner.refine(rows, labels, model), [sums, labels]


def _columns(task: Task) -> int:
    """Return how many principal directions of the rows to sum up: pure noise grows with them."""
    signal = task.whole.told(task.whole.epsilon)
    return int(np.clip(signal, _FEWEST, _MOST)) if task.delta else _FEWEST
