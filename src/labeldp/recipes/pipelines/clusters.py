"""Clusters found without labels: a noisy vote (Tang et al. 2022), or a prior for RRWithPrior (Ghazi et al. 2021)."""

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms import GroupHistogram, RRWithPrior
from labeldp.recipes.budget_split import split_epsilon
from labeldp.recipes.cluster_votes import choose_n_clusters, cluster_class_posterior, cluster_rows, label_posterior
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task
from labeldp.releases.base import Release


@recipe(
    "noise-cluster",
    "noisy label counts of clusters; each cluster takes the label that leads (NoiseCluster)",
    networks="by default",
)
def noise_cluster(task: Task, clusters: int | None = None, method: str = "kmeans") -> Steps:
    """Release noisy label counts of clusters, then train on the class that leads in each cluster.

    A label changes two counts by one. Geometric noise for that satisfies pure differential privacy, and is smaller than
    Gaussian noise at the usual deltas, so that the recipe spends no delta.

    Args:
        task: The task.
        clusters: The number of clusters; by default the number whose votes stand out from the noise.
        method: The clustering, see `Task.find_clusters`.

    Returns:
        A model.
    """
    if method == "balanced":
        return (yield from _balanced_noise_cluster(task, clusters))
    learner, groups = task.learner("Supervised"), cluster_rows(task, clusters, method, choose_n_clusters(task))
    counts = yield Request(GroupHistogram(groups, task.epsilon))
    return learner.fit(task.features, counts, task.encoder)


def _balanced_noise_cluster(task: Task, n_clusters: int | None) -> Steps:
    """Release counts of balanced clusters, by default one for each class. A row can be a member of several of them."""
    learner = task.learner("Supervised", targets="posteriors", augment="strong")
    memberships = task.cluster_memberships(len(task.space) if n_clusters is None else n_clusters)
    counts = yield Request(GroupHistogram(memberships.argmax(axis=1), task.epsilon))
    posterior = cluster_class_posterior(counts, memberships) * task.row_mask[:, None]
    return learner.fit(task.features, counts.with_posterior(posterior), task.encoder)


@recipe(
    "cluster-prior",
    "noisy label counts of clusters with part of the budget, as priors for RRWithPrior with the rest",
    networks="by default",
)
def cluster_prior(
    task: Task,
    clusters: int | None = None,
    epsilon_fraction: float = 0.2,
    mixup: float | None = None,
    method: str = "kmeans",
) -> Steps:
    """Release noisy label counts of clusters, then randomized response with the counts as the prior of each row.

    Args:
        task: The task.
        clusters: The number of clusters; by default the number whose votes stand out from the noise.
        epsilon_fraction: The fraction of epsilon for the counts.
        mixup: The strength of mixup, see `Task.resolve_mixup`.
        method: The clustering, see `Task.find_clusters`.

    Returns:
        A model of counts and responses.

    Raises:
        InputError: The fraction is out of range, or an option does not suit the task.
    """
    if not 0 < epsilon_fraction < 1:
        raise InputError("cluster-prior needs an epsilon_fraction for the counts that is above 0 and below 1.")
    counts_epsilon, labels_epsilon = split_epsilon(task.epsilon, epsilon_fraction)
    learner = task.learner("Supervised", mixup=task.resolve_mixup(mixup))
    groups = cluster_rows(task, clusters, method, choose_n_clusters(task, counts_epsilon))
    counts = yield Request(GroupHistogram(groups, counts_epsilon))
    noisy = yield Request(RRWithPrior(labels_epsilon, label_posterior(counts)), None, [counts])
    return learner.fit(task.features, Release.concat(noisy, counts), task.encoder)
