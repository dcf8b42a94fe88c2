"""Held-out rows with known truth, and tables of them with noise from NumPy: a thousand vaults would take minutes."""

import math

import numpy as np
from scipy.stats import norm

import labeldp as ldp
from labeldp.evaluate.prediction_table import PredictionTable, group_predictions
from labeldp.releases import NoisyCounts


def laplace(rng, scale, shape):
    """Discrete Laplace noise: the difference of two geometric variables."""
    stop = 1 - math.exp(-1 / scale)
    return rng.geometric(stop, shape) - rng.geometric(stop, shape)


def table(rng, proba, codes, epsilon, bins=10):
    """The table that `measure` makes for this epsilon, half of which pays for it."""
    groups, classes = group_predictions(proba, epsilon / 2, bins), proba.shape[1]
    count = groups.max() + 1
    true = np.bincount(groups * classes + codes, minlength=count * classes).reshape(count, classes)
    release = NoisyCounts(
        space=ldp.LabelSpace(list(range(classes))),
        guarantee=ldp.Guarantee(epsilon),
        mechanism="test",
        n_rows=len(codes),
        groups=groups,
        counts=true + laplace(rng, 4 / epsilon, true.shape),
        sizes=np.bincount(groups),
        noise="geometric",
        scale=4 / epsilon,
    )
    return PredictionTable(release, proba, groups)


class Binormal:
    """Two classes whose scores are normal, `apart` from each other; the model may be over-confident."""

    def __init__(self, rows, positive, apart, confidence=1.0):
        self.rows, self.positive, self.apart, self.confidence = rows, positive, apart, confidence
        self.auc = norm.cdf(apart / math.sqrt(2))
        # The model says yes where confidence * logit > 0, whatever the confidence.
        cut = apart / 2 - math.log(positive / (1 - positive)) / apart
        yes, false = positive * norm.sf(cut - apart), (1 - positive) * norm.sf(cut)
        self.recall, self.precision = norm.sf(cut - apart), yes / (yes + false)
        self.accuracy = yes + 1 - positive - false

    def draw(self, rng, rows=None):
        """Probabilities and labels."""
        codes = (rng.random(rows or self.rows) < self.positive).astype(int)
        x = rng.normal(size=codes.size) + self.apart * codes
        logit = self.apart * x - self.apart**2 / 2 + math.log(self.positive / (1 - self.positive))
        yes = 1 / (1 + np.exp(-self.confidence * logit))
        return np.stack([1 - yes, yes], axis=1), codes

    def log_loss(self):
        proba, codes = self.draw(np.random.default_rng(99), 2_000_000)
        return -np.log(proba[np.arange(codes.size), codes]).mean()


def coverage(intervals, truth):
    return np.mean([i.low <= truth <= i.high for i in intervals])
