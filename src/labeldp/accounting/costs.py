"""Costs of releases, their sums for each unit of privacy, and uses of labels.

Releases of a unit's own rows add up. Releases of other rows cost it nothing.
"""

import base64
import hashlib
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError

RowMask = NDArray[np.bool_]
_MAX_CACHED_ROW_SETS = 256  # row sets whose counts by atom are cached


@dataclass(frozen=True)
class Cost:
    """Epsilon, delta, and the Renyi divergence at the order of the filter (0 if the filter does not use it).

    The values are fractions, so that ten releases at 0.1 cost exactly 1. A release without any privacy has an infinite
    epsilon.
    """

    epsilon: Fraction | float = Fraction(0)
    delta: Fraction = Fraction(0)
    rdp: Fraction = Fraction(0)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta, self.rdp + other.rdp)

    def __mul__(self, times: int) -> "Cost":
        """Return the cost of `times` equal releases."""
        return Cost(self.epsilon * times, self.delta * times, self.rdp * times)

    def __or__(self, other: "Cost") -> "Cost":
        """Return the larger epsilon, delta and divergence of two costs."""
        return Cost(max(self.epsilon, other.epsilon), max(self.delta, other.delta), max(self.rdp, other.rdp))

    def to_json(self) -> list[str]:
        """Describe the cost; `from_json` reads it back."""
        return [str(self.epsilon), str(self.delta), str(self.rdp)]

    @classmethod
    def from_json(cls, data: list[str]) -> "Cost":
        """Read what `to_json` wrote; raise ValueError if it is no cost."""
        epsilon, delta, rdp = data
        return cls(
            math.inf if epsilon == "inf" else _parse_fraction(epsilon), _parse_fraction(delta), _parse_fraction(rdp)
        )


@lru_cache(maxsize=1 << 14)
def _parse_fraction(text: str) -> Fraction:
    if "e" in str(text).lower():  # never written by `to_json`; an exponent can denote a number that fills the memory
        raise ValueError("a cost is not a fraction")
    fraction = Fraction(text)
    if fraction < 0 or not math.isfinite(float(fraction)):
        raise ValueError("a cost is below zero")
    return fraction


class Spending:
    """Adds up the costs of each unit.

    A unit is a row, or a user who owns several rows. The cost of a release to a unit depends on how many of the unit's
    rows it covers. Units with equal counts in every release form one atom, so exact sums stay cheap. While every
    release covers all rows, there is one atom and no array.

    A row set that is added again under the same `key` is not compared with the rows. Adding a release then takes time
    in the number of atoms, not of rows or of earlier releases.

    Args:
        n_rows: The number of rows.
        owner: The number of the user who owns each row; None if each row is a unit.
    """

    def __init__(self, n_rows: int, owner: NDArray[np.int64] | None = None) -> None:
        self._n_rows, self._owner = n_rows, owner
        self._atoms: NDArray[np.int64] | None = None  # the atom of each unit; None while there is one atom
        self._totals = [Cost()]
        # By key of a row set: how many of its rows a unit of each atom owns. Their number is bounded because all of
        # them change when an atom is split.
        self._cached_counts: dict[str, NDArray[np.int32]] = {}

    def add(self, mask: RowMask | None, costs: Mapping[int, Cost], key: str | None = None) -> None:
        """Add a release.

        Args:
            mask: The released rows; None for all. Not read if `key` is cached.
            costs: The cost to a unit by the number of its rows in `mask`.
            key: A unique name of this row set; None if it will not be added again.
        """
        n_owned = self._cached_counts.get(key) if key is not None else None
        if n_owned is None:
            n_owned = self._refine(mask)
            if key is not None:
                if len(self._cached_counts) >= _MAX_CACHED_ROW_SETS:
                    del self._cached_counts[next(iter(self._cached_counts))]
                self._cached_counts[key] = n_owned
        self._totals = [
            total + costs[n_unit_rows] if n_unit_rows else total
            for total, n_unit_rows in zip(self._totals, n_owned.tolist(), strict=True)
        ]

    def _refine(self, mask: RowMask | None) -> NDArray[np.int32]:
        """Split atoms until all units of an atom own equally many rows of a row set; return these counts by atom."""
        if mask is None and self._owner is None:
            return np.ones(len(self._totals), np.int32)
        counts = self.counts(mask)
        if self._atoms is None:
            self._atoms = np.zeros(counts.size, np.int64)
        base = int(counts.max(initial=0)) + 1
        pairs, atoms = np.unique(self._atoms * base + counts, return_inverse=True)
        self._atoms = atoms.astype(np.int64)
        old_atoms = pairs // base
        if old_atoms.size > len(self._totals):
            self._totals = [self._totals[old_atom] for old_atom in old_atoms.tolist()]
            self._cached_counts = {key: cached[old_atoms] for key, cached in self._cached_counts.items()}
        return (pairs % base).astype(np.int32)

    def counts(self, mask: RowMask | None) -> NDArray[np.int64]:
        """Return how many rows of `mask` each unit owns."""
        if self._owner is None:
            return np.ones(self._n_rows, np.int64) if mask is None else mask.astype(np.int64)
        return np.bincount(
            self._owner if mask is None else self._owner[mask], minlength=int(self._owner.max(initial=-1)) + 1
        )

    def max_cost(
        self, mask: RowMask | None = None, extra_costs: Mapping[int, Cost] | None = None, key: str | None = None
    ) -> Cost:
        """Return the largest cost of any unit that owns a row of `mask`.

        Args:
            mask: Some rows; None for any unit.
            extra_costs: The costs of a further release of these rows, which is counted but not added.
            key: The name of the row set, as in `add`.

        Returns:
            The largest epsilon, delta and Renyi divergence, each separately.
        """
        touched_atoms = self._touched_atoms(mask, key)
        totals = [
            self._totals[atom] + (extra_costs[n_unit_rows] if extra_costs else Cost())
            for atom, n_unit_rows in touched_atoms
        ]
        return reduce(Cost.__or__, totals, Cost())

    def _touched_atoms(self, mask: RowMask | None, key: str | None) -> list[tuple[int, int]]:
        """Return the atoms whose units own rows of `mask`, each with the number of rows that a unit owns."""
        cached = self._cached_counts.get(key) if key is not None else None
        if cached is not None:
            return [(atom, n_unit_rows) for atom, n_unit_rows in enumerate(cached.tolist()) if n_unit_rows]
        if mask is None and self._owner is None:
            return [(atom, 1) for atom in range(len(self._totals))]
        counts = self.counts(mask)
        base = int(counts.max(initial=0)) + 1
        pairs = np.unique((0 if self._atoms is None else self._atoms * base) + counts)
        return [divmod(pair, base) for pair in pairs.tolist() if pair % base or mask is None]


def rows_per_unit(mask: RowMask | None, owner: NDArray[np.int64] | None) -> list[int]:
    """Return the distinct numbers of rows of `mask` that units own."""
    if owner is None:
        return [1]
    counts: Any = np.unique(np.bincount(owner if mask is None else owner[mask]))
    return [int(c) for c in counts if c] or [1]


def expand_to_units(mask: RowMask | None, owner: NDArray[np.int64] | None) -> RowMask | None:
    """Return all rows of the units that own a row of `mask`; None is all rows.

    Two such sets are disjoint if and only if their units are.
    """
    if mask is None or owner is None:
        return mask
    is_touched = np.bincount(owner[mask], minlength=int(owner.max()) + 1) > 0
    return None if is_touched.all() else is_touched[owner]


def cap_labels_per_user(
    owner: NDArray[np.int64] | None,
    labeled_mask: RowMask | None,
    n_rows: int,
    labels_per_user: int | None,
    seed: int = 0,
) -> RowMask:
    """Select at most `labels_per_user` labeled rows of each user at random, from `seed`.

    Args:
        owner: The number of the user who owns each row; None if each row is a unit.
        labeled_mask: The rows with a label; None for all.
        n_rows: The number of rows.
        labels_per_user: The largest number of rows of a user. It may be None if no user owns several labeled rows.
        seed: The seed of the selection.

    Returns:
        A mask of the selected rows.

    Raises:
        InputError: `labels_per_user` is invalid, missing, or given without users.
    """
    if labels_per_user is not None and (
        isinstance(labels_per_user, bool) or not isinstance(labels_per_user, int | np.integer) or labels_per_user < 1
    ):
        raise InputError("labels_per_user must be a whole number from 1.")
    if owner is None:
        if labels_per_user is not None:
            raise InputError("labels_per_user is for users: say who owns each row, by users.", parameter="user_column")
        return np.ones(n_rows, bool) if labeled_mask is None else labeled_mask.copy()
    candidates = np.arange(n_rows) if labeled_mask is None else np.flatnonzero(labeled_mask)
    rows_per_user = np.bincount(owner[candidates])
    if labels_per_user is None and rows_per_user.max(initial=0) > 1:
        raise InputError(_describe_cap_choices(rows_per_user), parameter="labels_per_user")
    shuffled = np.random.default_rng(seed).permutation(candidates)
    by_owner = shuffled[np.argsort(owner[shuffled], kind="stable")]
    rank = np.arange(candidates.size) - np.repeat(np.cumsum(rows_per_user) - rows_per_user, rows_per_user)
    row_mask = np.zeros(n_rows, bool)
    row_mask[by_owner[rank < (labels_per_user or 1)]] = True
    return row_mask


def _describe_cap_choices(rows_per_user: NDArray[np.int64]) -> str:
    max_rows, n_rows = int(rows_per_user.max()), int(rows_per_user.sum())
    caps = [cap for cap in (1, 2, 5, 10, 20, 50, 100) if cap < max_rows]
    choices = ", ".join(f"{cap} keeps {int(np.minimum(rows_per_user, cap).sum()):,}" for cap in caps)
    return (
        f"A user owns up to {max_rows:,} rows: say by labels_per_user how many labels of a user may take part. "
        f"Of {n_rows:,} rows, {choices}, and {max_rows:,} keeps all; the more, the more noise on each."
    )


def encode_users(users: Any, n_rows: int) -> NDArray[np.int64]:
    """Return the number of each row's owner: owners are numbered from 0 in the order of their first row."""
    names = np.asarray(users)
    if names.shape != (n_rows,):
        raise InputError(f"users must name the owner of each of the {n_rows} rows.")
    try:
        is_valid = not np.any(names != names)  # NaN and NaT are not equal to themselves
        if names.dtype == object:  # objects need not have an order: equal objects are one owner
            id_of_user: dict[Any, int] = {}
            user_ids = np.array([id_of_user.setdefault(name, len(id_of_user)) for name in names], np.int64)
            is_valid &= len({type(name) for name in id_of_user}) == 1 and None not in id_of_user
        else:
            _, first_rows, sorted_index = np.unique(names, return_index=True, return_inverse=True)
            user_ids = np.argsort(np.argsort(first_rows)).astype(np.int64)[sorted_index]
    except TypeError:
        is_valid = False
    if not is_valid:
        raise InputError("users must be of one type, with none missing: name an owner for each row.")
    user_ids.setflags(write=False)  # costs are added up by these numbers, so no holder may change them
    return user_ids


@dataclass(frozen=True)
class LabelUse:
    """One use of labels: its ledger entry, its cost, and all rows of the units whose labels it used.

    Attributes:
        entry: The id of the ledger entry.
        cost: The cost to a unit.
        packed_rows: The rows, as `pack_rows` returns them; None for all.
        n_rows: The number of rows of the data set.
        ledger_mark: The mark of the vault's ledger. Equal row numbers of two ledgers are unrelated.
    """

    entry: str
    cost: Cost
    packed_rows: bytes | None
    n_rows: int
    ledger_mark: str

    def to_json(self) -> list[Any]:
        """Describe the use; `from_json` reads it back."""
        packed_rows = self.packed_rows and base64.b64encode(self.packed_rows).decode()
        return [self.entry, self.cost.to_json(), packed_rows, self.n_rows, self.ledger_mark]

    @classmethod
    def from_json(cls, data: list[Any]) -> "LabelUse":
        """Read what `to_json` wrote. A use without a data set, as earlier versions wrote it, covers all rows."""
        entry, cost, packed_rows, *data_fields = data
        if not data_fields:
            return cls(entry, Cost.from_json(cost), None, 0, "")
        return cls(entry, Cost.from_json(cost), packed_rows and base64.b64decode(packed_rows), *data_fields)


def joint_cost(uses: Iterable[LabelUse], parallel: bool = True) -> Cost:
    """Return the largest cost of any unit over different uses.

    An entry counts once, on the union of the rows of its uses, because the steps of a plan share one entry. The costs
    of several data sets add up, because a person may be in all of them.

    Args:
        uses: The uses of labels.
        parallel: Whether uses of disjoint rows compose in parallel. Otherwise all uses of a data set add up.
    """
    by_entry: dict[tuple[str, int, str], LabelUse] = {}
    for use in dict.fromkeys(uses):
        earlier = by_entry.setdefault((use.ledger_mark, use.n_rows, use.entry), use)
        if earlier != use:
            by_entry[use.ledger_mark, use.n_rows, use.entry] = _merge_uses(earlier, use)
    by_data: dict[tuple[str, int], Spending] = {}
    for use in by_entry.values():
        spending = by_data.setdefault((use.ledger_mark, use.n_rows), Spending(use.n_rows))
        spending.add(unpack_rows(use.packed_rows, use.n_rows) if parallel else None, {1: use.cost})
    return sum((spending.max_cost() for spending in by_data.values()), Cost())


def _merge_uses(one: LabelUse, other: LabelUse) -> LabelUse:
    """Merge two uses of one entry into a use of the rows of both."""
    first, second = (unpack_rows(use.packed_rows, use.n_rows) for use in (one, other))
    union = None if first is None or second is None else first | second
    return replace(one, cost=one.cost | other.cost, packed_rows=pack_rows(union))


def pack_rows(mask: RowMask | None) -> bytes | None:
    """Compress a row set as the ledger stores it; None is all rows."""
    return None if mask is None else zlib.compress(np.packbits(mask).tobytes(), 1)


def row_set_name(packed: bytes | None) -> str:
    """Return the name of a packed row set in a ledger: its SHA-256, or an empty string for all rows."""
    return "" if packed is None else hashlib.sha256(packed).hexdigest()


def is_row_set(packed: bytes, n_rows: int) -> bool:
    """Whether bytes are a packed set of `n_rows` rows. At most one byte more than expected is decompressed."""
    decompressor, n_bytes = zlib.decompressobj(), (n_rows + 7) // 8
    try:
        return len(decompressor.decompress(packed, n_bytes + 1)) == n_bytes and decompressor.eof
    except zlib.error:
        return False


def unpack_rows(packed: bytes | None, n_rows: int) -> RowMask | None:
    """Read what `pack_rows` returned."""
    if packed is None:
        return None
    return np.unpackbits(np.frombuffer(zlib.decompress(packed), np.uint8), count=n_rows).astype(bool)
