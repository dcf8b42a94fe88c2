"""A table with a secret label column: its public identity, its label space and its vault."""

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
from labeldp.privacy.vault.account import BudgetChooser
from labeldp.privacy.vault.ledger import default_ledger_path

# Texts of CSV files that mean a missing number.
MISSING_NUMBERS = ["", "NA", "N/A", "n/a", "na", "#N/A", "NULL", "null", "None", "NaN", "nan", "?", ".", "-"]
RowCallback = Callable[[int], None]


@dataclass(frozen=True)
class SecretTable:
    """A table file, its label column, and the classes that the column may hold.

    Attributes:
        file: The file.
        label: The name of the label column.
        space: The classes.
        id_column: A column of row ids, which is no feature. It identifies the data set; otherwise all features do.
        user_column: The column of the owner of each row, which is no feature.
        is_pairs: Whether each row is a user and an item. Then the classes are ordered, as ratings are, and the owner
            can be the user.
        excluded_columns: Columns that are not read. Another secret of the same people must be excluded, because a
            feature is public.
    """

    file: TableFile
    label: str
    space: LabelSpace
    id_column: str | None = None
    user_column: str | None = None
    is_pairs: bool = False
    excluded_columns: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        path: Path,
        label: str,
        classes: str | None,
        missing: Literal["error", "public"] = "error",
        id_column: str | None = None,
        user_column: str | None = None,
        is_pairs: bool = False,
        *,
        label_range: str | None = None,
        excluded_columns: Sequence[str] = (),
    ) -> "SecretTable":
        """Open a table and check its columns. It reads no label.

        Args:
            path: The file.
            label: The label column.
            classes: The classes in the type of the column, separated by commas. A class that holds a comma is quoted.
            missing: Whether a missing label is an error or a public fact.
            id_column: A column of row ids.
            user_column: The column of the owner of each row.
            is_pairs: Whether each row is a user and an item.
            label_range: The range of a numeric label instead of classes: its ends and its step, separated by commas.
            excluded_columns: Columns that are not read.

        Raises:
            InputError: A column does not exist, or the classes do not fit its type.
        """
        if (classes is None) == (label_range is None):
            raise InputError(
                "Declare the possible labels by either the classes, or a range for a numeric label.",
                parameter="classes",
            )
        file = TableFile(path)
        dtype = file.column_type(label)
        if label_range is not None:
            space = read_range(label_range, missing)
        else:
            words = next(csv.reader([classes or ""], skipinitialspace=True), [])
            if "" in words:
                raise InputError("An empty class is declared: remove the extra comma.")
            space = LabelSpace([_parse_class(word, dtype) for word in words], ordered=is_pairs, missing=missing)
        if id_column is not None and (file.column_type(id_column) is None or id_column == label):
            raise InputError(
                "The label cannot identify its own data set: name a column of row ids.", parameter="id_column"
            )
        if user_column is not None and (file.column_type(user_column) is None or user_column == label):
            raise InputError("The label cannot own its own row: name the column of users.", parameter="user_column")
        for name in excluded_columns:
            if file.column_type(name) is None or name in (label, id_column, user_column):
                raise InputError(
                    f"{name!r} is the label, the row ids or the users, which cannot be excluded.",
                    parameter="excluded_columns",
                )
        return cls(file, label, space, id_column, user_column, is_pairs, tuple(excluded_columns))

    @property
    def default_ledger_path(self) -> Path:
        """The path of the ledger beside the data."""
        return default_ledger_path(self.file.path)

    @property
    def feature_columns(self) -> list[str]:
        """All columns but the label, the row ids, the users and the excluded columns."""
        names = [name for name in self.included_columns if name not in (self.label, self.id_column)]
        return names if self.is_pairs and len(names) == 2 else [name for name in names if name != self.user_column]

    @property
    def included_columns(self) -> list[str]:
        """All columns but the excluded ones."""
        return [name for name in self.file.schema.names if name not in self.excluded_columns]

    def _choose_ledger(self, requested: Path | None) -> Path:
        """Return the path of the ledger of these rows. All labels of the same rows share one ledger.

        Args:
            requested: The ledger that the caller names; None for the one beside the data.

        Raises:
            InputError: The caller must name a ledger, or another ledger counts for these rows, or a feature is a label
                there.
        """
        if requested is None and self.file.path.stat().st_nlink > 1:
            raise InputError(
                f"{self.file.path} has several names (hard links), and each would have a separate ledger: name one "
                "ledger for all of them.",
                parameter="ledger",
            )
        default, path = self.default_ledger_path, requested or self.default_ledger_path
        self._check_link()
        if path.resolve() != default.resolve() and default.is_file() and Ledger(default).snapshot().has_entries:
            raise InputError(
                f"{default.name} records the privacy cost of these rows, and another ledger would forget it: use that "
                "ledger, or move it away if it is about other people.",
                parameter="ledger",
            )
        if path.is_file() and (chain := Ledger(path).snapshot()).has_entries:
            self._check_secrets(path, chain.label_names)
        return path

    def _check_link(self) -> None:
        """Refuse a ledger beside a link to the data, because the ledger beside the data does not count its entries."""
        link_ledger = self.file.path.with_name(self.file.path.name + ".ledger")
        is_other_file = link_ledger.resolve() != self.default_ledger_path.resolve() and link_ledger.is_file()
        if is_other_file and Ledger(link_ledger).snapshot().has_entries:
            raise InputError(
                f"{link_ledger} lies beside a link to the data, whose ledger is {self.default_ledger_path}: move it "
                "there, or open the data by their own path if it is about other people."
            )

    def _check_secrets(self, ledger: Path, labels: Sequence[str]) -> None:
        """Refuse to use a column as a public feature that a ledger counts as a label."""
        for secret in labels:
            if secret != self.label and secret in self.included_columns:
                raise InputError(
                    f"{ledger.name} counts column {secret!r} as a secret label, and it would be a public feature here: "
                    "exclude the column.",
                    parameter="excluded_columns",
                )

    def _identity_columns(self, ledger: Path) -> list[str]:
        """Return the columns by which a ledger identifies the rows, including columns that are excluded now."""
        if not (ledger.is_file() and (chain := Ledger(ledger).snapshot()).has_entries):
            return []
        names = [name for name in chain.facts["identity"].get("column_digests") or {} if name != self.label]
        for name in names:
            if name not in self.file.schema.names:
                raise InputError(
                    f"{ledger.name} identifies the rows by column {name!r}, too, which {self.file.path.name} lacks: "
                    "use the table as it was, or another ledger if these are other people. An excluded column is in "
                    "the table and is no feature.",
                    parameter="excluded_columns",
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
        progress: RowCallback = lambda n_rows: None,
    ) -> Vault:
        """Read the labels into a vault, with the ledger of this data set.

        Args:
            epsilon: The epsilon of the budget of a new ledger, unless `budget` is given.
            delta: The delta of the budget of a new ledger, unless `delta_budget` is given.
            budget: The total epsilon; None keeps that of the ledger.
            delta_budget: The total delta; None keeps that of the ledger.
            labels_per_user: The cap that a later step applies. It is checked here, before a ledger is created.
            ledger: The ledger; None for the one beside the data.
            progress: Called with the number of rows of each batch.

        Raises:
            InputError: The table, its labels or the ledger's path do not fit.
            LedgerError: The ledger belongs to other data, or is damaged.
        """
        path = self._choose_ledger(ledger)
        public_columns = (
            [self.id_column] if self.id_column else [name for name in self.included_columns if name != self.label]
        )
        public_columns += [name for name in self._identity_columns(path) if name not in public_columns]
        if not public_columns:
            raise InputError(f"{self.file.path} has no column but the label: add the features or row ids.")
        columns = list(dict.fromkeys([*public_columns, self.label, *([self.user_column] if self.user_column else [])]))
        code_batches: list[np.ndarray] = []
        user_batches: list[pa.Array] = []

        def read_public_batches() -> Iterator[pa.RecordBatch]:
            n_read = 0
            for batch in self.file.batches(columns):
                code_batches.append(self.space.encode(self._label_values(batch), first_row=n_read))
                if self.user_column is not None:
                    user_batches.append(self._user_values(batch, n_read))
                n_read += batch.num_rows
                progress(batch.num_rows)
                yield batch.select(public_columns)

        identity = identify(self.file.path.name, self.label, read_public_batches())
        codes = np.concatenate(code_batches) if code_batches else np.empty(0, np.int8)
        if not codes.size:
            raise InputError(f"{self.file.path} has no rows.")
        choose_budget = budget_chooser(epsilon, delta, budget, delta_budget)
        users = None if self.user_column is None else encode_user_columns(user_batches)
        cap_labels_per_user(users, codes != MISSING, codes.size, labels_per_user)
        return Vault(EncodedLabels(codes), self.space, choose_budget, users=users, ledger=path, identity=identity)

    def read_user_ids(self) -> np.ndarray | None:
        """Read the number of the owner of each row; None without a column of users."""
        if self.user_column is None:
            return None
        user_batches, n_read = list[pa.Array](), 0
        for batch in self.file.batches([self.user_column]):
            user_batches.append(self._user_values(batch, n_read))
            n_read += batch.num_rows
        return encode_user_columns(user_batches)

    def read_public_codes(self) -> np.ndarray:
        """Read the labels of a benchmark. The caller declares them public."""
        code_batches, n_read = [], 0
        for batch in self.file.batches([self.label]):
            code_batches.append(self.space.encode(self._label_values(batch), first_row=n_read))
            n_read += batch.num_rows
        if not n_read:
            raise InputError(f"{self.file.path} has no rows.")
        return np.concatenate(code_batches)

    def replace_labels(self, batch: pa.RecordBatch, codes: np.ndarray) -> pa.RecordBatch:
        """Return a batch with released codes in place of its labels."""
        position, dtype = batch.schema.get_field_index(self.label), self.file.column_type(self.label)
        codes = pa.array(codes, mask=codes < 0)
        values = pa.DictionaryArray.from_arrays(codes, pa.array(self._file_classes())).dictionary_decode()
        if pa.types.is_dictionary(dtype):
            values = values.cast(dtype.value_type).dictionary_encode().cast(dtype)
        return batch.set_column(position, self.file.schema.field(self.label), values.cast(dtype))

    def _user_values(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        column = batch.column(self.user_column)
        is_missing = pc.equal(column, "") if self.file.path.suffix == ".csv" else pc.is_null(column, nan_is_null=True)
        if pc.any(is_missing).as_py():
            row = first_row + int(np.argmax(is_missing.to_numpy(zero_copy_only=False)))
            raise InputError(
                f"Row {row} (rows count from 0) has no user in column {self.user_column!r}: name an owner for each "
                "row, or drop it."
            )
        return column

    def check_label_type(self) -> None:
        """Check that the type of the label column can hold released labels."""
        if pa.types.is_integer(self.file.column_type(self.label)) and isinstance(self._file_classes()[0], float):
            raise InputError(f"Column {self.label!r} holds whole numbers: choose a range of whole numbers.")

    def _file_classes(self) -> list[Label]:
        """Return the classes as the file writes them: the whole numbers of a range as integers."""
        if self.space.step and all(float(value).is_integer() for value in self.space.classes):
            return [int(value) for value in self.space.classes]
        return list(self.space.classes)

    def _label_values(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self.label)
        if self.file.path.suffix == ".csv":
            is_missing = pc.is_in(column, pa.array(MISSING_NUMBERS if self.space.step else [""]))
            return pc.if_else(is_missing, None, column)
        return column


def encode_user_columns(arrays: list[pa.Array]) -> np.ndarray:
    """Return a code for each value of a column, numbered in order of first occurrence."""
    try:
        plain = [part.dictionary_decode() if pa.types.is_dictionary(part.type) else part for part in arrays]
        values = pa.chunked_array(plain).combine_chunks()
        if pa.types.is_floating(values.type):
            values = pc.add(values, 0.0)  # -0.0 is 0
        values = pc.dictionary_encode(values)
    except pa.ArrowException:
        raise InputError("Users must be named by texts, numbers or dates.") from None
    return np.asarray(values.indices, np.int64)


def check_total_budget(epsilon: float, total: float | None) -> None:
    """Check that a total covers epsilon, before it changes the budget of a data set."""
    if total is not None and 0 < total < epsilon:
        raise BudgetExceeded(f"This costs epsilon {epsilon:g}, and the budget shall be {total:g} in all: ask for less.")


def budget_chooser(
    epsilon: float, delta: float = 0.0, total_epsilon: float | None = None, total_delta: float | None = None
) -> BudgetChooser:
    """Return a function that chooses a budget: the given totals, else the ledger's budget, else epsilon and delta."""

    def choose_budget(ledger_budget: Budget | None) -> Budget:
        ledger_budget = ledger_budget or Budget(epsilon, delta)
        limit = ledger_budget.epsilon if total_epsilon is None else total_epsilon
        return Budget(limit, ledger_budget.delta if total_delta is None else total_delta, ledger_budget.composition)

    return choose_budget


def read_range(text: str, missing: Literal["error", "public"] = "error") -> LabelSpace:
    """Parse a range that is written as "low,high,step"."""
    try:
        low, high, step = (float(word) for word in text.split(","))
    except ValueError:
        raise InputError(
            "Write the range as three numbers, its ends and its step, separated by commas.", parameter="label_range"
        ) from None
    return LabelSpace.range(low, high, step, missing=missing)


def _parse_class(text: str, dtype: pa.DataType) -> Label:
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if pa.types.is_boolean(dtype):
        if text.lower() not in ("true", "false"):
            raise InputError("The label column holds booleans: declare the classes false,true.", parameter="classes")
        return text.lower() == "true"
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not number.is_integer():
            raise InputError(f"The label column holds numbers ({dtype}): declare the classes as integers.")
        return int(number)
    return text
