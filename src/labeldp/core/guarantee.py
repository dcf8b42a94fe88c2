"""What is promised (`Guarantee`) and what may be spent (`Budget`)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from labeldp.core.errors import InputError

Unit = Literal["label", "record", "user"]
Trust = Literal["local", "central"]


SMALLEST_EPSILON = 1e-9
SMALLEST_DELTA = 1e-15  # below, float64 cannot tell whether a calibration meets it


def check_epsilon(epsilon: float) -> float:
    """Return epsilon as a float, or say why it cannot be one."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf:
        raise InputError(
            f"epsilon must be a finite number above zero, not {_describe_value(epsilon)}: small is more private."
        )
    if epsilon < SMALLEST_EPSILON:
        raise InputError(f"epsilon must be at least {SMALLEST_EPSILON}: below, nothing but noise would be released.")
    return float(epsilon)


def check_delta(delta: float, *, positive: bool = False) -> float:
    """Return delta as a float, or say why it cannot be one."""
    is_valid = not isinstance(delta, bool) and isinstance(delta, int | float) and 0 <= delta < 1
    if not is_valid or (positive and delta == 0):
        lower_end = "above 0" if positive else "from 0"
        raise InputError(f"delta must be a number {lower_end} to below 1, not {_describe_value(delta)}: 1e-6 is usual.")
    if 0 < delta < SMALLEST_DELTA:
        raise InputError(f"delta must be 0 or at least {SMALLEST_DELTA}: 1e-6 is usual.")
    return float(delta)


def _describe_value(value: Any) -> str:
    """Name a value in a message: a number or a word as it is, anything larger by its type."""
    return repr(value) if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Guarantee:
    """Changing one unit's labels changes the chance of any outcome by exp(epsilon) at most, plus delta.

    Neighbouring data sets differ in the label of one row (replaced, not removed): `unit="label"`. With
    `unit="user"` they differ in all labels of one user, with `unit="record"` in a whole row. `trust` says who
    must be trusted with the labels: "local" mechanisms noise each label by itself, "central" ones need a
    curator who sees them all.
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "label"
    trust: Trust = field(default="central", repr=False)
    derivation: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", float(self.epsilon))

    def with_scoring_cost(self, epsilon: float) -> "Guarantee":
        """Return what holds for other units as well, which lose so much: those whose labels scored a model.

        Scores are counts over many labels, so that somebody must be trusted with these.
        """
        return replace(self, epsilon=max(self.epsilon, epsilon), trust="central") if epsilon else self

    def to_json(self) -> dict[str, Any]:
        """Describe the guarantee; `Guarantee(**data)` reads it back."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return data | {"epsilon": json_number(self.epsilon)}


def json_number(value: float) -> float | str:
    """Return a number as JSON can hold it: infinity becomes a text that `float` reads."""
    return value if math.isfinite(value) else str(value)


@dataclass(frozen=True)
class Budget:
    """The most that may ever be spent on one data set.

    Releases are chosen one after another in the light of earlier ones, so they pass a privacy filter, whose
    quantity is fixed beforehand: `composition="sum"` adds epsilons and deltas; `composition="rdp"` adds Renyi
    divergences at one order, which is cheaper for many Gaussian releases and needs delta > 0. With delta 0
    every mechanism that is not purely private is refused.
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
    """Return how often a guess at a label is right at most, to which the guesser gave the chance `prior` before.

    Without delta it is the confidence, too, that any outcome can give. With delta, outcomes may give more whose chance
    is not far above delta; noise that just reaches epsilon and delta has such outcomes more often than delta says.
    """
    odds = np.exp(-epsilon) * (1 - prior) / np.maximum(prior, 1e-12)
    return (1 + odds * delta) / (1 + odds)
