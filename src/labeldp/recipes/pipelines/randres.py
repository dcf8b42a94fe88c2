"""Randomized response, then one learner: LP-1ST (Ghazi et al. 2021) and what Tang et al. (2022) train on it."""

from dataclasses import replace
from typing import Literal

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms import RandomizedResponse
from labeldp.recipes.cluster_votes import choose_n_clusters, cluster_rows, keep_agreeing, plurality_vote
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task

_MAX_CLASSES_FOR_TREES = 20  # classes: each round of boosting grows a tree for each of them


@recipe("randres", "randomized response, then a model of the true label by the likelihood of the noisy one")
def randres(task: Task, mixup: float = 0.0, targets: Literal["auto", "likelihood", "labels"] = "auto") -> Steps:
    """Train boosted trees on a table of up to 20 classes by default, and else the task's model.

    With targets "likelihood", the loss holds the known noise, and probabilities are those of the true label. With
    "labels", a network learns the noisy labels as they are, and its probabilities are those of the noisy label; this
    is RandRes of Tang et al. (2022). "auto" takes "labels" for images alone. With "labels" or mixup, the default model
    is a network also for tables.
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
    """Learn mixtures of rows with their noisy labels, 4.0 by default, so that a network memorises less noise.

    Pairs of ids are not mixed.
    """
    learner = task.learner("Supervised", mixup=task.resolve_mixup(mixup))
    noisy = yield Request(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe("randres-ssl", "randomized response, then FixMatch on all rows", networks="by default")
def randres_ssl(task: Task) -> Steps:
    """Every noisy label counts as marked; every row is learnt from as if unlabelled, too."""
    learner = task.learner("FixMatch")
    noisy = yield Request(RandomizedResponse(task.epsilon))
    return learner.fit(task.features, noisy, task.encoder)


@recipe(
    "randres-augdescent",
    "randomized response, then Aug-Descent: two networks sort the labels for each other",
    networks="by default",
)
def randres_augdescent(task: Task) -> Steps:
    """Divide the labels anew in every epoch."""
    learner = task.learner("AugDescent")
    noisy = yield Request(RandomizedResponse(task.epsilon))
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
        cluster_rows(task, clusters, method, choose_n_clusters(task, from_responses=True)),
    )
    noisy = yield Request(RandomizedResponse(task.epsilon))
    agreeing = keep_agreeing(noisy, plurality_vote(noisy, groups))  # at least one label agrees with each vote
    return learner.fit(task.features, agreeing, task.encoder)
