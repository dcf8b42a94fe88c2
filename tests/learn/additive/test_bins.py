import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labeldp.features import Table
from labeldp.learn.additive import Bins
from labeldp.learn.additive.bins import quantile_edges

FEW = st.integers(-6, 6).map(np.float32)
MANY = st.floats(-(2.0**100), 2.0**100, width=32).map(np.float32)
VALUES = arrays(np.float32, st.integers(0, 120), elements=st.one_of(FEW, MANY))


@given(VALUES, st.integers(1, 12))
def test_every_value_has_a_bin_and_every_bin_a_value(values, most):
    edges = quantile_edges(values, most)
    assert edges.dtype == np.float32
    assert len(edges) < most
    assert (edges[1:] > edges[:-1]).all()
    if values.size:
        codes = np.searchsorted(edges, values, side="left")
        assert np.array_equal(np.unique(codes), np.arange(len(edges) + 1))
        slow = [sum(value > edge for edge in edges) for value in values]  # the first bin whose edge is not below it
        assert np.array_equal(codes, slow)


@given(VALUES, st.integers(2, 12))
def test_few_distinct_values_have_a_bin_each(values, most):
    distinct = np.unique(values)
    if distinct.size <= most:
        assert len(quantile_edges(values, most)) == max(0, distinct.size - 1)


def test_bins_hold_about_equal_counts():
    values = np.random.default_rng(0).lognormal(size=10_000).astype(np.float32)
    counts = np.bincount(np.searchsorted(quantile_edges(values, 20), values))
    assert len(counts) == 20
    assert counts.min() >= 490
    assert counts.max() <= 510


@pytest.mark.parametrize("heavy", [0.0, 0.5, 1.0])
def test_a_heavy_value_has_a_bin_alone_and_the_others_share_the_rest(heavy):
    values = np.append(np.random.default_rng(0).random(4_000), np.full(6_000, heavy)).astype(np.float32)
    codes = np.searchsorted(quantile_edges(values, 10), values)
    counts = np.bincount(codes)
    assert len(np.unique(values[codes == codes[-1]])) == 1
    assert counts[codes[-1]] == 6_000
    assert 9 <= len(counts) <= 10
    assert np.delete(counts, codes[-1]).max() <= 501


def test_light_values_between_heavy_ones_do_not_exceed_the_most_bins():
    values = np.concatenate([np.repeat(np.arange(5), 100), np.arange(5) + 0.5]).astype(np.float32)
    edges = quantile_edges(values, 6)
    assert 2 <= len(edges) <= 5


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    kinds = generator.choice(["a", "b", "c", "d"], 1_000, p=[0.4, 0.3, 0.2, 0.1])
    return Table.fit(
        pl.DataFrame(
            {
                "kind": pl.Series(kinds).replace({"d": None}),
                "x": pl.Series(np.where(generator.random(1_000) < 0.2, np.nan, generator.normal(size=1_000))),
                "none": pl.Series([None] * 1_000, dtype=pl.Float64),
                "one": 3.0,
            }
        ).with_columns(pl.col("x").fill_nan(None))
    )


def test_numbers_come_first_and_missing_values_have_the_last_bin(table):
    bins = Bins.learn(table, 8, 5)
    assert [column.name for column in bins.columns] == ["x", "none", "one", "kind"]
    assert [column.width for column in bins.columns] == [9, 2, 2, 5]
    assert [column.ordered for column in bins.columns] == [8, 1, 1, 0]
    codes = [bins.codes(table, place) for place in range(4)]
    assert {code.dtype for code in codes} == {np.dtype(np.uint8)}
    assert np.array_equal(codes[0] == 8, np.isnan(table.number_values[:, 0]))
    assert np.array_equal(codes[1], np.ones(1_000))  # only missing values
    assert np.array_equal(codes[2], np.zeros(1_000))
    order = np.argsort(table.number_values[codes[0] < 8, 0])
    assert (np.diff(codes[0][codes[0] < 8][order].astype(int)) >= 0).all()


@pytest.mark.parametrize(("most", "width", "map_"), [(5, 5, [0, 1, 2, 3, 4]), (4, 4, [0, 1, 2, 2, 3]), (1, 3, None)])
def test_rare_categories_share_a_bin_with_those_that_are_new(table, most, width, map_):
    kind = Bins.learn(table, 8, most).columns[-1]
    assert kind.width == width
    assert np.array_equal(kind.map, map_ or [0, 1, 1, 1, 2])  # "a", "b", "c", other, missing
    assert kind.codes(table.category_codes[:, 0]).max() == width - 1  # missing


def test_wide_bins_have_wider_codes():
    wide = Table.fit(pl.DataFrame({"x": np.arange(900.0)}))
    bins = Bins.learn(wide, 300, 5)
    codes = bins.codes(wide, 0)
    assert codes.dtype == np.uint16
    assert codes.max() == 299


def test_edges_of_many_rows_come_from_evenly_spaced_ones(monkeypatch):
    monkeypatch.setattr("labeldp.learn.additive.bins._EDGE_ROWS", 500)
    table = Table.fit(pl.DataFrame({"x": np.arange(1_000.0)}))
    assert np.array_equal(Bins.learn(table, 4, 4).columns[0].edges, quantile_edges(np.arange(0, 1_000, 2), 4))
