"""A table whose label column is secret: its public identity, its label space, its vault."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.accounting.costs import cap_labels_per_user
from labeldp.core.errors import BudgetExceeded, InputError
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import MISSING, EncodedLabels, Label, LabelSpace
from labeldp.data.files import TableFile
from labeldp.privacy.vault import Ledger, Vault, identify
from labeldp.privacy.vault.account import Chosen
from labeldp.privacy.vault.ledger import ledger_beside

# What stands in the place of a number that is missing.
ABSENT = ["", "NA", "N/A", "n/a", "na", "#N/A", "NULL", "null", "None", "NaN", "nan", "?", ".", "-"]
Progress = Callable[[int], None]
_OTHERS = "other secrets"  # the fact of an older ledger that names labels which have a ledger of their own


@dataclass(frozen=True)
class SecretTable:
    """A file, its label column, and the classes that the column may hold.

    `ids` names a column of row ids, which is no feature and identifies the data set; otherwise all features do. `users`
    names the column of the owner of each row, which is no feature either. With `pairs`, rows are a person and an item:
    the classes are ordered, as ratings are, and the owner can be the person. Columns that are `left_out` are not looked
    at: another secret of the same people, for example, which as a feature would be public.
    """

    file: TableFile
    label: str
    space: LabelSpace
    ids: str | None = None
    users: str | None = None
    pairs: bool = False
    left_out: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        path: Path,
        label: str,
        classes: str | None,
        missing: Literal["error", "public"] = "error",
        ids: str | None = None,
        users: str | None = None,
        pairs: bool = False,
        *,
        numbers: str | None = None,
        left_out: Sequence[str] = (),
    ) -> "SecretTable":
        """Check the columns and read the classes in the label's type: separated by commas, quoted if they hold one.

        Instead of classes, `numbers` declares a range: its ends and its step, separated by commas.
        """
        if (classes is None) == (numbers is None):
            raise InputError(
                "Declare what a label may be, by one of the two: --classes no,yes, or --range 0,100,1 for numbers."
            )
        file = TableFile(path)
        kind = file.column_type(label)
        if numbers is not None:
            space = read_range(numbers, missing)
        else:
            words = next(csv.reader([classes or ""], skipinitialspace=True), [])
            if "" in words:
                raise InputError("An empty class is declared: remove the extra comma.")
            space = LabelSpace([_parse(word, kind) for word in words], ordered=pairs, missing=missing)
        if ids is not None and (file.column_type(ids) is None or ids == label):
            raise InputError("The label cannot identify its own data set: name a column of row ids.")
        if users is not None and (file.column_type(users) is None or users == label):
            raise InputError("The label cannot own its own row: name the column of users.")
        for name in left_out:
            if file.column_type(name) is None or name in (label, ids, users):
                raise InputError(f"{name!r} is the label, the row ids or the users, which cannot be left out.")
        return cls(file, label, space, ids, users, pairs, tuple(left_out))

    @property
    def ledger_path(self) -> Path:
        """The ledger's usual place."""
        return ledger_beside(self.file.path)

    @property
    def features(self) -> list[str]:
        """All columns but the label, the row ids, the users and what is left out."""
        names = [name for name in self.kept if name not in (self.label, self.ids)]
        return names if self.pairs and len(names) == 2 else [name for name in names if name != self.users]

    @property
    def kept(self) -> list[str]:
        """All columns but what is left out."""
        return [name for name in self.file.schema.names if name not in self.left_out]

    def _home(self, chosen: Path | None) -> Path:
        """Return the ledger of these rows, which is one for all of their labels.

        Args:
            chosen: The ledger that the user names; None for the one beside the data.

        Raises:
            InputError: The user must name one, or another one counts for these rows, or a feature is a label there.
        """
        if chosen is None and self.file.path.stat().st_nlink > 1:
            raise InputError(
                f"{self.file.path} has several names (hard links), and each would have a ledger of its own: name one "
                "ledger for all of them (--ledger)."
            )
        beside, path = self.ledger_path, chosen or self.ledger_path
        self._check_link()
        if beside.is_file() and (chain := Ledger(beside).snapshot()).spent:
            elsewhere, own = self.label in chain.facts.get(_OTHERS, []), path.resolve() == beside.resolve()
            if elsewhere and (own or not path.is_file()):
                raise InputError(f"Column {self.label!r} has a ledger of its own: name that file (--ledger).")
            if not own and not elsewhere:
                raise InputError(
                    f"{beside.name} counts what these people have lost, and another ledger would forget it: leave "
                    "--ledger out, or move that file away if it is about other people."
                )
            self._check_secrets(beside, [*chain.labels, *chain.facts.get(_OTHERS, [])])
        if path.is_file() and (chain := Ledger(path).snapshot()).spent:
            self._check_secrets(path, chain.labels)
        return path

    def _check_link(self) -> None:
        """Refuse a ledger beside a link to the data: the ledger beside the data themselves would not know of it."""
        beside_link = self.file.path.with_name(self.file.path.name + ".ledger")
        elsewhere = beside_link.resolve() != self.ledger_path.resolve() and beside_link.is_file()
        if elsewhere and Ledger(beside_link).snapshot().spent:
            raise InputError(
                f"{beside_link} lies beside a link to the data, whose ledger is {self.ledger_path}: move it there, or "
                "name the data themselves if it is about others."
            )

    def _check_secrets(self, ledger: Path, labels: Sequence[str]) -> None:
        """Refuse to use a column as a public feature that a ledger counts as a label."""
        for secret in labels:
            if secret != self.label and secret in self.kept:
                raise InputError(
                    f"{ledger.name} says that column {secret!r} is a secret, too, and it would be a public "
                    f"feature here: leave it out (--leave-out {secret})."
                )

    def _known_by(self, chosen: Path) -> list[str]:
        """Return the columns by which a ledger knows the rows: one that is left out later still says which they are."""
        if not (chosen.is_file() and (chain := Ledger(chosen).snapshot()).spent):
            return []
        names = [name for name in chain.facts["identity"].get("columns") or {} if name != self.label]
        for name in names:
            if name not in self.file.schema.names:
                raise InputError(
                    f"{chosen.name} knows the rows by column {name!r}, too, which {self.file.path.name} lacks: use the "
                    "table as it was (--leave-out keeps a column from being learnt), or another ledger if these are "
                    "other people."
                )
        return names

    def vault(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        budget: float | None = None,
        delta_budget: float | None = None,
        labels_per_user: int | None = None,
        ledger: Path | None = None,
        progress: Progress = lambda rows: None,
    ) -> Vault:
        """Read the labels into a vault, with the ledger of this data set.

        Without `budget` and `delta_budget`, the totals stay what the ledger says, or become `epsilon` and `delta` for
        a new ledger. `labels_per_user` is only looked at: a bad one makes no ledger.
        """
        path = self._home(ledger)
        public = [self.ids] if self.ids else [name for name in self.kept if name != self.label]
        public += [name for name in self._known_by(path) if name not in public]
        if not public:
            raise InputError(f"{self.file.path} has no column but the label: add the features or row ids.")
        columns = list(dict.fromkeys([*public, self.label, *([self.users] if self.users else [])]))
        parts: list[np.ndarray] = []
        owners: list[pa.Array] = []

        def watch() -> Iterator[pa.RecordBatch]:
            done = 0
            for batch in self.file.batches(columns):
                parts.append(self.space.encode(self._labels(batch), first_row=done))
                if self.users is not None:
                    owners.append(self._owners(batch, done))
                done += batch.num_rows
                progress(batch.num_rows)
                yield batch.select(public)

        identity = identify(self.file.path.name, self.label, watch())
        codes = np.concatenate(parts) if parts else np.empty(0, np.int8)
        if not codes.size:
            raise InputError(f"{self.file.path} has no rows.")
        limit = budget_of(epsilon, delta, budget, delta_budget)
        users = None if self.users is None else numbered(owners)
        cap_labels_per_user(users, codes != MISSING, codes.size, labels_per_user)
        return Vault(EncodedLabels(codes), self.space, limit, users=users, ledger=path, identity=identity)

    def owners(self) -> np.ndarray | None:
        """Read a number for the owner of each row; None without a column of users."""
        if self.users is None:
            return None
        found, done = list[pa.Array](), 0
        for batch in self.file.batches([self.users]):
            found.append(self._owners(batch, done))
            done += batch.num_rows
        return numbered(found)

    def public_codes(self) -> np.ndarray:
        """Read the labels of a benchmark, which are declared public by whoever calls this."""
        parts, done = [], 0
        for batch in self.file.batches([self.label]):
            parts.append(self.space.encode(self._labels(batch), first_row=done))
            done += batch.num_rows
        if not done:
            raise InputError(f"{self.file.path} has no rows.")
        return np.concatenate(parts)

    def replaced(self, batch: pa.RecordBatch, codes: np.ndarray) -> pa.RecordBatch:
        """Put released codes in the place of a batch's labels."""
        place, kind = batch.schema.get_field_index(self.label), self.file.column_type(self.label)
        codes = pa.array(codes, mask=codes < 0)
        values = pa.DictionaryArray.from_arrays(codes, pa.array(self._written())).dictionary_decode()
        if pa.types.is_dictionary(kind):
            values = values.cast(kind.value_type).dictionary_encode().cast(kind)
        return batch.set_column(place, self.file.schema.field(self.label), values.cast(kind))

    def _owners(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        column = batch.column(self.users)
        nobody = pc.equal(column, "") if self.file.path.suffix == ".csv" else pc.is_null(column, nan_is_null=True)
        if pc.any(nobody).as_py():
            row = first_row + int(np.argmax(nobody.to_numpy(zero_copy_only=False)))
            raise InputError(
                f"Row {row} (rows count from 0) has no user in column {self.users!r}: name an owner for each row, or "
                "drop it."
            )
        return column

    def check_replaced(self) -> None:
        """Say if a column cannot hold what would be released in the place of its labels."""
        if pa.types.is_integer(self.file.column_type(self.label)) and isinstance(self._written()[0], float):
            raise InputError(f"Column {self.label!r} holds whole numbers: choose a range of whole numbers.")

    def _written(self) -> list[Label]:
        """Return the classes as a file has them: whole numbers of a range without a decimal point."""
        if self.space.step and all(float(value).is_integer() for value in self.space.classes):
            return [int(value) for value in self.space.classes]
        return list(self.space.classes)

    def _labels(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self.label)
        if self.file.path.suffix == ".csv":
            absent = pc.is_in(column, pa.array(ABSENT if self.space.step else [""]))
            return pc.if_else(absent, None, column)
        return column


def numbered(parts: list[pa.Array]) -> np.ndarray:
    """Number the different values of a column, in the order in which they come."""
    try:
        plain = [part.dictionary_decode() if pa.types.is_dictionary(part.type) else part for part in parts]
        values = pa.chunked_array(plain).combine_chunks()
        if pa.types.is_floating(values.type):
            values = pc.add(values, 0.0)  # -0.0 is 0
        values = pc.dictionary_encode(values)
    except pa.ArrowException:
        raise InputError("Users must be named by texts, numbers or dates.") from None
    return np.asarray(values.indices, np.int64)


def check_total(epsilon: float, total: float | None) -> None:
    """Refuse a total below epsilon: what could never be paid shall not change the total of a data set."""
    if total is not None and 0 < total < epsilon:
        raise BudgetExceeded(f"This costs epsilon {epsilon:g}, and the budget shall be {total:g} in all: ask for less.")


def budget_of(
    epsilon: float, delta: float = 0.0, total: float | None = None, delta_total: float | None = None
) -> Chosen:
    """Choose a vault's budget: the totals if they are given, else what its ledger says, else epsilon and delta."""

    def chosen(known: Budget | None) -> Budget:
        known = known or Budget(epsilon, delta)
        epsilon_in_all = known.epsilon if total is None else total
        return Budget(epsilon_in_all, known.delta if delta_total is None else delta_total, known.composition)

    return chosen


def read_range(text: str, missing: Literal["error", "public"] = "error") -> LabelSpace:
    """Read a range that is written as low,high,step."""
    try:
        low, high, step = (float(word) for word in text.split(","))
    except ValueError:
        raise InputError("Write the range as three numbers, its ends and its step: --range 0,100,1.") from None
    return LabelSpace.range(low, high, step, missing=missing)


def _parse(text: str, kind: pa.DataType) -> Label:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        if text.lower() not in ("true", "false"):
            raise InputError("The label column holds booleans: declare --classes false,true.")
        return text.lower() == "true"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not number.is_integer():
            raise InputError(f"The label column holds numbers ({kind}): declare the classes as integers.")
        return int(number)
    return text
