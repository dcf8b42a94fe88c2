"""Clusters and their votes: the number of clusters, and the classes that votes assign to them."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from labeldp.core.label_space import MISSING, Codes
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.responses import response_probabilities

# Standard deviations of noise by which the lead of a typical cluster's first class must exceed 0.
_MIN_DEVIATIONS = 3.0
# Lead of a typical cluster's first class, as a share of the cluster's rows.
_TYPICAL_LEAD = 0.5


def choose_n_clusters(task: Task, epsilon: float | None = None, from_responses: bool = False) -> int:
    """Return the number of clusters whose votes stand out from the noise, from public facts alone.

    More clusters are purer, and smaller. In a cluster of m rows the first class leads by about m / 2 votes. The noise
    of that lead must stay below a third of it. For noisy counts, the noise is about 4 / epsilon. For votes among
    responses, it is about sqrt(m / 2) / (p - q). Randomized response retains a label with probability p, and changes
    it to any given other label with probability q.

    Args:
        task: The task.
        epsilon: The epsilon of the counts; None for that of the task.
        from_responses: Whether votes are among labels of randomized response, and not from noisy counts.

    Returns:
        The number of clusters.
    """
    epsilon = (epsilon or task.epsilon) / task.labels_per_user
    n_rows, n_classes = int(task.row_mask.sum()), len(task.space)
    min_rows = _MIN_DEVIATIONS * 4 / epsilon / _TYPICAL_LEAD
    if from_responses:
        p_true, p_other = response_probabilities(epsilon, n_classes)
        min_rows = 0.5 * (_MIN_DEVIATIONS / (_TYPICAL_LEAD * (p_true - p_other))) ** 2
    return int(np.clip(n_rows / max(min_rows, 20.0), n_classes, 30 * n_classes))


def cluster_rows(task: Task, n_clusters: int | None, method: str, default: int) -> NDArray[np.signedinteger]:
    """Cluster the rows of a task.

    Args:
        task: The task.
        n_clusters: The number of clusters; None for the default. Balanced clusters are then as many as classes.
        method: The method, see `Task.find_clusters`.
        default: The default number of clusters of other methods.

    Returns:
        The cluster of each row.
    """
    if n_clusters is None:
        n_clusters = len(task.space) if method == "balanced" else default
    return task.find_clusters(n_clusters, method)


def assign_cluster_classes(counts: NoisyCounts) -> NDArray[np.int64]:
    """Return the class with the largest noisy count in each cluster.

    Of as many clusters as classes, each gets a class of its own if the noise explains why the counts say otherwise: two
    draws of Laplace noise differ by more than four times its scale with a probability of about one in twenty.
    """
    leading = counts.counts.argmax(axis=1)
    if counts.counts.shape[0] != counts.counts.shape[1]:
        return leading
    matched = linear_sum_assignment(-counts.counts)[1]
    count_loss = counts.counts.max(axis=1).sum() - counts.counts[np.arange(len(matched)), matched].sum()
    return matched if count_loss <= 4 * counts.scale else leading


def cluster_class_posterior(counts: NoisyCounts, memberships: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the class probabilities of each row: its cluster memberships, summed over the clusters of each class."""
    posterior = np.zeros((len(memberships), counts.counts.shape[1]))
    for cluster, label in enumerate(assign_cluster_classes(counts)):
        posterior[:, label] += memberships[:, cluster]
    return posterior


def plurality_vote(release: Release, groups: NDArray[np.integer]) -> Codes:
    """Return each row's class by the plurality of the released labels in its group."""
    labels, n_classes = release.labels(), len(release.space)
    is_released = labels != MISSING
    votes = np.bincount(groups[is_released] * n_classes + labels[is_released], minlength=(groups.max() + 1) * n_classes)
    return votes.reshape(-1, n_classes).argmax(axis=1)[groups]


def keep_agreeing(release: Release, codes: Codes) -> Release:
    """Return the release restricted to labels that equal `codes`, which were computed from the release itself."""
    return release.keep(release.labels() == codes)


def label_posterior(release: Release) -> NDArray[np.float64]:
    """Return the class probabilities of each row by a release that gives a prior."""
    posterior = np.exp(release.log_evidence().astype(np.float64))
    return posterior / posterior.sum(axis=1, keepdims=True)


def select_confident_rows(
    posterior: NDArray[np.floating], groups: NDArray[np.integer], n_per_class: int, min_group_share: float = 0.3
) -> NDArray[np.int32]:
    """Return pseudo-labels for about `n_per_class` rows of each class, and none for the others.

    The most confident rows of all would be similar to each other. So each group contributes the same share of the rows
    that are predicted as a class, its most confident ones. Classes that are rare in a group contribute none, because
    they are mostly errors.

    Args:
        posterior: The class probabilities of each row.
        groups: The group of each row.
        n_per_class: The number of rows of each class.
        min_group_share: The share of a group's rows from which a class contributes.

    Returns:
        The code of each selected row, and `MISSING` for the others.
    """
    prediction, confidence = posterior.argmax(axis=1), posterior.max(axis=1)
    codes = np.full(len(posterior), MISSING, np.int32)
    sizes = np.bincount(groups)
    for label, n_predicted in enumerate(np.bincount(prediction, minlength=posterior.shape[1])):
        for group, size in enumerate(sizes):
            row_ids = np.flatnonzero((prediction == label) & (groups == group))
            if 0 < len(row_ids) >= min_group_share * size:
                n_selected = max(1, round(min(1.0, n_per_class / n_predicted) * len(row_ids)))
                codes[row_ids[np.argsort(-confidence[row_ids], kind="stable")[:n_selected]]] = label
    if min_group_share and (codes == MISSING).all():  # no class has enough rows in any group
        return select_confident_rows(posterior, np.zeros_like(groups), n_per_class, 0.0)
    return codes
