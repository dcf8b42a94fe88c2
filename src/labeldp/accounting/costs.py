"""What each unit of privacy has lost so far: releases of its own rows add, others cost it nothing."""

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

Mask = NDArray[np.bool_]
_KEPT = 256  # row sets whose atoms are remembered


@dataclass(frozen=True)
class Cost:
    """Epsilon, delta, and the Renyi divergence at the filter's order (0 where the filter does not use it).

    Fractions, because ten releases at 0.1 must cost 1; infinity for what is not private at all.
    """

    epsilon: Fraction | float = Fraction(0)
    delta: Fraction = Fraction(0)
    rdp: Fraction = Fraction(0)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta, self.rdp + other.rdp)

    def __mul__(self, times: int) -> "Cost":
        """Return the cost of so many equal releases."""
        return Cost(self.epsilon * times, self.delta * times, self.rdp * times)

    def __or__(self, other: "Cost") -> "Cost":
        """Take the worst of two costs, part by part."""
        return Cost(max(self.epsilon, other.epsilon), max(self.delta, other.delta), max(self.rdp, other.rdp))

    def to_json(self) -> list[str]:
        """Describe the cost; `from_json` reads it back."""
        return [str(self.epsilon), str(self.delta), str(self.rdp)]

    @classmethod
    def from_json(cls, data: list[str]) -> "Cost":
        """Read what `to_json` wrote; ValueError if it is no cost."""
        epsilon, delta, rdp = data
        return cls(math.inf if epsilon == "inf" else _fraction(epsilon), _fraction(delta), _fraction(rdp))


@lru_cache(maxsize=1 << 14)
def _fraction(text: str) -> Fraction:
    if "e" in str(text).lower():  # is never written, and can stand for a number that fills the memory
        raise ValueError("a cost is not a fraction")
    number = Fraction(text)
    if number < 0 or not math.isfinite(float(number)):
        raise ValueError("a cost is below zero")
    return number


class Spending:
    """Adds up costs by unit.

    A unit is a row, or a user who owns several rows (`owner` gives a user's number for each row). A release
    costs a unit by how many of its rows it touches. Units touched alike are kept together as one atom, so
    that exact sums stay cheap; while every release covers all rows there is one atom and no array at all.

    A row set that comes back under the same `key` is not compared with the rows again, so that adding a release
    takes time in the number of atoms, not of rows or of earlier releases.
    """

    def __init__(self, rows: int, owner: NDArray[np.int64] | None = None) -> None:
        self._rows, self._owner = rows, owner
        self._atom: NDArray[np.int64] | None = None  # the atom of each unit; None while there is only one
        self._totals = [Cost()]
        # By key of a row set: how many of its rows a unit of each atom owns. Only so many are kept: all have to be
        # changed when an atom is split.
        self._known: dict[str, NDArray[np.int32]] = {}

    def add(self, mask: Mask | None, costs: Mapping[int, Cost], key: str | None = None) -> None:
        """Add a release.

        Args:
            mask: The released rows; None for all. Not looked at if `key` is known.
            costs: The cost by number of rows that a unit owns.
            key: A name that stands for this row set alone; None if it will not come back.
        """
        owned = self._known.get(key) if key is not None else None
        if owned is None:
            owned = self._refine(mask)
            if key is not None:
                if len(self._known) >= _KEPT:
                    del self._known[next(iter(self._known))]
                self._known[key] = owned
        self._totals = [
            total + costs[count] if count else total for total, count in zip(self._totals, owned.tolist(), strict=True)
        ]

    def _refine(self, mask: Mask | None) -> NDArray[np.int32]:
        """Split atoms until a row set touches all units of an atom alike; return how many rows each of them owns."""
        if mask is None and self._owner is None:
            return np.ones(len(self._totals), np.int32)
        counts = self.counts(mask)
        if self._atom is None:
            self._atom = np.zeros(counts.size, np.int64)
        base = int(counts.max(initial=0)) + 1
        pairs, atom = np.unique(self._atom * base + counts, return_inverse=True)
        self._atom = atom.astype(np.int64)
        before = pairs // base
        if before.size > len(self._totals):
            self._totals = [self._totals[place] for place in before.tolist()]
            self._known = {key: known[before] for key, known in self._known.items()}
        return (pairs % base).astype(np.int32)

    def counts(self, mask: Mask | None) -> NDArray[np.int64]:
        """Return how many rows of `mask` each unit owns."""
        if self._owner is None:
            return np.ones(self._rows, np.int64) if mask is None else mask.astype(np.int64)
        return np.bincount(
            self._owner if mask is None else self._owner[mask], minlength=int(self._owner.max(initial=-1)) + 1
        )

    def worst(self, mask: Mask | None = None, more: Mapping[int, Cost] | None = None, key: str | None = None) -> Cost:
        """Return the largest cost of any unit that owns a row of `mask`.

        Args:
            mask: Some rows; None for any unit.
            more: The costs of a further release of these rows, which is counted but not added.
            key: The name of the row set, as in `add`.

        Returns:
            The largest epsilon, delta and Renyi divergence, each by itself.
        """
        touched = self._touched(mask, key)
        totals = [self._totals[atom] + (more[count] if more else Cost()) for atom, count in touched]
        return reduce(Cost.__or__, totals, Cost())

    def _touched(self, mask: Mask | None, key: str | None) -> list[tuple[int, int]]:
        """Return the atoms that own rows of `mask`, with how many a unit owns."""
        known = self._known.get(key) if key is not None else None
        if known is not None:
            return [(atom, count) for atom, count in enumerate(known.tolist()) if count]
        if mask is None and self._owner is None:
            return [(atom, 1) for atom in range(len(self._totals))]
        counts = self.counts(mask)
        base = int(counts.max(initial=0)) + 1
        pairs = np.unique((0 if self._atom is None else self._atom * base) + counts)
        return [divmod(pair, base) for pair in pairs.tolist() if pair % base or mask is None]


def group_sizes(mask: Mask | None, owner: NDArray[np.int64] | None) -> list[int]:
    """Return the different numbers of rows that units own in `mask`."""
    if owner is None:
        return [1]
    counts: Any = np.unique(np.bincount(owner if mask is None else owner[mask]))
    return [int(c) for c in counts if c] or [1]


def rows_of_units(mask: Mask | None, owner: NDArray[np.int64] | None) -> Mask | None:
    """Return all rows of the units that own a row of `mask`: two such sets are disjoint if the units are."""
    if mask is None or owner is None:
        return mask
    touched = np.bincount(owner[mask], minlength=int(owner.max()) + 1) > 0
    return None if touched.all() else touched[owner]


def capped_rows(
    owner: NDArray[np.int64] | None, labelled: Mask | None, rows: int, most: int | None, seed: int = 0
) -> Mask:
    """Return the labelled rows that are left if each user keeps at most `most` of them, drawn from `seed`."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1):
        raise InputError("labels_per_user must be a whole number from 1.")
    if owner is None:
        if most is not None:
            raise InputError("labels_per_user is for users: say who owns each row, by users or --user-column.")
        return np.ones(rows, bool) if labelled is None else labelled.copy()
    candidates = np.arange(rows) if labelled is None else np.flatnonzero(labelled)
    owned = np.bincount(owner[candidates])
    if most is None and owned.max(initial=0) > 1:
        raise InputError(_say_what_is_kept(owned))
    shuffled = np.random.default_rng(seed).permutation(candidates)
    by_owner = shuffled[np.argsort(owner[shuffled], kind="stable")]
    place = np.arange(candidates.size) - np.repeat(np.cumsum(owned) - owned, owned)
    kept = np.zeros(rows, bool)
    kept[by_owner[place < (most or 1)]] = True
    return kept


def _say_what_is_kept(owned: NDArray[np.int64]) -> str:
    largest, total = int(owned.max()), int(owned.sum())
    steps = [step for step in (1, 2, 5, 10, 20, 50, 100) if step < largest]
    kept = ", ".join(f"{step} keeps {int(np.minimum(owned, step).sum()):,}" for step in steps)
    return (
        f"A user owns up to {largest:,} rows: say by labels_per_user (--labels-per-user) how many labels of a user may "
        f"take part. Of {total:,} rows, {kept}, and {largest:,} keeps all; the more, the more noise on each."
    )


def number_users(users: Any, rows: int) -> NDArray[np.int64]:
    """Return a number from 0 for the owner of each row, in the order in which they come, however they are held."""
    names = np.asarray(users)
    if names.shape != (rows,):
        raise InputError(f"users must name the owner of each of the {rows} rows.")
    try:
        known = not np.any(names != names)  # as a missing number or date is not itself
        if names.dtype == object:  # which need not have an order: what is equal is one owner
            found: dict[Any, int] = {}
            numbers = np.array([found.setdefault(name, len(found)) for name in names], np.int64)
            known &= len({type(name) for name in found}) == 1 and None not in found
        else:
            _, first, place = np.unique(names, return_index=True, return_inverse=True)
            numbers = np.argsort(np.argsort(first)).astype(np.int64)[place]
    except TypeError:
        known = False
    if not known:
        raise InputError("users must be of one type, with none missing: name an owner for each row.")
    numbers.setflags(write=False)  # costs are added up by these numbers, whoever holds them
    return numbers


@dataclass(frozen=True)
class Use:
    """One use of labels that a release rests on: its ledger entry, its cost, and all rows of the units that it touched.

    Rows are packed; None is all of them. `data` names the vault's labels, `count` how many rows these have: row 5 of
    one data set and row 5 of another are nothing to each other.
    """

    entry: str
    cost: Cost
    rows: bytes | None
    count: int
    data: str

    def to_json(self) -> list[Any]:
        """Describe the use; `from_json` reads it back."""
        rows = self.rows and base64.b64encode(self.rows).decode()
        return [self.entry, self.cost.to_json(), rows, self.count, self.data]

    @classmethod
    def from_json(cls, data: list[Any]) -> "Use":
        """Read what `to_json` wrote, or an earlier version, which did not say of which data: then it is for all."""
        entry, cost, rows, *of = data
        if not of:
            return cls(entry, Cost.from_json(cost), None, 0, "")
        return cls(entry, Cost.from_json(cost), rows and base64.b64decode(rows), *of)


def joint_cost(uses: Iterable[Use], parallel: bool = True) -> Cost:
    """Return the worst cost of any unit over different uses, or their sum where rows tell nothing of units.

    An entry counts once, on all rows that its uses name: the steps of a plan share one. What several data sets cost is
    added up: somebody may be in all of them.
    """
    by_entry: dict[tuple[str, int, str], Use] = {}
    for use in dict.fromkeys(uses):
        same = by_entry.setdefault((use.data, use.count, use.entry), use)
        if same != use:
            by_entry[use.data, use.count, use.entry] = _united(same, use)
    by_data: dict[tuple[str, int], Spending] = {}
    for use in by_entry.values():
        spending = by_data.setdefault((use.data, use.count), Spending(use.count))
        spending.add(unpack_rows(use.rows, use.count) if parallel else None, {1: use.cost})
    return sum((spending.worst() for spending in by_data.values()), Cost())


def _united(one: Use, other: Use) -> Use:
    """Return two uses of one entry as one, of the rows of both."""
    first, second = (unpack_rows(use.rows, use.count) for use in (one, other))
    both = None if first is None or second is None else first | second
    return replace(one, cost=one.cost | other.cost, rows=pack_rows(both))


def pack_rows(mask: Mask | None) -> bytes | None:
    """Write a row set as the ledger keeps it; None is all rows."""
    return None if mask is None else zlib.compress(np.packbits(mask).tobytes(), 1)


def row_set_name(packed: bytes | None) -> str:
    """Return the name of a packed row set in a ledger: its SHA-256, or an empty text for all rows."""
    return "" if packed is None else hashlib.sha256(packed).hexdigest()


def is_row_set(packed: bytes, rows: int) -> bool:
    """Whether bytes are a packed set of so many rows; no more than that is unpacked."""
    reader, size = zlib.decompressobj(), (rows + 7) // 8
    try:
        return len(reader.decompress(packed, size + 1)) == size and reader.eof
    except zlib.error:
        return False


def unpack_rows(packed: bytes | None, rows: int) -> Mask | None:
    """Read a row set as the ledger keeps it."""
    if packed is None:
        return None
    return np.unpackbits(np.frombuffer(zlib.decompress(packed), np.uint8), count=rows).astype(bool)
