"""How far a model's numbers are off, measured privately on rows that it has not seen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_epsilon
from labeldp.evaluate.inputs import chosen_rows, predicted_numbers
from labeldp.evaluate.intervals import Interval, accepted, around, quantile
from labeldp.privacy.mechanisms.base import in_parts
from labeldp.privacy.mechanisms.sums import LossSum
from labeldp.privacy.vault import Vault
from labeldp.releases.base import Release
from labeldp.releases.scores import NoisyLoss

METHOD = (
    "noisy sums of squared and of absolute errors on {rows} held-out rows at epsilon {epsilon:g}; 95 % intervals for "
    "new rows, sample and privacy noise included"
)


@dataclass(frozen=True)
class ErrorScore:
    """What was measured on `rows` held-out rows at `epsilon`, each with its 95 % interval for new rows.

    `rmse` is the root of the mean squared error, `mae` the mean absolute error, both in units of the labels. `careful`
    is the first again, with one deviation of the privacy noise added: what intervals of predictions are held to.
    """

    rows: int
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
        return cls(data["rows"], data["epsilon"], **measured, careful=data["careful"], method=data["method"])


def measure_errors(
    vault: Vault, predictions: Any, rows: Any, epsilon: float, derived_from: Sequence[Release] = ()
) -> ErrorScore:
    """Score one predicted number for each row, on `rows`: half of epsilon for each of the two errors."""
    numbers, here = predicted_numbers(predictions, vault), chosen_rows(rows, vault.rows)
    if not here.size:
        raise InputError("There are no rows to score on: set some aside.")
    half = in_parts(check_epsilon(epsilon), 2)

    def noisy(objective: Literal["squared", "absolute"]) -> NoisyLoss:
        asked = vault.shared(LossSum(numbers, half, objective), here)
        told = vault.release(asked, rows=here, derived_from=derived_from)
        if not isinstance(told, NoisyLoss):
            raise TypeError("A sum of losses gave none.")
        return told

    sums = noisy("squared")
    squared, size = mean_loss(sums), sums.size
    careful = math.sqrt((squared.value or 0.0) + math.sqrt(2) * sums.scale * sums.unit / max(1, size))
    roots = [None if each is None else math.sqrt(each) for each in (squared.value, squared.low, squared.high)]
    rmse = Interval(roots[0], roots[1] or 0.0, roots[2] or 0.0)
    mae = mean_loss(noisy("absolute"))
    return ErrorScore(size, epsilon, rmse, mae, careful, METHOD.format(rows=size, epsilon=epsilon))


def mean_loss(noisy: NoisyLoss) -> Interval:
    """Return the interval of the mean loss of new rows.

    As a share of the largest possible loss, a loss lies within 0 and 1; if its mean is u, its variance is u (1 - u) at
    most. The interval holds every u from which the noisy sum is not too far for that variance and the known noise. So
    it errs on the wide side.
    """
    seen = noisy.total * noisy.unit / noisy.most / max(1, noisy.size)
    width = noisy.scale * noisy.unit / noisy.most / max(1, noisy.size)
    value = min(max(seen, 0.0), 1.0)
    theta = around(value)
    variance = 2 * width**2 + theta * (1 - theta) / max(1, noisy.size)
    z = quantile(float(np.interp(value, theta, variance)), 12 * width**4)
    ends = accepted(theta, seen - theta, z * np.sqrt(variance))
    inside = Interval.of_share(value, *ends) if ends else Interval(None, 0.0, 1.0)
    inside = inside if seen > 0 else Interval(None, inside.low, inside.high)  # a loss of nothing is a joke of the noise
    most = noisy.most
    return Interval(None if inside.value is None else inside.value * most, inside.low * most, inside.high * most)
