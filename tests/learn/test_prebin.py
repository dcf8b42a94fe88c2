import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info

from labeldp.learn.prebin import limit_threads, prebin

GENERATOR = np.random.default_rng(0)
ROWS = np.stack([GENERATOR.normal(size=3000), GENERATOR.integers(0, 9, 3000)], axis=1).astype(np.float32)


@pytest.mark.parametrize("trees", [HistGradientBoostingClassifier(), HistGradientBoostingRegressor(max_bins=16)])
def test_trees_see_as_many_values_as_they_have_bins_in_the_same_order(trees):
    seen = prebin(ROWS, trees)
    assert np.unique(seen[:, 0]).size <= trees.max_bins
    assert np.array_equal(seen[:, 1], ROWS[:, 1])  # few enough values already
    order = np.argsort(ROWS[:, 0], kind="stable")
    assert (np.diff(seen[order, 0]) >= 0).all()
    assert (seen <= ROWS).all()
    assert np.isin(seen, ROWS).all()
    assert np.unique(ROWS[:, 0]).size == 3000  # what was given is as it was


def _slow(column, most):
    """Give each value the least value of its bin; a bin is closed above by an edge, and edges are quantiles."""
    if np.unique(column).size <= most:
        return column
    edges = np.unique(np.quantile(column, np.linspace(0, 1, most)[:-1], method="lower"))
    bins = np.searchsorted(edges, column, side="left")
    return np.array([column[bins == index].min() for index in bins], column.dtype)


@st.composite
def _columns(draw):
    """Draw columns with many values, and with many rows at one of them: the largest, the smallest or any other."""
    size = draw(st.integers(2, 60))
    elements = st.floats(-(2.0**100), 2.0**100, width=32)
    values = draw(arrays.arrays(np.float32, size, elements=elements, unique=draw(st.booleans())))
    tied = draw(st.sampled_from([values.min(), values.max(), values[0]]))
    return draw(st.permutations([*values.tolist(), *[float(tied)] * draw(st.integers(0, 60))]))


@given(_columns(), st.integers(2, 40))
def test_each_value_becomes_the_least_one_of_its_bin(values, most):
    column = np.array(values, np.float32)
    seen = prebin(column[:, None], HistGradientBoostingClassifier(max_bins=most))[:, 0]
    assert np.array_equal(seen, _slow(column, most))
    assert np.unique(seen).size <= most


@pytest.mark.parametrize("largest", [2, 4, 300])
def test_many_rows_at_the_largest_of_many_values_are_no_bin_beyond_it(largest):
    column = np.append(np.arange(400.0), np.full(largest, 399.0)).astype(np.float32)
    seen = prebin(column[:, None], HistGradientBoostingClassifier())[:, 0]
    assert np.array_equal(seen, _slow(column, 255))
    assert np.unique(seen).size <= 255


def test_a_value_that_nearly_all_rows_have_stays_apart_from_the_next():
    rows = np.zeros((100_000, 1), np.float32)
    rows[:350, 0] = GENERATOR.uniform(0.1, 1, 350)
    seen = prebin(rows, HistGradientBoostingClassifier())
    assert (seen[350:] == 0).all()
    assert (seen[:350] > 0).all()
    labels = np.arange(100_000) < 350
    trees = HistGradientBoostingClassifier(max_iter=5).fit(seen, labels)
    assert (trees.predict_proba(rows)[:350, 1] > trees.predict_proba(rows)[350:, 1].max()).all()


def test_others_see_the_rows():
    assert prebin(ROWS, LogisticRegression()) is ROWS


def test_weighted_trees_learn_as_well_from_few_values_and_predict_rows_as_they_are():
    labels, weights = (ROWS[:, 0] + 0.3 * GENERATOR.normal(size=3000) > 0).astype(int), GENERATOR.uniform(size=3000)
    plain, few = (
        HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(rows, labels, weights)
        for rows in (ROWS, prebin(ROWS, HistGradientBoostingClassifier()))
    )
    assert abs(plain.score(ROWS, labels) - few.score(ROWS, labels)) < 0.01


@pytest.mark.parametrize(("rows", "alone"), [(100, True), (400_000, False)])
def test_small_tables_are_fitted_on_one_thread(rows, alone):
    before = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "openmp"]
    with limit_threads(np.zeros((rows, 3), np.float32)):
        inside = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "openmp"]
    assert inside == ([1] * len(before) if alone else before)
