"""Randomized response, then one learner: LP-1ST (Ghazi et al. 2021) and what Tang et al. (2022) train on it."""

from labeldp.mechanisms import RandomizedResponse
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.task import Task
from labeldp.recipes.votes import agreed, cluster_count, group_rows, vote


@recipe("randres", "randomized response, then plain training", networks="by default")
def randres(task: Task, mixup: float = 0.0) -> Steps:
    """Learn the noisy labels as they are."""
    learner = task.learner("Supervised", mixup=task.mixing(mixup, 0.0))
    noisy = yield Ask(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe("randres-mixup", "randomized response, then training with mixup (LP-1ST)", networks="by default")
def randres_mixup(task: Task, mixup: float | None = None) -> Steps:
    """Learn mixtures of rows, 4.0 by default, which keeps a network from learning noisy labels by heart.

    Pairs of ids are not mixed.
    """
    return (yield from randres(task, task.mixing(mixup)))


@recipe("randres-ssl", "randomized response, then FixMatch on all rows", networks="by default")
def randres_ssl(task: Task) -> Steps:
    """Every noisy label counts as marked; every row is learnt from as if unlabelled, too."""
    learner = task.learner("FixMatch")
    noisy = yield Ask(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe(
    "randres-augdescent",
    "randomized response, then Aug-Descent: two networks sort the labels for each other",
    networks="by default",
)
def randres_augdescent(task: Task) -> Steps:
    """Divide the labels anew in every epoch."""
    learner = task.learner("AugDescent")
    noisy = yield Ask(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe(
    "randres-denoise",
    "randomized response, kept where the vote of the row's cluster agrees, then FixMatch",
    networks="by default",
)
def randres_denoise(task: Task, clusters: int | None = None, method: str = "kmeans") -> Steps:
    """The vote is taken among the released labels themselves, so it costs nothing."""
    learner, groups = (
        task.learner("FixMatch"),
        group_rows(task, clusters, method, cluster_count(task, local=True)),
    )
    noisy = yield Ask(RandomizedResponse(task.epsilon))
    kept = agreed(noisy, vote(noisy, groups))  # at least one label agrees with each vote
    return learner.fit(task.features, kept, task.encoder)
