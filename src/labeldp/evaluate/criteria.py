"""Criteria by which a private choice compares candidates, as tables of whole-number scores for `HighestScore`.

Log-loss. The score of a class is minus the loss of the row if that class is its label. Probabilities below a floor
count as the floor, so that the weight of a row is bounded. The floor depends on the number of classes alone.

AUC, of two classes. Each of n rows has its rank by the odds of the second class, from 1 to n; equal rows share the mean
of their ranks. A row scores 0 if its label is the first class. If its label is the second class, it scores twice the
distance of its rank from the middle, 2 rank - (n + 1), a whole number. Let P rows be of the second class and N of the
first. The sum R of the ranks of these P rows gives AUC = (R - P (P + 1) / 2) / (P N), where ties count half (Mann and
Whitney). The total of a candidate is 2 R - P (n + 1) = 2 P N (AUC - 1/2), as n = P + N. P and N are the same for all
candidates. So the largest total is the largest AUC, and neither P nor N is released, and nothing is divided by them.

One label changes a total by n - 1 at most. It changes the difference of two totals by at most twice the difference of
the two candidates' ranks of its row. `HighestScore.sensitivity` computes that from the tables.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.privacy.mechanisms.base import downcast_integers

Criterion = Literal["auto", "accuracy", "log-loss", "auc"]

# Steps per nat, in which scores of log-loss are counted.
_STEPS_PER_NAT = 4096
# The floor of probabilities, and its largest value as a fraction of 1 / classes.
_MIN_PROBABILITY, _FLOOR_FRACTION = 1e-3, 0.1
# Decimal digits of log-odds: differences in the last bits of a repeated training must not make another request.
_LOG_ODDS_DIGITS = 6


def check_criterion(criterion: str, space: LabelSpace) -> None:
    """Check that candidates for these labels can be compared by this criterion.

    Args:
        criterion: "auto", "accuracy", "log-loss" or "auc".
        space: The declared labels.

    Raises:
        InputError: There is no such criterion, or it does not fit the labels.
    """
    known = get_args(Criterion)
    if criterion not in known:
        raise InputError(f"There is no criterion {criterion!r}: choose by one of {', '.join(known)}.")
    if space.step is not None and criterion != "auto":
        raise InputError(
            f"Models of numbers are chosen by absolute error, not by {criterion}: choose by auto.",
            parameter="choose_by",
        )
    if criterion == "auc" and len(space) != 2:
        raise InputError(f"AUC is for two classes, and there are {len(space)}: choose by log-loss or accuracy.")


def log_loss_scores(proba: NDArray[np.floating]) -> NDArray[np.signedinteger]:
    """Return minus the log-loss of each class of each row, shape (rows, classes), in 4096ths of a nat."""
    floor = min(_MIN_PROBABILITY, _FLOOR_FRACTION / proba.shape[1])
    return downcast_integers(np.rint(_STEPS_PER_NAT * np.log(np.clip(proba, floor, 1.0))).astype(np.int64))


def auc_scores(proba: NDArray[np.floating]) -> NDArray[np.signedinteger]:
    """Return 0 for the first class and the doubled centered rank for the second one, shape (rows, 2)."""
    with np.errstate(divide="ignore"):  # a probability can be 0
        log_odds = np.round(np.log(proba[:, 1]) - np.log(proba[:, 0]), _LOG_ODDS_DIGITS)
    centered = np.rint(2 * rankdata(log_odds)).astype(np.int64) - (len(log_odds) + 1)
    return downcast_integers(np.stack([np.zeros_like(centered), centered], axis=1))
