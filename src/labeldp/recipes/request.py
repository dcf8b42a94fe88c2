"""Requests of a recipe to the vault: single releases, and reservations of several releases."""

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
    """A request for one release.

    Attributes:
        mechanism: The mechanism of the release.
        row_mask: The rows to release; None for all rows of the task.
        derived_from: The earlier releases from which the mechanism's arrays were computed.
    """

    mechanism: Mechanism
    row_mask: RowMask | None = None
    derived_from: Sequence[Release] = ()


@dataclass(frozen=True)
class Reserve:
    """A request to charge several releases at once, whose composed cost is less than the sum of their costs.

    The reply is True or False. After True, the next requests are drawn as the steps, in order and on all rows of the
    task: yield them without a `row_mask`. A step that is computed from earlier ones names them in `derived_from`.

    The reply is False if users own several labels in the rows of the task: the loss of a step does not determine the
    loss of several labels. Nothing is reserved then, and each request is charged by itself. The recipe must then
    request releases that cost less.

    Attributes:
        steps: The maximal privacy loss of each release, as a mechanism or as a loss. `calibration.calibrated_loss`
            gives the loss of a mechanism that is not known yet, and `budget_split.split_composed` divides epsilon.
        delta: The delta at which the steps are composed.
        name: Distinguishes several reservations of the same steps.
    """

    steps: Sequence[Mechanism | Loss]
    delta: float = 0.0
    name: str = ""


# A recipe yields a request and receives the reply, repeatedly. It returns one model, or several candidates.
Steps = Generator[Request | Reserve, Any, Predictor | list[Predictor]]
