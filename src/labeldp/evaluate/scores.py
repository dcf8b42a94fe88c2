"""Private scores of a classifier, measured on rows that it was not trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_epsilon
from labeldp.evaluate.intervals import Interval, proportion_interval
from labeldp.evaluate.prediction_table import PredictionTable, group_predictions
from labeldp.evaluate.predictions import as_predicted_codes, as_row_ids, check_probabilities, distributions
from labeldp.privacy.mechanisms.base import divide_epsilon
from labeldp.privacy.mechanisms.linear import GroupHistogram
from labeldp.privacy.mechanisms.selection import CorrectCount
from labeldp.privacy.vault.interface import ReleasingVault
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.scores import NoisyCorrectCount

METHOD = (
    "noisy counts of labels as predicted, and of labels by prediction and confidence, on {rows} held-out rows at "
    "epsilon {epsilon:g}; 95 % intervals for new rows, sample and privacy noise included"
)


@dataclass(frozen=True)
class Score:
    """Scores measured on `rows` held-out rows at `epsilon`, each with its 95 % interval for new rows.

    `recall` and `precision` have a value for each class. `auc` is that of the second of two classes, or the mean over
    classes of one against the others.
    """

    n_rows: int
    epsilon: float
    accuracy: Interval
    recall: tuple[Interval, ...]
    precision: tuple[Interval, ...]
    log_loss: Interval
    calibration_error: Interval
    auc: Interval
    method: str

    def to_json(self) -> dict[str, Any]:
        """Describe the score; `from_json` reads it back."""
        return {f.name: _to_plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Score":
        """Read what `to_json` wrote."""
        values = dict(data)
        for name in ("accuracy", "log_loss", "calibration_error", "auc"):
            values[name] = Interval.from_json(data[name])
        for name in ("recall", "precision"):
            values[name] = tuple(Interval.from_json(each) for each in data[name])
        return cls(**values)


def measure(
    vault: ReleasingVault,
    proba: Any,
    row_selection: Any,
    epsilon: float,
    derived_from: Sequence[Release] = (),
    n_bins: int = 10,
) -> Score:
    """Score public predictions on rows that the model was not trained on.

    Half of epsilon pays for one count of correct predictions, hence the accuracy: a single count has far less noise
    than a table. The other half pays for a table of labels by predicted class and confidence, from which the other
    scores are estimated. Intervals take rows as independent, which holds in a vault of users if each user has one row.

    Args:
        vault: The labels.
        proba: Probabilities of shape (rows, classes), for all rows of the vault; only those of the given rows are used.
        row_selection: The rows to score on, by numbers or by a mask; None for all.
        epsilon: The epsilon for each label. In a vault of users, it is for all labels of a user.
        derived_from: The releases that the model was trained on.
        n_bins: The most confidence bins of each class; there are fewer where the noise is large.

    Raises:
        InputError: The predictions do not fit the labels. Nothing is charged.
        BudgetExceeded: The budget does not allow it.
    """
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise InputError("n_bins must be a whole number above zero.")
    probabilities = check_probabilities(proba, vault.n_rows, len(vault.space))
    row_ids = as_row_ids(row_selection, vault.n_rows)
    half_epsilon = divide_epsilon(check_epsilon(epsilon), 2)
    codes = as_predicted_codes(probabilities, row_ids, vault.n_rows, len(vault.space))
    correct_mechanism = vault.scaled_to_unit(CorrectCount(codes, half_epsilon), row_ids)
    correct = vault.release(correct_mechanism, row_selection=row_ids, derived_from=derived_from)
    # Rows without a label, a public fact, take no part.
    row_ids = row_ids if correct.row_mask is None else np.flatnonzero(correct.row_mask)
    row_probabilities = distributions(probabilities, row_ids)
    groups = np.zeros(vault.n_rows, np.int32)
    groups[row_ids] = group_predictions(row_probabilities, correct_mechanism.epsilon, int(n_bins))
    histogram_mechanism = vault.scaled_to_unit(GroupHistogram(groups, half_epsilon), row_ids)
    histogram = vault.release(histogram_mechanism, row_selection=row_ids, derived_from=derived_from)
    if not isinstance(correct, NoisyCorrectCount) or not isinstance(histogram, NoisyCounts):
        raise TypeError("A count or a histogram released something else.")
    prediction_table = PredictionTable(histogram, row_probabilities, groups[row_ids].astype(np.int64))
    class_codes = range(len(vault.space))
    return Score(
        n_rows=row_ids.size,
        epsilon=epsilon,
        accuracy=proportion_interval(correct.n_correct, correct.n_labels, correct.scale),
        recall=tuple(prediction_table.recall(c) for c in class_codes),
        precision=tuple(prediction_table.precision(c) for c in class_codes),
        log_loss=prediction_table.log_loss(),
        calibration_error=prediction_table.calibration_error(),
        auc=prediction_table.auc(),
        method=METHOD.format(rows=row_ids.size, epsilon=epsilon),
    )


def _to_plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return value.to_json()
    return [each.to_json() for each in value] if isinstance(value, tuple) else value
