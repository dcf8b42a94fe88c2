"""Several releases that were paid for at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labeldp.errors import BudgetExceeded, InputError
from labeldp.losses import Loss
from labeldp.mechanisms.base import Mechanism
from labeldp.provenance import Source
from labeldp.releases.base import Release
from labeldp.spending import Mask

if TYPE_CHECKING:
    from labeldp.vault.vault import Vault


class Plan:
    """Releases that are paid for; see `Vault.plan`. Which of them are drawn, the ledger knows."""

    def __init__(self, vault: "Vault", entry: str, losses: dict[int, list[Loss]], mask: Mask | None) -> None:
        self._vault, self._entry, self._losses, self._mask = vault, entry, losses, mask
        self._next = 0

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[Source] = ()) -> Release:
        """Draw the next step. Its loss must be the one that was declared, for every number of rows a unit owns."""
        self._vault._check(mechanism)
        with self._vault.ledger.exclusive():
            step = self._next
            if step >= len(next(iter(self._losses.values()))):
                raise BudgetExceeded("Every step of this plan is drawn: make a new plan.")
            if any(mechanism.loss(m) != losses[step] for m, losses in self._losses.items()):
                raise InputError("The next step of this plan was declared with another loss: use the same mechanism.")
            name = f"{self._entry}:{step}"
            try:
                return self._vault._draw(mechanism, self._mask, derived_from, name)
            finally:  # what was not drawn can be asked for again
                chain = self._vault.ledger.snapshot()
                self._next += chain.committed(chain.steps.get(name, ""))
