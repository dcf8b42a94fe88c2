"""Randomized response, then one learner: LP-1ST (Ghazi et al. 2021) and the learners of Tang et al. (2022)."""

from dataclasses import replace
from typing import Literal

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms import RandomizedResponse
from labeldp.recipes.cluster_votes import choose_n_clusters, cluster_rows, keep_agreeing, plurality_vote
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task

# Classes up to which boosted trees are the default of a table. Each round of boosting grows a tree for each class.
_MAX_CLASSES_FOR_TREES = 20


@recipe("randres", "randomized response, then a model of the true label by the likelihood of the noisy one")
def randres(task: Task, mixup: float = 0.0, targets: Literal["auto", "likelihood", "labels"] = "auto") -> Steps:
    """Release randomized response, then train the task's model.

    The default model is boosted trees for a table of up to 20 classes, and else a network. With targets "labels" or
    with mixup, it is a network also for tables.

    Args:
        task: The task.
        mixup: The strength of mixup.
        targets: With "likelihood", the loss is the likelihood under the known noise, and the model predicts the true
            label. With "labels", a network learns the noisy labels directly, and predicts the noisy label; this is
            RandRes of Tang et al. (2022). "auto" takes "labels" for images alone.

    Returns:
        A model.

    Raises:
        InputError: The targets are labels, and the model is not a network.
    """
    if targets == "labels" and (hasattr(task.model, "fit") or task.model in ("trees", "logistic")):
        raise InputError("Only networks learn noisy labels as they are: leave targets out, or choose a network.")
    needs_network = targets == "labels" or mixup > 0
    if (
        task.model == "auto"
        and task.features.kind == "table"
        and len(task.space) <= _MAX_CLASSES_FOR_TREES
        and not needs_network
    ):
        task = replace(task, model="trees")
    ignores_noise = targets == "labels" or (targets == "auto" and task.features.kind == "images")
    learner = task.learner("Supervised" if ignores_noise else "Bayes", mixup=task.resolve_mixup(mixup, 0.0))
    noisy = yield Request(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe("randres-mixup", "randomized response, then training with mixup (LP-1ST)", networks="by default")
def randres_mixup(task: Task, mixup: float | None = None) -> Steps:
    """Release randomized response, then train with mixup, so that a network memorizes less noise.

    Args:
        task: The task.
        mixup: The strength of mixup, by default 4, and 0 for pairs of ids.

    Returns:
        A model.
    """
    learner = task.learner("Supervised", mixup=task.resolve_mixup(mixup))
    noisy = yield Request(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe("randres-ssl", "randomized response, then FixMatch on all rows", networks="by default")
def randres_ssl(task: Task) -> Steps:
    """Release randomized response, then train FixMatch: each row is both a labeled and an unlabeled row."""
    learner = task.learner("FixMatch")
    noisy = yield Request(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe(
    "randres-augdescent",
    "randomized response, then Aug-Descent: two networks select labels for each other",
    networks="by default",
)
def randres_augdescent(task: Task) -> Steps:
    """Release randomized response, then train Aug-Descent, which selects labels anew in every epoch."""
    learner = task.learner("AugDescent")
    noisy = yield Request(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe(
    "randres-denoise",
    "randomized response, retained where the vote of the row's cluster agrees, then FixMatch",
    networks="by default",
)
def randres_denoise(task: Task, clusters: int | None = None, method: str = "kmeans") -> Steps:
    """Release randomized response, then train FixMatch on the labels that agree with the vote of their cluster.

    The vote is post-processing of the released labels, and costs nothing.

    Args:
        task: The task.
        clusters: The number of clusters; by default the number whose votes stand out from the noise.
        method: The clustering, see `Task.find_clusters`.

    Returns:
        A model.
    """
    learner = task.learner("FixMatch")
    groups = cluster_rows(task, clusters, method, choose_n_clusters(task, from_responses=True))
    noisy = yield Request(RandomizedResponse(task.epsilon))
    agreeing = keep_agreeing(noisy, plurality_vote(noisy, groups))  # at least one label agrees with each vote
    return learner.fit(task.features, agreeing, task.encoder)
