"""`auto`: a pipeline that public facts choose, and a private choice where it gives several models."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.label_bins import LossName
from labeldp.learn.average import averaged
from labeldp.learn.boosting import BoostedModel, Boosting
from labeldp.privacy.mechanisms import LinearQuery, RandomizedResponse
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.budget_split import FEW_CLASSES, MOST_COLUMNS, least_for_bins, split_epsilon
from labeldp.recipes.candidates import Candidate, fit_all
from labeldp.recipes.pipelines.additive import additive_steps, layout_of, rows_to_noise
from labeldp.recipes.pipelines.clusters import noise_cluster
from labeldp.recipes.pipelines.log_linear import log_linear_steps, sums_share
from labeldp.recipes.pipelines.lp_mst import lp_mst
from labeldp.recipes.pipelines.moments import is_faint, smooth_moments
from labeldp.recipes.pipelines.numbers import auto_numbers, several_numbers
from labeldp.recipes.pipelines.refine import begins_from_encoder, refine
from labeldp.recipes.task import Task
from labeldp.recipes.votes import chances
from labeldp.releases.base import Release
from labeldp.representation.clusters import averaged as mean_of_near
from labeldp.representation.clusters import neighbours

_QUIET = 3.0  # noise of the sums, in units of their sampling error, below which more budget hardly helps them
_FEW_ROWS = 10_000  # with more, sums have little noise without the help of neighbours
_MANY_ROWS = 100_000  # above, it would take long to find the neighbours of all
_NEAR, _ROUNDS = 10, 2
_ROWS_A_CLASS = 500  # with fewer, a choice among simpler models is safer than many trainings one after another
_AVERAGED_UP_TO = 50_000  # rows up to which trees are fitted with and without the first model
_ENOUGH_TO_CHOOSE = 2_000.0  # rows times epsilon of a class from which a private choice tells models apart
_SEVERAL_CLASSES = 50  # up to which other models are tried beside a log-linear one


def several(task: Task, loss: LossName = "squared", cross: str | None = None) -> bool:
    """Whether there will be models to choose from."""
    if task.space.step is not None:
        return several_numbers(task, loss)
    if task.features.kind == "pairs" or cross is not None or _refines(task) or _is_binned(task) or _drowned(task):
        return False
    if _averages(task) or (len(task.space) > _SEVERAL_CLASSES and sums_share(task) < 1):
        return False
    return _of_few_rows(task) or sums_share(task) < 1


@recipe(
    "auto",
    "noisy sums or counts for a first model; where epsilon allows, noisy labels of single rows and further models",
    chooses=several,
    labels="any",
)
def auto(task: Task, loss: LossName = "squared", cross: str | None = None) -> Steps:
    """Choose a pipeline by public facts: the features, rows, columns, classes, epsilon and delta.

    - Numbers: `auto_numbers`, for which there is a `loss`.
    - Many pictures with an encoder: `refine`. Ids of people and items: `lp-mst`.
    - Tables of up to 200 columns with rows enough: `additive`, then boosted trees from randomized response where that
      adds something.
    - Embeddings, pictures, wide tables and those of few rows: `log-linear`, with networks and boosted trees as further
      models. Of tables and of few rows, their mean is taken; otherwise a private choice decides. If the noise of the
      sums is too large, `smooth-moments`, or `noise-cluster` where delta is 0.

    Without torch, which is a public fact, no network is among the candidates.

    Args:
        task: What to learn.
        loss: The loss of numbers.
        cross: Crosses of columns of a table that the user wants in the model, "month,day" for example.

    Returns:
        One model, or several to choose from.

    Raises:
        InputError: There is a loss for classes, or there are crosses where no columns are cut into bins.
    """
    if cross is not None and not _can_be_binned(task):
        raise InputError(
            f"Crosses are for tables of at most {MOST_COLUMNS} columns whose labels are classes: leave them out."
        )
    if task.space.step is not None:
        return (yield from auto_numbers(task, loss))
    if loss != "squared":
        raise InputError("A loss is chosen for numbers, and these labels are classes: leave it out.")
    if _refines(task):
        return (yield from refine(task))
    if task.features.kind == "pairs":
        return (yield from lp_mst(task))
    if _is_binned(task) or cross is not None:
        return (yield from _binned(task, cross))
    if _drowned(task):
        return (yield from (smooth_moments if task.delta else noise_cluster)(task.with_installed_model()))
    return (yield from _dense(task))


def _binned(task: Task, cross: str | None) -> Steps:
    """Fit sums of bins, and boosted trees on top where epsilon allows both."""
    if task.model != "auto":
        task.notes.append("The model was not used: the recipe auto chooses models itself. Take randres for your own.")
    first, second = budget_for_counts(task)
    layout = layout_of(task, first / task.whole.labels_per_user, cross=cross)
    task.progress.plan(1 if second else 0)
    model, sums = yield from additive_steps(task, layout, first, task.delta)
    if not second:
        return model
    noisy = yield Ask(RandomizedResponse(second))
    model = sums.fit(noisy)
    trees = Candidate("boosted trees", partial(_tree_fit(task), task.features, noisy, model))
    best = fit_all(task, [trees], [model])[-1]
    task.progress.step()
    return best


def _tree_fit(task: Task) -> Callable[..., BoostedModel]:
    """Return how to fit boosted trees: an average of two models takes twice as long and helps where rows are few."""
    learner = Boosting(seed=task.seed)
    return learner.fit_averaged if int(task.whole.rows.sum()) <= _AVERAGED_UP_TO else learner.fit


def budget_for_counts(task: Task) -> tuple[float, float]:
    """Return what sums of bins get, and what is left for randomized response where that adds something."""
    share = sums_share(task) if len(task.space) <= FEW_CLASSES else 1.0
    return split_epsilon(task.epsilon, share) if share < 1 else (task.epsilon, 0.0)


def _can_be_binned(task: Task) -> bool:
    """Whether the labels are few classes, and the features a table of few columns."""
    task = task.whole
    table = task.features.kind == "table" and task.space.step is None and len(task.space) <= FEW_CLASSES
    return table and len(getattr(task.features, "columns", ())) <= MOST_COLUMNS


def _is_binned(task: Task) -> bool:
    """Whether columns are cut into bins: there must be rows enough for counts."""
    if not _can_be_binned(task):
        return False
    task = task.whole
    counts = budget_for_counts(task)[0] / task.epsilon * task.label_epsilon
    return rows_to_noise(task, counts) >= least_for_bins(task.delta)


def _dense(task: Task) -> Steps:
    """Fit sums of rows; where epsilon allows, learn from noisy labels, too, and choose the best model."""
    learner = task.learner("Supervised", targets="posteriors") if task.trains_networks else None
    near = neighbours(task.lifted, min(_NEAR, len(task.features) - 1)) if _of_few_rows(task) else None
    found = yield from log_linear_steps(task, sums_share(task))
    candidates = []
    if learner is not None and near is not None:
        smooth = partial(smoothed, task, found.sums, near)
        candidates.append(Candidate("a network", lambda: learner.fit(task.features, smooth(), task.encoder)))
    if (labels := found.labels) is not None:
        candidates.append(Candidate("softmax regression", lambda: task.on_points(found.refined())))
        if len(task.space) > _SEVERAL_CLASSES:
            return fit_all(task, candidates[-1:])
        if task.features.kind == "table" and len(task.space) <= FEW_CLASSES:
            trees = partial(_tree_fit(task), task.features, labels, found.model)
            candidates.append(Candidate("boosted trees", trees))
        if learner is not None:
            both = Release.concat(labels, found.sums)
            candidates.append(Candidate("a network", partial(learner.fit, task.features, both, task.encoder)))
    first = [] if _averages(task) and found.labels is not None else [task.on_points(found.model)]
    models = fit_all(task, candidates, first)
    return averaged(models) if _averages(task) else models


def _averages(task: Task) -> bool:
    """Whether a private choice would cost more than it gains, so that models are averaged instead."""
    task = task.whole
    if task.points.kind == "table" and len(task.space) <= FEW_CLASSES:  # one of the models is of trees
        return True
    return int(task.rows.sum()) * task.label_epsilon / len(task.space) < _ENOUGH_TO_CHOOSE


def smoothed(task: Task, sums: Release, near: NDArray[np.int64]) -> Release:
    """Let near rows agree on their labels: noise in the sums bends a linear model, but not the neighbourhoods."""
    agreed = mean_of_near(chances(sums), near, _ROUNDS)
    return sums.relabel(task.likeliest(agreed))


def _of_few_rows(task: Task) -> bool:
    """Whether a network learns from the sums of near rows, which are found among few rows."""
    task = task.whole
    return task.trains_networks and task.points.kind != "table" and 2 <= int(task.rows.sum()) <= _FEW_ROWS


def _refines(task: Task) -> bool:
    """Whether there are pictures enough for networks to learn more from than their encoder knew."""
    return begins_from_encoder(task) and int(task.whole.rows.sum()) >= _ROWS_A_CLASS * len(task.space)


def _drowned(task: Task) -> bool:
    """Whether noise drowns the sums of rows as they are, and something else can be heard."""
    task = task.whole
    dense = task.points.kind != "table" and 1 < int(task.rows.sum()) <= _MANY_ROWS
    return dense and (is_faint(task) or not task.delta) and task.label_epsilon < enough_for_sums(task) / 2


def enough_for_sums(task: Task) -> float:
    """Return the epsilon of a label at which more would hardly help the sums, by rows, classes and columns.

    A sum over n rows of length l in D columns has a sampling error of about l sqrt(n / D (1 - 1/K) / K) a column.
    """
    task = task.whole
    rows, classes = int(task.rows.sum()), len(task.space)
    length = np.sqrt(np.einsum("ij,ij->", task.summed, task.summed, dtype=np.float64) / len(task.summed))
    error = length * np.sqrt(rows / task.sum_lift.columns * (1 - 1 / classes) / classes)
    one = LinearQuery(task.summed, 1.0, task.delta)
    return float(one.sigma_for(classes) / one.scale / (_QUIET * error))  # noise goes with 1 / epsilon
