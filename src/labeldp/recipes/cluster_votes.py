"""Clusters and their votes: how many clusters a budget bears, and what they say."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from labeldp.core.label_space import MISSING, Codes
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.responses import response_probabilities

_MIN_DEVIATIONS = 3.0  # deviations by which a typical cluster's vote must stand above its noise
_TYPICAL_LEAD = 0.5  # by what share of its rows a typical cluster's first class leads


def choose_n_clusters(task: Task, epsilon: float | None = None, from_responses: bool = False) -> int:
    """Return how many clusters the budget bears, from public facts alone.

    More clusters are purer, and smaller. In a cluster of m rows the first class leads by about m / 2 votes. The noise
    of that lead is about 4 / epsilon for noisy counts, and sqrt(m / 2) / (p - q) for votes among labels that randomized
    response kept with probability p and turned into any other with q. It must stay below a third of the lead.
    """
    epsilon = (epsilon or task.epsilon) / task.labels_per_user
    n_rows, n_classes = int(task.row_mask.sum()), len(task.space)
    min_rows = _MIN_DEVIATIONS * 4 / epsilon / _TYPICAL_LEAD
    if from_responses:
        p_true, p_other = response_probabilities(epsilon, n_classes)
        min_rows = 0.5 * (_MIN_DEVIATIONS / (_TYPICAL_LEAD * (p_true - p_other))) ** 2
    return int(np.clip(n_rows / max(min_rows, 20.0), n_classes, 30 * n_classes))


def cluster_rows(task: Task, n_clusters: int | None, method: str, default: int) -> NDArray[np.signedinteger]:
    """Group rows into so many clusters, or as many as are usual; those of one size are the classes by default."""
    if n_clusters is None:
        n_clusters = len(task.space) if method == "balanced" else default
    return task.find_clusters(n_clusters, method)


def assign_cluster_classes(counts: NoisyCounts) -> NDArray[np.int64]:
    """Return the label that leads in each group.

    Of as many groups as classes, each has a class of its own if only noise may have hidden that: two draws of Laplace
    noise differ by more than four times its scale about once in twenty times.
    """
    leading = counts.counts.argmax(axis=1)
    if counts.counts.shape[0] != counts.counts.shape[1]:
        return leading
    matched = linear_sum_assignment(-counts.counts)[1]
    count_loss = counts.counts.max(axis=1).sum() - counts.counts[np.arange(len(matched)), matched].sum()
    return matched if count_loss <= 4 * counts.scale else leading


def cluster_class_posterior(counts: NoisyCounts, memberships: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return how much each row is of each class, by its shares in kinds and the class that leads in each of them."""
    posterior = np.zeros((len(memberships), counts.counts.shape[1]))
    for cluster, label in enumerate(assign_cluster_classes(counts)):
        posterior[:, label] += memberships[:, cluster]
    return posterior


def plurality_vote(release: Release, groups: NDArray[np.integer]) -> Codes:
    """Return each row's label by the plurality of the released labels in its group."""
    labels, n_classes = release.labels(), len(release.space)
    is_released = labels != MISSING
    votes = np.bincount(groups[is_released] * n_classes + labels[is_released], minlength=(groups.max() + 1) * n_classes)
    return votes.reshape(-1, n_classes).argmax(axis=1)[groups]


def keep_agreeing(release: Release, codes: Codes) -> Release:
    """Keep the released labels that equal `codes`, which were worked out from the release itself."""
    return release.keep(release.labels() == codes)


def label_posterior(release: Release) -> NDArray[np.float64]:
    """Return what a release that gives a prior says of each row, as probabilities."""
    posterior = np.exp(release.log_evidence().astype(np.float64))
    return posterior / posterior.sum(axis=1, keepdims=True)


def select_confident_rows(
    posterior: NDArray[np.floating], groups: NDArray[np.integer], n_per_class: int, min_group_share: float = 0.3
) -> NDArray[np.int32]:
    """Return labels for about `count` rows of each class, and none for the others.

    The surest rows of all would be the easy ones, alike each other. So each group gives the same share of the rows that
    seem to be of a class, its surest ones, if they are at least a share `common` of the group: those that a group holds
    few of are mostly mistakes.
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
    if min_group_share and (codes == MISSING).all():  # no group is of a class
        return select_confident_rows(posterior, np.zeros_like(groups), n_per_class, 0.0)
    return codes
