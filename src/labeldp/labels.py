"""The declared set of labels: what may occur, never what does occur."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labeldp.errors import InputError

Label: TypeAlias = str | bool | int | float
Codes = NDArray[np.signedinteger]

MISSING = -1


@dataclass(frozen=True, init=False)
class LabelSpace:
    """The classes that a label can take, declared before any label is seen.

    Inferring classes from the data would reveal that a rare class occurs. With `missing="public"` a missing
    label is a public fact: the row is unlabelled. Otherwise it is an error. Labels are held as codes,
    positions in `classes`, with -1 for a missing one.

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
        if isinstance(classes, str) or not hasattr(classes, "__iter__"):
            raise InputError('Declare the classes as a list, for example LabelSpace(["no", "yes"]).')
        plain = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
        if len({type(c) for c in plain}) > 1 or not all(isinstance(c, str | bool | int | float) for c in plain):
            raise InputError("Declare classes of one type: strings, integers or booleans.")
        if len(plain) < 2:
            raise InputError("Declare at least two classes: one class alone says nothing about a row.")
        if len(set(plain)) < len(plain):
            raise InputError("Declare each class once: a class is repeated.")
        if missing not in ("error", "public"):
            raise InputError('Set missing to "error" or to "public".')
        if _step is None and isinstance(plain[0], float):
            raise InputError("Declare numbers as a range: LabelSpace.range(low, high, step).")
        for name, value in dict(classes=plain, ordered=ordered, missing=missing, step=_step).items():
            object.__setattr__(self, name, value)

    @classmethod
    def range(
        cls, low: float, high: float, step: float, *, missing: Literal["error", "public"] = "error"
    ) -> "LabelSpace":
        """Numbers from `low` to `high`, held to the nearest multiple of `step` above `low`."""
        if not (all(map(math.isfinite, (low, high, step))) and low < high and step > 0):
            raise InputError("A range needs finite low < high and a step above zero.")
        count = round((high - low) / step) + 1
        if not math.isclose(low + (count - 1) * step, high, rel_tol=1e-9, abs_tol=step * 1e-6):
            raise InputError("The range must be a whole number of steps: choose a step that divides it.")
        grid = [float(low + i * step) for i in range(count)]
        return cls(grid, ordered=True, missing=missing, _step=float(step))

    def __len__(self) -> int:
        return len(self.classes)

    def __iter__(self) -> Iterator[Label]:
        return iter(self.classes)

    def encode(self, labels: Any) -> Codes:
        """Turn labels (list, NumPy, pandas, Polars or Arrow) into codes, or say that they do not fit."""
        column = _to_arrow(labels)
        absent = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
        codes = self._encode_number(column, self.step) if self.step else self._encode_class(column)
        codes[absent] = MISSING
        if self.missing == "error" and absent.any():
            raise InputError(
                f"A label is missing, first in row {int(absent.argmax())}: fill it, drop the row, or declare "
                'missing labels public with missing="public".'
            )
        outside = (codes == MISSING) & ~absent
        if outside.any():
            raise InputError(
                f"A label is outside the declared classes, first in row {int(outside.argmax())}: correct it or "
                "declare its class."
            )
        return codes

    def decode(self, codes: NDArray[np.integer]) -> NDArray[Any]:
        """Turn codes back into labels; a missing one becomes None."""
        codes = np.asarray(codes)
        values = np.array(self.classes)
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
        try:
            fitted = declared.cast(column.type)
            same = fitted.cast(declared.type).equals(declared)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            same = column.null_count == len(column)  # a column without any label has no type to fit
            fitted = pa.array([], column.type)
        if not same:
            raise InputError(
                f"The labels have type {column.type} and the declared classes {declared.type}: "
                "declare the classes in the type of the column."
            )
        codes = pc.fill_null(pc.index_in(column, value_set=fitted), MISSING)
        return np.array(codes.to_numpy(zero_copy_only=False), self._dtype())

    def _encode_number(self, column: pa.Array, step: float) -> Codes:
        try:
            numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(f"The labels have type {column.type}, and the declared range needs numbers.") from None
        low, high = float(self.classes[0]), float(self.classes[-1])
        inside = (numbers >= low) & (numbers <= high)
        steps = np.rint((np.where(inside, numbers, low) - low) / step)
        return np.where(inside, steps, MISSING).astype(self._dtype())


def _to_arrow(labels: Any) -> pa.Array:
    if hasattr(labels, "to_arrow"):
        labels = labels.to_arrow()
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise InputError(f"Labels must be one column; these have {labels.ndim} dimensions.")
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    try:
        column = labels if isinstance(labels, pa.Array) else pa.array(labels, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError):
        # The original message can quote a label.
        raise InputError("The labels are not of one type: pass a column of strings, integers or booleans.") from None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
