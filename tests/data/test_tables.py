import json
from datetime import date, datetime, time, timedelta

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from labeldp.core.errors import InputError
from labeldp.data import Table, table_encoder

FRAME = pl.DataFrame(
    {
        "age": [30.0, None, 50.0, 40.0],
        "town": ["b", "a", None, "a"],
        "hours": [1, 2, 3, 4],
        "member": [True, False, None, True],
    }
)


def everything(table: Table) -> torch.Tensor:
    return table.batch(torch.arange(len(table)))


def mixed(rows: int, seed: int = 0) -> pl.DataFrame:
    draws = np.random.default_rng(seed)
    number = draws.normal(size=rows)
    texts = pl.Series(draws.choice(list("abcde"), rows, p=[0.5, 0.2, 0.15, 0.1, 0.05]))
    holes = pl.Series(draws.random(rows) < 0.1)
    return pl.DataFrame({"x": number, "t": texts, "y": number * 3, "u": texts.str.to_uppercase()}).with_columns(
        x=pl.when(~holes).then(pl.col("x")), t=pl.when(~holes).then(pl.col("t"))
    )


def test_numbers_medians_indicators_and_one_hot():
    table = Table.fit(FRAME)
    assert table.kind == "table"
    assert table.columns == ["age", "hours", "town", "member"]
    named = dict(zip(table.encoded_columns, everything(table).T.tolist(), strict=True))
    assert named == {
        "age": [30, 40, 50, 40],
        "hours": [1, 2, 3, 4],
        "age is missing": [0, 1, 0, 0],
        "town = a": [0, 1, 0, 1],
        "town = b": [1, 0, 0, 0],
        "town = (other)": [0, 0, 0, 0],
        "town = (missing)": [0, 0, 1, 0],
        "member = true": [1, 0, 0, 1],
        "member = false": [0, 1, 0, 0],
        "member = (other)": [0, 0, 0, 0],
        "member = (missing)": [0, 0, 1, 0],
    }
    assert table.shape == (11,)


def test_other_rows_are_encoded_as_the_training_rows_were():
    table = Table.fit(FRAME)
    other = pl.DataFrame(
        {"member": [None, False], "hours": [None, 9.5], "town": ["unseen", "b"], "age": [np.nan, np.inf]}
    )
    named = dict(zip(table.encoded_columns, everything(table.apply(other)).T.tolist(), strict=True))
    assert named["age"] == [40, 40]
    assert named["age is missing"] == [1, 1]
    assert named["hours"] == [2.5, 9.5]  # missing only here: the median, and no column to say so
    assert named["town = (other)"] == [1, 0]
    assert named["town = b"] == [0, 1]
    assert named["member = (missing)"] == [1, 0]
    assert len(table.apply(other.head(0))) == 0


def test_only_the_most_frequent_values_have_a_name():
    frame = pl.DataFrame({"t": list("ccbbad"), "n": range(6)})
    table = Table.fit(frame, max_categories=3)
    assert table.encoder.categorical[0].values == ("b", "c")  # among equals, by alphabet; what occurs once names a row
    assert everything(table)[:, 1:].argmax(1).tolist() == [1, 1, 0, 0, 2, 2]
    assert Table.fit(frame, max_categories=4).encoder.categorical[0].values == ("b", "c", "a", "d")


def test_a_column_of_ids_has_no_named_values():
    table = Table.fit(pl.DataFrame({"id": [f"P{i}" for i in range(300)], "n": range(300)}))
    assert table.encoder.categorical[0].values == ()


def test_many_categories_need_wider_codes_and_work_alike():
    values = [f"v{i:04}" for i in range(700)] * 2
    for most, kind in ((254, np.uint8), (255, np.int16), (700, np.int16)):
        table = Table.fit(pl.DataFrame({"t": values}), max_categories=most)
        assert table._codes.dtype == kind
        assert everything(table).argmax(1).tolist() == [min(i, most) for i in range(700)] * 2


def test_types_of_columns():
    frame = pl.DataFrame(
        {
            "day": [date(1970, 1, 3), None],
            "when": [datetime(1970, 1, 2, 12), datetime(1970, 1, 1)],
            "time": [time(6), time(12)],
            "span": [timedelta(hours=36), timedelta(0)],
            "empty": pl.Series([None, None], dtype=pl.Null),
            "huge": [1e300, 2.0],
            "byte": pl.Series([1, 2], dtype=pl.UInt8),
            "enum": pl.Series(["u", "v"], dtype=pl.Enum(["u", "v"])),
            "word": pl.Series(["u", None], dtype=pl.Categorical),
            "void": pl.Series([None, None], dtype=pl.String),
        }
    )
    table = Table.fit(frame)
    named = dict(zip(table.encoded_columns, everything(table).T.tolist(), strict=True))
    assert [named[c] for c in ("day", "when", "time", "span")] == [[2, 2], [1.5, 0], [0.25, 0.5], [1.5, 0]]
    assert (named["empty"], named["empty is missing"]) == ([0, 0], [1, 1])
    assert (named["huge"], named["huge is missing"]) == ([2, 2], [1, 0])
    assert named["enum = v"] == [0, 1]
    assert named["word = (missing)"] == [0, 1]
    assert named["void = (missing)"] == [1, 1]
    with pytest.raises(InputError, match="'list' holds List"):
        Table.fit(pl.DataFrame({"list": [[1], [2]]}))


@pytest.mark.parametrize("name", ["weak", "strong", "view"])
def test_one_hot_columns_move_together_and_come_from_other_rows(name):
    torch.manual_seed(0)
    table = Table.fit(mixed(300))
    batch = everything(table)
    varied = getattr(table, name)(batch)
    assert not torch.equal(varied, batch)
    owners = {"x": ("x", "x is missing"), "y": ("y",)} | {
        c: tuple(n for n in table.encoded_columns if n.startswith(f"{c} = ")) for c in "tu"
    }
    changed = torch.zeros(300, dtype=torch.long)
    for parts in owners.values():
        places = [table.encoded_columns.index(part) for part in parts]
        known = {tuple(row) for row in batch[:, places].tolist()}
        assert {tuple(row) for row in varied[:, places].tolist()} <= known
        changed += (varied[:, places] != batch[:, places]).any(1)
    most = {"weak": 1, "strong": 2, "view": 2}[name]
    assert changed.max() == most
    assert len(changed.unique()) > 1
    if name == "view":
        assert changed.float().mean() > 1


def test_strong_corrupts_more_than_weak():
    torch.manual_seed(0)
    table = Table.fit(mixed(300))
    batch = everything(table)
    assert (table.strong(batch) != batch).sum() > 2 * (table.weak(batch) != batch).sum()


def test_the_encoding_survives_json():
    table = Table.fit(mixed(200))
    again = Table.from_json(json.loads(json.dumps(table.to_json())))
    assert again.encoder == table.encoder
    assert (len(again), again.encoded_columns) == (0, table.encoded_columns)
    other = mixed(50, seed=1)
    assert torch.equal(everything(again.apply(other)), everything(table.apply(other)))


@pytest.mark.parametrize("columns", [["x", "y"], ["t", "u"], ["x", "t", "y", "u"]])
def test_moments_are_those_of_the_encoded_columns(columns):
    table = Table.fit(mixed(200).select(columns))
    mean, deviation = table.moments()
    encoded = everything(table).double().numpy()
    spread = encoded.std(axis=0)
    assert np.allclose(mean, encoded.mean(axis=0), atol=1e-6)
    assert np.allclose(deviation, np.where(spread > 0, spread, 1.0), atol=1e-6)


def test_selecting_and_moving():
    table = Table.fit(mixed(60))
    part = table.select(np.arange(60) >= 40).to("cpu")
    assert torch.equal(everything(part), everything(table)[40:])
    assert part.encoder is table.encoder
    with pytest.raises(InputError, match="no mean"):
        table.select([]).moments()


def test_parquet_in_batches_gives_what_the_frame_gives(tmp_path, monkeypatch):
    monkeypatch.setattr("labeldp.data.files._BATCH", 64)
    monkeypatch.setattr("labeldp.data.tables._BATCH", 50)
    path = tmp_path / "rows.parquet"
    frame = mixed(1000)
    frame.write_parquet(path, row_group_size=300)
    read, fitted = Table.from_parquet(path, frame.columns, max_categories=3), Table.fit(frame, max_categories=3)
    assert read.encoder == fitted.encoder
    assert torch.equal(everything(read), everything(fitted))
    some = Table.from_parquet(path, ["u", "x"])
    assert some.columns == ["x", "u"]
    other = tmp_path / "other.parquet"
    mixed(100, seed=1).write_parquet(other)
    for known in (fitted, Table.from_json(fitted.to_json())):  # the second has no rows of its own
        like = Table.from_parquet(other, None, like=known)
        assert torch.equal(everything(like), everything(fitted.apply(mixed(100, seed=1))))


def test_parquet_with_dictionaries(tmp_path):
    texts = pa.array(["p", "q", None, "p"]).dictionary_encode()
    pq.write_table(pa.table({"t": texts, "n": [1, 2, 3, 4]}), tmp_path / "d.parquet")
    table = Table.from_parquet(tmp_path / "d.parquet", ["t", "n"])
    assert everything(table)[:, 1:].argmax(1).tolist() == [0, 1, 3, 0]


def test_counting_forgets_rare_values_first(monkeypatch):
    monkeypatch.setattr(table_encoder, "_MAX_COUNTED_VALUES", 20)
    frames = [
        pl.DataFrame({"t": ["often"] * 5 + ["second"] * 3 + [f"{part}-{i}" for i in range(15)]}) for part in range(9)
    ]
    assert table_encoder.fit_categorical_columns(["t"], frames, 2)[0].values == ("often", "second")


def test_tables_that_cannot_be_encoded(tmp_path):
    table = Table.fit(FRAME)
    with pytest.raises(InputError, match="no column 'town'"):
        table.apply(FRAME.drop("town"))
    with pytest.raises(InputError, match="'age' held numbers"):
        table.apply(FRAME.with_columns(age=pl.lit("old")))
    with pytest.raises(InputError, match="'town' held categories"):
        table.apply(FRAME.with_columns(town=pl.Series([[1], [2], [3], [4]])))
    for empty in (FRAME.head(0), pl.DataFrame()):
        with pytest.raises(InputError, match="no rows or no columns"):
            Table.fit(empty)
    for wrong in (0, 40_000):
        with pytest.raises(InputError, match="between 1 and"):
            Table.fit(FRAME, max_categories=wrong)
    FRAME.head(0).write_parquet(tmp_path / "empty.parquet")
    FRAME.write_parquet(tmp_path / "rows.parquet")
    FRAME.write_csv(tmp_path / "rows.csv")
    for name, columns, words in (
        ("empty.parquet", ["age"], "no rows"),
        ("rows.parquet", None, "without the label"),
        ("rows.parquet", [], "without the label"),
        ("rows.parquet", ["size"], "no column 'size'"),
        ("rows.csv", None, "must be a .parquet"),
        ("none.parquet", None, "no file"),
    ):
        with pytest.raises(InputError, match=words):
            Table.from_parquet(tmp_path / name, columns)


def test_the_median_of_huge_numbers_is_finite():
    table = Table.fit(pl.DataFrame({"x": [3.4e38, 3.3e38, None]}))
    assert table.encoder.numeric[0].median == pytest.approx(3.35e38)
    assert table.batch(torch.arange(3)).isfinite().all()


@pytest.mark.parametrize("numbers", [250, 300])
@pytest.mark.parametrize("categories", [0, 20])
def test_one_hot_codes_of_wide_tables_stand_behind_the_numbers(numbers, categories):
    values = np.arange(40.0 * numbers).reshape(40, numbers)
    frame = {f"number {place}": values[:, place] for place in range(numbers)}
    words = {"word": [f"value {row % 20}" for row in range(40)]} if categories else {}
    table = Table.fit(pl.DataFrame(frame | words))
    narrow = Table.fit(pl.DataFrame(words)) if words else None
    rows = np.arange(40)
    found = table.matrix(rows)
    np.testing.assert_array_equal(found[:, :numbers], Table.fit(pl.DataFrame(frame)).batch(torch.arange(40)).numpy())
    if narrow is not None:
        np.testing.assert_array_equal(found[:, numbers:], narrow.matrix(rows))
    else:
        assert found.shape == (40, numbers)
