"""What a recipe asks of a vault: requests, and reservations of several releases at once."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from labeldp.accounting.losses import Loss
from labeldp.learn.predictor import Predictor
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.recipes.task import RowMask
from labeldp.releases.base import Release


@dataclass(frozen=True)
class Request:
    """A request to the vault. Without `rows`, it is for all rows of the task."""

    mechanism: Mechanism
    row_mask: RowMask | None = None
    derived_from: Sequence[Release] = ()


@dataclass(frozen=True)
class Reserve:
    """A request to pay for several releases at once, which together cost less than one after another.

    The reply is True or False. After True, the next requests are drawn as the steps, in order, each on all rows of the
    task: ask for them without `rows`. What one computes from an earlier one names that in `derived_from`. After False
    nothing was reserved, and requests add up as always: so it is where users own several labels in the rows of the
    task, because a step by its loss does not say what several labels lose. Ask then for less.

    Attributes:
        steps: What each release may lose at most, as a mechanism or as a loss. `calibration.calibrated_loss` gives the
            loss of a mechanism that is only known later, and `shares.composed_steps` divides epsilon.
        delta: The delta at which the steps are composed.
        name: Tells several reservations of one shape apart.
    """

    steps: Sequence[Mechanism | Loss]
    delta: float = 0.0
    name: str = ""


# A recipe yields a request, is sent the reply, and so on; it returns one model, or several to choose from.
Steps = Generator[Request | Reserve, Any, Predictor | list[Predictor]]
