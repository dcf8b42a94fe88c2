"""Several releases that were paid for at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labeldp.accounting.costs import Mask
from labeldp.accounting.lineage import HasLineage
from labeldp.accounting.losses import Loss, covers
from labeldp.core.errors import BudgetExceeded, InputError
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.privacy.vault.vault import Vault


class ReleasePlan:
    """Releases that are paid for; see `Vault.plan`. Which of them are drawn, the ledger knows."""

    def __init__(self, vault: "Vault", entry_id: str, losses: dict[int, list[Loss]], row_mask: Mask | None) -> None:
        self._vault, self._entry_id, self._losses, self._row_mask = vault, entry_id, losses, row_mask
        self._n_steps = len(next(iter(losses.values())))
        self._next_step = 0

    @property
    def n_remaining(self) -> int:
        """How many steps this object has not returned yet; what the ledger holds of them is returned from there."""
        return self._n_steps - self._next_step

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[HasLineage] = ()) -> Release:
        """Draw the next step.

        Args:
            mechanism: What to draw. For every number of rows that a unit owns, its loss is at most what was declared
                for the step, as `losses.covers` proves it.
            derived_from: The releases and models from which its arrays were computed, as in `Vault.release`.

        Returns:
            The release. Its guarantee is that of the whole plan.

        Raises:
            BudgetExceeded: All steps are drawn, or this one was drawn with another request.
            InputError: The mechanism loses more than was declared, or does not fit the labels.

        Privacy:
            Costs nothing more: the plan was charged when it was made.
        """
        self._vault._check_mechanism(mechanism)
        with self._vault.ledger.exclusive_lock():
            step = self._next_step
            if not self.n_remaining:
                raise BudgetExceeded("Every step of this plan is drawn: make a new plan.")
            if not all(covers(losses[step], mechanism.loss(m)) for m, losses in self._losses.items()):
                raise InputError(
                    "The next step of this plan was declared with another loss, which does not cover this one: use the "
                    "same mechanism, or one that loses less."
                )
            step_name = f"{self._entry_id}:{step}"
            try:
                return self._vault._draw(mechanism, self._row_mask, derived_from, step_name)
            finally:  # what was not drawn can be asked for again
                chain = self._vault.ledger.snapshot()
                self._next_step += chain.is_committed(chain.step_entries.get(step_name, ""))


def step_losses(steps: Sequence[Mechanism | Loss], n_labels: int = 1) -> list[Loss]:
    """Return what each step of a plan costs a unit that owns so many of the released rows."""
    return [step.loss(n_labels) if isinstance(step, Mechanism) else step for step in steps]
