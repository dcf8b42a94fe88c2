"""The identity of a data set: digests of its public columns. A changed label opens the same ledger."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.core.errors import InputError

# Rows hashed at once. The digest must not depend on the batches of the source.
_ROWS_PER_BLOCK = 1 << 16


@dataclass(frozen=True)
class Identity:
    """The rows that a ledger counts for, and the name of their label.

    Attributes:
        name: The name of the data set. It identifies data sets without a digest.
        label: The name of the label. All labels of the same rows share a ledger, and their costs add up. None for a
            label without a name, which matches every name.
        n_rows: The number of rows.
        digest: A digest of the row ids or features, in order.
        column_digests: A digest of each of these columns.
    """

    name: str
    label: str | None
    n_rows: int
    digest: str | None = None
    column_digests: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.label, str) and any("\ud800" <= character <= "\udfff" for character in self.label):
            raise InputError("The name of the label holds a character that cannot be stored: give it another name.")

    def has_same_rows(self, other: "Identity") -> bool:
        """Whether these are the rows of `other`, in their order; their labels may differ.

        Digests are compared, because a name may change. A subset of the columns is not enough: a table without the
        other columns may have another row order, and costs of one person would be counted for another. Only the column
        that is the label here may be missing, because a label does not identify rows.

        Args:
            other: The identity that a ledger is bound to.
        """
        if self.n_rows != other.n_rows:
            return False
        if self.digest is None or other.digest is None:
            return self.digest == other.digest and self.name == other.name
        if self.digest == other.digest:
            return True
        other_columns = {name: digest for name, digest in (other.column_digests or {}).items() if name != self.label}
        return bool(other_columns) and dict(self.column_digests or {}) == other_columns

    def to_json(self) -> dict[str, Any]:
        """Describe the identity; `Identity(**data)` reads it back."""
        return asdict(self)


def identify(name: str, label: str | None, batches: Iterable[pa.RecordBatch]) -> Identity:
    """Identify a data set by its public columns: features, or row ids alone. The label is skipped.

    Raises:
        InputError: A column has a type that has no digest, such as a union.
    """
    digests, n_rows = defaultdict[str, Any](hashlib.sha256), 0
    for batch in _rechunk(batches):
        n_rows += batch.num_rows
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name != label:
                _update_digest(digests[field.name], field, column)
    column_digests = {column: digests[column].hexdigest() for column in sorted(digests)}
    return Identity(
        name, label, n_rows, hashlib.sha256(json.dumps(column_digests).encode()).hexdigest(), column_digests
    )


def _update_digest(digest: Any, field: pa.Field, column: pa.Array) -> None:
    try:
        for part in _canonical_bytes(column):
            digest.update(part)
        return
    except pa.ArrowException:
        pass
    raise InputError(
        f"Column {field.name!r} holds {field.type}, which cannot identify rows: exclude the column, or write it as "
        "numbers, times or texts.",
        parameter="excluded_columns",
    )


def _rechunk(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        while sum(b.num_rows for b in pending) >= _ROWS_PER_BLOCK:
            table = pa.Table.from_batches(pending).combine_chunks()
            yield table.slice(0, _ROWS_PER_BLOCK).to_batches()[0]
            pending = table.slice(_ROWS_PER_BLOCK).to_batches()
    if sum(b.num_rows for b in pending):
        yield pa.Table.from_batches(pending).combine_chunks().to_batches()[0]


def _canonical_bytes(column: pa.Array) -> Iterator[Any]:
    """Yield bytes that depend on values and number types, not on the memory layout of Arrow."""
    dtype = column.type
    if isinstance(dtype, pa.BaseExtensionType) and pa.types.is_nested(dtype.storage_type):
        yield from _canonical_bytes(column.storage)
        return
    if pa.types.is_map(dtype):
        pairs = pa.struct([pa.field("key", dtype.key_type), pa.field("value", dtype.item_type)])
        yield from _canonical_bytes(column.cast(pa.list_(pairs)))
        return
    if pa.types.is_dictionary(dtype):
        values = column.dictionary
        plain_values = values.cast(pa.large_string()) if pa.types.is_string_view(values.type) else values
        yield from _canonical_bytes(plain_values.take(column.indices))
        return
    is_numeric = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_boolean(dtype)
    yield f"{'number' if is_numeric else 'other'}\0{column.null_count}\0".encode()
    if column.null_count:
        yield np.packbits(column.is_valid().to_numpy(zero_copy_only=False))
    if is_numeric:
        yield np.ascontiguousarray(pc.fill_null(column, False if pa.types.is_boolean(dtype) else 0)).view(np.uint8)
    elif pa.types.is_struct(dtype):
        for field, child in zip(dtype, column.flatten(), strict=True):
            yield f"{field.name}\0".encode()
            yield from _canonical_bytes(child)
    elif pa.types.is_nested(dtype):
        lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
        yield np.ascontiguousarray(lengths).view(np.uint8)
        yield from _canonical_bytes(column.flatten())
    else:
        yield from _canonical_text_bytes(column)


def _canonical_text_bytes(column: pa.Array) -> Iterator[Any]:
    """Yield the bytes of text, binary values and other values with a text form (dates, decimals)."""
    if "binary" in str(column.type):
        values = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
    else:
        values = _as_text(column)
    values = pc.fill_null(values.cast(pa.large_binary()), b"")
    yield np.ascontiguousarray(pc.binary_length(values)).view(np.uint8)
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    yield memoryview(data or b"")[edges[0] : edges[-1]]


def _as_text(column: pa.Array) -> pa.Array:
    """Cast dates, decimals and similar values to text; times of an unknown time zone are written in UTC."""
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(column.type):
            raise
        return column.cast(pa.timestamp(column.type.unit)).cast(pa.large_string())
