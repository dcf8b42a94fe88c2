from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from odd_columns import IN_PARQUET

from labeldp.privacy.vault import Ledger

CODECS = [
    "NONE",
    *(name for name in ("SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD") if pa.Codec.is_available(name.lower())),
]
LABELS = ["no", "yes", "no"]


@pytest.fixture
def privatize(labeldp):
    def run(table, classes="no,yes", *more, **how):
        pq.write_table(table, "t.parquet", **how)
        words = ("privatize", "t.parquet", "--label", "y", "--classes", classes, "--epsilon", 1, "--out", "o.parquet")
        return labeldp(*words, *more)

    return run


def nothing_charged():
    ledger = Path("t.parquet.ledger")
    return not ledger.exists() or not Ledger(ledger).entries()


def left_behind():
    return [path.name for path in Path().iterdir() if "partial" in path.name]


@pytest.mark.parametrize("codec", [*CODECS, {"x": "GZIP", "y": "NONE"}, {"x": "NONE", "y": "ZSTD"}], ids=str)
def test_every_codec_is_copied(privatize, codec):
    code, _, err = privatize(pa.table({"x": [1, 2, 3], "y": LABELS}), compression=codec)
    assert (code, err) == (0, "")
    assert pq.read_table("o.parquet")["x"].to_pylist() == [1, 2, 3]
    first = codec if isinstance(codec, str) else codec["x"]
    found = pq.ParquetFile("o.parquet").metadata.row_group(0).column(0).compression
    assert found == {"NONE": "UNCOMPRESSED"}.get(first, first)
    assert not left_behind()


@pytest.mark.parametrize("name", IN_PARQUET)
@pytest.mark.parametrize("ids", [(), ("--ids", "id")], ids=["all", "ids"])
def test_columns_of_every_type_are_copied(privatize, name, ids):
    table = pa.table({"id": [1, 2, 3], "x": IN_PARQUET[name], "y": LABELS})
    code, _, err = privatize(table, "no,yes", *ids, compression="NONE")
    assert (code, err) == (0, "")
    copied, given = pq.read_table("o.parquet"), pq.read_table("t.parquet")
    assert copied.schema.field("x").type == given.schema.field("x").type
    assert str(copied["x"]) == str(given["x"])


LABEL_COLUMNS = {
    "large string": (pa.array(LABELS, pa.large_string()), "no,yes"),
    "string view": (pa.array(LABELS, pa.string_view()), "no,yes"),
    "dictionary": (pa.array(LABELS).dictionary_encode(), "no,yes"),
    "small dictionary": (pa.array(LABELS).cast(pa.dictionary(pa.int8(), pa.string())), "no,yes"),
    "ordered dictionary": (pa.array(LABELS).cast(pa.dictionary(pa.int8(), pa.string(), ordered=True)), "no,yes"),
    "boolean": (pa.array([True, False, True]), "false,true"),
    "int8": (pa.array([0, 1, 0], pa.int8()), "0,1"),
    "uint8": (pa.array([0, 255, 0], pa.uint8()), "0,255"),
    "int8 too small": (pa.array([0, 1, 0], pa.int8()), "0,1,1000"),
    "float": (pa.array([0.0, 1.0, 0.0], pa.float32()), "0,1"),
    "half float": (pa.array([0.0, 1.0, 0.0], pa.float16()), "0,1"),
    "decimal": (pa.array([Decimal(0), Decimal(1), Decimal(0)], pa.decimal128(5, 0)), "0,1"),
    "date": (pa.array([0, 1, 0], pa.date32()), "1970-01-01,1970-01-02"),
    "binary": (pa.array([b"no", b"yes", b"no"]), "no,yes"),
    "list": (pa.array([["no"], ["yes"], ["no"]]), "no,yes"),
    "null": (pa.nulls(3), "no,yes"),
    "json": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["0", "1", "0"])), "0,1"),
    "more classes than a small dictionary has codes": (
        pa.array(LABELS).cast(pa.dictionary(pa.int8(), pa.string())),
        ",".join(["no", "yes", *map(str, range(200))]),
    ),
}


@pytest.mark.parametrize("name", LABEL_COLUMNS)
def test_labels_of_every_type_are_written_or_refused_before_the_charge(privatize, name):
    labels, classes = LABEL_COLUMNS[name]
    code, _, err = privatize(pa.table({"x": [1, 2, 3], "y": labels}), classes)
    if code == 0:
        assert pq.read_schema("o.parquet").field("y").type == pq.read_schema("t.parquet").field("y").type
        assert {str(value.as_py()).lower() for value in pq.read_table("o.parquet")["y"]} <= _words(classes)
    else:
        assert (code, err.count("\n")) == (2, 1)
        assert nothing_charged()
        assert not Path("o.parquet").exists()
    if "small" in name and name != "small dictionary":
        assert "Column 'y' holds " in err
        assert "which cannot hold every declared class" in err
    assert not left_behind()


def _words(classes):
    return {word for text in classes.split(",") for word in (text, f"{text}.0", str(text.encode()))}


def test_a_required_label_may_be_missing_from_the_copy(privatize):
    schema = pa.schema([("who", pa.string()), ("x", pa.int64()), pa.field("y", pa.string(), nullable=False)])
    table = pa.table([["a", "a", "b"], [1, 2, 3], LABELS], schema=schema)
    code, _, _ = privatize(table, "no,yes", "--user-column", "who", "--labels-per-user", 1)
    assert code == 0
    assert pq.read_table("o.parquet")["y"].null_count == 1


@pytest.mark.parametrize("ids", [(), ("--ids", "id")], ids=["all", "ids"])
def test_a_damaged_feature_is_noticed_before_the_charge(labeldp, ids):
    lines = [b"id,x,y", *(b"%d,fine,no" % i for i in range(50)), b"50,\xff,yes"]
    Path("t.csv").write_bytes(b"\n".join(lines) + b"\n")
    words = ("privatize", "t.csv", "--label", "y", "--classes", "no,yes", "--epsilon", 1, "--out", "o.csv")
    code, _, err = labeldp(*words, *ids)
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot be read" in err
    assert not Path("t.csv.ledger").exists() or not Ledger("t.csv.ledger").entries()


def test_a_name_with_a_point_is_not_part_of_another_column(privatize):
    table = pa.table({"a": [1, 2, 3], "a.b": [4, 5, 6], "y": LABELS})
    code, _, err = privatize(table, "no,yes", "--leave-out", "a.b")
    assert (code, err) == (0, "")
    assert pq.read_schema("o.parquet").names == ["a", "y"]
