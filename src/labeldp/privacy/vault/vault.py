"""The vault: the only way for labels to reach the learning side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import (
    Cost,
    LabelUse,
    RowMask,
    cap_labels_per_user,
    encode_users,
    expand_to_units,
    pack_rows,
    row_set_name,
    rows_per_unit,
)
from labeldp.accounting.lineage import HasLineage, check_sources, combine_lineage, source_guarantee
from labeldp.accounting.losses import Loss
from labeldp.core.errors import BudgetExceeded, InputError, LabelDPError, LedgerError
from labeldp.core.guarantee import Budget, Guarantee, Unit
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.noise.secure_stream import SYSTEM, Bits
from labeldp.privacy.vault.account import (
    Account,
    BudgetChooser,
    filter_of,
    price,
    release_guarantee,
    released_parameters,
    source_entries,
)
from labeldp.privacy.vault.chain import Chain
from labeldp.privacy.vault.entries import Entry, describe_request, hash_request
from labeldp.privacy.vault.identity import Identity
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.release_plan import ReleasePlan, describe_steps
from labeldp.releases.base import Release
from labeldp.releases.storage import from_bytes, to_bytes

if TYPE_CHECKING:
    from labeldp.privacy.teachers.teacher_votes import TeacherEnsemble


class Vault:
    """Labels with a privacy budget. Only `release` gives out anything about them, and it charges the ledger first.

    Args:
        labels: The labels, one for each row.
        space: The classes.
        budget: The budget, or a function that chooses it. The function gets the budget of a ledger that has entries,
            and None for a new ledger.
        users: The owner of each row. With users, the budget and all guarantees are for users, who may own several rows.
        ledger: A ledger file, which counts for every process that uses the same data. Without it, the vault counts in
            memory, for itself alone. A ledger file needs `identity`.
        identity: The public facts that identify the data set.

    Raises:
        InputError: The labels do not fit the space, or the identity does not fit the labels.
        LedgerError: The ledger belongs to other data, or is damaged.
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
        self.__cache: dict[Any, Any] = {}  # what mechanisms prepared; as secret as the labels
        self._drawn_entries: dict[str, None] = {}
        self._reused_entries: dict[str, None] = {}
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        if ledger is not None and identity is None:
            raise InputError("A ledger belongs to a data set: say which by identity=Identity(name, ...).")
        identity = identity or Identity("in memory", "label", self.n_rows)
        if identity.n_rows != self.n_rows:
            raise InputError(f"The identity names {identity.n_rows} rows and there are {self.n_rows} labels.")
        self._account = Account(self.ledger, identity, self._user_ids, budget)

    def release(
        self,
        mechanism: Mechanism,
        row_selection: Any = None,
        *,
        derived_from: Sequence[HasLineage] = (),
    ) -> Release:
        """Release the labels of some rows by a mechanism.

        The row selection and the arrays of the mechanism are declared public, or are computed from the releases and
        models in `derived_from`. Computing them from raw labels would void the guarantee. A repeated request returns
        the stored release, because an average of fresh noise on the same labels would reveal them.

        Args:
            mechanism: The mechanism with its parameters.
            row_selection: The rows as indices or as a mask; None for all rows.
            derived_from: The releases and models from which the row selection or the arrays were computed.

        Returns:
            The release. Its guarantee includes those of `derived_from`.

        Raises:
            BudgetExceeded: A unit cannot pay. Nothing is charged.
            InputError: The mechanism or the rows do not fit the labels. Nothing is charged.
        """
        return self._draw(self.check_mechanism(mechanism), self._to_row_mask(row_selection), derived_from)

    def was_released(self, mechanism: Mechanism, row_selection: Any = None) -> bool:
        """Whether the same request was made before and costs nothing: its release is stored, or was interrupted."""
        request = hash_request(
            describe_request(mechanism, self.space) | {"rows": pack_rows(self._to_row_mask(row_selection))}
        )
        chain, label = self._account.snapshot(), self._account.label
        is_stored = self._account.find_committed(chain, request) is not None
        return is_stored or any(
            e.status == "reserved" and e.label == label for e in chain.entries_for_request(request, label)
        )

    def scaled_to_unit(self, mechanism: Mechanism, row_selection: Any = None, delta: float = 0.0) -> Mechanism:
        """Return a mechanism with enough noise that all labels of a unit together cost what one label would.

        Without users, the mechanism is returned unchanged. See `Mechanism.scaled_to_unit`.

        Args:
            mechanism: The mechanism for one label of each unit.
            row_selection: The rows as indices or as a mask; None for all rows.
            delta: The delta that the noise may use.
        """
        n_labels = max(rows_per_unit(self._to_row_mask(row_selection), self._user_ids))
        if n_labels == 1:
            return mechanism
        self.check_mechanism(mechanism)
        return mechanism.scaled_to_unit(n_labels, delta)

    @property
    def unit(self) -> Unit:
        """The unit of the budget and of all guarantees: a label, or a user with all of their labels."""
        return self._account.unit

    @property
    def label(self) -> str | None:
        """The name of the label in the ledger; None for a label without a name."""
        return self._account.label

    @property
    def users(self) -> NDArray[np.int64] | None:
        """The number of the owner of each row, which is public; None without users."""
        return self._user_ids

    @property
    def labeled_mask(self) -> RowMask:
        """The mask of the rows that have a label, which is public."""
        return np.ones(self.n_rows, bool) if self._labeled_mask is None else self._labeled_mask.copy()

    def cap_labels_per_user(self, labels_per_user: int | None, seed: int = 0) -> RowMask:
        """Return a mask that keeps at most some rows of each user, chosen without reading labels.

        Args:
            labels_per_user: The largest number of rows of a user. None requires that every user owns one row.
            seed: The seed of the choice, which is public.
        """
        return cap_labels_per_user(self._user_ids, self._labeled_mask, self.n_rows, labels_per_user, seed)

    def plan(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> ReleasePlan:
        """Reserve several releases at once, which together cost less than one after another.

        The losses of the steps are fixed now and composed at `delta`. The mechanism of a step may depend on the
        releases of earlier steps. A repeated call returns the plan that is already charged.

        Args:
            *steps: A mechanism or a loss for each release, in order. A step may later lose less than declared here.
            row_selection: The rows of all steps, as indices or as a mask; None for all rows.
            delta: The delta at which the losses are composed. A step may draw noise that needs a delta only above 0.
            name: Distinguishes plans with the same steps.

        Returns:
            The plan, whose `release` draws its steps.

        Raises:
            BudgetExceeded: A unit cannot pay.
            InputError: A step has no loss, or only the loss of a single label where users own several.

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

        def draw_step(mechanism: Mechanism, derived_from: Sequence[HasLineage], step: str) -> Release:
            return self._draw(mechanism, row_mask, derived_from, step)

        return ReleasePlan(self.ledger, entry.id, losses, self.check_mechanism, draw_step)

    def was_planned(
        self, *steps: Mechanism | Loss, row_selection: Any = None, delta: float = 0.0, name: str = ""
    ) -> bool:
        """Whether the same plan was made before and costs nothing; see `plan`."""
        request = self._describe_plan(steps, row_selection, delta, name)[-1]
        return bool(self._account.snapshot().entries_for_request(request, self._account.label))

    def _describe_plan(
        self, steps: Sequence[Mechanism | Loss], row_selection: Any, delta: float, name: str
    ) -> tuple[RowMask | None, dict[int, list[Loss]], dict[str, Any], str]:
        """Return a plan's rows, its losses by number of rows that a unit owns, its description and its request."""
        row_mask = self._to_row_mask(row_selection)
        losses, details = describe_steps(steps, rows_per_unit(row_mask, self._user_ids), delta, name)
        return row_mask, losses, details, hash_request(details | {"rows": pack_rows(row_mask)})

    def prepare_teachers(
        self,
        points: Any,
        queries: Any = None,
        *,
        n_teachers: int,
        derived_from: Sequence[HasLineage] = (),
        **settings: Any,
    ) -> "TeacherEnsemble":
        """Train teachers on disjoint parts of the labels, whose votes on queries stay inside the vault.

        `TeacherEnsemble.release` releases the noisy winners. Points, queries and settings are public, or computed from
        the releases and models in `derived_from`, as in `release`.

        Args:
            points: The public features of each row of the vault.
            queries: The numbers of the rows to vote on. With `public=`, these are rows of `public`, and None means all.
            n_teachers: The number of teachers.
            derived_from: The releases and models from which points, queries or settings were computed.
            **settings: The other parameters of `TeacherVotes`, for example `public`, `trainer` or `users`.

        Returns:
            The votes. They are counted when a release needs them.
        """
        from labeldp.privacy.teachers.teacher_votes import TeacherEnsemble

        arguments = {"points": points, "queries": queries, "n_teachers": n_teachers, **settings}
        return TeacherEnsemble(self, arguments, derived_from)

    def guarantee(self) -> Guarantee:
        """Return the guarantee of all releases in the ledger together."""
        return self._account.guarantee()

    def guarantee_of(
        self,
        releases: Sequence[Release],
        extra: Mechanism | None = None,
        row_selection: Any = None,
        *,
        unit: Unit | None = None,
    ) -> Guarantee:
        """Return the joint guarantee of several releases of this vault and of everything that they were derived from.

        Epsilons and deltas add up, whatever composition the budget uses. The steps of a plan cost what the whole plan
        costs, once.

        Args:
            releases: Releases of this vault.
            extra: A mechanism that would be drawn in addition; None for none.
            row_selection: The rows of `extra`, as indices or as a mask; None for all rows.
            unit: "label" for the guarantee of a single label in a vault with users; None for the unit of the vault.

        Raises:
            InputError: A release is not of this vault.
        """
        entry_ids = {entry_id for release in releases for entry_id in (release.entry or "").split(",")}
        entry_ids |= {use.entry for release in releases for use in release.lineage}
        row_mask = None if extra is None else self._to_row_mask(row_selection)
        return self._account.guarantee_of(entry_ids, extra, row_mask, unit)

    def remaining(self, row_selection: Any = None) -> tuple[float, float]:
        """Return the epsilon and the delta that releases of some rows can still cost in total."""
        row_mask = None if row_selection is None else self._to_row_mask(row_selection)
        chain = self._account.snapshot()
        return filter_of(chain).remaining(self._account.total_spending(chain).max_cost(row_mask))

    @property
    def budget(self) -> Budget:
        """The budget, which limits the total cost of all releases."""
        return self._account.filter.budget

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"Vault({self.n_rows} labels, {len(self.space)} classes, {self.budget})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A vault cannot be pickled: labels leave it by release alone.")

    def _draw(
        self,
        mechanism: Mechanism,
        row_mask: RowMask | None,
        derived_from: Sequence[HasLineage],
        step: str = "",
    ) -> Release:
        """Reserve, draw and store a release. A `step` of a plan is already charged, and is drawn once."""
        derived_from = check_sources(derived_from)
        if mechanism.protects(self.unit) == "record" and any(
            source_guarantee(each).unit != "record" for each in derived_from
        ):
            raise InputError("What protects whole records cannot be derived from a release that protects labels alone.")
        chain = self._account.snapshot()
        privacy_filter, sizes = filter_of(chain), {1, *rows_per_unit(row_mask, self._user_ids)}
        plan = chain.entry(step.rpartition(":")[0]) if step else None
        costs = plan.costs if plan else {m: price(privacy_filter, mechanism, m) for m in sizes}
        packed_rows, request_details = pack_rows(row_mask), describe_request(mechanism, self.space, step)
        details = request_details | {
            "parameters": released_parameters(mechanism, derived_from),
            "trust": mechanism.trust,
            "origin": source_entries(chain, derived_from),
        }
        if mechanism.protects(self.unit) != "record":  # else the number of labeled records is secret
            details["released"] = self.n_rows if row_mask is None else int(row_mask.sum())
        request = hash_request(request_details | {"rows": packed_rows})
        kind, charged_costs = ("step", {}) if plan else ("release", costs)
        entry = Entry(kind, request, details, charged_costs, label=self._account.label)

        def check(chain: Chain) -> None:
            self._account.check_bound(chain)
            if not step:
                self._check_affordable(chain, row_mask, packed_rows, costs)
            elif step in chain.step_entries:
                raise BudgetExceeded("This step of the plan was drawn before, with another request: make a new plan.")

        if (stored := self._account.find_committed(chain, request)) is not None:
            return self._reuse_release(stored, mechanism, derived_from)
        codes = (
            self.__codes if row_mask is None else np.where(row_mask, self.__codes, MISSING).astype(self.__codes.dtype)
        )
        # `prepare` can take hours, so first check that the release can be paid.
        if type(mechanism).prepare is not Mechanism.prepare:
            check(chain)
        prepared = mechanism.prepare(codes, self.space, self.__cache)
        with self.ledger.exclusive_lock():
            chain = self._account.snapshot()
            # Another process may have drawn the release meanwhile.
            if (stored := self._account.find_committed(chain, request)) is not None:
                return self._reuse_release(stored, mechanism, derived_from)
            if (interrupted := self._account.find_interrupted(chain, request, charged_costs)) is not None:
                entry = interrupted  # not charged again; the docstring of `ledger` says why
            else:
                self.ledger.reserve(entry, packed_rows, check)
            packed_unit_rows = pack_rows(expand_to_units(row_mask, self._user_ids))
            own_use = LabelUse(entry.payer_id, costs[max(costs)], packed_unit_rows, self.n_rows, self._account.mark)
            lineage = combine_lineage([*derived_from], own_use)
            release_fields = {
                "space": self.space,
                "guarantee": release_guarantee(mechanism, lineage, derived_from, self.unit),
                "mechanism": details["mechanism"],
                "parameters": details["parameters"],
                "entry": entry.id,
                "n_rows": self.n_rows,
                "lineage": lineage,
                "row_mask": None if row_mask is None else row_mask.copy(),  # the caller may write into it
            }
            try:
                release = self.draw_noise(prepared, codes, release_fields, request)
            except Exception:
                self.ledger.fail(entry.id)
                raise
            self.ledger.commit(entry.id, to_bytes(release))
            self._drawn_entries[entry.id] = None
        return release

    def _check_affordable(
        self, chain: Chain, row_mask: RowMask | None, packed_rows: bytes | None, costs: Mapping[int, Cost]
    ) -> None:
        self._account.check_bound(chain)
        self._account.afford(chain, row_mask, row_set_name(packed_rows), costs)

    def _reuse_release(self, entry: Entry, mechanism: Mechanism, derived_from: Sequence[HasLineage]) -> Release:
        """Return a stored release, and record that this vault did not draw it."""
        if entry.id not in self._drawn_entries:
            self._reused_entries[entry.id] = None
        return self._extend_lineage(self._load_release(entry, mechanism), mechanism, derived_from)

    def _load_release(self, entry: Entry, mechanism: Mechanism) -> Release:
        payload = self.ledger.payload(entry.id)
        try:
            return mechanism.restore(from_bytes(payload))
        except (LabelDPError, MemoryError):
            raise
        except Exception:  # bytes with the right digest can still be no release
            raise LedgerError(
                f"The stored release {entry.id} cannot be read: restore the ledger from a backup."
            ) from None

    @property
    def drawn_entries(self) -> tuple[str, ...]:
        """The ids of the entries that this vault drew."""
        return tuple(self._drawn_entries)

    @property
    def reused_entries(self) -> tuple[str, ...]:
        """The ids of the entries whose stored releases this vault returned and did not draw."""
        return tuple(self._reused_entries)

    def _extend_lineage(self, release: Release, mechanism: Mechanism, derived_from: Sequence[HasLineage]) -> Release:
        """Return a stored release with a longer lineage, if more sources are named now than when it was drawn."""
        lineage = combine_lineage([release, *derived_from])
        if len(lineage) == len(release.lineage):
            return release
        guarantee = release_guarantee(mechanism, lineage, derived_from, self.unit)
        return replace(release, lineage=lineage, guarantee=replace(guarantee, unit=release.guarantee.unit))

    def draw_noise(self, mechanism: Mechanism, codes: Codes, release_fields: dict[str, Any], request: str) -> Release:
        """Draw the noise of a charged request. A subclass may override it, to store what is drawn for example.

        Args:
            mechanism: The prepared mechanism.
            codes: The raw label codes; `MISSING` for rows that are not released.
            release_fields: The fields that all releases have.
            request: The digest of the request.
        """
        return mechanism.draw(codes, release_fields, self._bits)

    def check_mechanism(self, mechanism: Mechanism) -> Mechanism:
        """Check that a mechanism fits the labels, and return the mechanism to draw. It reads no label.

        `release` and the steps of a plan call it before anything is charged. A subclass may return another mechanism.

        Raises:
            InputError: The mechanism does not fit the labels, or states another epsilon than its loss.
        """
        if not isinstance(mechanism, Mechanism):
            raise InputError("release takes a mechanism, for example RandomizedResponse(epsilon=1.0).")
        mechanism.check(self.space, self.n_rows)
        loss_epsilon = mechanism.loss().epsilon(float(getattr(mechanism, "delta", 0.0)))
        if loss_epsilon > mechanism.epsilon * (1 + 1e-6):
            raise InputError(
                f"{type(mechanism).__name__} states epsilon {mechanism.epsilon:g} and loses {loss_epsilon:g} by its "
                "own loss: state what it loses, with a delta if it needs one."
            )
        teacher_users = getattr(mechanism, "users", None)
        if self._user_ids is not None and teacher_users is not None:
            user_pairs = np.stack([self._user_ids, encode_users(teacher_users, self.n_rows)], axis=1)
            if len(np.unique(user_pairs, axis=0)) > len(np.unique(self._user_ids)):
                raise InputError("A user of this vault would reach several teachers: give the vault's own users.")
        return mechanism

    def _to_row_mask(self, row_selection: Any) -> RowMask | None:
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
            raise InputError("No labeled row is chosen: there is nothing to release.")
        return None if mask.all() else _freeze(mask)


def _freeze(mask: RowMask) -> RowMask:
    """Make a row mask read-only: a plan draws the rows that were charged."""
    mask.setflags(write=False)
    return mask
