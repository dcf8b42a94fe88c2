"""Accuracy without a trusted curator: an estimate from randomized responses of held-out labels."""

from typing import Any

import numpy as np

from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING
from labeldp.evaluate.intervals import Interval, proportion_interval
from labeldp.evaluate.predictions import as_predicted_codes
from labeldp.releases.base import Release
from labeldp.releases.responses import Responses, response_probabilities


def measure_responses(release: Release, proba: Any) -> Interval:
    """Estimate the accuracy of public predictions (probabilities, or codes) on the rows of a randomized response.

    Rows must be held out: the model must not have learned from this release. A prediction agrees with the released
    label with probability p_other + (p_true - p_other) * accuracy. Here p_true is the probability that a label is
    released unchanged, and p_other that of each other label. So the fraction that agrees gives the accuracy. The
    inversion magnifies the sampling error by 1 / (p_true - p_other): at epsilon 0.1 with two classes, twenty times.
    With a trusted curator, `measure` is far more precise.

    Args:
        release: A release by `RandomizedResponse` of held-out rows.
        proba: Probabilities for all rows, or a code for each row.

    Raises:
        InputError: The release is of another mechanism, or holds no labels.
    """
    if not isinstance(release, Responses) or release.candidates is not None:
        raise InputError(
            "Only a release of plain RandomizedResponse can be inverted, because other mechanisms do not release every "
            "class with a known probability: release held-out rows by RandomizedResponse, or score them by "
            "measure(vault, ...)."
        )
    row_ids = np.flatnonzero(release.labels() != MISSING)
    if not row_ids.size:
        raise InputError("The release holds no labels: release the held-out rows.")
    n_classes = len(release.space)
    predicted = as_predicted_codes(proba, row_ids, release.n_rows, n_classes)
    n_agreeing = int(np.count_nonzero(predicted[row_ids] == release.codes[row_ids]))
    p_true, p_other = response_probabilities(release.epsilon, n_classes)
    return proportion_interval(n_agreeing, row_ids.size, 0.0, p_other, p_true)
