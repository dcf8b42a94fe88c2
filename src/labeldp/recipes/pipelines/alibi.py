"""ALIBI (Malek et al. 2021): noise on the one-hot label, then Bayes with the model as the prior."""

from typing import Literal

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms import OneHotGaussian, OneHotLaplace
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task


@recipe(
    "alibi", "noise on the one-hot label, then Bayesian training with the model as prior (ALIBI)", networks="by default"
)
def alibi(
    task: Task,
    noise: Literal["laplace", "gaussian"] = "laplace",
    augment: Literal["weak", "strong"] = "weak",
    mixup: float | None = None,
) -> Steps:
    """Laplace noise is purely private; Gaussian noise needs delta.

    Rows are mixed, 4.0 by default, of which the paper does not speak: a network then learns less noise by heart.
    Pairs of ids are not.
    """
    if noise == "gaussian" and not task.delta:
        raise InputError("Gaussian noise needs a delta above 0: give one, 1e-6 for example, or use Laplace noise.")
    laplace = noise == "laplace"
    mechanism = OneHotLaplace(task.epsilon) if laplace else OneHotGaussian(task.epsilon, task.delta)
    learner = task.learner("Bayes", augment=augment, mixup=task.resolve_mixup(mixup))
    noisy = yield Request(mechanism)
    return learner.fit(task.features, noisy, task.encoder)
