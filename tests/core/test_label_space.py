import json
import math
import string

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labeldp import InputError, LabelSpace

WORDS = LabelSpace(["no", "yes"])
NUMBERS = LabelSpace([3, 5, 9])
RANGE = LabelSpace.range(0, 5, 0.5)

WORD_COLUMNS = {
    "list": list,
    "tuple": tuple,
    "numpy str": np.array,
    "numpy object": lambda x: np.array(x, object),
    "pandas": pd.Series,
    "pandas with another index": lambda x: pd.Series(x, index=range(7, 7 + len(x))),
    "pandas object": lambda x: pd.Series(x, dtype=object),
    "pandas category": lambda x: pd.Series(pd.Categorical(x, categories=["unused", "yes", "no"])),
    "polars": pl.Series,
    "polars Categorical": lambda x: pl.Series(x, dtype=pl.Categorical),
    "polars Enum": lambda x: pl.Series(x, dtype=pl.Enum(["unused", "yes", "no"])),
    "arrow": pa.array,
    "arrow slice": lambda x: pa.array(["no", *x]).slice(1),
    "arrow chunks": lambda x: pa.chunked_array([x[:1], [], x[1:]], pa.string()),
    "arrow no chunks": lambda x: pa.chunked_array([], pa.string()) if not x else pa.chunked_array([x]),
    "arrow dictionary": lambda x: pa.array(x).dictionary_encode(),
    "arrow dictionary chunks": lambda x: pa.chunked_array(
        [pa.array(part, pa.string()).dictionary_encode() for part in (x[:1], x[1:])]
    ),
    "arrow string_view": lambda x: pa.array(x, pa.string_view()),
    "arrow dictionary of string_view": lambda x: pa.DictionaryArray.from_arrays(
        pa.array([None if v is None else ["yes", "no"].index(v) for v in x], pa.int8()),
        pa.array(["yes", "no"], pa.string_view()),
    ),
    "arrow large_string": lambda x: pa.array(x, pa.large_string()),
}

NUMBER_COLUMNS = {
    "list": list,
    "numpy int8": lambda x: np.array(x, np.int8),
    "numpy uint64": lambda x: np.array(x, np.uint64),
    "numpy object": lambda x: np.array(x, object),
    "numpy floats that are integers": lambda x: np.array(x, float),
    "pandas": pd.Series,
    "pandas Int64": lambda x: pd.Series(x, dtype="Int64"),
    "pandas category": lambda x: pd.Series(x, dtype="category"),
    "polars UInt8": lambda x: pl.Series(x, dtype=pl.UInt8),
    "arrow dictionary": lambda x: pa.array(x).dictionary_encode(),
}

MISSING_COLUMNS = {
    "list": (WORDS, ["yes", None, "no"]),
    "numpy object": (WORDS, np.array(["yes", np.nan, "no"], object)),
    "numpy float": (NUMBERS, np.array([5.0, np.nan, 3.0])),
    "polars NaN": (NUMBERS, pl.Series([5.0, math.nan, 3.0])),
    "pandas": (WORDS, pd.Series(["yes", None, "no"])),
    "pandas category": (WORDS, pd.Series(["yes", None, "no"], dtype="category")),
    "pandas Int64": (NUMBERS, pd.Series([5, pd.NA, 3], dtype="Int64")),
    "pandas boolean": (LabelSpace([False, True]), pd.Series([True, pd.NA, False], dtype="boolean")),
    "polars": (WORDS, pl.Series(["yes", None, "no"])),
    "polars Enum": (WORDS, pl.Series(["yes", None, "no"], dtype=pl.Enum(["no", "yes"]))),
    "arrow dictionary": (WORDS, pa.array(["yes", None, "no"]).dictionary_encode()),
    "arrow dictionary that holds the null": (
        WORDS,
        pa.DictionaryArray.from_arrays(pa.array([2, 1, 0]), pa.array(["no", None, "yes"])),
    ),
    "range, NaN": (LabelSpace.range(0, 1, 1), [1.0, math.nan, 0.0]),
    "range, null": (LabelSpace.range(0, 1, 1), pa.array([1, None, 0])),
}


def public(space):
    return LabelSpace.from_json(space.to_json() | {"missing": "public"})


@pytest.mark.parametrize("make", WORD_COLUMNS.values(), ids=WORD_COLUMNS.keys())
def test_strings_of_every_container_become_codes_of_the_declared_classes(make):
    assert WORDS.encode(make(["yes", "no", "yes"])).tolist() == [1, 0, 1]


@pytest.mark.parametrize("make", NUMBER_COLUMNS.values(), ids=NUMBER_COLUMNS.keys())
def test_numbers_of_every_container_become_codes_of_the_declared_range(make):
    assert NUMBERS.encode(make([9, 3, 5, 9])).tolist() == [2, 0, 1, 2]


@pytest.mark.parametrize("labels", [[True, False], np.array([True, False]), pl.Series([True, False])])
def test_booleans(labels):
    assert LabelSpace([False, True]).encode(labels).tolist() == [1, 0]


def test_a_float_label_must_equal_a_class():
    with pytest.raises(InputError, match="first in row 1"):
        NUMBERS.encode(np.array([3.0, 3.5]))


def test_minus_zero_is_zero():
    assert LabelSpace([0, 1]).encode(np.array([1.0, -0.0])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("classes", "column"),
    [
        ([44, 300], np.array([44], np.uint8)),
        ([2**53, 2**53 + 1], np.array([2.0**53])),
        ([0, 2], np.array([True])),
        (["1", "01"], np.array([1])),
    ],
    ids=["wraps", "rounds", "becomes a boolean", "becomes a number"],
)
def test_a_column_type_that_confuses_classes_is_refused(classes, column):
    with pytest.raises(InputError, match="type"):
        LabelSpace(classes).encode(column)


def test_codes_follow_the_declared_order_not_the_alphabet():
    space = LabelSpace(["low", "mid", "high"], ordered=True)
    assert space.ordered
    assert space.encode(["high", "low", "mid"]).tolist() == [2, 0, 1]
    assert not WORDS.ordered


@pytest.mark.parametrize("classes", [[1, 2, 5], ["1", "2", "5"], ["0.5", "1", "1.5"]])
def test_ordered_classes_can_be_numbers(classes):
    assert LabelSpace(classes, ordered=True).class_values.tolist() == [float(c) for c in classes]
    assert LabelSpace(classes).class_values is None


@pytest.mark.parametrize("classes", [["low", "high"], [2, 1], ["1", "two"], ["nan", "1"], ["1", "1.0"], ["1", "inf"]])
def test_ordered_classes_need_not_be_numbers(classes):
    assert LabelSpace(classes, ordered=True).class_values is None


def test_a_range_is_numbers():
    assert LabelSpace.range(0.5, 2, 0.5).class_values.tolist() == [0.5, 1.0, 1.5, 2.0]


@pytest.mark.parametrize("classes", [128, 129, 32_768, 32_769])
def test_many_classes_fit_the_type_of_the_codes(classes):
    codes = LabelSpace(range(classes)).encode(np.arange(classes))
    assert np.array_equal(codes, np.arange(classes))


@pytest.mark.parametrize(("space", "labels"), MISSING_COLUMNS.values(), ids=MISSING_COLUMNS.keys())
def test_a_missing_label_is_minus_one_where_public_and_an_error_elsewhere(space, labels):
    assert public(space).encode(labels).tolist() == [1, -1, 0]
    with pytest.raises(InputError, match="missing, first in row 1"):
        space.encode(labels)


@pytest.mark.parametrize("space", [WORDS, NUMBERS, RANGE])
@pytest.mark.parametrize("labels", [[None, None], pl.Series([None, None]), pd.Series([None, None], dtype=object)])
def test_a_column_may_have_no_label_at_all(space, labels):
    assert public(space).encode(labels).tolist() == [-1, -1]


@pytest.mark.parametrize("space", [WORDS, public(WORDS), RANGE, public(RANGE)])
def test_no_rows(space):
    assert space.encode([]).shape == (0,)


@given(st.lists(st.floats(0, 5)))
def test_a_number_goes_to_the_nearest_step(numbers):
    for number, code in zip(numbers, RANGE.encode(np.array(numbers, float)), strict=True):
        assert abs(RANGE.classes[code] - number) == min(abs(c - number) for c in RANGE)


@pytest.mark.parametrize("outside", [-1e-9, 5 + 1e-9, math.inf, -math.inf, 2**60 + 1])
def test_a_number_outside_the_range_is_an_error(outside):
    with pytest.raises(InputError):
        RANGE.encode([1.0, outside])
    with pytest.raises(InputError):
        public(RANGE).encode([1.0, outside])


@given(st.integers(-60, 60), st.integers(1, 60), st.sampled_from([0.01, 0.05, 0.1, 0.7, 1.0]))
@example(-20, 2, 0.01)
def test_both_ends_of_a_declared_range_belong_to_it(start, steps, step):
    low, high = round(start * step, 6), round((start + steps) * step, 6)
    space = LabelSpace.range(low, high, step)
    assert len(space) == steps + 1
    assert space.encode([low, high]).tolist() == [0, steps]


SPACES = st.one_of(
    st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=2, max_size=8, unique=True).map(
        LabelSpace
    ),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=8, unique=True).map(LabelSpace),
    st.just(LabelSpace([True, False])),
    st.builds(
        lambda low, steps: LabelSpace.range(low, low + steps / 4, 0.25), st.integers(-99, 99), st.integers(1, 40)
    ),
)


@given(SPACES, st.data())
def test_encode_undoes_decode(space, data):
    codes = data.draw(st.lists(st.integers(0, len(space) - 1), max_size=9))
    labels = space.decode(np.array(codes, np.int64))
    assert labels.tolist() == [space.classes[c] for c in codes]
    assert space.encode(labels).tolist() == codes
    holes = [*codes, -1]
    labels = space.decode(np.array(holes))
    assert labels.tolist() == [*(space.classes[c] for c in codes), None]
    assert public(space).encode(labels.tolist()).tolist() == holes


@pytest.mark.parametrize("code", [-2, 2])
def test_decode_refuses_what_is_no_code(code):
    with pytest.raises((InputError, IndexError)):
        WORDS.decode(np.array([0, code]))


@given(SPACES, st.booleans())
def test_json_round_trip(space, missing):
    space = public(space) if missing else space
    again = LabelSpace.from_json(json.loads(json.dumps(space.to_json())))
    assert again == space
    assert [type(c) for c in again] == [type(c) for c in space]


def test_spaces_of_other_types_differ():
    assert LabelSpace([0, 1]) != LabelSpace([False, True])


# Neither an error nor its causes and context, which a logger prints, may contain a label.

SECRETS = st.text(string.ascii_letters, min_size=12, max_size=30)

LEAKY_COLUMNS = {
    "list": lambda s: [s],
    "after a good one": lambda s: ["yes", s],
    "numpy": lambda s: np.array([s]),
    "pandas category": lambda s: pd.Series([s], dtype="category"),
    "polars Enum": lambda s: pl.Series([s], dtype=pl.Enum([s])),
    "arrow dictionary": lambda s: pa.array([s]).dictionary_encode(),
    "word after number": lambda s: [1, s],
    "number after word": lambda s: [s, 1],
    "numpy mixed": lambda s: np.array([1, s, 2.5], object),
    "pandas mixed": lambda s: pd.Series([True, s], dtype=object),
    "pandas mixed category": lambda s: pd.Series(pd.Categorical([1, s])),
    "bytes": lambda s: [s.encode()],
    "not unicode": lambda s: ["\ud800" + s],
    "list of lists": lambda s: [[s]],
    "list of dicts": lambda s: [{s: 1}],
    "two columns, numpy": lambda s: np.array([[s, s]]),
    "table, pandas": lambda s: pd.DataFrame({"label": [s]}),
    "table, polars": lambda s: pl.DataFrame({"label": [s]}),
    "table, arrow": lambda s: pa.table({"label": [s]}),
}


def all_error_texts(error):
    if error is None:
        return ""
    behind = all_error_texts(error.__cause__) + all_error_texts(error.__context__)
    return f"{error} {error.args} {getattr(error, '__notes__', '')}" + behind


@pytest.mark.parametrize("make", LEAKY_COLUMNS.values(), ids=LEAKY_COLUMNS.keys())
@settings(max_examples=20)
@given(secret=SECRETS)
def test_no_error_contains_a_label(make, secret):
    for space in (WORDS, public(WORDS), NUMBERS, RANGE):
        with pytest.raises(InputError) as refused:
            space.encode(make(secret))
        assert secret not in all_error_texts(refused.value)


@given(st.one_of(st.integers(10**12, 2**63 - 1), st.integers(2**64, 2**90), st.floats(1e12, 1e300)))
def test_no_error_contains_a_number(secret):
    for space in (WORDS, NUMBERS, RANGE):
        with pytest.raises(InputError) as refused:
            space.encode([secret])
        assert repr(secret) not in all_error_texts(refused.value)


BAD_CLASSES = {
    "one string": "ab",
    "nothing": None,
    "a number": 3,
    "none": [],
    "one": ["a"],
    "repeated": ["a", "b", "a"],
    "mixed": ["a", 1],
    "integers and booleans": [1, False],
    "missing": ["a", None],
    "floats": [0.5, 1.0],
    "bytes": [b"a", b"b"],
    "a matrix": np.eye(2, dtype=int),
    "beyond 64 bits": [1, 2**70],
    "not unicode": ["a", "\ud800"],
    "with a NUL, at which NumPy cuts": ["a", "a\0b"],
    "a set, whose order changes from run to run": {"a", "b"},
}


@pytest.mark.parametrize("classes", BAD_CLASSES.values(), ids=BAD_CLASSES.keys())
def test_bad_classes_are_refused(classes):
    with pytest.raises(InputError):
        LabelSpace(classes)


def test_bad_missing_is_refused():
    with pytest.raises(InputError, match="missing"):
        LabelSpace(["a", "b"], missing="drop")


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [(1, 0, 0.1), (0, 0, 1), (0, 1, 0), (0, 1, -1), (0, 1, 0.3), (0, math.inf, 1), (math.nan, 1, 1), (0, 1, math.nan)],
)
def test_bad_ranges_are_refused(low, high, step):
    with pytest.raises(InputError):
        LabelSpace.range(low, high, step)


def test_a_range_that_no_memory_holds_is_refused():
    with pytest.raises(InputError, match="1,000,000 values at most: choose a larger step"):
        LabelSpace.range(0, 1e12, 1e-3)
    assert len(LabelSpace.range(0, 999_999, 1)) == 1_000_000
