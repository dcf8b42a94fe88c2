import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

import labeldp as ldp
from labeldp.evaluate.criteria import auc_scores, check_criterion, log_loss_scores
from labeldp.privacy.mechanisms import HighestScore

TWO, THREE = ldp.LabelSpace(["a", "b"]), ldp.LabelSpace(["a", "b", "c"])


def proba(rng, rows, classes, ties=False):
    weights = rng.integers(1, 4, (rows, classes)) if ties else rng.random((rows, classes)) ** 3
    return weights / weights.sum(axis=1, keepdims=True)


def total(scores, codes):
    return int(scores[np.arange(len(codes)), codes].sum(dtype=np.int64))


@settings(max_examples=50)
@given(st.integers(2, 40), st.booleans(), st.integers(0, 10**6))
def test_totals_of_ranks_are_auc_times_a_number_that_labels_fix(rows, ties, seed):
    rng = np.random.default_rng(seed)
    codes = np.append(rng.integers(0, 2, rows), [0, 1])
    table = proba(rng, rows + 2, 2, ties)
    positive, negative = codes.sum(), (codes == 0).sum()
    found = total(auc_scores(table), codes)
    assert found == pytest.approx(2 * positive * negative * (roc_auc_score(codes, table[:, 1]) - 0.5), abs=1e-6)


@settings(max_examples=30)
@given(st.integers(2, 30), st.integers(0, 10**6))
def test_a_label_moves_a_total_by_half_of_the_other_rows_at_most(rows, seed):
    scores = auc_scores(proba(np.random.default_rng(seed), rows, 2, ties=seed % 2 == 0))
    assert np.abs(scores[:, 1] - scores[:, 0]).max() <= rows - 1  # ranks are doubled
    assert scores.sum(dtype=np.int64) == 0


def test_opposite_ranks_have_the_largest_reach_and_equal_ones_none():
    rising = np.linspace(0.1, 0.9, 50)
    up = np.stack([1 - rising, rising], axis=1)
    assert HighestScore(np.stack([auc_scores(up), auc_scores(up[:, ::-1])]), 1.0).sensitivity == 2 * 49
    assert HighestScore(np.stack([auc_scores(up), auc_scores(up)]), 1.0).sensitivity == 1


def test_certain_rows_are_ranked_at_the_ends_and_last_bits_rank_nothing():
    table = np.array([[1.0, 0.0], [0.3, 0.7], [0.0, 1.0], [1.0, 0.0], [0.3 + 1e-12, 0.7]])
    assert auc_scores(table)[:, 1].tolist() == [-3, 1, 4, -3, 1]


@pytest.mark.parametrize("classes", [2, 5, 150])
def test_totals_of_losses_are_the_log_loss(classes):
    rng = np.random.default_rng(classes)
    table, codes = proba(rng, 400, classes, ties=True), rng.integers(0, classes, 400)
    mean = -total(log_loss_scores(table), codes) / 4096 / 400
    assert mean == pytest.approx(log_loss(codes, table, labels=np.arange(classes)), abs=1e-3)


@pytest.mark.parametrize(("classes", "floor"), [(2, 1e-3), (100, 1e-3), (1000, 1e-4)])
def test_no_loss_is_beyond_the_floor_which_lies_below_even_chances(classes, floor):
    table = np.eye(classes)[[0]]
    scores = log_loss_scores(table)[0]
    assert scores[0] == 0
    assert (scores[1:] == round(4096 * np.log(floor))).all()


def test_many_classes_fit_into_few_bytes_and_their_reach_is_soon_found():
    rng = np.random.default_rng(0)
    scores = np.stack([log_loss_scores(proba(rng, 2500, 150)) for _ in range(6)])
    assert scores.nbytes == 6 * 2500 * 150 * 2
    assert 4096 < HighestScore(scores, 1.0).sensitivity <= 2 * 4096 * 7.4


@pytest.mark.parametrize(
    ("by", "space", "message"),
    [
        ("recall", TWO, "no criterion 'recall': choose by one of auto, accuracy, log-loss, auc"),
        (None, TWO, "no criterion None"),
        ("auc", THREE, "AUC is for two classes, and there are 3"),
        ("log-loss", ldp.LabelSpace.range(0, 3, 1), "chosen by absolute error, not by log-loss"),
    ],
)
def test_a_criterion_that_does_not_fit_is_one_sentence(by, space, message):
    with pytest.raises(ldp.InputError, match=message):
        check_criterion(by, space)


@pytest.mark.parametrize("space", [TWO, THREE, ldp.LabelSpace.range(0, 3, 1)])
def test_auto_fits_all_labels(space):
    check_criterion("auto", space)
