"""Additive regression on tables, from noisy sums of public bins times numbers."""

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.learn.additive import NumberSums
from labeldp.learn.additive.model import AdditiveNumberModel
from labeldp.learn.density import grid_of
from labeldp.learn.number_boosting import NumberBoosting
from labeldp.privacy.mechanisms.binning import LARGEST_RANGE, UnbiasedBins
from labeldp.privacy.mechanisms.sums import NumberQuery
from labeldp.recipes.base import Ask, Steps
from labeldp.recipes.budget_split import MOST_COLUMNS, least_for_bins, share_of_sums, split_epsilon
from labeldp.recipes.candidates import Candidate, fit_all
from labeldp.recipes.pipelines.additive import binned_columns, layout_of, rows_to_noise, with_constant
from labeldp.recipes.task import Task


def are_binned_numbers(task: Task) -> bool:
    """Whether labels are numbers, and the features a table of few columns with rows enough for sums of bins."""
    task = task.whole
    if task.space.step is None or task.features.kind != "table" or task.model != "auto":
        return False
    if not 0 < len(getattr(task.features, "columns", ())) <= MOST_COLUMNS:
        return False
    return rows_to_noise(task, _shares(task)[0] / task.labels_per_user) >= least_for_bins(task.delta)


def binned_numbers(task: Task) -> Steps:
    """Fit sums of bins, and where epsilon allows noisy numbers of single rows and boosted trees on top.

    Args:
        task: What to learn: numbers of a table.

    Returns:
        One model.
    """
    first, second = _shares(task)
    task.progress.plan(2 if second else 1)
    model, sums = yield from number_steps(task, first)
    task.progress.step()
    if not second:
        return model
    noisy = yield Ask(UnbiasedBins(second, _prior(sums)), None, [sums.sums])
    model = sums.fit(noisy)
    trees = Candidate("boosted trees", partial(NumberBoosting(seed=task.seed).fit, task.features, noisy, model))
    best = fit_all(task, [trees], [model])[-1]
    task.progress.step()
    return best


def number_steps(task: Task, epsilon: float) -> Generator[Ask, Any, tuple[AdditiveNumberModel, NumberSums]]:
    """Ask for the sums of single columns times numbers, and fit the model.

    Args:
        task: What to learn.
        epsilon: What the sums may cost.

    Returns:
        The model, and the sums that it was fitted to.
    """
    layout = layout_of(task, epsilon / task.whole.labels_per_user, crosses=0)
    table, columns, design, functions = binned_columns(task, layout)
    query = NumberQuery(with_constant(design.matrix(functions)), epsilon, task.delta, values=len(task.space))
    sums = NumberSums(table, columns, design, functions, (yield Ask(query)))
    return sums.fit(), sums


def _shares(task: Task) -> tuple[float, float]:
    """Return what sums get, and what is left for noisy numbers of single rows."""
    share = 1.0 if len(task.space) > LARGEST_RANGE else share_of_sums(task.whole.label_epsilon, True)
    return split_epsilon(task.epsilon, share) if share < 1 else (task.epsilon, 0.0)


def _prior(sums: NumberSums) -> NDArray[np.float64]:
    """Return a normal distribution over the range with the mean and variance that the sums tell."""
    grid, (mean, variance) = grid_of(sums.sums.space), sums.distribution
    found = np.exp(-((grid - mean) ** 2) / (2 * variance)) + 1e-6
    return found / found.sum()
