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
from labeldp.accounting.filter import PrivacyFilter
from labeldp.accounting.losses import Loss, compose
from labeldp.core.errors import BudgetExceeded, InputError, LedgerError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Budget, Unit
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault.chain import Chain, parse_costs
from labeldp.privacy.vault.entries import Entry
from labeldp.privacy.vault.identity import Identity
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.thread_lock import ThreadLock

BudgetChooser = Callable[[Budget | None], Budget]


class Account:
    """A ledger, bound to one data set. Nothing here has seen a label: rows, owners and identity are public.

    The budget is read from the ledger whenever it is needed: another process may have changed it. The running totals
    take in only the entries that came since the last time.
    """

    def __init__(
        self, ledger: Ledger, identity: Identity, user_ids: NDArray[np.int64] | None, budget: Budget | BudgetChooser
    ) -> None:
        self.ledger, self._identity, self._user_ids = ledger, identity, user_ids
        self.unit: Unit = "label" if user_ids is None else "user"
        self._totals, self._thread_lock = (Spending(identity.rows, user_ids), 0), ThreadLock()

        def choose_budget(ledger_budget: Budget | None) -> Budget:
            return budget if isinstance(budget, Budget) else budget(ledger_budget)

        user_digest = None if user_ids is None else hashlib.sha256(user_ids.tobytes()).hexdigest()
        facts: dict[str, Any] = {"identity": identity.to_json(), "unit": self.unit, "owners": user_digest}
        facts |= {"budget": PrivacyFilter.of(choose_budget(None)).to_json(), "mark": uuid.uuid4().hex}
        with ledger.exclusive_lock():
            chain = ledger.open(facts, lambda chain: self._find_mismatch(chain.facts, user_digest, choose_budget))
            self.mark: str = chain.facts["mark"]  # by which uses of these labels are told from those of others
            self._change_budget(chain, choose_budget)

    @property
    def label(self) -> str | None:
        """The name of the label; None if it has none."""
        return self._identity.label

    @property
    def filter(self) -> PrivacyFilter:
        """The budget as the ledger has it now."""
        return filter_of(self.snapshot())

    def snapshot(self) -> Chain:
        """Return the ledger's chain as it is now, if it still is that of these labels and of this budget.

        Raises:
            LedgerError: The ledger was bound to other data meanwhile, or is damaged.
        """
        return self.check_bound(self.ledger.snapshot())

    def check_bound(self, chain: Chain) -> Chain:
        """Return the chain if it is still bound to these labels and to this budget."""
        if chain.facts.get("mark") != self.mark:
            raise LedgerError(
                "This ledger was bound to other data or another budget before anything was spent: open the vault again."
            )
        return chain

    def total_spending(self, chain: Chain) -> Spending:
        """Return the running totals over all charges of a chain.

        Charges of the same rows are added up before they are added to each unit, so that a ledger of many entries is
        read quickly.
        """
        with self._thread_lock.hold():
            totals, n_counted = self._totals
            self._totals = Spending(self._identity.rows, self._user_ids), 0  # if interrupted here, it starts again
            new_charges = Counter(chain.charges[n_counted:])
            costs_by_row_set: dict[str, dict[int, Cost]] = {}
            for (row_set, costs), count in new_charges.items():
                row_set_costs = costs_by_row_set.setdefault(row_set, {})
                for n_labels, cost in _with_single_label_cost(parse_costs(costs)).items():
                    row_set_costs[n_labels] = row_set_costs.get(n_labels, Cost()) + cost * count
            for row_set, row_set_costs in costs_by_row_set.items():
                self._add_costs(totals, row_set, row_set_costs)
            self._totals = totals, n_counted + new_charges.total()
            return totals

    def sum_entries(self, entries: Sequence[Entry], unit: Unit | None = None) -> Spending:
        """Add up some entries, for each unit of the account or of another kind."""
        spending = Spending(self._identity.rows, None if unit == "label" else self._user_ids)
        for entry in entries:
            if entry.costs:
                self._add_costs(spending, entry.row_set, _with_single_label_cost(entry.costs))
        return spending

    def _add_costs(self, spending: Spending, row_set: str, costs: Mapping[int, Cost]) -> None:
        row_mask = unpack_rows(self.ledger.packed_rows(row_set), self._identity.rows)
        try:
            spending.add(row_mask, costs, row_set)
        except KeyError:
            raise LedgerError(
                "An entry of the ledger has no cost for some units: restore the ledger from a backup."
            ) from None

    def plan_cost(self, privacy_filter: PrivacyFilter, losses: Sequence[Loss], delta: float) -> Cost:
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
        return privacy_filter.cost(as_fraction(epsilon), as_fraction(delta), losses)

    def afford(self, chain: Chain, row_mask: Mask | None, row_set: str, costs: Mapping[int, Cost]) -> None:
        """Check that every unit with labels in these rows can pay.

        Args:
            chain: The ledger's chain.
            mask: The rows; None for all.
            row_set: The name of the rows in the ledger.
            costs: The cost by number of rows that a unit owns.

        Raises:
            BudgetExceeded: A unit cannot pay.
        """
        spending = self.total_spending(chain)
        before, after = spending.max_cost(row_mask, key=row_set), spending.max_cost(row_mask, costs, row_set)
        try:
            filter_of(chain).admit(before, after, costs[max(costs)])
        except BudgetExceeded as error:
            names = dict.fromkeys([*chain.label_names, *([self.label] if self.label else [])])
            if len(names) < 2:
                raise
            raise BudgetExceeded(f"{error} The ledger adds up all labels of these rows ({', '.join(names)}).") from None

    def _find_mismatch(
        self, ledger_facts: dict[str, Any], user_digest: str | None, choose_budget: BudgetChooser
    ) -> str | None:
        """Say why a ledger from which something was spent is not that of these data."""
        old_budget = PrivacyFilter.from_json(ledger_facts["budget"]).budget
        new_budget = choose_budget(old_budget)
        if not self._identity.has_same_rows(Identity(**ledger_facts["identity"])):
            ledger_identity = ledger_facts["identity"]
            return (
                f"belongs to other data ({ledger_identity['name']}, label {ledger_identity['label']!r}, {ledger_identity['rows']} rows): features, "
                "row ids or number of rows differ. Use the data as they were, or another ledger if these are other "
                "people; a new ledger for the same people would forget what was spent."
            )
        if (ledger_facts["unit"], ledger_facts["owners"]) != (self.unit, user_digest):
            return f"protects each {ledger_facts['unit']}: name the same users as before (--user-column)."
        if old_budget.composition != new_budget.composition:
            return f'adds up by "{old_budget.composition}", which cannot be changed later.'
        if new_budget.composition == "rdp" and old_budget.delta != new_budget.delta:
            return f'is bound to delta {old_budget.delta}, which cannot be changed with "rdp".'
        return None

    def _change_budget(self, chain: Chain, choose_budget: BudgetChooser) -> None:
        """Record another budget than that of a ledger in which something was spent; a fresh one has it already."""
        old_filter = filter_of(chain)
        new_filter = (
            PrivacyFilter(choose_budget(old_filter.budget), old_filter.order) if chain.has_entries else old_filter
        )
        if new_filter == old_filter:
            return
        epsilon, delta = new_filter.guarantee(self.total_spending(chain).max_cost())
        if epsilon > as_fraction(new_filter.budget.epsilon) or delta > as_fraction(new_filter.budget.delta):
            raise InputError(
                f"Epsilon {float(epsilon):g} and delta {float(delta):g} are spent already: a budget cannot be less."
            )
        self.ledger.change_budget({"from": old_filter.to_json(), "to": new_filter.to_json()})


def price(privacy_filter: PrivacyFilter, mechanism: Mechanism, n_labels: int) -> Cost:
    """Return what a unit with so many labels is charged for a release within a budget."""
    return privacy_filter.cost(*mechanism.price(n_labels), [mechanism.loss(n_labels)])


def filter_of(chain: Chain) -> PrivacyFilter:
    """Return the privacy filter of a ledger: its budget, and what it adds up."""
    return PrivacyFilter.from_json(chain.facts["budget"])


def _with_single_label_cost(costs: Mapping[int, Cost]) -> dict[int, Cost]:
    """Return costs that have one for a single label: no label loses more than its owner."""
    return {1: costs[max(costs)], **costs}
