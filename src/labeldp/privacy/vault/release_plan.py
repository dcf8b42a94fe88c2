"""A plan of several releases that are charged at once, and its description."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from labeldp.accounting.lineage import HasLineage
from labeldp.accounting.losses import Loss, covers
from labeldp.core.errors import BudgetExceeded, InputError
from labeldp.core.guarantee import check_delta
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault.ledger import Ledger
from labeldp.releases.base import Release

DrawStep = Callable[[Mechanism, Sequence[HasLineage], str], Release]


class ReleasePlan:
    """Releases that are already charged; `Vault.plan` makes it. The ledger records which of them are drawn.

    Args:
        ledger: The ledger that the plan was charged to.
        entry_id: The id of the plan's entry.
        losses: The loss of each step, by number of rows that a unit owns.
        check_mechanism: Checks a mechanism, and returns the mechanism to draw.
        draw_step: Draws a mechanism, with its sources, as the step of a name.
    """

    def __init__(
        self,
        ledger: Ledger,
        entry_id: str,
        losses: dict[int, list[Loss]],
        check_mechanism: Callable[[Mechanism], Mechanism],
        draw_step: DrawStep,
    ) -> None:
        self._ledger, self._entry_id, self._losses = ledger, entry_id, losses
        self._check_mechanism, self._draw_step = check_mechanism, draw_step
        self._n_steps = len(next(iter(losses.values())))
        self._next_step = 0

    @property
    def n_remaining(self) -> int:
        """The number of steps that this object has not returned yet. Stored steps are returned from the ledger."""
        return self._n_steps - self._next_step

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[HasLineage] = ()) -> Release:
        """Draw the next step.

        Args:
            mechanism: The mechanism of the step. For every number of rows that a unit owns, the declared loss of the
                step covers its loss, as `losses.covers` proves.
            derived_from: The releases and models from which its arrays were computed, as in `Vault.release`.

        Returns:
            The release. Its guarantee is that of the whole plan.

        Raises:
            BudgetExceeded: All steps are drawn, or this one was drawn with another request.
            InputError: The mechanism loses more than declared, or does not fit the labels.

        Privacy:
            Costs nothing more: the plan was charged when it was made.
        """
        drawn_mechanism = self._check_mechanism(mechanism)
        with self._ledger.exclusive_lock():
            step = self._next_step
            if not self.n_remaining:
                raise BudgetExceeded("Every step of this plan is drawn: make a new plan.")
            if not all(covers(losses[step], drawn_mechanism.loss(m)) for m, losses in self._losses.items()):
                raise InputError(
                    "The next step of this plan was declared with another loss, which does not cover this one: use the "
                    "same mechanism, or one that loses less."
                )
            step_name = f"{self._entry_id}:{step}"
            try:
                return self._draw_step(drawn_mechanism, derived_from, step_name)
            finally:  # a step that was not drawn can be requested again
                chain = self._ledger.snapshot()
                self._next_step += chain.is_committed(chain.step_entries.get(step_name, ""))


def step_losses(steps: Sequence[Mechanism | Loss], n_labels: int = 1) -> list[Loss]:
    """Return the loss of each step of a plan for a unit that owns `n_labels` of the released rows."""
    return [step.loss(n_labels) if isinstance(step, Mechanism) else step for step in steps]


def describe_steps(
    steps: Sequence[Mechanism | Loss], sizes: Collection[int], delta: float, name: str
) -> tuple[dict[int, list[Loss]], dict[str, Any]]:
    """Return the losses of a plan's steps by number of rows that a unit owns, and the public description of the plan.

    Args:
        steps: A mechanism or a loss for each step, or one list of them.
        sizes: How many of the plan's rows a unit can own.
        delta: The delta at which the losses are composed.
        name: The name of the plan.

    Raises:
        InputError: A step has no loss, or only the loss of a single label where users own several.
    """
    check_delta(delta)
    if len(steps) == 1 and isinstance(steps[0], list | tuple):
        steps = tuple(steps[0])
    if not steps or not all(hasattr(step, "loss") or hasattr(step, "rdp") for step in steps):
        raise InputError("A plan needs at least one step, each a mechanism or a loss.")
    if max(sizes) > 1 and not all(isinstance(step, Mechanism) for step in steps):
        raise InputError("With users who own several rows, declare each step of a plan as a mechanism.")
    losses = {m: step_losses(steps, m) for m in sizes}
    details = {
        "mechanism": "plan",
        "name": name,
        "steps": {m: [repr(loss) for loss in each] for m, each in losses.items()},
        "composed_at": delta,
        "trust": "central",
    }
    return losses, details
