"""Clusters found without labels: a noisy vote (Tang et al. 2022), or a prior for RRWithPrior (Ghazi et al. 2021)."""

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms import GroupHistogram, RRWithPrior
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.budget_split import split_epsilon
from labeldp.recipes.task import Task
from labeldp.recipes.votes import chances, classes_by_kind, cluster_count, group_rows
from labeldp.releases.base import Release


@recipe(
    "noise-cluster",
    "noisy label counts of clusters; each cluster takes the label that leads (NoiseCluster)",
    networks="by default",
)
def noise_cluster(task: Task, clusters: int | None = None, method: str = "kmeans") -> Steps:
    """The model learns the clusters' labels.

    A label moves two counts by one. Geometric noise for that is purely private, and smaller than Gaussian noise at the
    usual deltas, so delta is left alone.
    """
    if method == "balanced":
        return (yield from _by_kind(task, clusters))
    learner, groups = task.learner("Supervised"), group_rows(task, clusters, method, cluster_count(task))
    counts = yield Ask(GroupHistogram(groups, task.epsilon))
    return learner.fit(task.features, counts, task.encoder)


def _by_kind(task: Task, kinds: int | None) -> Steps:
    """Kinds of one size are as many as classes by default. A row between two of them is half of each."""
    learner = task.learner("Supervised", targets="posteriors", augment="strong")
    shares = task.shares(len(task.space) if kinds is None else kinds)
    counts = yield Ask(GroupHistogram(shares.argmax(axis=1), task.epsilon))
    likely = classes_by_kind(counts, shares) * task.rows[:, None]
    return learner.fit(task.features, counts.believe(likely), task.encoder)


@recipe(
    "cluster-prior",
    "noisy label counts of clusters with part of the budget, as priors for RRWithPrior with the rest",
    networks="by default",
)
def cluster_prior(
    task: Task, clusters: int | None = None, share: float = 0.2, mixup: float | None = None, method: str = "kmeans"
) -> Steps:
    """The counts say which classes a row may have; randomized response among these says more."""
    if not 0 < share < 1:
        raise InputError("cluster-prior needs a share of epsilon for the counts that is above 0 and below 1.")
    first, second = split_epsilon(task.epsilon, share)
    learner = task.learner("Supervised", mixup=task.mixing(mixup))
    groups = group_rows(task, clusters, method, cluster_count(task, first))
    counts = yield Ask(GroupHistogram(groups, first))
    noisy = yield Ask(RRWithPrior(second, chances(counts)), None, [counts])
    return learner.fit(task.features, Release.concat(noisy, counts), task.encoder)  # what either says of a row
