"""LP-MST (Ghazi et al. 2021, Algorithm 3): stages on disjoint rows, each model the prior of the next stage."""

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InputError
from labeldp.learn.supervised import Supervised
from labeldp.mechanisms import RandomizedResponse, RRWithPrior
from labeldp.recipes.base import Ask, Steps, Task, recipe
from labeldp.releases.base import Release


@recipe("lp-mst", "randomized response in stages, each among the classes that the model so far finds likely (LP-MST)")
def lp_mst(
    task: Task, stages: int = 2, first: float | None = None, temperature: float = 1.0, mixup: float = 4.0
) -> Steps:
    """Spend epsilon once: a row is asked in one stage only. `first` is the share of rows in the first stage."""
    whole = isinstance(stages, int) and stages >= 1
    if not whole or not (first is None or 0 < first < 1) or not temperature > 0:
        raise InputError(
            "lp-mst needs a whole number of stages, a first share between 0 and 1, and a temperature above 0."
        )
    begin = 1 / stages if first is None else first
    shares = [1.0] if stages == 1 else [begin, *[(1 - begin) / (stages - 1)] * (stages - 1)]
    learner, model, heard = task.learner(Supervised, mixup=mixup), task.encoder, list[Release]()
    for rows in task.parts(shares):
        if not heard:
            heard = [(yield Ask(RandomizedResponse(task.epsilon), rows))]
        else:
            prior = tempered(model.predict_proba(task.features), temperature)  # type: ignore[union-attr]
            heard.append((yield Ask(RRWithPrior(task.epsilon, prior), rows, heard)))
        model = learner.fit(task.features, Release.concat(*heard), task.encoder)
    return model  # type: ignore[return-value]


def tempered(chances: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    """Flatten (above 1) or sharpen (below 1) distributions: p ** (1 / temperature), normalised."""
    logs = np.log(np.maximum(chances.astype(np.float64), 1e-12)) / temperature
    sharp = np.exp(logs - logs.max(axis=1, keepdims=True))
    return sharp / sharp.sum(axis=1, keepdims=True)
