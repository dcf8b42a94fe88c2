"""Label inference: how much better a guesser who sees the model does than the best guess from features alone.

A model that predicts well lets anybody guess labels, also of people whose label was never used: that is what
models are for, and no leak. What is a leak is the advantage of having used a row's own label. Here labels are drawn
from a law that is known for each row, so the best guess from features alone is known, too: the likeliest class.

What privacy allows. Let a row's label have the law p, with m its largest probability, and x the chance to guess right.
With a_k the chance of guessing k if the label is k, and b_k if it is any other, (epsilon, delta) demands
a_k <= exp(epsilon) b_k + delta, since b_k is an average of neighbours. The guess is wrong with probability
1 - x = sum of (1 - p_k) b_k >= sum of (1 - p_k) exp(-epsilon) (a_k - delta) >= c (x - delta), where
c = exp(-epsilon) (1 - m) / m. So x <= (1 + c delta) / (1 + c): `best_guess`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from labeldp.audit.bounds import error_rate
from labeldp.core.errors import InputError
from labeldp.core.guarantee import best_guess

_POWERS = (0.0, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Inference:
    """The share of right guesses with and without the model, the difference, and the most that privacy allows."""

    advantage: float
    low: float
    high: float
    attack: float
    features_alone: float
    allowed: float  # the largest advantage within the stated epsilon and delta
    rows: int
    confidence: float
    view: str  # what the guesser saw: the model, or what was released on the way to it

    def to_json(self) -> dict[str, Any]:
        """Describe the measurement."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def label_inference(
    labels: Any,
    prior: Any,
    model: Any,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.95,
    evidence: Any = None,
) -> Inference:
    """Measure the advantage over rows whose `labels` were drawn by `prior`; `model` holds the chances that it gives.

    The guess weighs prior times (model / prior) to some power; or, with `evidence`, the log-likelihoods of what was
    released of each row, prior times likelihood. Which of these is chosen on every second row, and the advantage is
    measured on the others. Its interval counts rows as if they were independent, which one model does not make them.
    """
    labels, prior, model = np.asarray(labels), np.asarray(prior, np.float64), np.asarray(model, np.float64)
    if prior.shape != model.shape or prior.ndim != 2 or labels.shape != prior.shape[:1] or len(labels) < 4:
        raise InputError("Label inference needs chances of all classes, before and after, for four labels or more.")
    before, after = (np.log(np.maximum(chances, 1e-12)) for chances in (prior, model))
    alone = before.argmax(axis=1) == labels
    attacks = {("model", power): before + power * (after - before) for power in _POWERS}
    if evidence is not None:
        attacks["releases", 1.0] = before + evidence
    tried = {way: scores.argmax(axis=1) == labels for way, scores in attacks.items()}
    view, _ = best = max(tried, key=lambda way: tried[way][::2].mean())
    attack, alone = tried[best][1::2], alone[1::2]
    gain = attack.astype(float) - alone
    reach = float(norm.ppf(1 - error_rate(confidence) / 2) * gain.std(ddof=1) / math.sqrt(gain.size))
    largest = prior[1::2].max(axis=1)
    shares = float(attack.mean()), float(alone.mean()), float((best_guess(epsilon, largest, delta) - largest).mean())
    found = float(gain.mean())
    return Inference(found, found - reach, found + reach, *shares, int(gain.size), float(confidence), view)
