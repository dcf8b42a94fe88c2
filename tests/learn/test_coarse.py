import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from labeldp.learn.coarse import coarse

GENERATOR = np.random.default_rng(0)
ROWS = np.stack([GENERATOR.normal(size=3000), GENERATOR.integers(0, 9, 3000)], axis=1).astype(np.float32)


@pytest.mark.parametrize("trees", [HistGradientBoostingClassifier(), HistGradientBoostingRegressor(max_bins=16)])
def test_trees_see_as_many_values_as_they_have_bins_in_the_same_order(trees):
    seen = coarse(ROWS, trees)
    assert np.unique(seen[:, 0]).size <= trees.max_bins
    assert np.array_equal(seen[:, 1], ROWS[:, 1])  # few enough values already
    order = np.argsort(ROWS[:, 0], kind="stable")
    assert (np.diff(seen[order, 0]) >= 0).all()
    assert seen[:, 0].mean() == pytest.approx(ROWS[:, 0].mean(), abs=1e-5)
    assert np.unique(ROWS[:, 0]).size == 3000  # what was given is as it was


def test_others_see_the_rows():
    assert coarse(ROWS, LogisticRegression()) is ROWS


def test_weighted_trees_learn_as_well_from_few_values_and_predict_rows_as_they_are():
    labels, weights = (ROWS[:, 0] + 0.3 * GENERATOR.normal(size=3000) > 0).astype(int), GENERATOR.uniform(size=3000)
    plain, few = (
        HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(rows, labels, weights)
        for rows in (ROWS, coarse(ROWS, HistGradientBoostingClassifier()))
    )
    assert abs(plain.score(ROWS, labels) - few.score(ROWS, labels)) < 0.01
