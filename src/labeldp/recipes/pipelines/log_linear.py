"""Softmax regression from noisy sums, and from noisy labels of single rows where epsilon allows."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.guarantee import SMALLEST_EPSILON
from labeldp.data.row_normalizer import CONSTANT_WEIGHT, RowNormalizer
from labeldp.learn.additive.log_linear import LogLinear, LogLinearModel
from labeldp.privacy.mechanisms import LinearQuery, RandomizedResponse, RRWithPrior
from labeldp.recipes.budget_split import FEW_CLASSES, split_epsilon, sums_epsilon_fraction
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments

# Fewest and most principal directions of the rows.
_MIN_COLUMNS, _MAX_COLUMNS = 32, 256


@recipe(
    "log-linear",
    "noisy sums of the features by label, then softmax regression; from a moderate epsilon also noisy labels",
    takes_model=False,
)
def log_linear(task: Task, epsilon_fraction: float | None = None) -> Steps:
    """Release sums of rows by label, then fit softmax regression, whose gradient needs only these sums of the labels.

    Args:
        task: The task.
        epsilon_fraction: The fraction of epsilon for the sums; with 1, there are no noisy labels of single rows.

    Returns:
        A log-linear model.

    Raises:
        InputError: The fraction is out of range.
    """
    if epsilon_fraction is not None and not 0 < epsilon_fraction <= 1:
        raise InputError("The epsilon_fraction for sums must be above 0 and at most 1.")
    fitted = yield from log_linear_steps(task, sums_fraction(task) if epsilon_fraction is None else epsilon_fraction)
    return task.with_encoder(fitted.refine() if fitted.labels else fitted.model)


@dataclass(frozen=True)
class LogLinearFit:
    """A log-linear model of noisy sums, and noisy labels of the same rows if they were requested.

    Attributes:
        model: The model of the sums alone.
        sums: The released sums.
        labels: The released labels of single rows; None if the sums spent all of epsilon.
        normalized: All rows, normalized.
        learner: The learner that fitted the model.
    """

    model: LogLinearModel
    sums: NoisyMoments
    labels: Release | None
    normalized: NDArray[np.float32] = field(repr=False)
    learner: LogLinear = field(repr=False)

    def refine(self) -> LogLinearModel:
        """Return a model of the noisy labels that starts from the model of the sums."""
        if self.labels is None:
            raise TypeError("No labels were requested.")
        return self.learner.refine(self.normalized, self.labels, self.model)


def sums_fraction(task: Task) -> float:
    """Return the fraction of epsilon for sums; 1 where noisy labels of single rows hold too little information."""
    task = task.full_task
    return sums_epsilon_fraction(task.label_epsilon, task.features.kind == "table" and len(task.space) <= FEW_CLASSES)


def log_linear_steps(task: Task, fraction: float) -> Generator[Request, Any, LogLinearFit]:
    """Request sums and, if their fraction of epsilon is below 1, noisy labels.

    Randomized response among many classes is not informative. So the model of the sums is then its prior.

    Args:
        task: The task.
        fraction: The fraction of epsilon for the sums, at most 1.

    Returns:
        The model of the sums, and the releases.
    """
    sums_epsilon, labels_epsilon = split_epsilon(task.epsilon, fraction)
    if labels_epsilon < SMALLEST_EPSILON:  # the fraction is 1, or is rounded to 1
        sums_epsilon, labels_epsilon = task.epsilon, 0.0
    normalizer_options: dict[str, Any] = (
        {"clip": True, "constant": CONSTANT_WEIGHT} if task.encoded_features.kind == "table" else {}
    )
    normalizer = RowNormalizer.fit(task.encoded_features, n_columns=_choose_n_columns(task), **normalizer_options)
    normalized, learner = normalizer(task.encoded_features), LogLinear(normalizer)
    sums = yield Request(LinearQuery(normalized, sums_epsilon, task.delta))
    model = learner.fit(normalized, sums)
    labels: Release | None = None
    if labels_epsilon and len(task.space) <= FEW_CLASSES:
        labels = yield Request(RandomizedResponse(labels_epsilon))
    elif labels_epsilon:
        prior = np.asarray(model.predict_proba(task.encoded_features), np.float64).round(6)
        labels = yield Request(RRWithPrior(labels_epsilon, prior / prior.sum(axis=1, keepdims=True)), None, [sums])
    return LogLinearFit(model, sums, labels, normalized, learner)


def _choose_n_columns(task: Task) -> int:
    """Return the number of principal directions of the rows in sums, with which noise at delta 0 grows."""
    signal = task.full_task.signal_strength(task.full_task.epsilon)
    return int(np.clip(signal, _MIN_COLUMNS, _MAX_COLUMNS)) if task.delta else _MIN_COLUMNS
