"""The vault: the only way for labels to reach the learning side."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import (
    Cost,
    Mask,
    Use,
    cap_labels_per_user,
    encode_users,
    expand_to_units,
    joint_cost,
    pack_rows,
    row_set_name,
    rows_per_unit,
)
from labeldp.accounting.lineage import Source
from labeldp.accounting.losses import Loss
from labeldp.core.errors import BudgetExceeded, InputError, LabelDPError, LedgerError
from labeldp.core.guarantee import Budget, Guarantee, Trust, Unit, check_delta
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, without_digests
from labeldp.privacy.noise.secure_stream import SYSTEM, Bits
from labeldp.privacy.vault.account import Account, Chosen, filter_of, price
from labeldp.privacy.vault.chain import Chain
from labeldp.privacy.vault.entries import Entry
from labeldp.privacy.vault.identity import Identity
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.release_plan import Plan, step_losses
from labeldp.privacy.vault.sources import lineage_of, named_sources, origin, stated
from labeldp.releases.base import Release
from labeldp.releases.storage import from_bytes, to_bytes

if TYPE_CHECKING:
    from labeldp.privacy.teachers.votes import SealedVotes


class Vault:
    """Labels with a budget. Only `release` lets anything about them out, and it charges the ledger first.

    `users` names the owner of each row; then the budget and all guarantees are for users, who may own several
    rows. Without `ledger` the vault counts for itself alone, in memory; a ledger file counts for everybody who
    uses the same data, and needs `identity` to know that it is the same. `budget` may be a function, which is given the
    budget of a ledger from which something was spent (None for another) and returns the one to have.
    """

    def __init__(
        self,
        labels: Any,
        space: LabelSpace,
        budget: Budget | Chosen,
        *,
        users: Any = None,
        ledger: str | Path | Ledger | None = None,
        identity: Identity | None = None,
    ) -> None:
        if not isinstance(space, LabelSpace) or not (isinstance(budget, Budget) or callable(budget)):
            raise InputError("A vault needs labels, a LabelSpace and a Budget.")
        self.__codes = space.encode(labels)
        self.space = space
        self.rows = int(self.__codes.size)
        if not self.rows:
            raise InputError("There are no labels: a vault needs at least one row.")
        self._labelled = None if (self.__codes != MISSING).all() else _frozen(self.__codes != MISSING)
        self._owner = None if users is None else encode_users(users, self.rows)
        self._bits: Bits = SYSTEM
        self.__memory: dict[Any, Any] = {}  # as secret as the labels
        self._drawn: dict[str, None] = {}
        self._reused: dict[str, None] = {}
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        if ledger is not None and identity is None:
            raise InputError("A ledger belongs to a data set: say which by identity=Identity(name, ...).")
        identity = identity or Identity("in memory", "label", self.rows)
        if identity.rows != self.rows:
            raise InputError(f"The identity names {identity.rows} rows and there are {self.rows} labels.")
        self._account = Account(self.ledger, identity, self._owner, budget)

    def release(
        self,
        mechanism: Mechanism,
        rows: Any = None,
        *,
        derived_from: Sequence[Source] = (),
    ) -> Release:
        """Release labels of `rows` (indices or a mask; None for all) by a mechanism.

        The row set and the arrays of the mechanism are declared public, or computed from the releases and models named
        in `derived_from`; computing them from raw labels would void the guarantee. The same request made
        again returns the stored release: fresh noise on the same labels could be averaged away.
        """
        self._check(mechanism)
        return self._draw(mechanism, self._mask(rows), derived_from)

    def was_released(self, mechanism: Mechanism, rows: Any = None) -> bool:
        """Whether the same was asked for before, so that it costs nothing more: it is stored, or was interrupted."""
        request = _digest(self._asked(mechanism) | {"rows": pack_rows(self._mask(rows))})
        chain, label = self._account.snapshot(), self._account.label
        stored = self._stored(chain, request) is not None
        return stored or any(e.status == "reserved" and e.label == label for e in chain.requested(request, label))

    def shared(self, mechanism: Mechanism, rows: Any = None, delta: float = 0.0) -> Mechanism:
        """Return a mechanism with so much noise that a unit pays, for all of its labels in `rows`, what one would have.

        Without users it is the mechanism itself. See `Mechanism.shared`.
        """
        labels = max(rows_per_unit(self._mask(rows), self._owner))
        if labels == 1:
            return mechanism
        self._check(mechanism)
        return mechanism.shared(labels, delta)

    @property
    def unit(self) -> Unit:
        """What the budget and all guarantees are for: a label, or a user with all of theirs."""
        return self._account.unit

    @property
    def label(self) -> str | None:
        """The name of the label in the ledger; None if it has none."""
        return self._account.label

    @property
    def users(self) -> NDArray[np.int64] | None:
        """A number for the owner of each row, a public fact; None where each label is a unit."""
        return self._owner

    @property
    def labelled(self) -> Mask:
        """The rows that have a label, a public fact."""
        return np.ones(self.rows, bool) if self._labelled is None else self._labelled.copy()

    def capped(self, labels_per_user: int | None, seed: int = 0) -> Mask:
        """Return the rows that take part if a user keeps at most so many labels: chosen without a look at them.

        Without a number, every user must own one row. The choice is public, and has a seed.
        """
        return cap_labels_per_user(self._owner, self._labelled, self.rows, labels_per_user, seed)

    def plan(self, *steps: Mechanism | Loss, rows: Any = None, delta: float = 0.0, name: str = "") -> Plan:
        """Reserve several releases at once, which together cost less than one after another.

        The steps' losses are fixed now and composed with `delta`; what exactly each step asks may depend on the
        ones before. The same plan made again is the plan that was paid for.

        Args:
            *steps: A mechanism or a loss for each release, in order. A step may later lose less than declared here.
            rows: The rows of all steps (indices or a mask); None for all.
            delta: The delta at which the losses are composed. A step may draw noise that needs a delta only above 0.
            name: Tells plans of one shape apart.

        Returns:
            The plan, whose `release` draws its steps.

        Raises:
            BudgetExceeded: A unit cannot pay.
            InputError: A step has no loss, or only that of a single label where users own several.

        Privacy:
            Every unit with a row is charged the composed cost of all steps, whether or not they are drawn.
        """
        mask, losses, details, request = self._declared(steps, rows, delta, name)
        packed, budget = pack_rows(mask), self._account.filter
        costs = {m: self._account.plan_cost(budget, losses[m], delta) for m in losses}
        with self.ledger.exclusive():
            same = self._account.snapshot().requested(request, self._account.label)
            entry = same[0] if same else Entry("plan", request, details, costs, label=self._account.label)
            if not same:
                self.ledger.reserve(entry, packed, lambda chain: self._check_paid(chain, mask, packed, costs))
            if entry.status != "committed":
                self.ledger.commit(entry.id)
        return Plan(self, entry.id, losses, mask)

    def was_planned(self, *steps: Mechanism | Loss, rows: Any = None, delta: float = 0.0, name: str = "") -> bool:
        """Whether the same plan was made before, so that it costs nothing more; see `plan`."""
        request = self._declared(steps, rows, delta, name)[-1]
        return bool(self._account.snapshot().requested(request, self._account.label))

    def _declared(
        self, steps: Sequence[Mechanism | Loss], rows: Any, delta: float, name: str
    ) -> tuple[Mask | None, dict[int, list[Loss]], dict[str, Any], str]:
        """Return a plan's rows, its losses by number of rows that a unit owns, its description and its request."""
        check_delta(delta)
        if len(steps) == 1 and isinstance(steps[0], list | tuple):
            steps = tuple(steps[0])
        if not steps or not all(hasattr(step, "loss") or hasattr(step, "rdp") for step in steps):
            raise InputError("A plan needs at least one step, each a mechanism or a loss.")
        mask = self._mask(rows)
        sizes = rows_per_unit(mask, self._owner)
        if max(sizes) > 1 and not all(isinstance(s, Mechanism) for s in steps):
            raise InputError("With users who own several rows, declare each step of a plan as a mechanism.")
        losses = {m: step_losses(steps, m) for m in sizes}
        details = {
            "mechanism": "plan",
            "name": name,
            "steps": {m: [repr(loss) for loss in each] for m, each in losses.items()},
            "composed_at": delta,
            "trust": "central",
        }
        return mask, losses, details, _digest(details | {"rows": pack_rows(mask)})

    def teach(
        self,
        points: Any,
        queries: Any = None,
        *,
        teachers: int,
        derived_from: Sequence[Source] = (),
        **settings: Any,
    ) -> "SealedVotes":
        """Let teachers on disjoint labels vote on query rows; `SealedVotes.release` tells the winners, with noise.

        `points` holds a public row for each row of the vault; `queries` are some of these rows, or None with `public=`,
        rows of other people to vote on. `settings` are those of `teach.TeacherVotes`. Rows, queries and settings are
        public, or were computed from the releases named in `derived_from`, as in `release`: the votes rest on these.
        """
        from labeldp.privacy.teachers.votes import SealedVotes

        asked = {"points": points, "queries": queries, "teachers": teachers, **settings}
        return SealedVotes(self, asked, derived_from)

    def guarantee(self) -> Guarantee:
        """Return what is guaranteed so far, over all releases in the ledger."""
        chain = self._account.snapshot()
        entries = chain.entries()
        trusts = {e.details.get("trust") for e in entries if e.kind != "budget"}
        trust: Trust = "local" if trusts == {"local"} else "central"
        epsilon, delta = filter_of(chain).guarantee(self._account.spent(chain).max_cost())
        how = f"{self.budget.composition} over {sum(e.kind != 'budget' for e in entries)} ledger entries"
        return Guarantee(float(epsilon), float(delta), self.unit, trust, how)

    def guarantee_of(
        self, releases: Sequence[Release], more: Mechanism | None = None, rows: Any = None, *, unit: Unit | None = None
    ) -> Guarantee:
        """Return what several releases of this vault guarantee together, with all that they were derived from.

        Epsilons and deltas add up, whatever the vault's own budget adds up. Steps of a plan cost what the whole plan
        costs, once.

        With `more`, a mechanism that would be drawn on `rows` beside them: what would hold then. With `unit="label"`,
        in a vault of users: what holds for a single label of theirs.
        """
        unit = unit or self.unit
        owner = None if unit == "label" else self._owner
        names = {name for release in releases for name in (release.entry or "").split(",")}
        names |= {use.entry for release in releases for use in release.lineage}
        chain = self._account.snapshot()
        entries = [chain.entry(name) for name in sorted(names) if chain.has(name)]
        if len(entries) < len(names) or any(entry.kind == "budget" for entry in entries):
            raise InputError("Only releases of this vault can be added up here.")
        entries = [chain.entry(name) for name in dict.fromkeys(entry.payer for entry in entries)]
        spending = self._account.spending(entries, unit)
        if more is not None:
            mask = self._mask(rows)
            spending.add(mask, {m: price(filter_of(chain), more, m) for m in rows_per_unit(mask, owner)})
        spent = spending.max_cost()
        trusts = [entry.details["trust"] for entry in entries] + ([] if more is None else [more.trust])
        local = all(trust == "local" for trust in trusts)
        kinds = [entry.details["mechanism"] for entry in entries] + ([] if more is None else [type(more).__name__])
        how = " + ".join(dict.fromkeys(kinds)) + f", added up by {unit}"
        return Guarantee(float(spent.epsilon), float(spent.delta), unit, "local" if local else "central", how)

    def remaining(self, rows: Any = None) -> tuple[float, float]:
        """Return the epsilon and delta that releases of `rows` can still cost in total."""
        mask = None if rows is None else self._mask(rows)
        chain = self._account.snapshot()
        return filter_of(chain).left(self._account.spent(chain).max_cost(mask))

    @property
    def budget(self) -> Budget:
        """The most that may ever be spent."""
        return self._account.filter.budget

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"Vault({self.rows} labels, {len(self.space)} classes, {self.budget})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A vault cannot be pickled: labels leave it by release alone.")

    def _asked(self, mechanism: Mechanism, step: str = "") -> dict[str, Any]:
        """Say what is asked for, but for the rows: what is asked for again is not drawn again."""
        kind, parameters = type(mechanism), mechanism.parameters()
        # A class of somebody else's may have the name of one that is here.
        name = kind.__name__ if kind.__module__.startswith("labeldp.") else f"{kind.__module__}.{kind.__qualname__}"
        return {"mechanism": name, "parameters": parameters, "classes": list(self.space), "step": step}

    def _draw(
        self,
        mechanism: Mechanism,
        mask: Mask | None,
        derived_from: Sequence[Source],
        step: str = "",
    ) -> Release:
        """Reserve, draw, store. A `step` of a plan has been paid for, and is drawn once."""
        derived_from = named_sources(derived_from)
        if mechanism.protects(self.unit) == "record" and any(stated(each).unit != "record" for each in derived_from):
            raise InputError("What protects whole records cannot be derived from a release that protects labels alone.")
        chain = self._account.snapshot()
        budget, sizes = filter_of(chain), {1, *rows_per_unit(mask, self._owner)}
        plan = chain.entry(step.rpartition(":")[0]) if step else None
        costs = plan.costs if plan else {m: price(budget, mechanism, m) for m in sizes}
        packed, asked = pack_rows(mask), self._asked(mechanism, step)
        details = asked | {
            "parameters": _told(mechanism, derived_from),
            "trust": mechanism.trust,
            "origin": origin(chain, derived_from),
        }
        if mechanism.protects(self.unit) != "record":  # of records, it is a secret, too, who has a label
            details["released"] = self.rows if mask is None else int(mask.sum())
        request = _digest(asked | {"rows": packed})
        kind, charged = ("step", {}) if plan else ("release", costs)
        entry = Entry(kind, request, details, charged, label=self._account.label)

        def check(chain: Chain) -> None:
            self._account.still_bound(chain)
            if not step:
                self._check_paid(chain, mask, packed, costs)
            elif step in chain.steps:
                raise BudgetExceeded("This step of the plan was drawn before, with another request: make a new plan.")

        if (stored := self._stored(chain, request)) is not None:
            return self._read_again(stored, mechanism, derived_from)
        codes = self.__codes if mask is None else np.where(mask, self.__codes, MISSING).astype(self.__codes.dtype)
        if type(mechanism).prepare is not Mechanism.prepare:  # long work: not for what cannot be paid
            check(chain)
        prepared = mechanism.prepare(codes, self.space, self.__memory)
        with self.ledger.exclusive():
            chain = self._account.snapshot()
            if (stored := self._stored(chain, request)) is not None:  # drawn by another process meanwhile
                return self._read_again(stored, mechanism, derived_from)
            if (interrupted := self._interrupted(chain, request, charged)) is not None:
                entry = interrupted  # see the note of `ledger` on why it is not charged again
            else:
                self.ledger.reserve(entry, packed, check)
            touched = pack_rows(expand_to_units(mask, self._owner))
            own = Use(entry.payer, costs[max(costs)], touched, self.rows, self._account.mark)
            lineage = lineage_of([*derived_from], own)
            common = {
                "space": self.space,
                "guarantee": self._release_guarantee(mechanism, lineage, derived_from),
                "mechanism": details["mechanism"],
                "parameters": details["parameters"],
                "entry": entry.id,
                "rows": self.rows,
                "lineage": lineage,
                "active": None if mask is None else mask.copy(),  # whoever writes into it moves nothing here
            }
            try:
                release = self._noised(prepared, codes, common, request)
            except Exception:
                self.ledger.fail(entry.id)
                raise
            self.ledger.commit(entry.id, to_bytes(release))
            self._drawn[entry.id] = None
        return release

    def _check_paid(self, chain: Chain, mask: Mask | None, packed: bytes | None, costs: Mapping[int, Cost]) -> None:
        self._account.still_bound(chain)
        self._account.afford(chain, mask, row_set_name(packed), costs)

    def _stored(self, chain: Chain, request: str) -> Entry | None:
        """Return the entry whose stored release answers a request for this label."""
        found = (entry for entry in chain.requested(request, self._account.label) if entry.status == "committed")
        return next(found, None)

    def _interrupted(self, chain: Chain, request: str, charged: Mapping[int, Cost]) -> Entry | None:
        """Return the reservation under which an interrupted request is drawn again.

        Its name of the label must be the same: under a reservation without a name, what is drawn from one label would
        be stored without a name, and later returned for every other label.
        """
        found = chain.requested(request, self._account.label)
        same = (e for e in found if e.status == "reserved" and e.label == self._account.label and e.costs == charged)
        return next(same, None)

    def _read_again(self, entry: Entry, mechanism: Mechanism, derived_from: Sequence[Source]) -> Release:
        """Return a stored release, and remember that it was not drawn here."""
        if entry.id not in self._drawn:
            self._reused[entry.id] = None
        return self._derived_too(self._restored(entry, mechanism), mechanism, derived_from)

    def _restored(self, entry: Entry, mechanism: Mechanism) -> Release:
        payload = self.ledger.payload(entry.id)
        try:
            return mechanism.restore(from_bytes(payload))
        except (LabelDPError, MemoryError):
            raise
        except Exception:  # bytes whose digest fits can still be no release
            raise LedgerError(
                f"The stored release {entry.id} cannot be read: restore the ledger from a backup."
            ) from None

    @property
    def drawn(self) -> tuple[str, ...]:
        """The entries that this vault drew."""
        return tuple(self._drawn)

    @property
    def reused(self) -> tuple[str, ...]:
        """The entries whose stored releases this vault has returned, and that it did not draw itself."""
        return tuple(self._reused)

    def _derived_too(self, stored: Release, mechanism: Mechanism, derived_from: Sequence[Source]) -> Release:
        """Return a stored release with what it rests on, if more of that is named now than when it was drawn."""
        lineage = lineage_of([stored, *derived_from])
        if len(lineage) == len(stored.lineage):
            return stored
        guarantee = self._release_guarantee(mechanism, lineage, derived_from)
        return replace(stored, lineage=lineage, guarantee=replace(guarantee, unit=stored.guarantee.unit))

    def _noised(self, mechanism: Mechanism, codes: Codes, common: dict[str, Any], request: str) -> Release:
        """Draw noise for a request that is paid for."""
        return mechanism.draw(codes, common, self._bits)

    def _release_guarantee(
        self, mechanism: Mechanism, lineage: tuple[Use, ...], derived_from: Sequence[Source]
    ) -> Guarantee:
        """Return what holds for this outcome: what it was derived from is part of it."""
        cost = joint_cost(lineage)
        local = mechanism.trust == "local" and all(stated(each).trust == "local" for each in derived_from)
        how = f"{type(mechanism).__name__}: {type(mechanism.loss()).__name__}"
        if len(lineage) > 1:
            how += f", with the {len(lineage) - 1} uses of labels that its inputs came from"
        return Guarantee(float(cost.epsilon), float(cost.delta), self.unit, "local" if local else "central", how)

    def _check(self, mechanism: Mechanism) -> None:
        if not isinstance(mechanism, Mechanism):
            raise InputError("release takes a mechanism, for example RandomizedResponse(epsilon=1.0).")
        mechanism.check(self.space, self.rows)
        lost = mechanism.loss().epsilon(float(getattr(mechanism, "delta", 0.0)))
        if lost > mechanism.epsilon * (1 + 1e-6):
            raise InputError(
                f"{type(mechanism).__name__} states epsilon {mechanism.epsilon:g} and loses {lost:g} by its own loss: "
                "state what it loses, with a delta if it needs one."
            )
        others = getattr(mechanism, "users", None)
        if self._owner is not None and others is not None:
            together = np.stack([self._owner, encode_users(others, self.rows)], axis=1)
            if len(np.unique(together, axis=0)) > len(np.unique(self._owner)):
                raise InputError("A user of this vault would reach several teachers: give the vault's own users.")

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
        return None if mask.all() else _frozen(mask)


def _frozen(mask: Mask) -> Mask:
    """Keep a row set as it is: a plan draws by it what was paid for."""
    mask.setflags(write=False)
    return mask


def _told(mechanism: Mechanism, derived_from: Sequence[Source]) -> dict[str, Any]:
    """Return the parameters that go with a release: where records are secret, what a model says of them is, too."""
    records = any(stated(each).unit == "record" for each in derived_from)
    return without_digests(mechanism.told()) if records else mechanism.told()


def _digest(request: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=repr).encode()).hexdigest()
