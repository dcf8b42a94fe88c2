"""Which columns of an Arrow table Polars can read, and in which type: Polars panics on the others."""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from labeldp.core.errors import InputError

_SCALARS = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_decimal,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def to_polars(batch: pa.RecordBatch) -> pl.DataFrame:
    """Return a batch as a Polars frame.

    Polars has no time zones by offset or of unknown names, no decimals of more than 38 digits, and no extension types.
    Such times become times in UTC, such decimals floats, and extension types what they are stored as.

    Args:
        batch: Public columns. Messages of Arrow and Polars can quote values, and the errors here name types alone.

    Raises:
        InputError: A column has a type that Polars cannot read, such as a map or a list view.
    """
    schema = pa.schema(map(_readable, batch.schema))
    columns = [_cast(column, field.type) for field, column in zip(schema, batch.columns, strict=True)]
    return pl.DataFrame(pa.record_batch(columns, schema=schema))


def polars_schema(schema: pa.Schema, columns: Sequence[str]) -> pl.Schema:
    """Return the types of some columns in Polars, without reading a row.

    Raises:
        InputError: A column has a type that Polars cannot read.
    """
    return pl.DataFrame(pa.schema(_readable(schema.field(name)) for name in columns).empty_table()).schema


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column if column.type == kind else column.cast(kind)


def _readable(field: pa.Field) -> pa.Field:
    """Return a column's field in a type that Polars reads."""
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_timestamp(kind) and not _plain(kind):
        kind = pa.timestamp(kind.unit)
    if pa.types.is_decimal256(kind):
        kind = pa.float64()
    if _plain(kind):
        return field if kind == field.type else pa.field(field.name, kind)
    raise InputError(
        f"Column {field.name!r} holds {field.type}, which is not read: leave it out (--leave-out), or write it as "
        "numbers, times or texts."
    )


def _plain(kind: pa.DataType) -> bool:
    """Whether Polars reads a type as it is, and the types inside it, too."""
    if pa.types.is_dictionary(kind) or any(is_list(kind) for is_list in _LISTS):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_plain(child.type) for child in kind)
    if pa.types.is_timestamp(kind):
        return kind.tz is None or _known_zone(kind.tz)
    if pa.types.is_decimal(kind):
        return not pa.types.is_decimal256(kind) and kind.scale >= 0
    return any(is_kind(kind) for is_kind in _SCALARS)


def _known_zone(name: str) -> bool:
    try:
        pl.Series([0]).cast(pl.Datetime("us", name))
    except pl.exceptions.PolarsError:
        return False
    return True
