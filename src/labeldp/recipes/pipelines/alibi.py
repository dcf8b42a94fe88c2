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
    """Release noisy one-hot labels, then train with the model as the prior of each label.

    Args:
        task: The task.
        noise: Laplace noise satisfies pure differential privacy; Gaussian noise needs delta.
        augment: How rows are augmented.
        mixup: The strength of mixup, by default 4, and 0 for pairs of ids. The paper does not use it. A network then
            memorizes less noise.

    Returns:
        A model.

    Raises:
        InputError: Gaussian noise has no delta, or an option does not suit the task.
    """
    if noise == "gaussian" and not task.delta:
        raise InputError(
            "Gaussian noise needs a delta above 0: give one, 1e-6 for example, or use Laplace noise.", parameter="delta"
        )
    mechanism = OneHotLaplace(task.epsilon) if noise == "laplace" else OneHotGaussian(task.epsilon, task.delta)
    learner = task.learner("Bayes", augment=augment, mixup=task.resolve_mixup(mixup))
    noisy = yield Request(mechanism)
    return learner.fit(task.features, noisy, task.encoder)
