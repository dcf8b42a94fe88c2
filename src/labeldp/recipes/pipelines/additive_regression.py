"""Additive regression on tables, from noisy sums of functions of public bins times numbers."""

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.learn.additive import AdditiveNumberSums
from labeldp.learn.additive.model import AdditiveNumberModel
from labeldp.learn.density import label_grid
from labeldp.learn.regression_boosting import RegressionBoosting
from labeldp.privacy.mechanisms.numeric_responses import MAX_RANGE_VALUES, UnbiasedBins
from labeldp.privacy.mechanisms.numeric_sums import NumberSums
from labeldp.recipes.budget_split import MAX_BINNED_COLUMNS, min_snr_for_bins, split_epsilon, sums_epsilon_fraction
from labeldp.recipes.candidates import Candidate, fit_candidates
from labeldp.recipes.pipelines.additive import add_constant_column, bin_columns, choose_layout, task_snr
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task


def suits_binned_numbers(task: Task) -> bool:
    """Whether the labels are numbers, and the features a table with few columns and enough rows for sums of bins."""
    task = task.full_task
    if task.space.step is None or task.features.kind != "table" or task.model != "auto":
        return False
    if not 0 < len(getattr(task.features, "columns", ())) <= MAX_BINNED_COLUMNS:
        return False
    return task_snr(task, _split_sums_epsilon(task)[0] / task.labels_per_user) >= min_snr_for_bins(task.delta)


def binned_numbers(task: Task) -> Steps:
    """Fit an additive model to sums of bins. Where epsilon allows, boost it on noisy numbers of single rows.

    Args:
        task: The task. The labels are numbers, and the features a table.

    Returns:
        One model.
    """
    sums_epsilon, labels_epsilon = _split_sums_epsilon(task)
    task.progress.add_steps(2 if labels_epsilon else 1)
    model, sums = yield from additive_number_steps(task, sums_epsilon)
    task.progress.step()
    if not labels_epsilon:
        return model
    noisy = yield Request(UnbiasedBins(labels_epsilon, _normal_prior(sums)), None, [sums.sums])
    model = sums.fit(noisy)
    trees = Candidate("boosted trees", partial(RegressionBoosting(seed=task.seed).fit, task.features, noisy, model))
    boosted = fit_candidates(task, [trees], [model])[-1]
    task.progress.step()
    return boosted


def additive_number_steps(
    task: Task, epsilon: float
) -> Generator[Request, Any, tuple[AdditiveNumberModel, AdditiveNumberSums]]:
    """Request the sums of single columns times numbers, and fit the model.

    Args:
        task: The task.
        epsilon: The epsilon of the sums.

    Returns:
        The model, and the sums to which it was fitted.
    """
    layout = choose_layout(task, epsilon / task.full_task.labels_per_user, n_crosses=0)
    table, column_bins, design, functions = bin_columns(task, layout)
    query = NumberSums(add_constant_column(design.to_sparse(functions)), epsilon, task.delta, n_values=len(task.space))
    sums = AdditiveNumberSums(table, column_bins, design, functions, (yield Request(query)))
    return sums.fit(), sums


def _split_sums_epsilon(task: Task) -> tuple[float, float]:
    """Return the epsilon of the sums, and that of noisy numbers of single rows."""
    fraction = 1.0 if len(task.space) > MAX_RANGE_VALUES else sums_epsilon_fraction(task.full_task.label_epsilon, True)
    return split_epsilon(task.epsilon, fraction) if fraction < 1 else (task.epsilon, 0.0)


def _normal_prior(sums: AdditiveNumberSums) -> NDArray[np.float64]:
    """Return a normal distribution over the range with the mean and variance from the sums."""
    grid, (mean, variance) = label_grid(sums.sums.space), sums.mean_and_variance
    density = np.exp(-((grid - mean) ** 2) / (2 * variance)) + 1e-6
    return density / density.sum()
