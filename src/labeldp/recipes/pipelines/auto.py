"""The recipe `auto`: a pipeline chosen by public facts, and a private selection among its models."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.label_bins import LossName
from labeldp.learn.average import average_models
from labeldp.learn.boosting import BoostedModel, Boosting
from labeldp.privacy.mechanisms import LinearQuery, RandomizedResponse
from labeldp.recipes.budget_split import FEW_CLASSES, MAX_BINNED_COLUMNS, min_snr_for_bins, split_epsilon
from labeldp.recipes.candidates import Candidate, fit_candidates
from labeldp.recipes.cluster_votes import label_posterior
from labeldp.recipes.pipelines.additive import additive_steps, choose_layout, task_snr
from labeldp.recipes.pipelines.clusters import noise_cluster
from labeldp.recipes.pipelines.log_linear import log_linear_steps, sums_fraction
from labeldp.recipes.pipelines.lp_mst import lp_mst
from labeldp.recipes.pipelines.moments import needs_smoothing, smooth_moments
from labeldp.recipes.pipelines.refine import refine, starts_from_encoder
from labeldp.recipes.pipelines.regression import auto_numbers, has_several_number_candidates
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.representation.clusters import average_neighbors, nearest_neighbors

# Noise of the sums, in units of their sampling error, below which more epsilon hardly improves them.
_MAX_NOISE_RATIO = 3.0
# Rows up to which a network learns from sums that are averaged over neighbors.
_MAX_FEW_ROWS = 10_000
# Rows up to which finding the neighbors of all rows is fast enough.
_MAX_NEIGHBOR_ROWS = 100_000
# Neighbors of each row, and rounds of averaging over them.
_N_NEIGHBORS = 10
_N_ROUNDS = 2
# Rows per class from which `refine` is used. With fewer, a selection among simpler models is more reliable.
_MIN_ROWS_PER_CLASS = 500
# Rows up to which boosted trees are averaged over fits with and without the first model.
_MAX_ROWS_AVERAGED = 50_000
# Rows per class times epsilon from which a private selection can distinguish models.
_MIN_SIGNAL_TO_CHOOSE = 2_000.0
# Classes up to which there are further candidates beside a log-linear model.
_MAX_CLASSES_FOR_CANDIDATES = 50


def has_several_candidates(task: Task, loss: LossName = "squared", cross: str | None = None) -> bool:
    """Whether the recipe returns several models to select from."""
    if task.space.step is not None:
        return has_several_number_candidates(task, loss)
    if (
        task.features.kind == "pairs"
        or cross is not None
        or _uses_refine(task)
        or _uses_bins(task)
        or _has_too_noisy_sums(task)
    ):
        return False
    if _averages_candidates(task) or (len(task.space) > _MAX_CLASSES_FOR_CANDIDATES and sums_fraction(task) < 1):
        return False
    return _has_few_rows(task) or sums_fraction(task) < 1


@recipe(
    "auto",
    "noisy sums or counts for a first model; where epsilon allows, noisy labels of single rows and further models",
    has_several_candidates=has_several_candidates,
    labels="any",
)
def auto(task: Task, loss: LossName = "squared", cross: str | None = None) -> Steps:
    """Choose a pipeline by public facts: the features, rows, columns, classes, epsilon and delta.

    - Numbers: `auto_numbers`, which has a `loss`.
    - Many images with an encoder: `refine`. Pairs of ids: `lp_mst`.
    - Tables with up to 200 columns and enough rows: `additive`, then boosted trees from randomized response where
      epsilon allows.
    - Embeddings, images, and tables with many columns or few rows: `log_linear`, with networks and boosted trees as
      further models. The models of tables and of few rows are averaged; otherwise a private selection decides. If the
      noise of the sums is too large, `smooth_moments`, or `noise_cluster` where delta is 0.

    Without torch, which is a public fact, no network is among the candidates.

    Args:
        task: The task.
        loss: The loss of numbers.
        cross: Crosses of columns of a table to include, "month,day" for example.

    Returns:
        One model, or several to select from.

    Raises:
        InputError: There is a loss for classes, or there are crosses where no columns are cut into bins.
    """
    if cross is not None and not _can_be_binned(task):
        raise InputError(
            f"Crosses are for tables of at most {MAX_BINNED_COLUMNS} columns whose labels are classes: leave them out."
        )
    if task.space.step is not None:
        return (yield from auto_numbers(task, loss))
    if loss != "squared":
        raise InputError("A loss is chosen for numbers, and these labels are classes: leave it out.")
    if _uses_refine(task):
        return (yield from refine(task))
    if task.features.kind == "pairs":
        return (yield from lp_mst(task))
    if _uses_bins(task) or cross is not None:
        return (yield from _binned_steps(task, cross))
    if _has_too_noisy_sums(task):
        return (yield from (smooth_moments if task.delta else noise_cluster)(task.with_installed_model()))
    return (yield from _dense_steps(task))


def _binned_steps(task: Task, cross: str | None) -> Steps:
    """Fit an additive model to sums of bins. Where epsilon allows, boost it on randomized response."""
    if task.model != "auto":
        task.notes.append("The model was not used: the recipe auto chooses models itself. Take randres for your own.")
    sums_epsilon, labels_epsilon = split_counts_epsilon(task)
    layout = choose_layout(task, sums_epsilon / task.full_task.labels_per_user, cross=cross)
    task.progress.add_steps(1 if labels_epsilon else 0)
    model, sums = yield from additive_steps(task, layout, sums_epsilon, task.delta)
    if not labels_epsilon:
        return model
    noisy = yield Request(RandomizedResponse(labels_epsilon))
    model = sums.fit(noisy)
    trees = Candidate("boosted trees", partial(_choose_tree_fit(task), task.features, noisy, model))
    boosted = fit_candidates(task, [trees], [model])[-1]
    task.progress.step()
    return boosted


def _choose_tree_fit(task: Task) -> Callable[..., BoostedModel]:
    """Return the fit of boosted trees: for few rows an average of two models, which takes twice as long."""
    learner = Boosting(seed=task.seed)
    return learner.fit_averaged if int(task.full_task.row_mask.sum()) <= _MAX_ROWS_AVERAGED else learner.fit


def split_counts_epsilon(task: Task) -> tuple[float, float]:
    """Return the epsilon of sums of bins, and that of randomized response, which is 0 where it would add little."""
    fraction = sums_fraction(task) if len(task.space) <= FEW_CLASSES else 1.0
    return split_epsilon(task.epsilon, fraction) if fraction < 1 else (task.epsilon, 0.0)


def _can_be_binned(task: Task) -> bool:
    """Whether the labels are few classes, and the features a table of few columns."""
    task = task.full_task
    is_table = task.features.kind == "table" and task.space.step is None and len(task.space) <= FEW_CLASSES
    return is_table and len(getattr(task.features, "columns", ())) <= MAX_BINNED_COLUMNS


def _uses_bins(task: Task) -> bool:
    """Whether columns are cut into bins, for whose counts there must be enough rows."""
    if not _can_be_binned(task):
        return False
    task = task.full_task
    counts_epsilon = split_counts_epsilon(task)[0] / task.epsilon * task.label_epsilon
    return task_snr(task, counts_epsilon) >= min_snr_for_bins(task.delta)


def _dense_steps(task: Task) -> Steps:
    """Fit a log-linear model to sums of rows. Where epsilon allows, train further models on noisy labels."""
    learner = task.learner("Supervised", targets="posteriors") if task.trains_networks else None
    neighbor_ids = (
        nearest_neighbors(task.normalized, min(_N_NEIGHBORS, len(task.features) - 1)) if _has_few_rows(task) else None
    )
    fitted = yield from log_linear_steps(task, sums_fraction(task))
    candidates = []
    if learner is not None and neighbor_ids is not None:
        make_pseudo_labels = partial(smooth_pseudo_labels, task, fitted.sums, neighbor_ids)
        candidates.append(
            Candidate("a network", lambda: learner.fit(task.features, make_pseudo_labels(), task.encoder))
        )
    if (labels := fitted.labels) is not None:
        candidates.append(Candidate("softmax regression", lambda: task.with_encoder(fitted.refine())))
        if len(task.space) > _MAX_CLASSES_FOR_CANDIDATES:
            return fit_candidates(task, candidates[-1:])
        if task.features.kind == "table" and len(task.space) <= FEW_CLASSES:
            trees = partial(_choose_tree_fit(task), task.features, labels, fitted.model)
            candidates.append(Candidate("boosted trees", trees))
        if learner is not None:
            evidence = Release.concat(labels, fitted.sums)
            candidates.append(Candidate("a network", partial(learner.fit, task.features, evidence, task.encoder)))
    first_models = [] if _averages_candidates(task) and fitted.labels is not None else [task.with_encoder(fitted.model)]
    models = fit_candidates(task, candidates, first_models)
    return average_models(models) if _averages_candidates(task) else models


def _averages_candidates(task: Task) -> bool:
    """Whether models are averaged, because a private selection would cost more than it gains."""
    task = task.full_task
    if task.encoded_features.kind == "table" and len(task.space) <= FEW_CLASSES:  # there are boosted trees
        return True
    return int(task.row_mask.sum()) * task.label_epsilon / len(task.space) < _MIN_SIGNAL_TO_CHOOSE


def smooth_pseudo_labels(task: Task, sums: Release, neighbor_ids: NDArray[np.int64]) -> Release:
    """Return pseudo-labels by sums, averaged over neighbors, which reduces the errors that noise causes."""
    posterior = average_neighbors(label_posterior(sums), neighbor_ids, _N_ROUNDS)
    return sums.relabel(task.assign_pseudo_labels(posterior))


def _has_few_rows(task: Task) -> bool:
    """Whether a network learns from sums that are averaged over neighbors, which suits few rows."""
    task = task.full_task
    return (
        task.trains_networks
        and task.encoded_features.kind != "table"
        and 2 <= int(task.row_mask.sum()) <= _MAX_FEW_ROWS
    )


def _uses_refine(task: Task) -> bool:
    """Whether there are enough images for networks to improve on their encoder."""
    return starts_from_encoder(task) and int(task.full_task.row_mask.sum()) >= _MIN_ROWS_PER_CLASS * len(task.space)


def _has_too_noisy_sums(task: Task) -> bool:
    """Whether sums of rows are too noisy, and smoothed sums or counts of clusters are not."""
    task = task.full_task
    is_dense = task.encoded_features.kind != "table" and 1 < int(task.row_mask.sum()) <= _MAX_NEIGHBOR_ROWS
    return (
        is_dense
        and (needs_smoothing(task) or not task.delta)
        and task.label_epsilon < sufficient_epsilon_for_sums(task) / 2
    )


def sufficient_epsilon_for_sums(task: Task) -> float:
    """Return the epsilon of a label above which more epsilon hardly improves the sums.

    Consider sums over n rows of norm l in D columns, by K classes. The sampling error of a column is about
    l sqrt(n / D (1 - 1/K) / K).
    """
    task = task.full_task
    n_rows, n_classes = int(task.row_mask.sum()), len(task.space)
    row_norm = np.sqrt(
        np.einsum("ij,ij->", task.normalized_for_sums, task.normalized_for_sums, dtype=np.float64)
        / len(task.normalized_for_sums)
    )
    sampling_error = row_norm * np.sqrt(n_rows / task.sum_normalizer.n_columns * (1 - 1 / n_classes) / n_classes)
    unit_query = LinearQuery(task.normalized_for_sums, 1.0, task.delta)
    unit_noise = unit_query.sigma_for(n_classes) / unit_query.grid_scale  # noise is proportional to 1 / epsilon
    return float(unit_noise / (_MAX_NOISE_RATIO * sampling_error))
