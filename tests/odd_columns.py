"""Columns of many Arrow types, three rows each, with a missing value in the second where the type allows one."""

from decimal import Decimal

import pyarrow as pa

_DECIMALS = [Decimal("1.5"), None, Decimal("2.5")]
_INTEGERS = [1, None, 3]


def _extension(kind, values):
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


IN_PARQUET = {
    "int8": pa.array(_INTEGERS, pa.int8()),
    "uint64": pa.array([2**64 - 1, None, 1], pa.uint64()),
    "half float": pa.array([1.0, None, 2.0], pa.float16()),
    "double": pa.array([float("nan"), None, float("-inf")]),
    "boolean": pa.array([True, None, False]),
    "null": pa.nulls(3),
    "string": pa.array(["a", None, ""]),
    "large string": pa.array(["a", None, ""], pa.large_string()),
    "string view": pa.array(["a", None, "b"], pa.string_view()),
    "binary": pa.array([b"a", None, b"\xff"]),
    "large binary": pa.array([b"a", None, b"b"], pa.large_binary()),
    "binary view": pa.array([b"a", None, b"b"], pa.binary_view()),
    "fixed-size binary": pa.array([b"ab", None, b"bc"], pa.binary(2)),
    "date": pa.array(_INTEGERS, pa.date32()),
    "date64": pa.array([86_400_000, None, 0], pa.date64()),
    "time32": pa.array(_INTEGERS, pa.time32("ms")),
    "time64": pa.array(_INTEGERS, pa.time64("ns")),
    "duration": pa.array(_INTEGERS, pa.duration("s")),
    "timestamp": pa.array(_INTEGERS, pa.timestamp("s")),
    "timestamp far away": pa.array([2**62, None, -(2**62)], pa.timestamp("us")),
    "timestamp of a zone": pa.array(_INTEGERS, pa.timestamp("us", "Europe/Berlin")),
    "timestamp of an offset": pa.array(_INTEGERS, pa.timestamp("us", "+05:30")),
    "timestamp of an unknown zone": pa.array(_INTEGERS, pa.timestamp("us", "Mars/Base")),
    "decimal32": pa.array(_DECIMALS, pa.decimal32(5, 2)),
    "decimal64": pa.array(_DECIMALS, pa.decimal64(15, 2)),
    "decimal128": pa.array(_DECIMALS, pa.decimal128(38, 2)),
    "decimal256": pa.array(_DECIMALS, pa.decimal256(50, 2)),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "list": pa.array([[1], None, []]),
    "large list": pa.array([[1], None, []], pa.large_list(pa.int8())),
    "fixed-size list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
    "list view": pa.array([[1], None, []], pa.list_view(pa.int8())),
    "large list view": pa.array([[1], None, []], pa.large_list_view(pa.int8())),
    "list of dictionaries": pa.ListArray.from_arrays([0, 1, 2, 3], pa.array(["a", "b", "a"]).dictionary_encode()),
    "list of maps": pa.array([[[("a", 1)]], None, []], pa.list_(pa.map_(pa.string(), pa.int64()))),
    "map": pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": 2, "b": None}]),
    "struct of decimal256": pa.array(
        [{"a": Decimal(1)}, None, {"a": Decimal(2)}], pa.struct([("a", pa.decimal256(60, 0))])
    ),
    "uuid": _extension(pa.uuid(), [b"0" * 16, None, b"1" * 16]),
    "json": _extension(pa.json_(), ["1", None, "{}"]),
    "bool8": _extension(pa.bool8(), [1, None, 0]),
    "opaque": _extension(pa.opaque(pa.int32(), "kind", "vendor"), _INTEGERS),
    "tensor": _extension(pa.fixed_shape_tensor(pa.int32(), (2,)), [[1, 2], [3, 4], [5, 6]]),
}

NOT_IN_PARQUET = {
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    ),
    "run-end encoded": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", None])),
    "interval": pa.array([(1, 2, 3), None, (1, 2, 3)], pa.month_day_nano_interval()),
    "decimal of negative scale": pa.array([Decimal(100), None, Decimal(200)], pa.decimal128(5, -2)),
}
