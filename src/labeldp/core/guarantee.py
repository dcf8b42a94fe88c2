"""The privacy guarantee of a release (`Guarantee`) and the limit of a data set (`Budget`)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from labeldp.core.errors import InputError

Unit = Literal["label", "record", "user"]
Trust = Literal["local", "central"]

SMALLEST_EPSILON = 1e-9
# Below this delta, float64 cannot decide whether a calibration meets it.
SMALLEST_DELTA = 1e-15


def check_epsilon(epsilon: float) -> float:
    """Return epsilon as a float; raise InputError if it is invalid."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf:
        raise InputError(
            f"epsilon must be a finite number above zero, not {_describe_value(epsilon)}: small is more private."
        )
    if epsilon < SMALLEST_EPSILON:
        raise InputError(f"epsilon must be at least {SMALLEST_EPSILON}: below, nothing but noise would be released.")
    return float(epsilon)


def check_delta(delta: float, *, positive: bool = False) -> float:
    """Return delta as a float; raise InputError if it is invalid."""
    is_valid = not isinstance(delta, bool) and isinstance(delta, int | float) and 0 <= delta < 1
    if not is_valid or (positive and delta == 0):
        lower_end = "above 0" if positive else "from 0"
        raise InputError(f"delta must be a number {lower_end} to below 1, not {_describe_value(delta)}: 1e-6 is usual.")
    if 0 < delta < SMALLEST_DELTA:
        raise InputError(f"delta must be 0 or at least {SMALLEST_DELTA}: 1e-6 is usual.")
    return float(delta)


def _describe_value(value: Any) -> str:
    """Describe a value in a message: numbers and strings by their repr, other values by their type."""
    return repr(value) if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) guarantee: changing the labels of one unit has a bounded effect on every probability.

    The probability of any outcome grows by a factor of at most exp(epsilon), plus delta.

    Attributes:
        epsilon: The bound on the log of the factor.
        delta: The additive term.
        unit: How neighboring data sets differ: in the label of one row, which is replaced ("label"); in all labels of
            one user ("user"); or in a whole row ("record").
        trust: "local" if the mechanism adds noise to each label separately; "central" if a trusted curator needs all
            labels.
        derivation: How the guarantee was computed.
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "label"
    trust: Trust = field(default="central", repr=False)
    derivation: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", float(self.epsilon))

    def with_scoring_cost(self, epsilon: float) -> "Guarantee":
        """Return a guarantee that also covers the units whose labels scored a model and that lose `epsilon`.

        Scores are counts over many labels, so the trust becomes central.
        """
        return replace(self, epsilon=max(self.epsilon, epsilon), trust="central") if epsilon else self

    def to_json(self) -> dict[str, Any]:
        """Describe the guarantee; `Guarantee(**data)` reads it back."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return data | {"epsilon": json_number(self.epsilon)}


def json_number(value: float) -> float | str:
    """Return a number that JSON can represent: infinity becomes a string that `float` parses."""
    return value if math.isfinite(value) else str(value)


@dataclass(frozen=True)
class Budget:
    """The limit on the total privacy loss of one data set.

    Releases are chosen adaptively, so they pass a privacy filter whose quantity is fixed in advance. With delta 0,
    every mechanism that is not purely private is refused.

    Attributes:
        epsilon: The total epsilon.
        delta: The total delta.
        composition: "sum" adds epsilons and deltas. "rdp" adds Renyi divergences at one order, which is cheaper for
            many Gaussian releases and needs delta > 0.
    """

    epsilon: float
    delta: float = 0.0
    composition: Literal["sum", "rdp"] = "sum"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta, positive=self.composition == "rdp")
        if self.composition not in ("sum", "rdp"):
            raise InputError('composition must be "sum" or "rdp".')


def max_guess_accuracy(epsilon: float, prior: Any = 0.5, delta: float = 0.0) -> Any:
    """Return the largest probability with which an adversary can guess a label correctly.

    With delta 0 it also bounds the posterior probability of the label after any outcome. With delta > 0, some outcomes
    of a probability not far above delta may give a larger posterior. Noise that just meets (epsilon, delta) can have
    such outcomes with a probability above delta.

    Args:
        epsilon: The epsilon of the guarantee.
        prior: The adversary's prior probability of the label, or an array of such.
        delta: The delta of the guarantee.
    """
    odds = np.exp(-epsilon) * (1 - prior) / np.maximum(prior, 1e-12)
    return (1 + odds * delta) / (1 + odds)
