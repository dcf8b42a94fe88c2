"""How good predictions are on rows whose true labels are known."""

import numpy as np
from scipy.stats import rankdata

_LEAST = 1e-6  # a true class with a smaller probability counts as this
_BINS = 10


def of_classes(proba, truth):
    """Return accuracy, log-loss, AUC and calibration error of probabilities (rows, classes)."""
    chosen = proba.argmax(axis=1)
    return {
        "accuracy": float((chosen == truth).mean()),
        "log_loss": float(-np.log(np.maximum(proba[np.arange(len(truth)), truth], _LEAST)).mean()),
        "auc": auc(proba, truth),
        "calibration_error": calibration_error(proba.max(axis=1), chosen == truth),
    }


def of_numbers(predicted, truth):
    """Return the root mean squared and mean absolute error, and the share of the variance that is explained."""
    away = predicted - truth
    return {
        "rmse": float(np.sqrt((away**2).mean())),
        "mae": float(np.abs(away).mean()),
        "r2": float(1 - (away**2).mean() / truth.var()),
    }


def auc(proba, truth):
    """Return the AUC of the second of two classes, or the mean of each class against the others.

    A class that does not occur is left out; None where no class can be told from another.
    """
    classes = [1] if proba.shape[1] == 2 else range(proba.shape[1])
    found = [_auc_of(proba[:, each], truth == each) for each in classes if 0 < (truth == each).sum() < len(truth)]
    return float(np.mean(found)) if found else None


def _auc_of(score, positive):
    ones = int(positive.sum())
    return (rankdata(score)[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(score) - ones))


def calibration_error(confidence, right):
    """Return the mean gap between confidence and accuracy, over bins of about as many rows each."""
    bins = np.array_split(np.argsort(confidence, kind="stable"), min(_BINS, len(right)))
    return float(sum(len(b) * abs(confidence[b].mean() - right[b].mean()) for b in bins) / len(right))
