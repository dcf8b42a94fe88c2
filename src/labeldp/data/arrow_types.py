"""Conversion of Arrow columns to types that Polars can read; Polars panics on other types."""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from labeldp.core.errors import InputError

_SCALAR_TESTS = (
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
_LIST_TESTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def to_polars(batch: pa.RecordBatch) -> pl.DataFrame:
    """Return a batch as a Polars frame.

    Polars supports no time zones by offset or of unknown names, no decimals of more than 38 digits, and no extension
    types. Such times are converted to UTC, such decimals to floats, and extension types to their storage types.

    Args:
        batch: Public columns. Messages of Arrow and Polars can quote values; the errors here name types only.

    Raises:
        InputError: A column has a type that Polars cannot read, such as a map or a list view.
    """
    schema = pa.schema(map(_readable_field, batch.schema))
    columns = [_cast(column, field.type) for field, column in zip(schema, batch.columns, strict=True)]
    return pl.DataFrame(pa.record_batch(columns, schema=schema))


def polars_schema(schema: pa.Schema, columns: Sequence[str]) -> pl.Schema:
    """Return the Polars types of some columns, without reading a row.

    Raises:
        InputError: A column has a type that Polars cannot read.
    """
    return pl.DataFrame(pa.schema(_readable_field(schema.field(name)) for name in columns).empty_table()).schema


def _cast(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column if column.type == dtype else column.cast(dtype)


def _readable_field(field: pa.Field) -> pa.Field:
    """Return a column's field in a type that Polars reads."""
    dtype = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_timestamp(dtype) and not _is_readable(dtype):
        dtype = pa.timestamp(dtype.unit)
    if pa.types.is_decimal256(dtype):
        dtype = pa.float64()
    if _is_readable(dtype):
        return field if dtype == field.type else pa.field(field.name, dtype)
    raise InputError(
        f"Column {field.name!r} holds {field.type}, which is not read: leave it out, or write it as numbers, times or "
        "texts.",
        parameter="excluded_columns",
    )


def _is_readable(dtype: pa.DataType) -> bool:
    """Whether Polars reads a type, and the types that it contains, without conversion."""
    if pa.types.is_dictionary(dtype) or any(is_list(dtype) for is_list in _LIST_TESTS):
        return _is_readable(dtype.value_type)
    if pa.types.is_struct(dtype):
        return all(_is_readable(child.type) for child in dtype)
    if pa.types.is_timestamp(dtype):
        return dtype.tz is None or _is_known_zone(dtype.tz)
    if pa.types.is_decimal(dtype):
        return not pa.types.is_decimal256(dtype) and dtype.scale >= 0
    return any(is_scalar(dtype) for is_scalar in _SCALAR_TESTS)


def _is_known_zone(name: str) -> bool:
    try:
        pl.Series([0]).cast(pl.Datetime("us", name))
    except pl.exceptions.PolarsError:
        return False
    return True
