from itertools import pairwise
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_columns import IN_PARQUET, NOT_IN_PARQUET

from labeldp import Identity, InputError
from labeldp.privacy.vault import identify, identity

INTEGERS = st.one_of(st.none(), st.integers(-5, 5))
FLOATS = st.one_of(st.none(), st.floats(allow_nan=False))
WORDS = st.one_of(st.none(), st.text(max_size=3))
FLAGS = st.one_of(st.none(), st.booleans())

TABLES = st.lists(st.tuples(INTEGERS, FLOATS, WORDS, FLAGS), min_size=1, max_size=25).map(
    lambda rows: pa.table(
        {
            name: pa.array(column, kind)
            for name, kind, column in zip(
                ["age", "income", "town", "owner"],
                [pa.int32(), pa.float64(), pa.string(), pa.bool_()],
                zip(*rows, strict=True),
                strict=True,
            )
        }
    )
)


def digest(batches):
    """With small blocks, so that short tables have several."""
    with patch.object(identity, "_ROWS_PER_BLOCK", 7):
        return identify("people", "ill", batches).digest


def whole(table):
    return digest(table.combine_chunks().to_batches())


@given(TABLES, st.sets(st.integers(0, 25)))
def test_batch_boundaries_do_not_matter(table, cuts):
    edges = [0, *sorted(c for c in cuts if c < table.num_rows), table.num_rows]
    batches = [b for a, z in pairwise(edges) for b in table.slice(a, z - a).to_batches()]
    assert digest(batches) == whole(table)
    assert digest(iter(batches)) == whole(table)


@given(TABLES, TABLES, TABLES)
def test_where_the_rows_lie_in_memory_does_not_matter(before, table, after):
    larger = pa.concat_tables([before, table, after]).combine_chunks()
    assert digest(larger.slice(before.num_rows, table.num_rows).to_batches()) == whole(table)


def test_the_length_of_a_block_is_no_special_number_of_rows():
    table = pa.table({"x": np.arange(identity._ROWS_PER_BLOCK * 2 + 5)})
    halves = [table.slice(0, identity._ROWS_PER_BLOCK - 1), table.slice(identity._ROWS_PER_BLOCK - 1)]
    assert (
        identify("d", "y", table.to_batches())
        == identify("d", "y", [b for half in halves for b in half.to_batches()])
        == identify("d", "y", table.to_batches(max_chunksize=1000))
    )
    assert identify("d", "y", table.to_batches()).n_rows == identity._ROWS_PER_BLOCK * 2 + 5


def one_column(values):
    return whole(pa.table({"x": values}))


@pytest.mark.parametrize("values", [["b", "a", None, "b"], ["", None, "", "a"]], ids=str)
@pytest.mark.parametrize(
    "encode",
    [
        lambda x: pa.array(x, pa.large_string()),
        lambda x: pa.array(x, pa.string_view()),
        lambda x: pa.array(x).dictionary_encode(),
        lambda x: pa.array(x).dictionary_encode(null_encoding="encode"),
        lambda x: pa.DictionaryArray.from_arrays(
            pa.array([None if v is None else ["a", "b", ""].index(v) for v in x]),
            pa.array(["a", "b", ""], pa.string_view()),
        ),
        lambda x: pa.chunked_array([pa.array(part).dictionary_encode() for part in (x[:1], x[1:])]),
        lambda x: pl.Series(x).to_arrow(),
        lambda x: pl.Series(x, dtype=pl.Categorical).to_arrow(),
        lambda x: pl.Series(x, dtype=pl.Enum(["a", "", "b"])).to_arrow(),
    ],
    ids=[
        "large",
        "view",
        "dictionary",
        "null in the dictionary",
        "dictionary of views",
        "dictionaries",
        "polars",
        "Categorical",
        "Enum",
    ],
)
def test_how_text_is_encoded_does_not_matter(values, encode):
    assert one_column(encode(values)) == one_column(pa.array(values))


@pytest.mark.parametrize(
    "values",
    [pa.array([3, 4, 3]), pa.array([0.5, None, 0.5]), pa.array([2, 2], pa.int8())],
    ids=["integers", "floats", "int8"],
)
def test_how_numbers_are_encoded_does_not_matter(values):
    assert one_column(values.dictionary_encode()) == one_column(values)


def test_how_lists_are_encoded_does_not_matter():
    values = [[1.0, 2.0], [3.0, None]]
    types = [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2)]
    assert len({one_column(pa.array(values, dtype)) for dtype in types}) == 1


def test_what_hides_behind_a_null_does_not_matter():
    behind = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([7, 99]))])
    assert behind.to_pylist() == [7, None]
    assert one_column(behind) == one_column(pa.array([7, None]))


@given(TABLES, st.data())
def test_any_other_value_or_null_changes_the_digest(table, data):
    column = data.draw(st.integers(0, 3))
    row = data.draw(st.integers(0, table.num_rows - 1))
    values = table.column(column).to_pylist()
    other = data.draw([INTEGERS, FLOATS, WORDS, FLAGS][column].filter(lambda v: v != values[row]))
    values[row] = other
    changed = table.set_column(column, table.field(column), pa.array(values, table.field(column).type))
    assert whole(changed) != whole(table)


@given(TABLES, st.sampled_from(["age", "income", "town", "owner"]))
def test_another_column_name_changes_the_digest(table, name):
    assert whole(table.rename_columns({name: name + "2"})) != whole(table)


def test_rows_and_columns_cannot_trade_places():
    digests = {
        whole(pa.table({"x": ["ab", "c"]})),
        whole(pa.table({"x": ["a", "bc"]})),
        whole(pa.table({"x": ["c", "ab"]})),
        whole(pa.table({"x": ["abc", ""]})),
        whole(pa.table({"x": ["abc", None]})),
        whole(pa.table({"x": ["", None]})),
        whole(pa.table({"x": [None, ""]})),
        whole(pa.table({"x": [1, 2], "y": [3, 4]})),
        whole(pa.table({"x": [1, 3], "y": [2, 4]})),
        whole(pa.table({"y": [1, 2], "x": [3, 4]})),
    }
    assert len(digests) == 10


def test_the_place_of_a_null_matters():
    assert one_column([0, None]) != one_column([None, 0])


def test_an_empty_text_is_not_a_zero():
    assert one_column([0, 0]) != one_column(["", ""])


OTHER_TYPES = {
    "dates": ([1, 2], [1, 3], pa.date32()),
    "times": ([1, 2], [1, 3], pa.timestamp("ns")),
    "times with a zone": ([1, 2], [1, 3], pa.timestamp("us", "UTC")),
    "all null": ([None, None], ["a", None], None),
    "half floats": (np.array([1, 2], np.float16), np.array([1, 3], np.float16), None),
    "bytes": ([b"\xff\xfe", b"a"], [b"\xff\xfd", b"a"], None),
    "bytes of one length": ([b"\xff\xfe", b"ab"], [b"\xff\xfd", b"ab"], pa.binary(2)),
    "viewed bytes": ([b"\xff\xfe", b"a"], [b"\xff\xfd", b"a"], pa.binary_view()),
    "lists": ([[1.0, 2.0], [3.0]], [[1.0], [2.0, 3.0]], None),
    "embeddings": ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 5.0]], pa.list_(pa.float32(), 2)),
    "lists of texts": ([["a", "b"], []], [["a"], ["b"]], None),
    "missing and empty lists": ([[], None], [None, []], pa.list_(pa.int8())),
    "structs": ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 3}], None),
    "maps": ([[("a", 1)], []], [[("a", 2)], []], pa.map_(pa.string(), pa.int64())),
    "places of maps": ([[("a", 1)], []], [[], [("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "missing and empty maps": ([[], None], [None, []], pa.map_(pa.string(), pa.int64())),
    "lists of maps": ([[[("a", 1)]], []], [[[("a", 2)]], []], pa.list_(pa.map_(pa.string(), pa.int64()))),
    "times of an unknown zone": ([1, 2], [1, 3], pa.timestamp("us", "Mars/Base")),
    "large decimals": ([1, 2], [1, 3], pa.decimal256(60, 2)),
    "list views": ([[1], [2, 3]], [[1, 2], [3]], pa.list_view(pa.int8())),
    "names in structs": ([{"a": 1}, {"a": 2}], [{"b": 1}, {"b": 2}], None),
}


@pytest.mark.parametrize(("values", "changed", "kind"), OTHER_TYPES.values(), ids=OTHER_TYPES.keys())
def test_every_kind_of_feature_is_identified(values, changed, kind):
    first = one_column(pa.array(values, kind))
    assert first == one_column(pa.concat_arrays([pa.array(values, kind)] * 2).slice(2))
    assert first != one_column(pa.array(changed, kind))


@pytest.mark.parametrize("name", IN_PARQUET)
def test_whatever_parquet_holds_is_identified_wherever_it_lies(name):
    column = IN_PARQUET[name]
    first = one_column(column)
    assert first == one_column(pa.concat_arrays([column, column]).slice(3))
    if not column.slice(0, 1).equals(column.slice(2, 1)):
        turned = pa.concat_arrays([column.slice(place, 1) for place in (2, 1, 0)])
        assert first != one_column(turned)


@pytest.mark.parametrize("name", ["union", "interval", "run-end encoded"])
def test_a_type_without_a_digest_is_one_sentence(name):
    with pytest.raises(InputError, match=r"Column 'x' holds .*, which cannot identify rows: exclude the column"):
        one_column(NOT_IN_PARQUET[name])


def test_the_label_column_never_enters_the_digest():
    features = {"age": [30, 40]}
    digests = {digest(pa.table(features | {"ill": labels}).to_batches()) for labels in (["no", "yes"], ["yes", "no"])}
    assert len(digests) == 1


def test_the_name_and_the_label_are_not_hashed():
    batches = pa.table({"age": [30, 40]}).to_batches()
    one, two = identify("people", "ill", batches), identify("persons", "income", batches)
    assert one.digest == two.digest
    assert (one.name, one.label, one.n_rows) == ("people", "ill", 2)


def test_a_renamed_data_set_is_the_same_by_its_digest_only():
    assert Identity("a", "y", 5, "d1").has_same_rows(Identity("b", "y", 5, "d1"))
    assert Identity("a", "y", 5).has_same_rows(Identity("a", "y", 5))
    assert not Identity("a", "y", 5).has_same_rows(Identity("b", "y", 5))


@pytest.mark.parametrize(
    "other",
    [
        Identity("a", "y", 6, "d1"),
        Identity("a", "y", 5, "d2"),
        Identity("a", "y", 5),
    ],
    ids=["rows", "digest", "no digest"],
)
def test_data_sets_that_differ_in_one_fact_are_not_the_same(other):
    assert not Identity("a", "y", 5, "d1").has_same_rows(other)
    assert not other.has_same_rows(Identity("a", "y", 5, "d1"))


def test_some_columns_are_not_the_same_data_as_all():
    """Rows that were sorted anew may look the same in the columns that are left."""

    def of(table):
        return identify("people", "ill", pa.table(table).to_batches())

    whole = of({"age": [30, 40], "weight": [60, 70]})
    assert not of({"weight": [60, 70]}).has_same_rows(whole)
    assert of({"weight": [60, 70], "age": [30, 40]}).has_same_rows(whole)
    assert not whole.has_same_rows(of({"weight": [60, 70]}))
    assert not of({"weight": [60, 71]}).has_same_rows(whole)
    assert not of({"size": [60, 70]}).has_same_rows(whole)
    assert Identity(**whole.to_json()).has_same_rows(whole)


def test_the_label_has_no_part_in_which_rows_these_are():
    for label in ("y", "z", None):
        assert Identity("a", label, 5, "d1").has_same_rows(Identity("a", "y", 5, "d1"))


def test_a_column_that_becomes_a_label_identifies_the_rows_no_more():
    """Only the new label may be missing, and the other columns must all be the same."""

    def of(label, table):
        return identify("people", label, pa.table(table).to_batches())

    bound = of("ill", {"age": [30, 40], "weight": [60, 70], "rich": [0, 1]})
    assert of("rich", {"age": [30, 40], "weight": [60, 70], "rich": [1, 1]}).has_same_rows(bound)
    assert not of("rich", {"age": [30, 40]}).has_same_rows(bound)
    assert not of("rich", {"age": [40, 30], "weight": [60, 70]}).has_same_rows(bound)
    assert not of("age", {"rich": [0, 1]}).has_same_rows(of("ill", {"age": [30, 40]}))
    assert not of("ill", {"age": [30, 40], "weight": [60, 70]}).has_same_rows(bound)


def test_json_round_trip():
    known = Identity("a", "y", 5, "d1")
    assert Identity(**known.to_json()) == known


def test_a_label_whose_name_cannot_be_stored_is_refused():
    with pytest.raises(InputError, match="name of the label"):
        Identity("people", "\ud800", 10)
