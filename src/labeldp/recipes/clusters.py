"""Clusters found without labels: a noisy vote (Tang et al. 2022), or a prior for RRWithPrior (Ghazi et al. 2021)."""

import numpy as np

from labeldp.errors import InputError
from labeldp.labels import MISSING
from labeldp.learn.supervised import Supervised
from labeldp.mechanisms import GroupHistogram, RRWithPrior
from labeldp.recipes.base import Ask, Steps, Task, recipe
from labeldp.recipes.shares import split_epsilon
from labeldp.recipes.votes import chances, class_of_each, cluster_count, group_rows
from labeldp.releases.base import Release


@recipe("noise-cluster", "noisy label counts of clusters; each cluster takes the label that leads (NoiseCluster)")
def noise_cluster(task: Task, clusters: int | None = None, method: str = "kmeans") -> Steps:
    """The model learns the clusters' labels.

    A label moves two counts by one. Geometric noise for that is purely private, and smaller than Gaussian noise at the
    usual deltas, so delta is left alone.
    """
    learner, groups = task.learner(Supervised), group_rows(task, clusters, method, cluster_count(task))
    counts = yield Ask(GroupHistogram(groups, task.epsilon))
    if method == "balanced":
        labels = np.where(task.rows, class_of_each(counts)[groups], MISSING)
        counts = counts.relabel(labels.astype(np.int32))
    return learner.fit(task.features, counts, task.encoder)


@recipe(
    "cluster-prior", "noisy label counts of clusters with part of the budget, as priors for RRWithPrior with the rest"
)
def cluster_prior(
    task: Task, clusters: int | None = None, share: float = 0.2, mixup: float = 4.0, method: str = "kmeans"
) -> Steps:
    """The counts say which classes a row may have; randomized response among these says more."""
    if not 0 < share < 1:
        raise InputError("cluster-prior needs a share of epsilon for the counts that is above 0 and below 1.")
    first, second = split_epsilon(task.epsilon, share)
    learner = task.learner(Supervised, mixup=mixup)
    groups = group_rows(task, clusters, method, cluster_count(task, first))
    counts = yield Ask(GroupHistogram(groups, first))
    noisy = yield Ask(RRWithPrior(second, chances(counts)), None, [counts])
    return learner.fit(task.features, Release.concat(noisy, counts), task.encoder)  # what either says of a row
