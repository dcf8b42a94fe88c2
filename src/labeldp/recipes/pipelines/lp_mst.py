"""LP-MST (Ghazi et al. 2021, Algorithm 3): stages on disjoint rows, each model the prior of the next stage."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms import RandomizedResponse, RRWithPrior
from labeldp.privacy.mechanisms.numeric_responses import RROnBins
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task
from labeldp.releases.base import Release

# Groups of rows with a common prior for bins.
_N_BIN_GROUPS = 64


@recipe(
    "lp-mst",
    "randomized response in stages, each among the classes that the model so far finds likely (LP-MST)",
    networks="by default",
)
def lp_mst(
    task: Task,
    stages: int = 2,
    first_fraction: float | None = None,
    temperature: float = 1.0,
    augment: Literal["weak", "strong"] = "weak",
    mixup: float | None = None,
    loss: Literal["auto", "right", "squared"] = "auto",
) -> Steps:
    """Release each row in one of several stages; the model of the earlier stages is the prior of the next stage.

    The stages are disjoint, so that each of them spends the whole epsilon. Networks learn the responses as evidence. A
    network that learned them as labels would predict noisy labels, and would be no prior of the true ones.

    Rows are mixed up with strength 4, except for ordered numbers and pairs of ids. A network that memorizes responses
    is overconfident, and a poor prior.

    Args:
        task: The task.
        stages: The number of stages.
        first_fraction: The fraction of the rows in the first stage.
        temperature: The temperature of the priors: above 1 flattens them.
        augment: How rows are augmented for the last network.
        mixup: The strength of mixup for the last network.
        loss: The loss that the responses of later stages minimize. "right", as in the paper, maximizes the probability
            of the true label (`RRWithPrior`). "squared" is for ordered classes that are numbers, such as ratings, and
            minimizes the squared error (`RROnBins`). "auto" takes "squared" where the classes allow it.

    Returns:
        A model of the responses of all stages.

    Raises:
        InputError: An option is out of range or does not suit the labels.
    """
    if stages < 1 or not (first_fraction is None or 0 < first_fraction < 1) or not temperature > 0:
        raise InputError("lp-mst needs a stage or more, a first_fraction between 0 and 1, and a temperature above 0.")
    class_values = task.space.class_values if loss != "right" else None
    if loss == "squared" and class_values is None:
        raise InputError("A squared loss needs ordered classes that are numbers: declare them so, or take loss right.")
    default_mixup = 4.0 if class_values is None else 0.0
    stage_learner = task.learner("Bayes", mixup=task.resolve_mixup(None, default_mixup))
    final_learner = task.learner("Bayes", augment=augment, mixup=task.resolve_mixup(mixup, default_mixup))
    # Bins are informative even with a rough prior, so that less than half of the rows suffice for the first stage.
    default_fraction = 1 / stages if class_values is None else min(0.3, 1 / stages)
    fraction = default_fraction if first_fraction is None else first_fraction
    row_fractions = [1.0] if stages == 1 else [fraction, *[(1 - fraction) / (stages - 1)] * (stages - 1)]
    row_mask, *later_masks = task.split_row_masks(row_fractions)
    releases: list[Release] = [(yield Request(RandomizedResponse(task.epsilon), row_mask))]
    for row_mask in later_masks:
        model = stage_learner.fit(task.features, Release.concat(*releases), task.encoder)
        prior = temper(model.predict_proba(task.features), temperature)
        mechanism = (
            RRWithPrior(task.epsilon, prior)
            if class_values is None
            else _bins_near_expected(task.epsilon, prior, class_values)
        )
        releases.append((yield Request(mechanism, row_mask, releases)))
    return final_learner.fit(task.features, Release.concat(*releases), task.encoder)


def _bins_near_expected(epsilon: float, prior: NDArray[np.float64], class_values: NDArray[np.float64]) -> RROnBins:
    """Return `RROnBins` with a common prior for each group of rows whose expected numbers are similar."""
    rank = (prior @ class_values).argsort(kind="stable").argsort(kind="stable")
    groups = rank * min(_N_BIN_GROUPS, len(prior)) // len(prior)
    means = np.array([prior[groups == group].mean(axis=0) for group in range(groups.max() + 1)])
    return RROnBins(epsilon, means / means.sum(axis=1, keepdims=True), groups=groups)


def temper(probabilities: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    """Return p ** (1 / temperature), normalized: a temperature above 1 flattens, and below 1 sharpens."""
    positive_probabilities = np.maximum(probabilities.astype(np.float64), 1e-12)
    return softmax(np.log(positive_probabilities) / temperature, axis=1)
