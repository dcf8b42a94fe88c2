"""The account of a data set: the ledger that its labels are bound to, what they have lost, and whether more fits."""

import hashlib
import math
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import Cost, Mask, Spending, unpack_rows
from labeldp.accounting.filter import Filter
from labeldp.accounting.losses import Loss, compose
from labeldp.core.errors import BudgetExceeded, InputError, LedgerError
from labeldp.core.exact_real import exactly
from labeldp.core.guarantee import Budget, Unit
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault.chain import Chain, parse_costs
from labeldp.privacy.vault.entries import Entry
from labeldp.privacy.vault.identity import Identity
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.threads import ThreadLock

Chosen = Callable[[Budget | None], Budget]


class Account:
    """A ledger, bound to one data set. Nothing here has seen a label: rows, owners and identity are public.

    The budget is read from the ledger whenever it is needed: another process may have changed it. The running totals
    take in only the entries that came since the last time.
    """

    def __init__(
        self, ledger: Ledger, identity: Identity, owner: NDArray[np.int64] | None, budget: Budget | Chosen
    ) -> None:
        self.ledger, self._identity, self._owner = ledger, identity, owner
        self.unit: Unit = "label" if owner is None else "user"
        self._totals, self._one_thread = (Spending(identity.rows, owner), 0), ThreadLock()

        def chosen(known: Budget | None) -> Budget:
            return budget if isinstance(budget, Budget) else budget(known)

        owners = None if owner is None else hashlib.sha256(owner.tobytes()).hexdigest()
        facts: dict[str, Any] = {"identity": identity.to_json(), "unit": self.unit, "owners": owners}
        facts |= {"budget": Filter.of(chosen(None)).to_json(), "mark": uuid.uuid4().hex}
        with ledger.exclusive():
            chain = ledger.open(facts, lambda chain: self._complaint(chain.facts, owners, chosen))
            self.mark: str = chain.facts["mark"]  # by which uses of these labels are told from those of others
            self._change_budget(chain, chosen)

    @property
    def label(self) -> str | None:
        """The name of the label; None if it has none."""
        return self._identity.label

    @property
    def filter(self) -> Filter:
        """The budget as the ledger has it now."""
        return filter_of(self.snapshot())

    def snapshot(self) -> Chain:
        """Return the ledger's chain as it is now, if it still is that of these labels and of this budget.

        Raises:
            LedgerError: The ledger was bound to other data meanwhile, or is damaged.
        """
        return self.still_bound(self.ledger.snapshot())

    def still_bound(self, chain: Chain) -> Chain:
        """Return the chain if it is still bound to these labels and to this budget."""
        if chain.facts.get("mark") != self.mark:
            raise LedgerError(
                "This ledger was bound to other data or another budget before anything was spent: open the vault again."
            )
        return chain

    def spent(self, chain: Chain) -> Spending:
        """Return the running totals over all charges of a chain.

        Charges of the same rows are added up before they are added to each unit, so that a ledger of many entries is
        read quickly.
        """
        with self._one_thread.held():
            running, counted = self._totals
            self._totals = Spending(self._identity.rows, self._owner), 0  # if interrupted here, it starts again
            new = Counter(chain.charges[counted:])
            by_rows: dict[str, dict[int, Cost]] = {}
            for (row_set, costs), times in new.items():
                total = by_rows.setdefault(row_set, {})
                for labels, cost in _label_too(parse_costs(costs)).items():
                    total[labels] = total.get(labels, Cost()) + cost * times
            for row_set, total in by_rows.items():
                self._add(running, row_set, total)
            self._totals = running, counted + new.total()
            return running

    def spending(self, entries: Sequence[Entry], unit: Unit | None = None) -> Spending:
        """Add up some entries, for each unit of the account or of another kind."""
        spending = Spending(self._identity.rows, None if unit == "label" else self._owner)
        for entry in entries:
            if entry.costs:
                self._add(spending, entry.row_set, _label_too(entry.costs))
        return spending

    def _add(self, spending: Spending, row_set: str, costs: Mapping[int, Cost]) -> None:
        mask = unpack_rows(self.ledger.rows(row_set), self._identity.rows)
        try:
            spending.add(mask, costs, row_set)
        except KeyError:
            raise LedgerError(
                "An entry of the ledger has no cost for some units: restore the ledger from a backup."
            ) from None

    def plan_cost(self, budget: Filter, losses: Sequence[Loss], delta: float) -> Cost:
        """Return what a unit is charged for several releases at once.

        Args:
            budget: The filter of the ledger.
            losses: The loss of each release.
            delta: The delta at which they are composed, which is charged as well.

        Raises:
            InputError: A loss needs a delta, and the plan has none.
        """
        epsilon = compose(losses, delta)
        if not math.isfinite(epsilon):
            raise InputError("A step of this plan is not purely private: give the plan a delta above 0.")
        return budget.cost(exactly(epsilon), exactly(delta), losses)

    def afford(self, chain: Chain, mask: Mask | None, row_set: str, costs: Mapping[int, Cost]) -> None:
        """Check that every unit with labels in these rows can pay.

        Args:
            chain: The ledger's chain.
            mask: The rows; None for all.
            row_set: The name of the rows in the ledger.
            costs: The cost by number of rows that a unit owns.

        Raises:
            BudgetExceeded: A unit cannot pay.
        """
        spending = self.spent(chain)
        before, after = spending.max_cost(mask, key=row_set), spending.max_cost(mask, costs, row_set)
        try:
            filter_of(chain).admit(before, after, costs[max(costs)])
        except BudgetExceeded as problem:
            names = dict.fromkeys([*chain.labels, *([self.label] if self.label else [])])
            if len(names) < 2:
                raise
            raise BudgetExceeded(
                f"{problem} The ledger adds up all labels of these rows ({', '.join(names)})."
            ) from None

    def _complaint(self, known: dict[str, Any], owners: str | None, chosen: Chosen) -> str | None:
        """Say why a ledger from which something was spent is not that of these data."""
        old = Filter.from_json(known["budget"]).budget
        new = chosen(old)
        if not self._identity.same_rows(Identity(**known["identity"])):
            made = known["identity"]
            return (
                f"belongs to other data ({made['name']}, label {made['label']!r}, {made['rows']} rows): features, "
                "row ids or number of rows differ. Use the data as they were, or another ledger if these are other "
                "people; a new ledger for the same people would forget what was spent."
            )
        if (known["unit"], known["owners"]) != (self.unit, owners):
            return f"protects each {known['unit']}: name the same users as before (--user-column)."
        if old.composition != new.composition:
            return f'adds up by "{old.composition}", which cannot be changed later.'
        if new.composition == "rdp" and old.delta != new.delta:
            return f'is bound to delta {old.delta}, which cannot be changed with "rdp".'
        return None

    def _change_budget(self, chain: Chain, chosen: Chosen) -> None:
        """Record another budget than that of a ledger in which something was spent; a fresh one has it already."""
        old = filter_of(chain)
        new = Filter(chosen(old.budget), old.order) if chain.spent else old
        if new == old:
            return
        epsilon, delta = new.guarantee(self.spent(chain).max_cost())
        if epsilon > exactly(new.budget.epsilon) or delta > exactly(new.budget.delta):
            raise InputError(
                f"Epsilon {float(epsilon):g} and delta {float(delta):g} are spent already: a budget cannot be less."
            )
        self.ledger.change_budget({"from": old.to_json(), "to": new.to_json()})


def price(budget: Filter, mechanism: Mechanism, labels: int) -> Cost:
    """Return what a unit with so many labels is charged for a release within a budget."""
    return budget.cost(*mechanism.price(labels), [mechanism.loss(labels)])


def filter_of(chain: Chain) -> Filter:
    """Return the privacy filter of a ledger: its budget, and what it adds up."""
    return Filter.from_json(chain.facts["budget"])


def _label_too(costs: Mapping[int, Cost]) -> dict[int, Cost]:
    """Return costs that have one for a single label: no label loses more than its owner."""
    return {1: costs[max(costs)], **costs}
