"""A vault that releases no more than one epsilon and delta, whatever else the budget of its data set would allow."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import Cost, RowMask, Spending, rows_per_unit
from labeldp.accounting.lineage import HasLineage
from labeldp.accounting.losses import Loss, compose
from labeldp.core.errors import BudgetExceeded, InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Budget, Guarantee, Unit
from labeldp.core.label_space import LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.interface import PlannedReleases, ReleasingVault
from labeldp.privacy.vault.release_plan import step_losses
from labeldp.releases.base import Release

_SECOND_RELEASE = (
    "A setting requests another release than the first, which would cost another epsilon: search over settings that "
    "change the learning alone."
)


class LimitedVault:
    """A vault for the trainings of one search, which share one epsilon and delta.

    A new request is charged to this limit first, and then to the budget of the vault. A repeated request is free, as it
    is in a vault.

    Args:
        vault: The vault with the labels.
        epsilon: The most that a unit can lose to all requests.
        delta: The delta of that.
    """

    def __init__(self, vault: ReleasingVault, epsilon: float, delta: float) -> None:
        self._vault, self._epsilon, self._delta = vault, as_fraction(epsilon), as_fraction(delta)
        self._spending, self._known_requests = Spending(vault.n_rows, vault.users), set[str]()

    def around(self, vault: ReleasingVault) -> "LimitedVault":
        """Return the same limit around another vault, for a rehearsal."""
        return LimitedVault(vault, float(self._epsilon), float(self._delta))

    def release(
        self, mechanism: Mechanism, row_selection: Any = None, *, derived_from: Sequence[HasLineage] = ()
    ) -> Release:
        """Release what was released before, or what fits into epsilon and delta; see `Vault.release`.

        Raises:
            InputError: The release does not fit. Nothing is charged.
        """
        self._admit((type(mechanism), mechanism.parameters()), row_selection, lambda m: Cost(*mechanism.price(m)))
        return self._vault.release(mechanism, row_selection, derived_from=derived_from)

    def plan(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> "LimitedPlan":
        """Reserve what was reserved before, or what fits into epsilon and delta; see `Vault.plan`.

        Raises:
            InputError: The plan does not fit. Nothing is charged.
        """

        def cost(n_labels: int) -> Cost:
            epsilon = compose(step_losses(steps, n_labels), delta)
            return Cost(as_fraction(epsilon) if math.isfinite(epsilon) else epsilon, as_fraction(delta))

        self._admit(("plan", name, step_losses(steps), delta), row_selection, cost)
        return LimitedPlan(self._vault.plan(*steps, row_selection=row_selection, delta=delta, name=name))

    def _admit(self, request_key: Any, row_selection: Any, cost: Callable[[int], Cost]) -> None:
        """Charge a new request to the limit, or raise an error if it does not fit."""
        row_mask = np.zeros(self.n_rows, bool)
        row_mask[slice(None) if row_selection is None else row_selection] = True
        request = repr((request_key, row_mask.tobytes()))
        if request in self._known_requests:
            return
        self._spending.add(row_mask, {m: cost(m) for m in rows_per_unit(row_mask, self._vault.users)})
        spent = self._spending.max_cost()
        if spent.epsilon > self._epsilon or spent.delta > self._delta:
            raise InputError(_SECOND_RELEASE)
        self._known_requests.add(request)

    # The other members are those of the vault.

    @property
    def space(self) -> LabelSpace:
        """The declared labels."""
        return self._vault.space

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self._vault.n_rows

    @property
    def ledger(self) -> Ledger:
        """The ledger that every release is charged to."""
        return self._vault.ledger

    @property
    def budget(self) -> Budget:
        """The budget of the ledger."""
        return self._vault.budget

    @property
    def users(self) -> NDArray[np.int64] | None:
        """A number for the owner of each row; None where each label is a unit."""
        return self._vault.users

    @property
    def labeled_mask(self) -> RowMask:
        """The rows that have a label."""
        return self._vault.labeled_mask

    def was_released(self, mechanism: Mechanism, row_selection: Any = None) -> bool:
        """Whether the same release was requested before, so that it costs the budget nothing more."""
        return self._vault.was_released(mechanism, row_selection)

    def was_planned(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> bool:
        """Whether the same plan was made before, so that it costs the budget nothing more."""
        return self._vault.was_planned(*steps, row_selection=row_selection, delta=delta, name=name)

    def scaled_to_unit(self, mechanism: Mechanism, row_selection: Any = None, delta: float = 0.0) -> Mechanism:
        """Return the mechanism with so much noise that a unit pays for all of its labels what one label would cost."""
        return self._vault.scaled_to_unit(mechanism, row_selection, delta)

    def guarantee_of(
        self,
        releases: Sequence[Release],
        extra: Mechanism | None = None,
        row_selection: Any = None,
        *,
        unit: Unit | None = None,
    ) -> Guarantee:
        """Return what several releases guarantee together."""
        return self._vault.guarantee_of(releases, extra, row_selection, unit=unit)

    def remaining(self, row_selection: Any = None) -> tuple[float, float]:
        """Return the epsilon and delta that releases of some rows can still cost the budget."""
        return self._vault.remaining(row_selection)


class LimitedPlan:
    """A plan of one search, whose steps are drawn once for all settings."""

    def __init__(self, plan: PlannedReleases) -> None:
        self._plan = plan

    @property
    def n_remaining(self) -> int:
        """The number of steps that this object has not returned yet."""
        return self._plan.n_remaining

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[HasLineage] = ()) -> Release:
        """Draw the next step; see `ReleasePlan.release`.

        Raises:
            InputError: The step was drawn by another setting with another request.
        """
        try:
            return self._plan.release(mechanism, derived_from=derived_from)
        except BudgetExceeded:
            raise InputError(_SECOND_RELEASE) from None
