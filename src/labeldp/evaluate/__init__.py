"""Private scores of models, and a private choice among models, from noisy counts on held-out rows."""

from labeldp.evaluate.choose import choose
from labeldp.evaluate.criteria import Criterion, check_criterion
from labeldp.evaluate.holdout import split_rows
from labeldp.evaluate.intervals import Interval
from labeldp.evaluate.regression_scores import ErrorScore, measure_errors
from labeldp.evaluate.response_scores import measure_responses
from labeldp.evaluate.scores import Score, measure

__all__ = [
    "Criterion",
    "ErrorScore",
    "Interval",
    "Score",
    "check_criterion",
    "choose",
    "measure",
    "measure_errors",
    "measure_responses",
    "split_rows",
]
