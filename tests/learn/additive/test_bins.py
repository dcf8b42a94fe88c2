import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labeldp.data import Table
from labeldp.learn.additive import BasisFunctions, BinnedColumn, Bins
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
    categories = generator.choice(["a", "b", "c", "d"], 1_000, p=[0.4, 0.3, 0.2, 0.1])
    return Table.fit(
        pl.DataFrame(
            {
                "kind": pl.Series(categories).replace({"d": None}),
                "x": pl.Series(np.where(generator.random(1_000) < 0.2, np.nan, generator.normal(size=1_000))),
                "none": pl.Series([None] * 1_000, dtype=pl.Float64),
                "one": 3.0,
            }
        ).with_columns(pl.col("x").fill_nan(None))
    )


def test_numbers_come_first_and_missing_values_have_the_last_bin(table):
    bins = Bins.fit(table, 8, 5)
    assert [column.name for column in bins.columns] == ["x", "none", "one", "kind"]
    assert [column.width for column in bins.columns] == [9, 2, 2, 5]
    assert [column.n_ordered for column in bins.columns] == [8, 1, 1, 0]
    codes = [bins.encode(table, index) for index in range(4)]
    assert {code.dtype for code in codes} == {np.dtype(np.uint8)}
    assert np.array_equal(codes[0] == 8, np.isnan(table.numeric_values[:, 0]))
    assert np.array_equal(codes[1], np.ones(1_000))  # only missing values
    assert np.array_equal(codes[2], np.zeros(1_000))
    order = np.argsort(table.numeric_values[codes[0] < 8, 0])
    assert (np.diff(codes[0][codes[0] < 8][order].astype(int)) >= 0).all()


@pytest.mark.parametrize(("most", "width", "map_"), [(5, 5, [0, 1, 2, 3, 4]), (4, 4, [0, 1, 2, 2, 3]), (1, 3, None)])
def test_rare_categories_share_a_bin_with_those_that_are_new(table, most, width, map_):
    kind = Bins.fit(table, 8, most).columns[-1]
    assert kind.width == width
    assert np.array_equal(kind.bin_of_code, map_ or [0, 1, 1, 1, 2])  # "a", "b", "c", other, missing
    assert kind.encode(table.category_codes[:, 0]).max() == width - 1  # missing


def test_wide_bins_have_wider_codes():
    wide = Table.fit(pl.DataFrame({"x": np.arange(900.0)}))
    bins = Bins.fit(wide, 300, 5)
    codes = bins.encode(wide, 0)
    assert codes.dtype == np.uint16
    assert codes.max() == 299


def test_edges_of_many_rows_come_from_evenly_spaced_ones(monkeypatch):
    monkeypatch.setattr("labeldp.learn.additive.bins._EDGE_ROWS", 500)
    table = Table.fit(pl.DataFrame({"x": np.arange(1_000.0)}))
    assert np.array_equal(Bins.fit(table, 4, 4).columns[0].edges, quantile_edges(np.arange(0, 1_000, 2), 4))


def ordered_column(ordered):
    return BinnedColumn("x", np.arange(ordered - 1, dtype=np.float32), None, ordered + 1)


FUNCTIONS = st.builds(
    BasisFunctions, st.integers(2, 12), st.floats(0, 2), st.just(0.0) | st.floats(0.05, 0.9), st.sampled_from([1, 2])
)


@given(FUNCTIONS, st.integers(2, 70), st.booleans())
def test_the_values_of_functions_have_length_one_at_each_bin(functions, ordered, missing):
    """So every row moves the sums equally far, and no row has a length that noise need not follow."""
    values = functions.evaluate(ordered_column(ordered), missing)
    count = min(functions.n_cosines, ordered - 1) + (ordered if functions.detail_fraction and ordered > 2 else 0)
    assert values.shape == (ordered + 1, count + missing)
    lengths = np.linalg.norm(values, functions.norm, axis=1)
    assert lengths[:ordered] == pytest.approx(np.ones(ordered))
    assert np.array_equal(values[-1], [0.0] * count + [1.0] * missing)
    assert not values[:ordered, count:].any()


@given(FUNCTIONS, st.integers(3, 70))
def test_counts_of_bins_have_their_share_of_the_length(functions, ordered):
    values = functions.evaluate(ordered_column(ordered), False)[:ordered]
    counts = values[:, min(functions.n_cosines, ordered - 1) :]
    if functions.detail_fraction:
        assert np.allclose(counts, np.eye(ordered) * functions.detail_fraction ** (1 / functions.norm))
    else:
        assert counts.shape == (ordered, 0)


@given(FUNCTIONS, st.integers(2, 70))
def test_functions_are_slow_cosines_first(functions, ordered):
    """At each bin the cosines are in the ratios of cos(pi j x) / j^power, with the bin's x between 0 and 1."""
    values = functions.evaluate(ordered_column(ordered), True)
    indices = (np.arange(ordered) + 0.5) / ordered
    for index, x in enumerate(indices):
        expected = [
            np.cos(np.pi * j * x) / j**functions.power for j in range(1, min(functions.n_cosines, ordered - 1) + 1)
        ]
        own = values[index, : len(expected)]
        assert np.allclose(own / np.linalg.norm(own), expected / np.linalg.norm(expected), atol=1e-6)
    assert np.allclose(values[:ordered][::-1, 0], -values[:ordered, 0])


def test_with_counts_functions_tell_all_bins_apart_and_without_only_what_is_slow():
    some, all_ = BasisFunctions(3, 1.0, 0.0, 2), BasisFunctions(3, 1.0, 0.3, 2)
    assert np.linalg.matrix_rank(some.evaluate(ordered_column(20), True)) == 4
    assert np.linalg.matrix_rank(all_.evaluate(ordered_column(20), True)) == 21


@pytest.mark.parametrize("detail", [0.0, 0.3])
@pytest.mark.parametrize("norm", [1, 2])
def test_columns_of_one_or_two_values_need_few_functions(detail, norm):
    functions = BasisFunctions(5, 0.75, detail, norm)
    assert np.allclose(functions.evaluate(ordered_column(2), False), [[1.0], [-1.0], [0.0]])
    assert np.allclose(functions.evaluate(ordered_column(2), True), [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])


def test_categories_are_counted():
    assert BasisFunctions(5, 0.75, 0.3, 2).evaluate(BinnedColumn("kind", None, np.arange(4), 4), True) is None


def test_constant_columns_have_few_functions_and_no_empty_ones(table):
    """Their bins tell nothing that the number of rows does not."""
    none, one = Bins.fit(table, 8, 5).columns[1:3]
    functions = BasisFunctions(5, 0.75, 0.0, 1)
    assert functions.evaluate(one, False).shape == (2, 0)
    assert np.array_equal(functions.evaluate(none, True), [[0.0], [1.0]])
