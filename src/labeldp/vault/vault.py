"""The vault: the only way for labels to reach the learning side."""

import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp.bits import SYSTEM, Bits
from labeldp.errors import BudgetExceeded, InputError
from labeldp.guarantees import Budget, Guarantee, Trust, Unit
from labeldp.labels import MISSING, LabelSpace
from labeldp.losses import Loss, compose
from labeldp.mechanisms.base import Mechanism
from labeldp.reals import exactly
from labeldp.releases.base import Release
from labeldp.releases.storage import from_bytes, to_bytes
from labeldp.vault.filter import Filter
from labeldp.vault.identity import Identity
from labeldp.vault.ledger import Entry, Ledger
from labeldp.vault.spending import Cost, Mask, Spending, group_sizes


class Vault:
    """Labels with a budget. Only `release` lets anything about them out, and it charges the ledger first.

    `users` names the owner of each row; then the budget and all guarantees are for users, who may own several
    rows. Without `ledger` the vault counts for itself alone, in memory; a ledger file counts for everybody who
    uses the same data, and needs `identity` to know that it is the same.
    """

    def __init__(
        self,
        labels: Any,
        space: LabelSpace,
        budget: Budget,
        *,
        users: Any = None,
        ledger: str | Path | Ledger | None = None,
        identity: Identity | None = None,
    ) -> None:
        if not isinstance(space, LabelSpace) or not isinstance(budget, Budget):
            raise InputError("A vault needs labels, a LabelSpace and a Budget.")
        self.__codes = space.encode(labels)
        self.space = space
        self.rows = int(self.__codes.size)
        if not self.rows:
            raise InputError("There are no labels: a vault needs at least one row.")
        self._labelled = None if (self.__codes != MISSING).all() else self.__codes != MISSING
        self._owner = None if users is None else _number_users(users, self.rows)
        self.unit: Unit = "label" if users is None else "user"
        self._bits: Bits = SYSTEM
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        if self.ledger.path is not None and identity is None:
            raise InputError("A ledger file belongs to a data set: say which by identity=Identity(name, ...).")
        self._identity = identity or Identity("in memory", "label", self.rows)
        if self._identity.rows != self.rows:
            raise InputError(f"The identity names {self._identity.rows} rows and there are {self.rows} labels.")
        self._filter = self._open(budget)

    def release(
        self,
        mechanism: Mechanism,
        rows: Any = None,
        *,
        derived_from: Sequence[Release] = (),
    ) -> Release:
        """Release labels of `rows` (indices or a mask; None for all) by a mechanism.

        The row set and the arrays of the mechanism are declared public, or computed from the releases named
        in `derived_from`; computing them from raw labels would void the guarantee. The same request made
        again returns the stored release: fresh noise on the same labels could be averaged away.
        """
        self._check(mechanism)
        mask = self._mask(rows)
        costs = {m: self._cost(mechanism, m) for m in group_sizes(mask, self._owner)}
        return self._draw("release", mechanism, mask, costs, self._origin(derived_from))

    def plan(self, *steps: Mechanism | Loss, rows: Any = None, delta: float = 0.0) -> "Plan":
        """Reserve several releases at once, which together cost less than one after another.

        The steps' losses are fixed now and composed with `delta`; what exactly each step asks may depend on the
        ones before. The whole cost is charged at once.
        """
        if not steps:
            raise InputError("A plan needs at least one step.")
        if self._owner is not None and not all(isinstance(s, Mechanism) for s in steps):
            raise InputError("With users, declare each step of a plan as a mechanism.")
        mask = self._mask(rows)
        costs = {}
        for m in group_sizes(mask, self._owner):
            losses = [s.loss(m) if isinstance(s, Mechanism) else s for s in steps]
            epsilon = compose(losses, delta)
            if not math.isfinite(epsilon):
                raise InputError("A step of this plan is not purely private: give the plan a delta above 0.")
            costs[m] = self._filter.cost(exactly(epsilon), exactly(delta), losses)
        losses = [s.loss() if isinstance(s, Mechanism) else s for s in steps]
        details = {"mechanism": "plan", "steps": [repr(loss) for loss in losses], "trust": "central"}
        entry = Entry("plan", _digest(details | {"rows": _pack(mask)}), details, costs, _pack(mask))
        with self.ledger.exclusive():
            self.ledger.reserve(entry, lambda known: self._afford(known, mask, costs))
            self.ledger.commit(entry)
        return Plan(self, entry, losses, mask)

    def guarantee(self) -> Guarantee:
        """Return what is guaranteed so far, over all releases in the ledger."""
        entries = self.ledger.entries()
        trusts = {e.details.get("trust") for e in entries if e.kind != "budget"}
        trust: Trust = "local" if trusts == {"local"} else "central"
        epsilon, delta = self._filter.guarantee(self._spending(entries).worst())
        how = f"{self.budget.composition} over {sum(e.kind != 'budget' for e in entries)} ledger entries"
        return Guarantee(float(epsilon), float(delta), self.unit, trust, how)

    def remaining(self, rows: Any = None) -> tuple[float, float]:
        """Return the epsilon and delta that releases of `rows` can still cost in total."""
        mask = None if rows is None else self._mask(rows)
        return self._filter.left(self._spending(self.ledger.entries()).worst(mask))

    @property
    def budget(self) -> Budget:
        """The most that may ever be spent."""
        return self._filter.budget

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"Vault({self.rows} labels, {len(self.space)} classes, {self.budget})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A vault cannot be pickled: labels leave it by release alone.")

    # The budget

    def _open(self, budget: Budget) -> Filter:
        fresh = Filter.of(budget)
        owners = None if self._owner is None else hashlib.sha256(self._owner.tobytes()).hexdigest()
        facts = {"identity": self._identity.to_json(), "unit": self.unit, "owners": owners, "budget": fresh.to_json()}

        def same(known: dict[str, Any]) -> str | None:
            old = Filter.from_json(known["budget"]).budget
            if not self._identity.same_data(Identity(**known["identity"])):
                return f'belongs to another data set ("{known["identity"]["name"]}"): name the right ledger.'
            if (known["unit"], known["owners"]) != (self.unit, owners):
                return f"protects each {known['unit']}: open the vault with the same users as before."
            if old.composition != budget.composition:
                return f'adds up by "{old.composition}", which cannot be changed later.'
            if budget.composition == "rdp" and old.delta != budget.delta:
                return f'is bound to delta {old.delta}, which cannot be changed with "rdp".'
            return None

        old = Filter.from_json(self.ledger.open(facts, same)["budget"])
        new = Filter(budget, old.order)
        if new != old:
            note = Entry("budget", "", {"mechanism": "new budget", "from": old.to_json(), "to": new.to_json()})
            with self.ledger.exclusive():
                self.ledger.reserve(note, lambda _: None)
                self.ledger.set_fact("budget", new.to_json())
                self.ledger.commit(note)
        return new

    def _spending(self, entries: Sequence[Entry]) -> Spending:
        spending = Spending(self.rows, self._owner)
        for entry in entries:
            if entry.costs:
                spending.add(unpack_rows(entry.rows, self.rows), entry.costs)
        return spending

    def _cost(self, mechanism: Mechanism, labels: int) -> Cost:
        return self._filter.cost(*mechanism.price(labels), [mechanism.loss(labels)])

    def _afford(self, entries: Sequence[Entry], mask: Mask | None, costs: dict[int, Cost]) -> None:
        spending = self._spending(entries)
        before = spending.worst(mask)
        spending.add(mask, costs)
        self._filter.admit(before, spending.worst(mask), costs[max(costs)])

    # The release

    def _draw(
        self,
        kind: str,
        mechanism: Mechanism,
        mask: Mask | None,
        costs: dict[int, Cost],
        origin: Any,
        plan: str = "",
    ) -> Release:
        name = type(mechanism).__name__
        details = {
            "mechanism": name,
            "parameters": mechanism.parameters(),
            "classes": self.space.to_json()["classes"],
            "released": self.rows if mask is None else int(mask.sum()),
            "trust": mechanism.trust,
            "origin": origin,
            "plan": plan,
        }
        packed = _pack(mask)
        asked = {k: details[k] for k in ("mechanism", "parameters", "classes", "plan")} | {"rows": packed}
        entry = Entry(kind, _digest(asked), details, costs, packed)
        with self.ledger.exclusive():
            earlier = [e for e in self.ledger.entries() if e.request == entry.request and e.status == "committed"]
            if earlier:
                return mechanism.restore(from_bytes(self.ledger.payload(earlier[0].id)))
            self.ledger.reserve(entry, lambda known: self._afford(known, mask, costs) if costs else None)
            common = {
                "space": self.space,
                "guarantee": self._release_guarantee(mechanism, mask),
                "mechanism": name,
                "parameters": details["parameters"],
                "entry": entry.id,
                "rows": self.rows,
                "released": mask,
                "active": mask,
            }
            codes = self.__codes if mask is None else np.where(mask, self.__codes, MISSING).astype(self.__codes.dtype)
            release = mechanism.draw(codes, common, self._bits)
            self.ledger.commit(entry, to_bytes(release))
        return release

    def _release_guarantee(self, mechanism: Mechanism, mask: Mask | None) -> Guarantee:
        cost = self._cost(mechanism, max(group_sizes(mask, self._owner)))
        how = f"{type(mechanism).__name__}: {type(mechanism.loss()).__name__}"
        return Guarantee(float(cost.epsilon), float(cost.delta), self.unit, mechanism.trust, how)

    def _check(self, mechanism: Mechanism) -> None:
        if not isinstance(mechanism, Mechanism):
            raise InputError("release takes a mechanism, for example RandomizedResponse(epsilon=1.0).")
        mechanism.check(self.space, self.rows)

    def _mask(self, rows: Any) -> Mask | None:
        if rows is None:
            return self._labelled
        chosen = np.asarray(rows)
        if chosen.dtype == bool and chosen.shape == (self.rows,):
            mask = chosen.copy()
        elif chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer):
            if chosen.size and not (chosen.min() >= 0 and chosen.max() < self.rows):
                raise InputError(f"Rows must lie between 0 and {self.rows - 1}.")
            mask = np.zeros(self.rows, bool)
            mask[chosen] = True
        else:
            raise InputError(f"Choose rows by whole numbers or by a boolean mask of {self.rows} rows.")
        mask = mask if self._labelled is None else mask & self._labelled
        if not mask.any():
            raise InputError("No labelled row is chosen: there is nothing to release.")
        return None if mask.all() else mask

    def _origin(self, derived_from: Sequence[Release]) -> Any:
        if isinstance(derived_from, Release):
            derived_from = [derived_from]
        known = {e.id for e in self.ledger.entries() if e.status == "committed"}
        names = [name for r in derived_from for name in (r.entry or "unknown").split(",")]
        if not set(names) <= known:
            raise InputError("derived_from names a release that is not of this vault: derive from its releases only.")
        return names or "declared public"


class Plan:
    """Releases that are paid for and not all drawn yet; see `Vault.plan`."""

    def __init__(self, vault: Vault, entry: Entry, losses: Sequence[Loss], mask: Mask | None) -> None:
        self._vault, self._entry, self._mask = vault, entry, mask
        self._steps = list(losses)

    def release(self, mechanism: Mechanism, *, derived_from: Sequence[Release] = ()) -> Release:
        """Draw the next step. Its loss must be the one that was declared."""
        if not self._steps:
            raise BudgetExceeded("Every step of this plan is drawn: make a new plan.")
        self._vault._check(mechanism)
        if mechanism.loss() != self._steps[0]:
            raise InputError("The next step of this plan was declared with another loss: use the same mechanism.")
        origin = self._vault._origin(derived_from)
        step = f"{self._entry.id}:{len(self._steps)}"
        self._steps.pop(0)  # before the draw: a step that fails midway is spent
        return self._vault._draw("step", mechanism, self._mask, {}, origin, step)


def _number_users(users: Any, rows: int) -> NDArray[np.int64]:
    names = np.asarray(users)
    if names.shape != (rows,):
        raise InputError(f"users must name the owner of each of the {rows} rows.")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _pack(mask: Mask | None) -> bytes | None:
    return None if mask is None else zlib.compress(np.packbits(mask).tobytes(), 1)


def unpack_rows(packed: bytes | None, rows: int) -> Mask | None:
    """Read a row set as the ledger keeps it; None is all rows."""
    if packed is None:
        return None
    return np.unpackbits(np.frombuffer(zlib.decompress(packed), np.uint8), count=rows).astype(bool)


def _digest(request: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=repr).encode()).hexdigest()
