from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import labeldp as ldp
from labeldp.data import files
from labeldp.data.files import TableFile

FRAME = pl.DataFrame({"zip": ["007", "a,b", 'say "hi"'], "n": [1, 2, 3], "y": ["no", "yes", None]})


@pytest.fixture
def csv(tmp_path):
    FRAME.write_csv(tmp_path / "t.csv")
    return tmp_path / "t.csv"


@pytest.fixture
def parquet(tmp_path):
    FRAME.write_parquet(tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_a_csv_is_copied_as_it_is_written(csv, tmp_path):
    TableFile(csv).rewrite(tmp_path / "copy.csv", lambda batch: batch, "y", {})
    assert pl.read_csv(tmp_path / "copy.csv", infer_schema=False).equals(pl.read_csv(csv, infer_schema=False))
    assert "007" in (tmp_path / "copy.csv").read_text()


def test_a_parquet_keeps_types_and_codec_and_gains_facts(parquet, tmp_path):
    import pyarrow.parquet as pq

    TableFile(parquet).rewrite(tmp_path / "copy.parquet", lambda batch: batch, "y", {"k": "v"})
    copy = pq.ParquetFile(tmp_path / "copy.parquet")
    assert pl.read_parquet(tmp_path / "copy.parquet").equals(FRAME)
    assert copy.schema_arrow.metadata[b"k"] == b"v"
    assert copy.metadata.row_group(0).column(0).compression == "ZSTD"  # as Polars wrote it


def test_batches_of_chosen_columns(csv, parquet):
    for path in (csv, parquet):
        table = pa.Table.from_batches(list(TableFile(path).batches(["y", "n"])))
        assert table.column_names == ["y", "n"]
        assert table.num_rows == 3


def test_what_a_file_says_of_itself_and_of_the_label_is_left_behind(tmp_path):
    import pyarrow.parquet as pq

    label = pa.field("y", pa.string(), metadata={"stats": "no=5"})
    feature = pa.field("x", pa.int64(), metadata={"unit": "m"})
    table = pa.table([pa.array([1]), pa.array(["no"])], schema=pa.schema([feature, label], {"class_counts": "no=5"}))
    pq.write_table(table, tmp_path / "t.parquet")
    TableFile(tmp_path / "t.parquet").rewrite(tmp_path / "copy.parquet", lambda batch: batch, "y", {"k": "v"})
    raw = (tmp_path / "copy.parquet").read_bytes()
    assert b"no=5" not in raw
    schema = pq.read_schema(tmp_path / "copy.parquet")
    assert schema.field("x").metadata[b"unit"] == b"m"
    assert schema.metadata == {b"k": b"v"}


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(ldp.InputError, match="two columns of one name"):
        TableFile(tmp_path / "t.csv")


def test_nothing_is_left_when_writing_fails(parquet, tmp_path):
    def fail(batch):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        TableFile(parquet).rewrite(tmp_path / "copy.parquet", fail, "y", {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.parquet"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_rehearsal_writes_every_batch_and_leaves_nothing(request, kind, tmp_path):
    path, seen = request.getfixturevalue(kind), []

    def change(batch):
        seen.append(batch.num_rows)
        return batch

    TableFile(path).rehearse(tmp_path / "copy", change, "y", {}, min_rows=7)
    assert seen == [9]  # three rows, as often as seven need
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_rehearsal_that_fails_is_one_sentence(parquet, tmp_path):
    def fail(batch):
        raise pa.ArrowInvalid("a value")

    with pytest.raises(ldp.InputError, match=r"A copy of .* cannot be written \(ArrowInvalid\)") as caught:
        TableFile(parquet).rehearse(tmp_path / "copy.parquet", fail, "y", {})
    assert caught.value.__context__ is None
    assert [p.name for p in tmp_path.iterdir()] == [parquet.name]


def test_a_name_with_a_point_is_no_part_of_another_column(tmp_path):
    pl.DataFrame({"a": [1], "a.b": [2]}).write_parquet(tmp_path / "t.parquet")
    assert [batch.schema.names for batch in TableFile(tmp_path / "t.parquet").batches(["a"])] == [["a"]]


def test_texts_of_a_csv_may_hold_lines(tmp_path, monkeypatch):
    monkeypatch.setitem(files._CSV, "read_options", pa.csv.ReadOptions(block_size=64))
    rows = [f"{'x' * (i % 9)}\n{i}" for i in range(50)]
    pl.DataFrame({"a": rows, "y": ["no"] * 50}).write_csv(tmp_path / "t.csv")
    frames = list(TableFile(tmp_path / "t.csv").frames(["a"]))
    assert len(frames) > 1
    assert pl.concat(frames)["a"].to_list() == rows


def test_bad_paths(tmp_path, csv):
    (tmp_path / "note.txt").write_text("x")
    with pytest.raises(ldp.InputError, match="There is no file"):
        TableFile(tmp_path / "absent.csv")
    with pytest.raises(ldp.InputError, match="is a folder: name a file"):
        TableFile(tmp_path)
    with pytest.raises(ldp.InputError, match=r"must be a \.csv or a \.parquet"):
        TableFile(tmp_path / "note.txt")
    with pytest.raises(ldp.InputError, match="no column 'age': it has zip, n, y"):
        TableFile(csv).column_type("age")


def test_another_separator_is_noticed(tmp_path):
    (tmp_path / "t.csv").write_text("age;income\n1;2\n")
    with pytest.raises(ldp.InputError, match="Its fields seem to be apart by ';': write commas"):
        TableFile(tmp_path / "t.csv").column_type("income")


def test_a_damaged_file_is_not_quoted(tmp_path):
    secret = tmp_path / "t.csv"
    secret.write_text("a,y\n1,no\n2,SECRET,extra\n")
    with pytest.raises(ldp.InputError, match="UTF-8 text with a header") as caught:
        list(TableFile(secret).batches())
    chain = [caught.value, caught.value.__cause__, caught.value.__context__]
    assert not any("SECRET" in str(problem) for problem in chain)
    broken = tmp_path / "t.parquet"
    broken.write_bytes(b"PAR1 nonsense")
    with pytest.raises(ldp.InputError, match="a whole Parquet file"):
        TableFile(Path(broken))
