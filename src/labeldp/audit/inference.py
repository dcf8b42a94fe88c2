"""Label inference: the advantage of a guesser who sees the model over the best guess from features alone.

A model that predicts well lets anybody guess labels, also of people whose label was never used: that is its purpose,
and no leak. A leak is the advantage that comes from training on a row's own label. Here labels are drawn from a known
distribution for each row, so the best guess from features alone is known, too: the likeliest class.

What privacy allows. Let a row's label have the distribution p, with m its largest probability, and let x be the
probability of a right guess. With a_k the probability of guessing k if the label is k, and b_k if it is any other,
(epsilon, delta) demands a_k <= exp(epsilon) b_k + delta, since b_k is an average of neighbors. The guess is wrong with
probability
1 - x = sum of (1 - p_k) b_k >= sum of (1 - p_k) exp(-epsilon) (a_k - delta) >= c (x - delta), where
c = exp(-epsilon) (1 - m) / m. So x <= (1 + c delta) / (1 + c): `max_guess_accuracy`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from labeldp.audit.bounds import error_rate
from labeldp.core.errors import InputError
from labeldp.core.guarantee import max_guess_accuracy

_POWERS = (0.0, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class LabelInference:
    """The fraction of right guesses with and without the model, the difference, and the most that privacy allows."""

    advantage: float
    low: float
    high: float
    attack: float
    features_alone: float
    allowed: float  # the largest advantage within the stated epsilon and delta
    n_rows: int
    confidence: float
    view: str  # what the guesser uses: "model", or "releases"

    def to_json(self) -> dict[str, Any]:
        """Describe the measurement."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def measure_label_inference(
    labels: Any,
    prior: Any,
    model_probabilities: Any,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.95,
    evidence: Any = None,
) -> LabelInference:
    """Measure the advantage on rows whose labels were drawn from a known prior.

    A guess maximizes prior times (model / prior) to some power; or, with `evidence`, prior times likelihood. The best
    of these is chosen on every second row, and the advantage is measured on the others. Its interval takes rows as
    independent, although they share one model.

    Args:
        labels: The drawn labels, as codes.
        prior: The probabilities from which they were drawn, shape (rows, classes).
        model_probabilities: The probabilities that the trained model gives.
        epsilon: The stated epsilon for a label.
        delta: The stated delta.
        confidence: The confidence of the interval.
        evidence: The log-likelihoods of each row's releases, or None.
    """
    labels = np.asarray(labels)
    prior = np.asarray(prior, np.float64)
    model_probabilities = np.asarray(model_probabilities, np.float64)
    if (
        prior.shape != model_probabilities.shape
        or prior.ndim != 2
        or labels.shape != prior.shape[:1]
        or len(labels) < 4
    ):
        raise InputError(
            "Label inference needs probabilities of all classes, before and after, for four labels or more."
        )
    log_prior, log_model = (np.log(np.maximum(probabilities, 1e-12)) for probabilities in (prior, model_probabilities))
    is_prior_correct = log_prior.argmax(axis=1) == labels
    attacks = {("model", power): log_prior + power * (log_model - log_prior) for power in _POWERS}
    if evidence is not None:
        attacks["releases", 1.0] = log_prior + evidence
    is_correct = {attack_name: scores.argmax(axis=1) == labels for attack_name, scores in attacks.items()}
    view, _ = best_attack = max(is_correct, key=lambda attack_name: is_correct[attack_name][::2].mean())
    is_attack_correct, is_prior_correct = is_correct[best_attack][1::2], is_prior_correct[1::2]
    gain = is_attack_correct.astype(float) - is_prior_correct
    half_width = float(norm.ppf(1 - error_rate(confidence) / 2) * gain.std(ddof=1) / math.sqrt(gain.size))
    max_prior = prior[1::2].max(axis=1)
    rates = (
        float(is_attack_correct.mean()),
        float(is_prior_correct.mean()),
        float((max_guess_accuracy(epsilon, max_prior, delta) - max_prior).mean()),
    )
    advantage = float(gain.mean())
    return LabelInference(
        advantage, advantage - half_width, advantage + half_width, *rates, int(gain.size), float(confidence), view
    )
