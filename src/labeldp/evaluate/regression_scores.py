"""Private errors of a regression model, measured on rows that it was not trained on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_epsilon
from labeldp.evaluate.intervals import Interval, acceptance_interval, grid_around, quantile
from labeldp.evaluate.predictions import as_predicted_targets, as_row_ids
from labeldp.privacy.mechanisms.base import divide_epsilon
from labeldp.privacy.mechanisms.numeric_sums import LossSum
from labeldp.privacy.vault.interface import ReleasingVault
from labeldp.releases.base import Release
from labeldp.releases.scores import NoisyLoss

METHOD = (
    "noisy sums of squared and of absolute errors on {rows} held-out rows at epsilon {epsilon:g}; 95 % intervals for "
    "new rows, sample and privacy noise included"
)


@dataclass(frozen=True)
class ErrorScore:
    """Errors measured on `rows` held-out rows at `epsilon`, each with its 95 % interval for new rows.

    `rmse` is the root of the mean squared error, `mae` the mean absolute error, both in units of the labels. `careful`
    is the root again, with one deviation of the privacy noise added to the mean: it calibrates prediction intervals.
    """

    n_rows: int
    epsilon: float
    rmse: Interval
    mae: Interval
    careful: float
    method: str

    def to_json(self) -> dict[str, Any]:
        """Describe the score; `from_json` reads it back."""
        return vars(self) | {"rmse": self.rmse.to_json(), "mae": self.mae.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ErrorScore":
        """Read what `to_json` wrote."""
        measured = {name: Interval.from_json(data[name]) for name in ("rmse", "mae")}
        return cls(data["n_rows"], data["epsilon"], **measured, careful=data["careful"], method=data["method"])


def measure_errors(
    vault: ReleasingVault, predictions: Any, row_selection: Any, epsilon: float, derived_from: Sequence[Release] = ()
) -> ErrorScore:
    """Measure the errors of one predicted number for each row; half of epsilon pays for each of the two errors.

    Args:
        vault: The labels.
        predictions: A number for each row of the vault.
        row_selection: The rows to measure on, by numbers or by a mask; None for all.
        epsilon: The epsilon for each label. In a vault of users, it is for all labels of a user.
        derived_from: The releases that the model was trained on.

    Raises:
        InputError: The predictions do not fit the labels, or there are no rows. Nothing is charged.
        BudgetExceeded: The budget does not allow it.
    """
    targets, row_ids = as_predicted_targets(predictions, vault), as_row_ids(row_selection, vault.n_rows)
    if not row_ids.size:
        raise InputError("There are no rows to score on: set some aside.")
    half_epsilon = divide_epsilon(check_epsilon(epsilon), 2)

    def release_loss(objective: Literal["squared", "absolute"]) -> NoisyLoss:
        mechanism = vault.scaled_to_unit(LossSum(targets, half_epsilon, objective), row_ids)
        release = vault.release(mechanism, row_selection=row_ids, derived_from=derived_from)
        if not isinstance(release, NoisyLoss):
            raise TypeError("A sum of losses released no loss.")
        return release

    noisy_squared = release_loss("squared")
    squared, n_rows = estimate_mean_loss(noisy_squared), noisy_squared.n_labels
    careful = math.sqrt(
        (squared.value or 0.0) + math.sqrt(2) * noisy_squared.scale * noisy_squared.step_size / max(1, n_rows)
    )
    roots = [None if each is None else math.sqrt(each) for each in (squared.value, squared.low, squared.high)]
    rmse = Interval(roots[0], roots[1] or 0.0, roots[2] or 0.0)
    mae = estimate_mean_loss(release_loss("absolute"))
    return ErrorScore(n_rows, epsilon, rmse, mae, careful, METHOD.format(rows=n_rows, epsilon=epsilon))


def estimate_mean_loss(noisy_loss: NoisyLoss) -> Interval:
    """Return the interval of the mean loss of new rows.

    As a fraction of the largest possible loss, a loss lies between 0 and 1; if its mean is u, its variance is u (1 - u)
    at most. The interval holds every u that the noisy sum does not reject, with that variance and the known noise. So
    it is conservative.
    """
    observed = noisy_loss.total * noisy_loss.step_size / noisy_loss.max_row_loss / max(1, noisy_loss.n_labels)
    noise_scale = noisy_loss.scale * noisy_loss.step_size / noisy_loss.max_row_loss / max(1, noisy_loss.n_labels)
    value = min(max(observed, 0.0), 1.0)
    theta = grid_around(value)
    variance = 2 * noise_scale**2 + theta * (1 - theta) / max(1, noisy_loss.n_labels)
    z = quantile(float(np.interp(value, theta, variance)), 12 * noise_scale**4)
    ends = acceptance_interval(theta, observed - theta, z * np.sqrt(variance))
    interval = Interval.of_proportion(value, *ends) if ends else Interval(None, 0.0, 1.0)
    if observed <= 0:  # a mean loss cannot be negative: the noise leaves no estimate
        interval = Interval(None, interval.low, interval.high)
    max_loss = noisy_loss.max_row_loss
    return Interval(
        None if interval.value is None else interval.value * max_loss, interval.low * max_loss, interval.high * max_loss
    )
