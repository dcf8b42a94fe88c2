import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from odd_columns import IN_PARQUET

import labeldp as ldp
from labeldp.data import Table, files
from labeldp.data.files import TableFile
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.runs.config import TrainConfig
from labeldp.runs.feature_files import find_image_column, read_columns
from labeldp.runs.predict import predict as predict_run
from labeldp.runs.training import train_to_folder as train_run


def test_columns_come_in_the_order_asked_for_and_texts_stay_texts(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,01,NA\n2,02,3.5\n")
    file = TableFile(tmp_path / "t.csv")
    frame = read_columns(file, ["c", "b", "a"], text_columns=["b"])
    assert frame.columns == ["c", "b", "a"]
    assert frame["b"].to_list() == ["01", "02"]
    assert frame["c"].to_list() == [None, 3.5]
    assert read_columns(file, ["c"], text_columns=["c"])["c"].to_list() == ["NA", "3.5"]
    with pytest.raises(ldp.InputError, match="lacks the column 'd'"):
        read_columns(file, ["d"])


@pytest.mark.parametrize("words", [["NA", "NA"], ["NA", "x"], ["1", "x"]])
def test_words_alone_are_no_numbers(tmp_path, words):
    (tmp_path / "t.csv").write_text("a\n" + "\n".join(words) + "\n")
    assert read_columns(TableFile(tmp_path / "t.csv"), ["a"])["a"].dtype == pl.String


@pytest.mark.parametrize(
    ("words", "kind", "values"),
    [
        (["1", "", "007"], pl.Int64, [1, None, 7]),
        (["1", "+2.5", "1e3"], pl.Float64, [1.0, 2.5, 1000.0]),
        (["1", "NA", "3"], pl.Float64, [1.0, None, 3.0]),
        (["99999999999999999999", "1", "2"], pl.Float64, [1e20, 1.0, 2.0]),
        (["True", "false", "TRUE"], pl.Boolean, [True, False, True]),
        (["true", "1", "false"], pl.String, ["true", "1", "false"]),
        (["true", "NA", "false"], pl.String, ["true", "NA", "false"]),
        (["NA", "", "NA"], pl.String, ["NA", None, "NA"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [16, 1 << 24], ids=["batches", "one batch"])
def test_types_of_a_csv_are_those_of_all_rows(tmp_path, monkeypatch, words, kind, values, block):
    monkeypatch.setitem(files._CSV, "read_options", pa.csv.ReadOptions(block_size=block))
    (tmp_path / "t.csv").write_text("^a$,b\n" + "\n".join(f"{word},x" for word in words) + "\n")
    column = read_columns(TableFile(tmp_path / "t.csv"), ["^a$"])["^a$"]  # no pattern
    assert (column.dtype, column.to_list()) == (kind, values)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["b", "a"])], ids=str)
def test_categories_of_several_batches_are_one_column(tmp_path, monkeypatch, kind):
    frame = pl.DataFrame({"x": pl.Series(["a", "b", "a", "b"], dtype=kind)})
    frame.write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(files, "_BATCH", 3)
    assert read_columns(TableFile(tmp_path / "t.parquet"), ["x"])["x"].cast(pl.String).to_list() == ["a", "b", "a", "b"]


def test_a_type_that_polars_lacks_is_one_sentence(tmp_path):
    table = pa.table({name: IN_PARQUET[name] for name in ("map", "decimal256", "timestamp of an unknown zone")})
    pq.write_table(table, tmp_path / "t.parquet")
    file = TableFile(tmp_path / "t.parquet")
    with pytest.raises(ldp.InputError, match=r"Column 'map' holds map<.*>, which is not read"):
        read_columns(file, ["map"])
    assert read_columns(file, ["decimal256"]).to_series().to_list() == [1.5, None, 2.5]
    assert Table.from_parquet(file.path, table.column_names[1:]).shape == (4,)


def test_pictures_are_not_in_a_csv(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(ldp.InputError, match=r"write the table as \.parquet"):
        find_image_column(TableFile(tmp_path / "t.csv"), ["a"])


def test_columns_that_are_not_what_they_seem_are_named(tmp_path):
    rows = 400
    frame = pl.DataFrame(
        {
            "id": [f"P{i}" for i in range(rows)],
            "age": ["many", *map(str, range(1, rows))],
            "weight": [f"{i},5" for i in range(rows)],
            "height": ["NA", "null", "", *map(str, range(3, rows))],
            "nothing": [""] * rows,
            "good": np.arange(rows) % 2,  # predicts y: a constant model would cause another warning
            "y": ["no", "yes"] * (rows // 2),
        }
    )
    frame.write_csv(tmp_path / "t.csv")
    table = SecretTable.open(tmp_path / "t.csv", "y", "no,yes")
    messages, vault = [], table.vault(8.0)
    found = train_run(
        table, vault, TrainConfig(8.0, recipe="moments"), tmp_path / "run", lambda message: messages.append(message)
    )
    assert [sentence.split("'")[1] for sentence in found["warnings"]] == ["id", "age", "weight", "nothing"]
    for sentence, part in zip(found["warnings"], ("id column", "except in 1 row,", "commas", "empty"), strict=True):
        assert part in sentence
    assert messages[:4] == [f"Note: {sentence}" for sentence in found["warnings"]]  # before anything is spent


@pytest.mark.parametrize("word", ["NA", "NULL", "n/a", "?", "NaN", ""])
def test_numbers_stay_numbers_where_a_word_stands_for_a_missing_one(tmp_path, word):
    rows = 600
    x = np.random.default_rng(0).normal(size=rows).round(3)
    texts = [word if i % 7 == 0 else str(value) for i, value in enumerate(x)]
    pl.DataFrame({"x": texts, "y": np.where(x > 0, "yes", "no")}).write_csv(tmp_path / "t.csv")
    table = SecretTable.open(tmp_path / "t.csv", "y", "no,yes")
    found = train_run(table, table.vault(50.0), TrainConfig(50.0, recipe="moments"), tmp_path / "run")
    assert found["warnings"] == ["Epsilon 50 is so large that a label is hardly protected."]
    predicted = predict_run(tmp_path / "run", tmp_path / "t.csv")["prediction"].to_numpy()
    present = np.arange(rows) % 7 != 0
    assert (predicted == np.where(x > 0, "yes", "no"))[present].mean() > 0.9
    (tmp_path / "few.csv").write_text("x\nNA\n0.5\n")
    assert len(predict_run(tmp_path / "run", tmp_path / "few.csv")) == 2


def test_ids_that_repeat_may_be_people(tmp_path):
    frame = pl.DataFrame({"person": np.arange(400) // 2, "x": np.arange(400) % 2, "y": ["no", "yes"] * 200})
    frame.write_parquet(tmp_path / "t.parquet")
    table = SecretTable.open(tmp_path / "t.parquet", "y", "no,yes", id_column="person")
    found = train_run(table, table.vault(4.0), TrainConfig(4.0, recipe="moments"), tmp_path / "run")["warnings"]
    assert "200 different ids for 400 rows. If they are people, declare it as the user column" in found[-1]
