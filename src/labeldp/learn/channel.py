"""The loss of a model behind a noisy channel: -log p(released | features), with gradient and curvature by score.

`Boosting` minimises it. Scores s are logits: of two classes one column, the log-odds of the second class, and otherwise
one column for each class. With p = softmax(s) and L_c = p(released | class c), the loss of a row is -log sum_c p_c L_c.

- Gradient: p - q, where q is the posterior, proportional to p L.
- Curvature: the Fisher information E[(p - q)^2] over what could have been released, never negative. The observed second
  derivative, p (1 - p) - q (1 - q), is negative for about half of the rows. For binary randomized response that flips a
  label with probability f, with m = 1 - 2f and r = f + m p, it is (m p (1 - p))^2 / (r (1 - r)).

For any channel, the expectation is taken over the released rows, each weighted by p(released | p) / p(released | c0),
where c0 are the class shares that fit all rows best. For two classes and randomized response that is the formula
above. For more classes each class is set against the others in the proportions of c0, and the curvature is multiplied
by K / (K - 1), as is usual for trees that move one score at a time.

A "prior" release is a posterior already. Its loss is the cross-entropy with it, of curvature p (1 - p).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logsumexp, softmax

Floats = NDArray[np.floating]

_GRID = np.linspace(-15.0, 15.0, 241)  # logits at which the curvature is tabulated
_LEVELS = 256  # different likelihood ratios; of more, quantiles
_LARGEST = 30.0  # log-likelihood ratio beyond which nothing changes
_LEAST = 1e-12  # curvature of a row
_STEPS, _LONGEST_STEP = 20, 2.0  # of Fisher scoring
_CLEAR_GAIN = 5.0  # log-likelihood for each score that is shifted; chance alone gives half a unit


@dataclass(frozen=True, eq=False)
class ChannelLoss:
    """The loss of rows with log-evidence (rows, classes); `curves` holds the curvature by logit for each score."""

    evidence: Floats
    kind: Literal["likelihood", "prior"]
    constant: Floats  # the scores without features that fit best
    curves: Floats

    @classmethod
    def of(cls, evidence: Floats, kind: Literal["likelihood", "prior"]) -> "ChannelLoss":
        """Prepare the loss of rows from `Release.log_evidence` and `Release.kind`."""
        if kind == "prior":
            evidence = log_softmax(evidence, axis=1)
            shares = softmax(evidence, axis=1).mean(axis=0, dtype=np.float64)
            return cls(evidence, kind, as_scores(np.log(np.maximum(shares, 1e-12))[None])[0], np.zeros((0, 0)))
        evidence = evidence - evidence.max(axis=1, keepdims=True)
        log_shares = best_shares(*_distinct(evidence))
        curves = [_curve(each, share) for each, share in _one_against_others(evidence, log_shares)]
        return cls(evidence, kind, as_scores(log_shares[None])[0], np.array(curves))

    def select(self, rows: NDArray[np.integer]) -> "ChannelLoss":
        """Return the loss of some rows, with the same curvature."""
        return ChannelLoss(self.evidence[rows], self.kind, self.constant, self.curves)

    def losses(self, scores: Floats) -> Floats:
        """Return the loss of each row at scores (rows, outputs)."""
        if self.kind == "prior":
            return -(np.exp(self.evidence) * log_softmax(_all_classes(scores), axis=1)).sum(axis=1)
        if scores.shape[1] == 1:
            return np.logaddexp(0, scores[:, 0]) - np.logaddexp(self.evidence[:, 0], scores[:, 0] + self.evidence[:, 1])
        return logsumexp(scores, axis=1) - logsumexp(scores + self.evidence, axis=1)

    def slopes(self, scores: Floats) -> tuple[Floats, Floats]:
        """Return gradient and curvature at scores, each (rows, outputs)."""
        classes = self.evidence.shape[1]
        if classes == 2:
            ratio = (self.evidence[:, 1] - self.evidence[:, 0])[:, None]
            chance, target = expit(scores), expit(ratio if self.kind == "prior" else scores + ratio)
        else:
            chance = softmax(scores, axis=1)
            target = np.exp(self.evidence) if self.kind == "prior" else softmax(scores + self.evidence, axis=1)
        if self.kind == "prior":
            curvature = chance * (1 - chance)
        else:
            logit = scores if classes == 2 else np.log(np.maximum(chance, 1e-9)) - np.log1p(-np.minimum(chance, 0.9999))
            columns = zip(logit.T, self.curves, strict=True)
            curvature = np.stack([np.interp(each, _GRID, curve) for each, curve in columns], axis=1)
        factor = 1.0 if classes == 2 else classes / (classes - 1)
        return chance - target, np.maximum(factor * curvature, _LEAST)


def fitted_shift(loss: ChannelLoss, scores: Floats) -> Floats:
    """Return what to add to all scores, where the release contradicts them clearly, and else zeros.

    It is the shift of greatest likelihood, if that is far greater than without: by several times what chance gives.
    """
    shift = np.zeros(scores.shape[1])
    for _ in range(_STEPS):
        gradient, curvature = loss.slopes(scores + shift)
        shift -= np.clip(gradient.sum(axis=0) / curvature.sum(axis=0), -_LONGEST_STEP, _LONGEST_STEP)
    gain = float((loss.losses(scores) - loss.losses(scores + shift)).sum())
    return shift if gain > _CLEAR_GAIN * shift.size else np.zeros_like(shift)


def matching_shift(scores: Floats, shares: Floats) -> Floats:
    """Return what to add to all scores so that the mean probabilities are these shares of the classes."""
    logits, two = _all_classes(scores), scores.shape[1] == 1

    def loss(shift: Floats) -> tuple[float, Floats]:  # convex, with the difference of the means as its gradient
        moved = logits + np.append(0.0, shift) if two else logits + shift
        difference = softmax(moved, axis=1).mean(axis=0) - shares
        value = logsumexp(moved, axis=1).mean() - shares[-shift.size :] @ shift
        return float(value), difference[1:] if two else difference

    start = np.zeros(scores.shape[1])
    shift: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-7}).x
    return shift


def as_scores(log_chances: Floats) -> NDArray[np.float64]:
    """Return log-probabilities (rows, classes) as scores: the log-odds of two classes, centred ones of more."""
    log_chances = log_chances.astype(np.float64)
    if log_chances.shape[1] == 2:
        return log_chances[:, 1:] - log_chances[:, :1]
    return log_chances - log_chances.mean(axis=1, keepdims=True)


def as_chances(scores: Floats) -> Floats:
    """Return the probabilities of all classes for scores."""
    return softmax(_all_classes(scores), axis=1)


def best_shares(evidence: Floats, counts: Floats) -> NDArray[np.float64]:
    """Return the logarithms of the class shares of greatest likelihood, with one more row of each class.

    The added rows keep every share above zero: noise can make the likelihood greatest without a class.
    """
    classes, total = evidence.shape[1], float(counts.sum())
    # From the shares of posteriors under equal odds; L-BFGS needs few steps.
    start = np.log((counts @ softmax(evidence, axis=1) + 1) / (total + classes))

    def loss(logits: Floats) -> tuple[float, Floats]:
        chance, log_chance = softmax(logits), log_softmax(logits)
        fit = counts @ logsumexp(log_chance + evidence, axis=1) + log_chance.sum()
        posterior = counts @ softmax(log_chance + evidence, axis=1)
        return -fit / total, ((total + classes) * chance - posterior - 1) / total

    return log_softmax(minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}).x)


def _all_classes(scores: Floats) -> Floats:
    return np.concatenate([np.zeros_like(scores), scores], axis=1) if scores.shape[1] == 1 else scores


def _distinct(evidence: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the different rows and how many there are of each; of more than two classes, all rows."""
    if evidence.shape[1] > 2:
        return evidence.astype(np.float64), np.ones(len(evidence))
    levels, counts = np.unique(np.clip(evidence[:, 1] - evidence[:, 0], -_LARGEST, _LARGEST), return_counts=True)
    ratio = levels.astype(np.float64)
    return np.stack([np.zeros_like(ratio), ratio], axis=1), counts.astype(np.float64)


def _one_against_others(evidence: Floats, log_shares: Floats) -> list[tuple[Floats, float]]:
    """Return, for each score, the log-likelihood ratio of its class against the others, and the share of the class."""
    shares = np.exp(log_shares)
    if len(shares) == 2:
        return [(evidence[:, 1] - evidence[:, 0], float(shares[1]))]
    found = []
    for place, share in enumerate(shares):
        others = np.delete(np.arange(len(shares)), place)
        mixed = logsumexp(evidence[:, others] + log_shares[others], axis=1) - np.log1p(-share)
        found.append((evidence[:, place] - mixed, float(share)))
    return found


def _curve(ratios: Floats, share: float) -> Floats:
    """Return E[(p - q)^2] for each logit of the grid."""
    levels, counts = np.unique(np.clip(ratios, -_LARGEST, _LARGEST), return_counts=True)
    if len(levels) > _LEVELS:
        levels = np.quantile(ratios.clip(-_LARGEST, _LARGEST), (np.arange(_LEVELS) + 0.5) / _LEVELS)
        counts = np.ones(_LEVELS, np.int64)
    odds, chance = np.exp(levels.astype(np.float64)), expit(_GRID)[:, None]
    released = 1 - chance + chance * odds
    weight = counts * released / (1 - share + share * odds)
    weight /= weight.sum(axis=1, keepdims=True)
    return (weight * (chance - chance * odds / released) ** 2).sum(axis=1)
