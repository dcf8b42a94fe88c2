"""LP-MST (Ghazi et al. 2021, Algorithm 3): stages on disjoint rows, each model the prior of the next stage."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from labeldp.core.errors import InputError
from labeldp.privacy.mechanisms import RandomizedResponse, RRWithPrior
from labeldp.privacy.mechanisms.binning import RROnBins
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.task import Task
from labeldp.releases.base import Release

_ALIKE = 64  # groups of rows that share their bins


@recipe(
    "lp-mst",
    "randomized response in stages, each among the classes that the model so far finds likely (LP-MST)",
    networks="by default",
)
def lp_mst(
    task: Task,
    stages: int = 2,
    first: float | None = None,
    temperature: float = 1.0,
    augment: Literal["weak", "strong"] = "weak",
    mixup: float | None = None,
    loss: Literal["auto", "right", "squared"] = "auto",
) -> Steps:
    """Spend epsilon once: a row is asked in one stage only. `first` is the share of rows in the first stage.

    Answers are learnt as evidence, not as the labels that they name: a network that learns noisy labels expects noisy
    labels, which is no prior for true ones (and noisy ratings lean towards the middle). Rows are mixed, by 4.0, but for
    ordered numbers and pairs of ids: a network that knows answers by heart is surer than it may be, which is no prior
    either. For the last network alone, `mixup` and `augment` say how much rows are mixed and varied. `loss` says what
    the answers of later stages are best at. "right" is the paper's: they are right as often as can be (`RRWithPrior`).
    "squared" is for ordered numbers, ratings for example: answers are near (`RROnBins`). "auto" takes "squared" where
    the classes are ordered numbers.
    """
    if stages < 1 or not (first is None or 0 < first < 1) or not temperature > 0:
        raise InputError("lp-mst needs a stage or more, a first share between 0 and 1, and a temperature above 0.")
    numbers = task.space.numbers if loss != "right" else None
    if loss == "squared" and numbers is None:
        raise InputError("A squared loss needs ordered classes that are numbers: declare them so, or take loss right.")
    usual_mixup = 4.0 if numbers is None else 0.0
    early = task.learner("Bayes", mixup=task.mixing(None, usual_mixup))
    last = task.learner("Bayes", augment=augment, mixup=task.mixing(mixup, usual_mixup))
    # Bins tell more than classes even by a rough prior, so that a first part of less than half of the rows will do.
    usual = 1 / stages if numbers is None else min(0.3, 1 / stages)
    begin = usual if first is None else first
    shares = [1.0] if stages == 1 else [begin, *[(1 - begin) / (stages - 1)] * (stages - 1)]
    rows, *later = task.parts(shares)
    heard: list[Release] = [(yield Ask(RandomizedResponse(task.epsilon), rows))]
    for rows in later:
        so_far = early.fit(task.features, Release.concat(*heard), task.encoder)
        prior = tempered(so_far.predict_proba(task.features), temperature)
        asked = RRWithPrior(task.epsilon, prior) if numbers is None else _near(task.epsilon, prior, numbers)
        heard.append((yield Ask(asked, rows, heard)))
    return last.fit(task.features, Release.concat(*heard), task.encoder)


def _near(epsilon: float, prior: NDArray[np.float64], numbers: NDArray[np.float64]) -> RROnBins:
    """Return bins for each group of rows whose expected numbers are about the same."""
    place = (prior @ numbers).argsort(kind="stable").argsort(kind="stable")
    groups = place * min(_ALIKE, len(prior)) // len(prior)
    means = np.array([prior[groups == group].mean(axis=0) for group in range(groups.max() + 1)])
    return RROnBins(epsilon, means / means.sum(axis=1, keepdims=True), groups=groups)


def tempered(chances: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    """Flatten (above 1) or sharpen (below 1) distributions: p ** (1 / temperature), normalised."""
    chances_above_zero = np.maximum(chances.astype(np.float64), 1e-12)
    return softmax(np.log(chances_above_zero) / temperature, axis=1)
