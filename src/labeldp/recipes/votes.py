"""Clusters and their votes: how many clusters a budget bears, and what they say."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from labeldp.core.label_space import MISSING, Codes
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.responses import response_chances

_SURE = 3.0  # deviations by which a typical cluster's vote must stand above its noise
_LEAD = 0.5  # by what share of its rows a typical cluster's first class leads


def cluster_count(task: Task, epsilon: float | None = None, local: bool = False) -> int:
    """Return how many clusters the budget bears, from public facts alone.

    More clusters are purer, and smaller. In a cluster of m rows the first class leads by about m / 2 votes. The noise
    of that lead is about 4 / epsilon for noisy counts, and sqrt(m / 2) / (p - q) for votes among labels that randomized
    response kept with probability p and turned into any other with q. It must stay below a third of the lead.
    """
    epsilon = (epsilon or task.epsilon) / task.labels_per_user
    rows, classes = int(task.rows.sum()), len(task.space)
    smallest = _SURE * 4 / epsilon / _LEAD
    if local:
        kept, other = response_chances(epsilon, classes)
        smallest = 0.5 * (_SURE / (_LEAD * (kept - other))) ** 2
    return int(np.clip(rows / max(smallest, 20.0), classes, 30 * classes))


def group_rows(task: Task, clusters: int | None, method: str, usual: int) -> NDArray[np.signedinteger]:
    """Group rows into so many clusters, or as many as are usual; those of one size are the classes by default."""
    if clusters is None:
        clusters = len(task.space) if method == "balanced" else usual
    return task.clusters(clusters, method)


def class_of_each(counts: NoisyCounts) -> NDArray[np.int64]:
    """Return the label that leads in each group.

    Of as many groups as classes, each has a class of its own if only noise may have hidden that: two draws of Laplace
    noise differ by more than four times its scale about once in twenty times.
    """
    leads = counts.counts.argmax(axis=1)
    if counts.counts.shape[0] != counts.counts.shape[1]:
        return leads
    own = linear_sum_assignment(-counts.counts)[1]
    lost = counts.counts.max(axis=1).sum() - counts.counts[np.arange(len(own)), own].sum()
    return own if lost <= 4 * counts.scale else leads


def classes_by_kind(counts: NoisyCounts, shares: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return how much each row is of each class, by its shares in kinds and the class that leads in each of them."""
    likely = np.zeros((len(shares), counts.counts.shape[1]))
    for kind, label in enumerate(class_of_each(counts)):
        likely[:, label] += shares[:, kind]
    return likely


def vote(release: Release, groups: NDArray[np.integer]) -> Codes:
    """Return each row's label by the plurality of the released labels in its group."""
    labels, classes = release.labels(), len(release.space)
    said = labels != MISSING
    votes = np.bincount(groups[said] * classes + labels[said], minlength=(groups.max() + 1) * classes)
    return votes.reshape(-1, classes).argmax(axis=1)[groups]


def agreed(release: Release, codes: Codes) -> Release:
    """Keep the released labels that equal `codes`, which were worked out from the release itself."""
    return release.keep(release.labels() == codes)


def chances(release: Release) -> NDArray[np.float64]:
    """Return what a release that gives a prior says of each row, as probabilities."""
    likely = np.exp(release.log_evidence().astype(np.float64))
    return likely / likely.sum(axis=1, keepdims=True)


def surest(
    likely: NDArray[np.floating], groups: NDArray[np.integer], count: int, common: float = 0.3
) -> NDArray[np.int32]:
    """Return labels for about `count` rows of each class, and none for the others.

    The surest rows of all would be the easy ones, alike each other. So each group gives the same share of the rows that
    seem to be of a class, its surest ones, if they are at least a share `common` of the group: those that a group holds
    few of are mostly mistakes.
    """
    guess, sure = likely.argmax(axis=1), likely.max(axis=1)
    codes = np.full(len(likely), MISSING, np.int32)
    sizes = np.bincount(groups)
    for label, total in enumerate(np.bincount(guess, minlength=likely.shape[1])):
        for group, size in enumerate(sizes):
            alike = np.flatnonzero((guess == label) & (groups == group))
            if 0 < len(alike) >= common * size:
                wanted = max(1, round(min(1.0, count / total) * len(alike)))
                codes[alike[np.argsort(-sure[alike], kind="stable")[:wanted]]] = label
    if common and (codes == MISSING).all():  # no group is of a class
        return surest(likely, np.zeros_like(groups), count, 0.0)
    return codes
