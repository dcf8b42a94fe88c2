"""The loss -log p(released | features) of a model behind a noisy channel, with gradient and curvature by score.

`Boosting` minimizes it. Scores s are logits: for two classes one column, the log-odds of the second class, and else one
column for each class. With p = softmax(s) and L_c = p(released | class c), the loss of a row is -log sum_c p_c L_c.

- Gradient: p - q, where q is the posterior, proportional to p L.
- Curvature: the Fisher information E[(p - q)^2] over what could have been released, never negative. The observed second
  derivative, p (1 - p) - q (1 - q), is negative for about half of the rows. For binary randomized response that flips a
  label with probability f, with m = 1 - 2f and r = f + m p, it is (m p (1 - p))^2 / (r (1 - r)).

For any channel, the expectation is over the released rows, each weighted by p(released | p) / p(released | c0), where
c0 are the class proportions of maximum likelihood. For two classes and randomized response this is the formula above.
For K > 2 classes, each class is compared with the mixture of the others in the proportions of c0. The curvature is
multiplied by K / (K - 1), as is usual for trees that change one score at a time.

A "prior" release is itself a posterior. Its loss is the cross-entropy with that posterior, with curvature p (1 - p).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logsumexp, softmax

Floats = NDArray[np.floating]

_LOGIT_GRID = np.linspace(-15.0, 15.0, 241)  # logits at which the curvature is tabulated
_MAX_LEVELS = 256  # distinct likelihood ratios; more are replaced by quantiles
_MAX_LOG_RATIO = 30.0  # at which log-likelihood ratios are clipped
_MIN_CURVATURE = 1e-12  # curvature of a row
_SCORING_STEPS, _MAX_STEP = 20, 2.0  # of Fisher scoring
_MIN_GAIN_PER_SCORE = 5.0  # log-likelihood for each shifted score; its expectation is 0.5 without a true shift


@dataclass(frozen=True, eq=False)
class ChannelLoss:
    """The loss of rows.

    Attributes:
        evidence: The log-evidence, (rows, classes).
        kind: The `Release.kind` of the evidence.
        constant: The best scores of a model without features.
        curves: For each score, the curvature at the logits of a grid.
    """

    evidence: Floats
    kind: Literal["likelihood", "prior"]
    constant: Floats
    curves: Floats

    @classmethod
    def of(cls, evidence: Floats, kind: Literal["likelihood", "prior"]) -> "ChannelLoss":
        """Prepare the loss of rows from `Release.log_evidence` and `Release.kind`."""
        if kind == "prior":
            evidence = log_softmax(evidence, axis=1)
            proportions = softmax(evidence, axis=1).mean(axis=0, dtype=np.float64)
            return cls(evidence, kind, to_scores(np.log(np.maximum(proportions, 1e-12))[None])[0], np.zeros((0, 0)))
        evidence = evidence - evidence.max(axis=1, keepdims=True)
        log_proportions = fit_log_proportions(*_unique_evidence(evidence))
        curves = [
            _expected_curvature(each, proportion) for each, proportion in _one_vs_rest_ratios(evidence, log_proportions)
        ]
        return cls(evidence, kind, to_scores(log_proportions[None])[0], np.array(curves))

    def select(self, row_ids: NDArray[np.integer]) -> "ChannelLoss":
        """Return the loss of some rows, with the same curvature."""
        return ChannelLoss(self.evidence[row_ids], self.kind, self.constant, self.curves)

    def losses(self, scores: Floats) -> Floats:
        """Return the loss of each row at scores (rows, outputs)."""
        if self.kind == "prior":
            return -(np.exp(self.evidence) * log_softmax(_all_classes(scores), axis=1)).sum(axis=1)
        if scores.shape[1] == 1:
            return np.logaddexp(0, scores[:, 0]) - np.logaddexp(self.evidence[:, 0], scores[:, 0] + self.evidence[:, 1])
        return logsumexp(scores, axis=1) - logsumexp(scores + self.evidence, axis=1)

    def gradient_and_curvature(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return gradient and curvature at scores, each (rows, outputs)."""
        n_classes = self.evidence.shape[1]
        if n_classes == 2:
            log_ratio = (self.evidence[:, 1] - self.evidence[:, 0])[:, None]
            probability, target = expit(scores), expit(log_ratio if self.kind == "prior" else scores + log_ratio)
        else:
            probability = softmax(scores, axis=1)
            target = np.exp(self.evidence) if self.kind == "prior" else softmax(scores + self.evidence, axis=1)
        if self.kind == "prior":
            curvature = probability * (1 - probability)
        else:
            logit = (
                scores
                if n_classes == 2
                else np.log(np.maximum(probability, 1e-9)) - np.log1p(-np.minimum(probability, 0.9999))
            )
            logits_and_curves = zip(logit.T, self.curves, strict=True)
            curvature = np.stack([np.interp(each, _LOGIT_GRID, curve) for each, curve in logits_and_curves], axis=1)
        factor = 1.0 if n_classes == 2 else n_classes / (n_classes - 1)
        return probability - target, np.maximum(factor * curvature, _MIN_CURVATURE)


def fit_shift(loss: ChannelLoss, scores: Floats) -> Floats:
    """Return the shift of all scores with maximum likelihood, or zeros unless the likelihood gain is significant."""
    shift = np.zeros(scores.shape[1])
    for _ in range(_SCORING_STEPS):
        gradient, curvature = loss.gradient_and_curvature(scores + shift)
        shift -= np.clip(gradient.sum(axis=0) / curvature.sum(axis=0), -_MAX_STEP, _MAX_STEP)
    gain = float((loss.losses(scores) - loss.losses(scores + shift)).sum())
    return shift if gain > _MIN_GAIN_PER_SCORE * shift.size else np.zeros_like(shift)


def match_proportions(scores: Floats, proportions: Floats) -> Floats:
    """Return the shift of all scores for which the mean probabilities equal these class proportions."""
    logits, is_binary = _all_classes(scores), scores.shape[1] == 1

    def loss(shift: Floats) -> tuple[float, Floats]:  # convex, with the difference of the means as its gradient
        shifted = logits + np.append(0.0, shift) if is_binary else logits + shift
        difference = softmax(shifted, axis=1).mean(axis=0) - proportions
        value = logsumexp(shifted, axis=1).mean() - proportions[-shift.size :] @ shift
        return float(value), difference[1:] if is_binary else difference

    start = np.zeros(scores.shape[1])
    shift: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-7}).x
    return shift


def to_scores(log_probabilities: Floats) -> NDArray[np.float64]:
    """Return log-probabilities (rows, classes) as scores: log-odds for two classes, else centered log-probabilities."""
    log_probabilities = log_probabilities.astype(np.float64)
    if log_probabilities.shape[1] == 2:
        return log_probabilities[:, 1:] - log_probabilities[:, :1]
    return log_probabilities - log_probabilities.mean(axis=1, keepdims=True)


def to_probabilities(scores: Floats) -> Floats:
    """Return the probabilities of all classes for scores."""
    return softmax(_all_classes(scores), axis=1)


def fit_log_proportions(evidence: Floats, counts: Floats) -> NDArray[np.float64]:
    """Return the logarithms of the class proportions of maximum likelihood, with one pseudo-row for each class.

    The pseudo-rows make every proportion positive: without them, noise can make a maximum-likelihood proportion zero.
    """
    n_classes, total = evidence.shape[1], float(counts.sum())
    # The mean posterior under a uniform prior is a good initial value: L-BFGS needs few steps from it.
    start = np.log((counts @ softmax(evidence, axis=1) + 1) / (total + n_classes))

    def loss(logits: Floats) -> tuple[float, Floats]:
        probability, log_probability = softmax(logits), log_softmax(logits)
        log_likelihood = counts @ logsumexp(log_probability + evidence, axis=1) + log_probability.sum()
        posterior_counts = counts @ softmax(log_probability + evidence, axis=1)
        return -log_likelihood / total, ((total + n_classes) * probability - posterior_counts - 1) / total

    return log_softmax(minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}).x)


def _all_classes(scores: Floats) -> Floats:
    return np.concatenate([np.zeros_like(scores), scores], axis=1) if scores.shape[1] == 1 else scores


def _unique_evidence(evidence: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct rows and their counts; for more than two classes, all rows with counts of 1."""
    if evidence.shape[1] > 2:
        return evidence.astype(np.float64), np.ones(len(evidence))
    levels, counts = np.unique(
        np.clip(evidence[:, 1] - evidence[:, 0], -_MAX_LOG_RATIO, _MAX_LOG_RATIO), return_counts=True
    )
    log_ratio = levels.astype(np.float64)
    return np.stack([np.zeros_like(log_ratio), log_ratio], axis=1), counts.astype(np.float64)


def _one_vs_rest_ratios(evidence: Floats, log_proportions: Floats) -> list[tuple[Floats, float]]:
    """Return for each score the log-likelihood ratio of its class to the others, and the proportion of the class."""
    proportions = np.exp(log_proportions)
    if len(proportions) == 2:
        return [(evidence[:, 1] - evidence[:, 0], float(proportions[1]))]
    ratios = []
    for index, proportion in enumerate(proportions):
        others = np.delete(np.arange(len(proportions)), index)
        rest_evidence = logsumexp(evidence[:, others] + log_proportions[others], axis=1) - np.log1p(-proportion)
        ratios.append((evidence[:, index] - rest_evidence, float(proportion)))
    return ratios


def _expected_curvature(log_ratios: Floats, proportion: float) -> Floats:
    """Return E[(p - q)^2] for each logit of the grid."""
    levels, counts = np.unique(np.clip(log_ratios, -_MAX_LOG_RATIO, _MAX_LOG_RATIO), return_counts=True)
    if len(levels) > _MAX_LEVELS:
        levels = np.quantile(
            log_ratios.clip(-_MAX_LOG_RATIO, _MAX_LOG_RATIO), (np.arange(_MAX_LEVELS) + 0.5) / _MAX_LEVELS
        )
        counts = np.ones(_MAX_LEVELS, np.int64)
    likelihood_ratios, probability = np.exp(levels.astype(np.float64)), expit(_LOGIT_GRID)[:, None]
    mixture = 1 - probability + probability * likelihood_ratios
    weight = counts * mixture / (1 - proportion + proportion * likelihood_ratios)
    weight /= weight.sum(axis=1, keepdims=True)
    return (weight * (probability - probability * likelihood_ratios / mixture) ** 2).sum(axis=1)
