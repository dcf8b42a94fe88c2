"""The account of a data set: the ledger of its labels, the cost spent so far, and the check against the budget."""

import hashlib
import math
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import Cost, LabelUse, RowMask, Spending, joint_cost, rows_per_unit, unpack_rows
from labeldp.accounting.filter import PrivacyFilter
from labeldp.accounting.lineage import HasLineage, source_guarantee
from labeldp.accounting.losses import Loss, compose
from labeldp.core.errors import BudgetExceeded, InputError, LedgerError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Budget, Guarantee, Trust, Unit
from labeldp.privacy.mechanisms.base import Mechanism, without_digests
from labeldp.privacy.vault.chain import Chain, parse_costs
from labeldp.privacy.vault.entries import Entry
from labeldp.privacy.vault.identity import Identity
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.thread_lock import ThreadLock
from labeldp.releases.base import Release

BudgetChooser = Callable[[Budget | None], Budget]


class Account:
    """A ledger that is bound to one data set. It holds public facts only: rows, owners and identity, and no label.

    The budget is read from the ledger whenever it is needed, because another process may have changed it. The running
    totals add only the entries that are new since the last call.

    Args:
        ledger: The ledger.
        identity: The public facts that identify the data set.
        user_ids: The number of the owner of each row; None if each label is a unit.
        budget: The budget, or a function that chooses it from the ledger's budget.
    """

    def __init__(
        self, ledger: Ledger, identity: Identity, user_ids: NDArray[np.int64] | None, budget: Budget | BudgetChooser
    ) -> None:
        self.ledger, self._identity, self._user_ids = ledger, identity, user_ids
        self.unit: Unit = "label" if user_ids is None else "user"
        self._totals, self._thread_lock = (Spending(identity.n_rows, user_ids), 0), ThreadLock()

        def choose_budget(ledger_budget: Budget | None) -> Budget:
            return budget if isinstance(budget, Budget) else budget(ledger_budget)

        user_digest = None if user_ids is None else hashlib.sha256(user_ids.tobytes()).hexdigest()
        facts: dict[str, Any] = {"identity": identity.to_json(), "unit": self.unit, "owners": user_digest}
        facts |= {"budget": PrivacyFilter.of(choose_budget(None)).to_json(), "mark": uuid.uuid4().hex}
        with ledger.exclusive_lock():
            chain = ledger.open(facts, lambda chain: self._find_mismatch(chain.facts, user_digest, choose_budget))
            # The mark distinguishes uses of these labels from uses of labels of another data set.
            self.mark: str = chain.facts["mark"]
            self._change_budget(chain, choose_budget)

    @property
    def label(self) -> str | None:
        """The name of the label; None for a label without a name."""
        return self._identity.label

    @property
    def filter(self) -> PrivacyFilter:
        """The privacy filter with the present budget of the ledger."""
        return filter_of(self.snapshot())

    def snapshot(self) -> Chain:
        """Return the present chain of the ledger, and check that it is still bound to these labels and this budget.

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

        Charges of the same rows are summed before they are added to each unit, which makes long ledgers fast to read.
        """
        with self._thread_lock.hold():
            totals, n_counted = self._totals
            # After an interruption, the totals are computed again from the first charge.
            self._totals = Spending(self._identity.n_rows, self._user_ids), 0
            new_charges = Counter(chain.charges[n_counted:])
            costs_by_row_set: dict[str, dict[int, Cost]] = {}
            for (row_set, costs), n_charges in new_charges.items():
                row_set_costs = costs_by_row_set.setdefault(row_set, {})
                for n_labels, cost in _with_single_label_cost(parse_costs(costs)).items():
                    row_set_costs[n_labels] = row_set_costs.get(n_labels, Cost()) + cost * n_charges
            for row_set, row_set_costs in costs_by_row_set.items():
                self._add_costs(totals, row_set, row_set_costs)
            self._totals = totals, n_counted + new_charges.total()
            return totals

    def sum_entries(self, entries: Sequence[Entry], unit: Unit | None = None) -> Spending:
        """Sum the costs of some entries for each unit: a label with `unit="label"`, else the unit of the account."""
        spending = Spending(self._identity.n_rows, None if unit == "label" else self._user_ids)
        for entry in entries:
            if entry.costs:
                self._add_costs(spending, entry.row_set, _with_single_label_cost(entry.costs))
        return spending

    def _add_costs(self, spending: Spending, row_set: str, costs: Mapping[int, Cost]) -> None:
        row_mask = unpack_rows(self.ledger.packed_rows(row_set), self._identity.n_rows)
        try:
            spending.add(row_mask, costs, row_set)
        except KeyError:
            raise LedgerError(
                "An entry of the ledger has no cost for some units: restore the ledger from a backup."
            ) from None

    def plan_cost(self, privacy_filter: PrivacyFilter, losses: Sequence[Loss], delta: float) -> Cost:
        """Return what a unit is charged for several releases at once.

        Args:
            privacy_filter: The filter of the ledger.
            losses: The loss of each release.
            delta: The delta at which they are composed, which is charged as well.

        Raises:
            InputError: A loss needs a delta, and the plan has none.
        """
        epsilon = compose(losses, delta)
        if not math.isfinite(epsilon):
            raise InputError("A step of this plan is not purely private: give the plan a delta above 0.")
        return privacy_filter.cost(as_fraction(epsilon), as_fraction(delta), losses)

    def afford(self, chain: Chain, row_mask: RowMask | None, row_set: str, costs: Mapping[int, Cost]) -> None:
        """Check that the budget of every unit with labels in these rows covers a cost.

        Args:
            chain: The ledger's chain.
            row_mask: The rows; None for all.
            row_set: The name of the rows in the ledger.
            costs: The cost to a unit, by number of these rows that the unit owns.

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

    def find_committed(self, chain: Chain, request: str) -> Entry | None:
        """Return the entry whose stored release answers a request for this label; None if there is none."""
        entries = chain.entries_for_request(request, self.label)
        return next((entry for entry in entries if entry.status == "committed"), None)

    def find_interrupted(self, chain: Chain, request: str, charged_costs: Mapping[int, Cost]) -> Entry | None:
        """Return the reservation under which an interrupted request is drawn again; None if there is none.

        The label names must be equal. A release drawn under a reservation without a label name would be stored without
        a name, and would later be returned for every other label.
        """
        entries = chain.entries_for_request(request, self.label)
        matching = (e for e in entries if e.status == "reserved" and e.label == self.label and e.costs == charged_costs)
        return next(matching, None)

    def guarantee(self) -> Guarantee:
        """Return the guarantee of all entries of the ledger together."""
        chain = self.snapshot()
        entries = [entry for entry in chain.entries() if entry.kind != "budget"]
        trust: Trust = "local" if {e.details.get("trust") for e in entries} == {"local"} else "central"
        privacy_filter = filter_of(chain)
        epsilon, delta = privacy_filter.guarantee(self.total_spending(chain).max_cost())
        derivation = f"{privacy_filter.budget.composition} over {len(entries)} ledger entries"
        return Guarantee(float(epsilon), float(delta), self.unit, trust, derivation)

    def guarantee_of(
        self, entry_ids: set[str], extra: Mechanism | None, row_mask: RowMask | None, unit: Unit | None
    ) -> Guarantee:
        """Return the guarantee of some entries together. Epsilons and deltas add up.

        Args:
            entry_ids: The ids of releases. A step of a plan costs what the whole plan costs, once.
            extra: A mechanism that would be drawn in addition; None for none.
            row_mask: The rows of `extra`; None for all.
            unit: "label" for the guarantee of a single label; None for the unit of the account.

        Raises:
            InputError: An entry is not in this ledger, or is no release.
        """
        unit = unit or self.unit
        chain = self.snapshot()
        entries = [chain.entry(entry_id) for entry_id in sorted(entry_ids) if chain.has_entry(entry_id)]
        if len(entries) < len(entry_ids) or any(entry.kind == "budget" for entry in entries):
            raise InputError("Only releases of this vault can be added up here.")
        entries = [chain.entry(entry_id) for entry_id in dict.fromkeys(entry.payer_id for entry in entries)]
        spending = self.sum_entries(entries, unit)
        trusts = [entry.details["trust"] for entry in entries]
        mechanism_names = [entry.details["mechanism"] for entry in entries]
        if extra is not None:
            sizes = rows_per_unit(row_mask, None if unit == "label" else self._user_ids)
            spending.add(row_mask, {m: price(filter_of(chain), extra, m) for m in sizes})
            trusts.append(extra.trust)
            mechanism_names.append(type(extra).__name__)
        spent = spending.max_cost()
        trust: Trust = "local" if all(trust == "local" for trust in trusts) else "central"
        derivation = " + ".join(dict.fromkeys(mechanism_names)) + f", added up by {unit}"
        return Guarantee(float(spent.epsilon), float(spent.delta), unit, trust, derivation)

    def _find_mismatch(
        self, ledger_facts: dict[str, Any], user_digest: str | None, choose_budget: BudgetChooser
    ) -> str | None:
        """Return why a ledger with entries does not belong to these data; None if it does."""
        old_budget = PrivacyFilter.from_json(ledger_facts["budget"]).budget
        new_budget = choose_budget(old_budget)
        if not self._identity.has_same_rows(Identity(**ledger_facts["identity"])):
            known = ledger_facts["identity"]
            return (
                f"belongs to other data ({known['name']}, label {known['label']!r}, {known['n_rows']} rows): features, "
                "row ids or number of rows differ. Use the data as they were, or another ledger if these are other "
                "people; a new ledger for the same people would forget what was spent."
            )
        if (ledger_facts["unit"], ledger_facts["owners"]) != (self.unit, user_digest):
            return f"protects each {ledger_facts['unit']}: name the same users as before."
        if old_budget.composition != new_budget.composition:
            return f'adds up by "{old_budget.composition}", which cannot be changed later.'
        if new_budget.composition == "rdp" and old_budget.delta != new_budget.delta:
            return f'is bound to delta {old_budget.delta}, which cannot be changed with "rdp".'
        return None

    def _change_budget(self, chain: Chain, choose_budget: BudgetChooser) -> None:
        """Record a changed budget in a ledger with entries. A ledger without entries is bound with the new budget."""
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
    """Return the cost of a release to a unit that owns `n_labels` of the released rows."""
    return privacy_filter.cost(*mechanism.price(n_labels), [mechanism.loss(n_labels)])


def filter_of(chain: Chain) -> PrivacyFilter:
    """Return the privacy filter of a ledger: its budget and its composition."""
    return PrivacyFilter.from_json(chain.facts["budget"])


def released_parameters(mechanism: Mechanism, derived_from: Sequence[HasLineage]) -> dict[str, Any]:
    """Return the parameters that a release shows.

    Where a source protects whole records, digests of arrays are left out, because predictions depend on the records.
    """
    protects_records = any(source_guarantee(each).unit == "record" for each in derived_from)
    parameters = mechanism.released_parameters()
    return without_digests(parameters) if protects_records else parameters


def release_guarantee(
    mechanism: Mechanism, lineage: tuple[LabelUse, ...], derived_from: Sequence[HasLineage], unit: Unit
) -> Guarantee:
    """Return the guarantee of a release together with its sources.

    Args:
        mechanism: The mechanism of the release.
        lineage: All uses of labels behind the release: those of its sources, and its own.
        derived_from: The sources.
        unit: The unit of the vault.
    """
    cost = joint_cost(lineage)
    is_local = mechanism.trust == "local" and all(source_guarantee(each).trust == "local" for each in derived_from)
    derivation = f"{type(mechanism).__name__}: {type(mechanism.loss()).__name__}"
    if len(lineage) > 1:
        derivation += f", with the {len(lineage) - 1} uses of labels that its inputs came from"
    return Guarantee(float(cost.epsilon), float(cost.delta), unit, "local" if is_local else "central", derivation)


def source_entries(chain: Chain, derived_from: Sequence[HasLineage]) -> Any:
    """Return the ledger entries from which something was derived, as an entry records them.

    Raises:
        InputError: A source has an entry that is not in this ledger, or whose release was never stored.
    """
    entry_ids = [entry_id for source in derived_from for entry_id in _entries_of(source)]
    if not all(chain.is_committed(entry_id) for entry_id in entry_ids):
        raise InputError("derived_from names a release that is not of this vault: derive from its releases only.")
    return entry_ids or "declared public"


def _entries_of(source: HasLineage) -> list[str]:
    """Return the ledger entries of a release, or of all uses of labels behind a model."""
    if isinstance(source, Release):
        return (source.entry or "unknown").split(",")
    return [use.entry for use in source.lineage] or ["unknown"]


def _with_single_label_cost(costs: Mapping[int, Cost]) -> dict[int, Cost]:
    """Return costs with an entry for a single label. A label loses no more than its owner."""
    return {1: costs[max(costs)], **costs}
