"""What a training needs of a vault, as protocols: a vault satisfies them, and so does a vault with a further limit."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import RowMask
from labeldp.accounting.lineage import HasLineage
from labeldp.accounting.losses import Loss
from labeldp.core.guarantee import Budget, Guarantee, Unit
from labeldp.core.label_space import LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault.ledger import Ledger
from labeldp.releases.base import Release


class PlannedReleases(Protocol):
    """Releases that are paid for together; see `ReleasePlan`."""

    @property
    def n_remaining(self) -> int:
        """The number of steps that this object has not returned yet."""

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[HasLineage] = ()) -> Release:
        """Draw the next step."""


class ReleasingVault(Protocol):
    """Public facts about labels, and the requests that release something about them; see `Vault`."""

    @property
    def space(self) -> LabelSpace:
        """The declared labels."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""

    @property
    def ledger(self) -> Ledger:
        """The ledger that every release is charged to."""

    @property
    def budget(self) -> Budget:
        """The budget of the ledger."""

    @property
    def users(self) -> NDArray[np.int64] | None:
        """A number for the owner of each row; None where each label is a unit."""

    @property
    def labeled_mask(self) -> RowMask:
        """The rows that have a label."""

    def release(
        self, mechanism: Mechanism, row_selection: Any = None, *, derived_from: Sequence[HasLineage] = ()
    ) -> Release:
        """Release the labels of some rows by a mechanism."""

    def was_released(self, mechanism: Mechanism, row_selection: Any = None) -> bool:
        """Whether the same release was requested before, so that it costs nothing more."""

    def plan(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> PlannedReleases:
        """Reserve several releases at once."""

    def was_planned(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> bool:
        """Whether the same plan was made before, so that it costs nothing more."""

    def scaled_to_unit(self, mechanism: Mechanism, row_selection: Any = None, delta: float = 0.0) -> Mechanism:
        """Return the mechanism with so much noise that a unit pays for all of its labels what one label would cost."""

    def guarantee_of(
        self,
        releases: Sequence[Release],
        extra: Mechanism | None = None,
        row_selection: Any = None,
        *,
        unit: Unit | None = None,
    ) -> Guarantee:
        """Return what several releases guarantee together."""

    def remaining(self, row_selection: Any = None) -> tuple[float, float]:
        """Return the epsilon and delta that releases of some rows can still cost in total."""


@runtime_checkable
class VaultWrapper(Protocol):
    """A vault that adds a limit to another one, and can add the same limit to a third."""

    def around(self, vault: ReleasingVault) -> ReleasingVault:
        """Return the same limit around another vault, for a rehearsal."""
