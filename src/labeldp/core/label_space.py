"""The declared set of possible labels, and the encoding of labels as integer codes."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labeldp.core.errors import InputError

Label: TypeAlias = str | bool | int | float
Codes = NDArray[np.signedinteger]

MISSING = -1
# Values of a range, all of which are held in memory.
_MAX_RANGE_VALUES = 1_000_000


class EncodedLabels(NamedTuple):
    """Codes of a column that was encoded batch by batch because it is too large to hold as values."""

    codes: Codes


@dataclass(frozen=True, init=False, eq=False)
class LabelSpace:
    """The classes that a label can take, declared before any label is read.

    Inferring the classes from the data would reveal whether a rare class occurs. Labels are encoded as positions in
    `classes`, with -1 for a missing label.

    Attributes:
        classes: The classes, in the declared order.
        ordered: Whether the classes rise from the first to the last, as ratings do.
        missing: "public" if it is public which labels are missing: such rows are unlabeled. With "error", a missing
            label is an error.
        step: The step of a numeric range; None for classes.

    >>> LabelSpace(["no", "yes"]).encode(["yes", "no"]).tolist()
    [1, 0]
    """

    classes: tuple[Label, ...]
    ordered: bool
    missing: Literal["error", "public"]
    step: float | None

    def __init__(
        self,
        classes: Sequence[Label],
        *,
        ordered: bool = False,
        missing: Literal["error", "public"] = "error",
        _step: float | None = None,
    ) -> None:
        if isinstance(classes, str | bytes) or not (isinstance(classes, Sequence) or hasattr(classes, "__array__")):
            raise InputError('Declare the classes as a list, for example LabelSpace(["no", "yes"]).')
        values = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
        if len({type(c) for c in values}) > 1 or not all(isinstance(c, str | bool | int | float) for c in values):
            raise InputError("Declare classes of one type: strings, integers or booleans.")
        if len(values) < 2:
            raise InputError("Declare at least two classes: one class alone says nothing about a row.")
        if len(set(values)) < len(values):
            raise InputError("Declare each class once: a class is repeated.")
        if not all(_is_storable(c) for c in values):
            raise InputError("A declared class cannot be stored: use integers of 64 bits, or text without NUL.")
        if missing not in ("error", "public"):
            raise InputError('Set missing to "error" or to "public".')
        if _step is None and isinstance(values[0], float):
            raise InputError("Declare numbers as a range: LabelSpace.range(low, high, step).")
        for name, value in dict(classes=values, ordered=ordered, missing=missing, step=_step).items():
            object.__setattr__(self, name, value)

    @classmethod
    def range(
        cls, low: float, high: float, step: float, *, missing: Literal["error", "public"] = "error"
    ) -> "LabelSpace":
        """Return the space of the numbers from `low` to `high`; labels are rounded to the nearest `low` + n `step`."""
        if not (all(map(math.isfinite, (low, high, step))) and low < high and step > 0):
            raise InputError("A range needs finite low < high and a step above zero.")
        if (high - low) / step > _MAX_RANGE_VALUES:
            raise InputError(f"A range may have {_MAX_RANGE_VALUES:,} values at most: choose a larger step.")
        n_values = round((high - low) / step) + 1
        if not math.isclose(low + (n_values - 1) * step, high, rel_tol=1e-9, abs_tol=step * 1e-6):
            raise InputError("The range must be a whole number of steps: choose a step that divides it.")
        return cls(np.linspace(low, high, n_values).tolist(), ordered=True, missing=missing, _step=float(step))

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def class_values(self) -> NDArray[np.float64] | None:
        """The classes as increasing numbers if they are declared as ordered and numeric; else None."""
        try:
            values = np.array(self.classes, np.float64) if self.ordered else np.empty(0)
        except ValueError:
            return None
        return values if values.size and np.isfinite(values).all() and (np.diff(values) > 0).all() else None

    def __eq__(self, other: object) -> bool:
        # Compared as JSON because 1 == True in Python, and a class of numbers is not one of booleans.
        return isinstance(other, LabelSpace) and json.dumps(self.to_json()) == json.dumps(other.to_json())

    def __hash__(self) -> int:
        return hash(self.classes)

    def __iter__(self) -> Iterator[Label]:
        return iter(self.classes)

    def encode(self, labels: Any, *, first_row: int = 0) -> Codes:
        """Encode labels as codes.

        Args:
            labels: A list, or a column of NumPy, pandas, Polars or Arrow.
            first_row: The row number of the first label in its table, for messages.

        Raises:
            InputError: A label is missing, of another type, or not declared.
        """
        if isinstance(labels, EncodedLabels):
            if labels.codes.size and not MISSING <= labels.codes.min() <= labels.codes.max() < len(self):
                raise InputError("The encoded labels do not belong to these classes.")
            return labels.codes
        column = _to_arrow(labels)
        is_missing = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
        codes = self._encode_number(column, self.step) if self.step else self._encode_class(column)
        codes[is_missing] = MISSING
        if self.missing == "error" and is_missing.any():
            raise InputError(
                f"A label is missing, first in row {first_row + int(is_missing.argmax())} (rows count from 0): fill "
                'it, drop the row, or declare public which labels are missing: missing="public" of a LabelSpace.',
                parameter="missing",
            )
        is_undeclared = (codes == MISSING) & ~is_missing
        if is_undeclared.any():
            position = f"first in row {first_row + int(is_undeclared.argmax())} (rows count from 0)"
            if self.step:
                raise InputError(
                    f"A label is outside the declared range, {position}: correct it, or declare a range that holds it."
                )
            raise InputError(
                f"A label is outside the declared classes, {position}: correct it or declare its class (case, spaces "
                "and decimals count; quote a class that holds a comma)."
            )
        return codes

    def decode(self, codes: NDArray[np.integer]) -> NDArray[Any]:
        """Decode codes as labels; a missing label becomes None."""
        codes = np.asarray(codes)
        values = np.array(self.classes)
        if codes.size and not MISSING <= codes.min() <= codes.max() < len(self):
            raise InputError(f"Codes run from 0 to {len(self) - 1}, with -1 for a missing label.")
        if (codes != MISSING).all():
            return values[codes]
        return np.array([*self.classes, None], object)[codes]

    def to_json(self) -> dict[str, Any]:
        """Describe the space; `from_json` reads it back."""
        return {
            "classes": list(self.classes),
            "ordered": self.ordered,
            "missing": self.missing,
            "step": self.step,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "LabelSpace":
        """Read what `to_json` wrote."""
        return cls(data["classes"], ordered=data["ordered"], missing=data["missing"], _step=data["step"])

    def _dtype(self) -> np.dtype[np.signedinteger]:
        return np.dtype(np.int8 if len(self) < 128 else np.int16 if len(self) < 1 << 15 else np.int32)

    def _encode_class(self, column: pa.Array) -> Codes:
        declared = pa.array(self.classes)
        value_set = _cast(declared, column.type)
        if value_set is None or not declared.equals(_cast(value_set, declared.type)):
            if column.null_count < len(column):  # a column without any label has no type to fit
                raise InputError(
                    f"The declared classes have type {declared.type} and the labels another one: declare the classes "
                    "in the type of the column."
                )
            value_set = pa.array([], column.type)
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # -0.0 is 0
        codes = pc.fill_null(pc.index_in(column, value_set=value_set), MISSING)
        return np.array(codes.to_numpy(zero_copy_only=False), self._dtype())

    def _encode_number(self, column: pa.Array, step: float) -> Codes:
        values = _cast(column, pa.float64())
        if values is None:
            raise InputError(
                "The declared range needs labels that are numbers: correct those that are not, or declare classes."
            )
        values = values.to_numpy(zero_copy_only=False)
        low, high = float(self.classes[0]), float(self.classes[-1])
        in_range = (values >= low) & (values <= high)
        steps = np.rint((np.where(in_range, values, low) - low) / step)
        return np.where(in_range, steps, MISSING).astype(self._dtype())


def _is_storable(label: Label) -> bool:
    try:
        pa.array([label])
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return "\0" not in label if isinstance(label, str) else True


# Arrow's messages can quote a label, and an exception that is raised while another is handled has that one as its
# context. So these functions return None, and the caller raises outside the handler.


def _cast(column: pa.Array, dtype: pa.DataType) -> pa.Array | None:
    try:
        return column.cast(dtype)
    except pa.ArrowException:
        return None


def _try_to_arrow(labels: Any) -> pa.Array | None:
    try:
        column = labels.to_arrow() if hasattr(labels, "to_arrow") else labels
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            column = pa.array(column, from_pandas=True)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            values = column.dictionary
            is_text = pa.types.is_string_view(values.type)
            column = (values.cast(pa.large_string()) if is_text else values).take(column.indices)
        if pa.types.is_float16(column.type):
            column = column.cast(pa.float32())
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        pc.index_in(column.slice(0, 1), value_set=column.slice(0, 0))  # fails for types that Arrow cannot compare
        return column
    except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None


def _to_arrow(labels: Any) -> pa.Array:
    if getattr(labels, "ndim", 1) != 1 or isinstance(labels, str | bytes | set | frozenset | dict):
        raise InputError("Labels must be one column, in the order of the rows.")
    column = _try_to_arrow(labels)
    if column is None:
        raise InputError("The labels are not one column of one type: pass strings, integers or booleans.")
    return column
