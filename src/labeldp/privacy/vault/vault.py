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
    LabelUse,
    Mask,
    cap_labels_per_user,
    encode_users,
    expand_to_units,
    joint_cost,
    pack_rows,
    row_set_name,
    rows_per_unit,
)
from labeldp.accounting.lineage import HasLineage
from labeldp.accounting.losses import Loss
from labeldp.core.errors import BudgetExceeded, InputError, LabelDPError, LedgerError
from labeldp.core.guarantee import Budget, Guarantee, Trust, Unit, check_delta
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, without_digests
from labeldp.privacy.noise.secure_stream import SYSTEM, Bits
from labeldp.privacy.vault.account import Account, BudgetChooser, filter_of, price
from labeldp.privacy.vault.chain import Chain
from labeldp.privacy.vault.derivation import check_sources, combine_lineage, source_entries, source_guarantee
from labeldp.privacy.vault.entries import Entry
from labeldp.privacy.vault.identity import Identity
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.release_plan import ReleasePlan, step_losses
from labeldp.releases.base import Release
from labeldp.releases.storage import from_bytes, to_bytes

if TYPE_CHECKING:
    from labeldp.privacy.teachers.teacher_votes import SealedVotes


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
        budget: Budget | BudgetChooser,
        *,
        users: Any = None,
        ledger: str | Path | Ledger | None = None,
        identity: Identity | None = None,
    ) -> None:
        if not isinstance(space, LabelSpace) or not (isinstance(budget, Budget) or callable(budget)):
            raise InputError("A vault needs labels, a LabelSpace and a Budget.")
        self.__codes = space.encode(labels)
        self.space = space
        self.n_rows = int(self.__codes.size)
        if not self.n_rows:
            raise InputError("There are no labels: a vault needs at least one row.")
        self._labeled_mask = None if (self.__codes != MISSING).all() else _freeze(self.__codes != MISSING)
        self._user_ids = None if users is None else encode_users(users, self.n_rows)
        self._bits: Bits = SYSTEM
        self.__memory: dict[Any, Any] = {}  # as secret as the labels
        self._drawn_entries: dict[str, None] = {}
        self._reused_entries: dict[str, None] = {}
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        if ledger is not None and identity is None:
            raise InputError("A ledger belongs to a data set: say which by identity=Identity(name, ...).")
        identity = identity or Identity("in memory", "label", self.n_rows)
        if identity.rows != self.n_rows:
            raise InputError(f"The identity names {identity.rows} rows and there are {self.n_rows} labels.")
        self._account = Account(self.ledger, identity, self._user_ids, budget)

    def release(
        self,
        mechanism: Mechanism,
        row_selection: Any = None,
        *,
        derived_from: Sequence[HasLineage] = (),
    ) -> Release:
        """Release labels of `rows` (indices or a mask; None for all) by a mechanism.

        The row set and the arrays of the mechanism are declared public, or computed from the releases and models named
        in `derived_from`; computing them from raw labels would void the guarantee. The same request made
        again returns the stored release: fresh noise on the same labels could be averaged away.
        """
        self._check_mechanism(mechanism)
        return self._draw(mechanism, self._to_row_mask(row_selection), derived_from)

    def was_released(self, mechanism: Mechanism, row_selection: Any = None) -> bool:
        """Whether the same was asked for before, so that it costs nothing more: it is stored, or was interrupted."""
        request = _hash_request(
            self._describe_request(mechanism) | {"rows": pack_rows(self._to_row_mask(row_selection))}
        )
        chain, label = self._account.snapshot(), self._account.label
        is_stored = self._find_committed(chain, request) is not None
        return is_stored or any(
            e.status == "reserved" and e.label == label for e in chain.entries_for_request(request, label)
        )

    def scaled_to_unit(self, mechanism: Mechanism, row_selection: Any = None, delta: float = 0.0) -> Mechanism:
        """Return a mechanism with so much noise that a unit pays, for all of its labels in `rows`, what one would have.

        Without users it is the mechanism itself. See `Mechanism.shared`.
        """
        n_labels = max(rows_per_unit(self._to_row_mask(row_selection), self._user_ids))
        if n_labels == 1:
            return mechanism
        self._check_mechanism(mechanism)
        return mechanism.scaled_to_unit(n_labels, delta)

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
        return self._user_ids

    @property
    def labeled_mask(self) -> Mask:
        """The rows that have a label, a public fact."""
        return np.ones(self.n_rows, bool) if self._labeled_mask is None else self._labeled_mask.copy()

    def cap_labels_per_user(self, labels_per_user: int | None, seed: int = 0) -> Mask:
        """Return the rows that take part if a user keeps at most so many labels: chosen without a look at them.

        Without a number, every user must own one row. The choice is public, and has a seed.
        """
        return cap_labels_per_user(self._user_ids, self._labeled_mask, self.n_rows, labels_per_user, seed)

    def plan(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> ReleasePlan:
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
        row_mask, losses, details, request = self._describe_plan(steps, row_selection, delta, name)
        packed_rows, privacy_filter = pack_rows(row_mask), self._account.filter
        costs = {m: self._account.plan_cost(privacy_filter, losses[m], delta) for m in losses}
        with self.ledger.exclusive_lock():
            existing = self._account.snapshot().entries_for_request(request, self._account.label)
            entry = existing[0] if existing else Entry("plan", request, details, costs, label=self._account.label)
            if not existing:
                self.ledger.reserve(
                    entry, packed_rows, lambda chain: self._check_affordable(chain, row_mask, packed_rows, costs)
                )
            if entry.status != "committed":
                self.ledger.commit(entry.id)
        return ReleasePlan(self, entry.id, losses, row_mask)

    def was_planned(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> bool:
        """Whether the same plan was made before, so that it costs nothing more; see `plan`."""
        request = self._describe_plan(steps, row_selection, delta, name)[-1]
        return bool(self._account.snapshot().entries_for_request(request, self._account.label))

    def _describe_plan(
        self, steps: Sequence[Mechanism | Loss], row_selection: Any, delta: float, name: str
    ) -> tuple[Mask | None, dict[int, list[Loss]], dict[str, Any], str]:
        """Return a plan's rows, its losses by number of rows that a unit owns, its description and its request."""
        check_delta(delta)
        if len(steps) == 1 and isinstance(steps[0], list | tuple):
            steps = tuple(steps[0])
        if not steps or not all(hasattr(step, "loss") or hasattr(step, "rdp") for step in steps):
            raise InputError("A plan needs at least one step, each a mechanism or a loss.")
        row_mask = self._to_row_mask(row_selection)
        sizes = rows_per_unit(row_mask, self._user_ids)
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
        return row_mask, losses, details, _hash_request(details | {"rows": pack_rows(row_mask)})

    def train_teachers(
        self,
        points: Any,
        queries: Any = None,
        *,
        n_teachers: int,
        derived_from: Sequence[HasLineage] = (),
        **settings: Any,
    ) -> "SealedVotes":
        """Let teachers on disjoint labels vote on query rows; `SealedVotes.release` tells the winners, with noise.

        `points` holds a public row for each row of the vault; `queries` are some of these rows, or None with `public=`,
        rows of other people to vote on. `settings` are those of `teach.TeacherVotes`. Rows, queries and settings are
        public, or were computed from the releases named in `derived_from`, as in `release`: the votes rest on these.
        """
        from labeldp.privacy.teachers.teacher_votes import SealedVotes

        arguments = {"points": points, "queries": queries, "n_teachers": n_teachers, **settings}
        return SealedVotes(self, arguments, derived_from)

    def guarantee(self) -> Guarantee:
        """Return what is guaranteed so far, over all releases in the ledger."""
        chain = self._account.snapshot()
        entries = chain.entries()
        trusts = {e.details.get("trust") for e in entries if e.kind != "budget"}
        trust: Trust = "local" if trusts == {"local"} else "central"
        epsilon, delta = filter_of(chain).guarantee(self._account.total_spending(chain).max_cost())
        derivation = f"{self.budget.composition} over {sum(e.kind != 'budget' for e in entries)} ledger entries"
        return Guarantee(float(epsilon), float(delta), self.unit, trust, derivation)

    def guarantee_of(
        self,
        releases: Sequence[Release],
        extra: Mechanism | None = None,
        row_selection: Any = None,
        *,
        unit: Unit | None = None,
    ) -> Guarantee:
        """Return what several releases of this vault guarantee together, with all that they were derived from.

        Epsilons and deltas add up, whatever the vault's own budget adds up. Steps of a plan cost what the whole plan
        costs, once.

        With `more`, a mechanism that would be drawn on `rows` beside them: what would hold then. With `unit="label"`,
        in a vault of users: what holds for a single label of theirs.
        """
        unit = unit or self.unit
        user_ids = None if unit == "label" else self._user_ids
        entry_ids = {entry_id for release in releases for entry_id in (release.entry or "").split(",")}
        entry_ids |= {use.entry for release in releases for use in release.lineage}
        chain = self._account.snapshot()
        entries = [chain.entry(entry_id) for entry_id in sorted(entry_ids) if chain.has_entry(entry_id)]
        if len(entries) < len(entry_ids) or any(entry.kind == "budget" for entry in entries):
            raise InputError("Only releases of this vault can be added up here.")
        entries = [chain.entry(entry_id) for entry_id in dict.fromkeys(entry.payer_id for entry in entries)]
        spending = self._account.sum_entries(entries, unit)
        if extra is not None:
            row_mask = self._to_row_mask(row_selection)
            spending.add(row_mask, {m: price(filter_of(chain), extra, m) for m in rows_per_unit(row_mask, user_ids)})
        spent = spending.max_cost()
        trusts = [entry.details["trust"] for entry in entries] + ([] if extra is None else [extra.trust])
        is_local = all(trust == "local" for trust in trusts)
        mechanism_names = [entry.details["mechanism"] for entry in entries] + (
            [] if extra is None else [type(extra).__name__]
        )
        derivation = " + ".join(dict.fromkeys(mechanism_names)) + f", added up by {unit}"
        return Guarantee(float(spent.epsilon), float(spent.delta), unit, "local" if is_local else "central", derivation)

    def remaining(self, row_selection: Any = None) -> tuple[float, float]:
        """Return the epsilon and delta that releases of `rows` can still cost in total."""
        row_mask = None if row_selection is None else self._to_row_mask(row_selection)
        chain = self._account.snapshot()
        return filter_of(chain).remaining(self._account.total_spending(chain).max_cost(row_mask))

    @property
    def budget(self) -> Budget:
        """The most that may ever be spent."""
        return self._account.filter.budget

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"Vault({self.n_rows} labels, {len(self.space)} classes, {self.budget})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A vault cannot be pickled: labels leave it by release alone.")

    def _describe_request(self, mechanism: Mechanism, step: str = "") -> dict[str, Any]:
        """Say what is asked for, but for the rows: what is asked for again is not drawn again."""
        mechanism_type, parameters = type(mechanism), mechanism.parameters()
        # A class of somebody else's may have the name of one that is here.
        name = (
            mechanism_type.__name__
            if mechanism_type.__module__.startswith("labeldp.")
            else f"{mechanism_type.__module__}.{mechanism_type.__qualname__}"
        )
        return {"mechanism": name, "parameters": parameters, "classes": list(self.space), "step": step}

    def _draw(
        self,
        mechanism: Mechanism,
        row_mask: Mask | None,
        derived_from: Sequence[HasLineage],
        step: str = "",
    ) -> Release:
        """Reserve, draw, store. A `step` of a plan has been paid for, and is drawn once."""
        derived_from = check_sources(derived_from)
        if mechanism.protects(self.unit) == "record" and any(
            source_guarantee(each).unit != "record" for each in derived_from
        ):
            raise InputError("What protects whole records cannot be derived from a release that protects labels alone.")
        chain = self._account.snapshot()
        privacy_filter, sizes = filter_of(chain), {1, *rows_per_unit(row_mask, self._user_ids)}
        plan = chain.entry(step.rpartition(":")[0]) if step else None
        costs = plan.costs if plan else {m: price(privacy_filter, mechanism, m) for m in sizes}
        packed_rows, request_details = pack_rows(row_mask), self._describe_request(mechanism, step)
        details = request_details | {
            "parameters": _released_parameters(mechanism, derived_from),
            "trust": mechanism.trust,
            "origin": source_entries(chain, derived_from),
        }
        if mechanism.protects(self.unit) != "record":  # of records, it is a secret, too, who has a label
            details["released"] = self.n_rows if row_mask is None else int(row_mask.sum())
        request = _hash_request(request_details | {"rows": packed_rows})
        kind, charged_costs = ("step", {}) if plan else ("release", costs)
        entry = Entry(kind, request, details, charged_costs, label=self._account.label)

        def check(chain: Chain) -> None:
            self._account.check_bound(chain)
            if not step:
                self._check_affordable(chain, row_mask, packed_rows, costs)
            elif step in chain.step_entries:
                raise BudgetExceeded("This step of the plan was drawn before, with another request: make a new plan.")

        if (stored := self._find_committed(chain, request)) is not None:
            return self._reuse_release(stored, mechanism, derived_from)
        codes = (
            self.__codes if row_mask is None else np.where(row_mask, self.__codes, MISSING).astype(self.__codes.dtype)
        )
        if type(mechanism).prepare is not Mechanism.prepare:  # long work: not for what cannot be paid
            check(chain)
        prepared = mechanism.prepare(codes, self.space, self.__memory)
        with self.ledger.exclusive_lock():
            chain = self._account.snapshot()
            if (stored := self._find_committed(chain, request)) is not None:  # drawn by another process meanwhile
                return self._reuse_release(stored, mechanism, derived_from)
            if (interrupted := self._find_interrupted(chain, request, charged_costs)) is not None:
                entry = interrupted  # see the note of `ledger` on why it is not charged again
            else:
                self.ledger.reserve(entry, packed_rows, check)
            packed_unit_rows = pack_rows(expand_to_units(row_mask, self._user_ids))
            own_use = LabelUse(entry.payer_id, costs[max(costs)], packed_unit_rows, self.n_rows, self._account.mark)
            lineage = combine_lineage([*derived_from], own_use)
            release_fields = {
                "space": self.space,
                "guarantee": self._release_guarantee(mechanism, lineage, derived_from),
                "mechanism": details["mechanism"],
                "parameters": details["parameters"],
                "entry": entry.id,
                "n_rows": self.n_rows,
                "lineage": lineage,
                "row_mask": None if row_mask is None else row_mask.copy(),  # whoever writes into it moves nothing here
            }
            try:
                release = self._draw_noise(prepared, codes, release_fields, request)
            except Exception:
                self.ledger.fail(entry.id)
                raise
            self.ledger.commit(entry.id, to_bytes(release))
            self._drawn_entries[entry.id] = None
        return release

    def _check_affordable(
        self, chain: Chain, row_mask: Mask | None, packed_rows: bytes | None, costs: Mapping[int, Cost]
    ) -> None:
        self._account.check_bound(chain)
        self._account.afford(chain, row_mask, row_set_name(packed_rows), costs)

    def _find_committed(self, chain: Chain, request: str) -> Entry | None:
        """Return the entry whose stored release answers a request for this label."""
        committed = (
            entry for entry in chain.entries_for_request(request, self._account.label) if entry.status == "committed"
        )
        return next(committed, None)

    def _find_interrupted(self, chain: Chain, request: str, charged_costs: Mapping[int, Cost]) -> Entry | None:
        """Return the reservation under which an interrupted request is drawn again.

        Its name of the label must be the same: under a reservation without a name, what is drawn from one label would
        be stored without a name, and later returned for every other label.
        """
        entries = chain.entries_for_request(request, self._account.label)
        matching = (
            e for e in entries if e.status == "reserved" and e.label == self._account.label and e.costs == charged_costs
        )
        return next(matching, None)

    def _reuse_release(self, entry: Entry, mechanism: Mechanism, derived_from: Sequence[HasLineage]) -> Release:
        """Return a stored release, and remember that it was not drawn here."""
        if entry.id not in self._drawn_entries:
            self._reused_entries[entry.id] = None
        return self._extend_lineage(self._load_release(entry, mechanism), mechanism, derived_from)

    def _load_release(self, entry: Entry, mechanism: Mechanism) -> Release:
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
    def drawn_entries(self) -> tuple[str, ...]:
        """The entries that this vault drew."""
        return tuple(self._drawn_entries)

    @property
    def reused_entries(self) -> tuple[str, ...]:
        """The entries whose stored releases this vault has returned, and that it did not draw itself."""
        return tuple(self._reused_entries)

    def _extend_lineage(self, release: Release, mechanism: Mechanism, derived_from: Sequence[HasLineage]) -> Release:
        """Return a stored release with what it rests on, if more of that is named now than when it was drawn."""
        lineage = combine_lineage([release, *derived_from])
        if len(lineage) == len(release.lineage):
            return release
        guarantee = self._release_guarantee(mechanism, lineage, derived_from)
        return replace(release, lineage=lineage, guarantee=replace(guarantee, unit=release.guarantee.unit))

    def _draw_noise(self, mechanism: Mechanism, codes: Codes, release_fields: dict[str, Any], request: str) -> Release:
        """Draw noise for a request that is paid for."""
        return mechanism.draw(codes, release_fields, self._bits)

    def _release_guarantee(
        self, mechanism: Mechanism, lineage: tuple[LabelUse, ...], derived_from: Sequence[HasLineage]
    ) -> Guarantee:
        """Return what holds for this outcome: what it was derived from is part of it."""
        cost = joint_cost(lineage)
        is_local = mechanism.trust == "local" and all(source_guarantee(each).trust == "local" for each in derived_from)
        derivation = f"{type(mechanism).__name__}: {type(mechanism.loss()).__name__}"
        if len(lineage) > 1:
            derivation += f", with the {len(lineage) - 1} uses of labels that its inputs came from"
        return Guarantee(
            float(cost.epsilon), float(cost.delta), self.unit, "local" if is_local else "central", derivation
        )

    def _check_mechanism(self, mechanism: Mechanism) -> None:
        if not isinstance(mechanism, Mechanism):
            raise InputError("release takes a mechanism, for example RandomizedResponse(epsilon=1.0).")
        mechanism.check(self.space, self.n_rows)
        loss_epsilon = mechanism.loss().epsilon(float(getattr(mechanism, "delta", 0.0)))
        if loss_epsilon > mechanism.epsilon * (1 + 1e-6):
            raise InputError(
                f"{type(mechanism).__name__} states epsilon {mechanism.epsilon:g} and loses {loss_epsilon:g} by its own loss: "
                "state what it loses, with a delta if it needs one."
            )
        teacher_users = getattr(mechanism, "users", None)
        if self._user_ids is not None and teacher_users is not None:
            user_pairs = np.stack([self._user_ids, encode_users(teacher_users, self.n_rows)], axis=1)
            if len(np.unique(user_pairs, axis=0)) > len(np.unique(self._user_ids)):
                raise InputError("A user of this vault would reach several teachers: give the vault's own users.")

    def _to_row_mask(self, row_selection: Any) -> Mask | None:
        if row_selection is None:
            return self._labeled_mask
        selection = np.asarray(row_selection)
        if selection.dtype == bool and selection.shape == (self.n_rows,):
            mask = selection.copy()
        elif selection.ndim == 1 and np.issubdtype(selection.dtype, np.integer):
            if selection.size and not (selection.min() >= 0 and selection.max() < self.n_rows):
                raise InputError(f"Rows must lie between 0 and {self.n_rows - 1}.")
            mask = np.zeros(self.n_rows, bool)
            mask[selection] = True
        else:
            raise InputError(f"Choose rows by whole numbers or by a boolean mask of {self.n_rows} rows.")
        mask = mask if self._labeled_mask is None else mask & self._labeled_mask
        if not mask.any():
            raise InputError("No labelled row is chosen: there is nothing to release.")
        return None if mask.all() else _freeze(mask)


def _freeze(mask: Mask) -> Mask:
    """Keep a row set as it is: a plan draws by it what was paid for."""
    mask.setflags(write=False)
    return mask


def _released_parameters(mechanism: Mechanism, derived_from: Sequence[HasLineage]) -> dict[str, Any]:
    """Return the parameters that go with a release: where records are secret, what a model says of them is, too."""
    protects_records = any(source_guarantee(each).unit == "record" for each in derived_from)
    return without_digests(mechanism.released_parameters()) if protects_records else mechanism.released_parameters()


def _hash_request(request: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=repr).encode()).hexdigest()
