"""The account of a data set: the ledger that its labels are bound to, what they have lost, and whether more fits."""

import hashlib
import math
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InputError, LedgerError
from labeldp.guarantees import Budget, Unit
from labeldp.losses import Loss, compose
from labeldp.mechanisms.base import Mechanism
from labeldp.reals import exactly
from labeldp.spending import Cost, Mask, Spending, unpack_rows
from labeldp.vault.filter import Filter
from labeldp.vault.identity import Identity
from labeldp.vault.ledger import Entry, Ledger

Chosen = Callable[[Budget | None], Budget]


class Account:
    """A ledger, bound to one data set. Nothing here has seen a label: rows, owners and identity are public.

    The budget is read from the ledger whenever it is needed: another process may have changed it.
    """

    def __init__(
        self, ledger: Ledger, identity: Identity, owner: NDArray[np.int64] | None, budget: Budget | Chosen
    ) -> None:
        self.ledger, self._identity, self._owner = ledger, identity, owner
        self.unit: Unit = "label" if owner is None else "user"

        def chosen(known: Budget | None) -> Budget:
            return budget if isinstance(budget, Budget) else budget(known)

        owners = None if owner is None else hashlib.sha256(owner.tobytes()).hexdigest()
        facts: dict[str, Any] = {"identity": identity.to_json(), "unit": self.unit, "owners": owners}
        facts |= {"budget": Filter.of(chosen(None)).to_json(), "mark": uuid.uuid4().hex}
        with ledger.exclusive():
            known = ledger.open(facts, lambda known: self._complaint(known, owners, chosen))
            if "mark" not in known:  # written before there were marks
                ledger.set_fact("mark", facts["mark"])
            self.mark = known.get("mark", facts["mark"])  # by which uses of these labels are told from those of others
            self._change_budget(Filter.from_json(known["budget"]), chosen)

    @property
    def filter(self) -> Filter:
        """The budget as the ledger has it now."""
        return Filter.from_json(self.still_bound(self.ledger.facts())["budget"])

    def still_bound(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return the facts of the ledger, if it still is that of these labels and of this budget."""
        if facts.get("mark", self.mark) != self.mark:
            raise LedgerError(
                "This ledger was bound to other data or another budget before anything was spent: open the vault again."
            )
        return facts

    def spending(self, entries: Sequence[Entry], unit: Unit | None = None) -> Spending:
        """Add up entries, for each unit of the account or of another kind."""
        spending = Spending(self._identity.rows, None if unit == "label" else self._owner)
        for entry in entries:
            if entry.costs:
                one = entry.costs.get(1, entry.costs[max(entry.costs)])  # no label loses more than its owner
                spending.add(unpack_rows(entry.rows, self._identity.rows), entry.costs | {1: one})
        return spending

    def cost(self, mechanism: Mechanism, labels: int) -> Cost:
        """Return what a unit with so many labels is charged for a release."""
        return self.filter.cost(*mechanism.price(labels), [mechanism.loss(labels)])

    def plan_cost(self, losses: Sequence[Loss], delta: float) -> Cost:
        """Return what a unit is charged for several releases at once."""
        epsilon = compose(losses, delta)
        if not math.isfinite(epsilon):
            raise InputError("A step of this plan is not purely private: give the plan a delta above 0.")
        return self.filter.cost(exactly(epsilon), exactly(delta), losses)

    def afford(
        self, entries: Sequence[Entry], facts: dict[str, Any], mask: Mask | None, costs: dict[int, Cost]
    ) -> None:
        """Raise BudgetExceeded if a unit with labels in these rows cannot pay."""
        spending = self.spending(entries)
        before = spending.worst(mask)
        spending.add(mask, costs)
        Filter.from_json(facts["budget"]).admit(before, spending.worst(mask), costs[max(costs)])

    def _complaint(self, known: dict[str, Any], owners: str | None, chosen: Chosen) -> str | None:
        """Say why a ledger from which something was spent is not that of these data."""
        old = Filter.from_json(known["budget"]).budget
        new = chosen(old)
        if not self._identity.same_as(Identity(**known["identity"])):
            made = known["identity"]
            return (
                f"belongs to other data ({made['name']}, label {made['label']!r}, {made['rows']} rows): features, "
                "row ids, label column or number of rows differ. Use the data as they were, or another ledger if "
                "these are other people's labels or another secret; a new ledger for the same labels would forget "
                "what was spent."
            )
        if (known["unit"], known["owners"]) != (self.unit, owners):
            return f"protects each {known['unit']}: name the same users as before (--user-column)."
        if old.composition != new.composition:
            return f'adds up by "{old.composition}", which cannot be changed later.'
        if new.composition == "rdp" and old.delta != new.delta:
            return f'is bound to delta {old.delta}, which cannot be changed with "rdp".'
        return None

    def _change_budget(self, old: Filter, chosen: Chosen) -> None:
        """Write down another budget than that of a ledger in which something was spent; a fresh one has it already."""
        entries = self.ledger.entries()
        new = Filter(chosen(old.budget), old.order) if entries else old
        if new == old:
            return
        epsilon, delta = new.guarantee(self.spending(entries).worst())
        if epsilon > exactly(new.budget.epsilon) or delta > exactly(new.budget.delta):
            raise InputError(
                f"Epsilon {float(epsilon):g} and delta {float(delta):g} are spent already: a budget cannot be less."
            )
        note = Entry("budget", "", {"mechanism": "new budget", "from": old.to_json(), "to": new.to_json()})
        self.ledger.reserve(note, lambda known, facts: None)
        self.ledger.set_fact("budget", new.to_json())
        self.ledger.commit(note)
