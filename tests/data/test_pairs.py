import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.data import Pairs
from labeldp.data.feature_reader import FeatureReader

FRAME = pl.DataFrame({"who": ["ann", "bob", "ann", None], "what": [7, 9, 11, 7]})
ALL = torch.arange(4)


def test_rows_are_codes_of_ids_and_zero_is_for_unseen_ids():
    pairs = Pairs.fit(FRAME)
    assert pairs.shape == (3, 4)  # with the unknown one
    assert pairs.batch(ALL).tolist() == [[1, 2], [2, 3], [1, 1], [0, 2]]  # ids in the order of texts: 11, 7, 9
    new = pairs.apply(pl.DataFrame({"who": ["bob", "eve"], "what": [8, 9]}))
    assert new.batch(torch.arange(2)).tolist() == [[2, 0], [0, 3]]
    assert new.shape == pairs.shape


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=20), st.lists(st.text(max_size=2), min_size=20, max_size=20))
def test_equal_codes_mean_equal_ids(numbers, words):
    frame = pl.DataFrame({"a": numbers, "b": words[: len(numbers)]})
    places = Pairs.fit(frame).batch(torch.arange(len(numbers))).numpy()
    for column, at in zip(frame, places.T, strict=True):
        values = column.to_list()
        assert all((values[i] == values[j]) == (at[i] == at[j]) for i in range(len(at)) for j in range(len(at)))
        assert at.min() > 0


@pytest.mark.parametrize("kind", [pl.Int8, pl.UInt64, pl.Float64, pl.String, pl.Categorical])
def test_an_id_is_the_same_in_every_type_of_column(kind):
    known = Pairs.fit(pl.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}))
    other = pl.DataFrame({"a": pl.Series([3, 1, 9]).cast(pl.String).cast(kind), "b": [4, 4, 4]})
    assert known.apply(other).batch(torch.arange(3))[:, 0].tolist() == [3, 1, 0]


def test_features_as_learners_use_them():
    pairs = Pairs.fit(FRAME)
    some = pairs.select(np.array([True, False, False, True]))
    assert len(some) == 2
    assert some.batch(torch.tensor([1])).tolist() == [[0, 2]]
    batch = pairs.batch(ALL)
    assert all(torch.equal(vary(batch), batch) for vary in (pairs.weak, pairs.strong, pairs.view))
    assert pairs.digest() == Pairs.fit(FRAME).digest() != some.digest()
    assert [part.tolist() for part in pairs.moments()] == [[0.0], [1.0]]
    assert pairs.to("cpu").device.type == "cpu"


@pytest.mark.parametrize("data", [FRAME, FRAME.drop_nulls().to_pandas(), np.array([[1, 2], [3, 4], [1, 4], [1, 2]])])
def test_a_reader_reads_the_same_rows_after_json(data):
    reader, pairs = FeatureReader.fit(data, "pairs")
    again = FeatureReader.from_json(reader.to_json())
    assert again == reader
    assert again(data).digest() == pairs.digest()
    assert again.text_columns == (["who"] if reader.columns else [])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.with_columns(when=1), "two columns of ids, and here are 3"),
        (FRAME.select("who"), "two columns of ids, and here are 1"),
        (FRAME.clear(), "has no rows"),
        (pl.DataFrame({"a": [1.5, 2.0], "b": [1, 2]}), "column 'a' are fractions"),
    ],
)
def test_what_is_no_pair_is_refused(frame, message):
    with pytest.raises(ldp.InputError, match=message):
        Pairs.fit(frame)


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ldp.InputError, match="lack the column 'what'"):
        Pairs.fit(FRAME).apply(FRAME.rename({"what": "which"}))
