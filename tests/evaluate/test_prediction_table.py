import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from simulated import Binormal, coverage, laplace, table
from sklearn.metrics import log_loss, precision_score, recall_score, roc_auc_score

from labeldp.evaluate import Interval
from labeldp.evaluate.intervals import proportion_interval
from labeldp.evaluate.prediction_table import cut_into_slices, group_predictions

CERTAIN = 1000.0  # an epsilon without noise


def classes_of(rng, rows, classes):
    logits = 2 * rng.normal(size=(rows, classes))
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return proba, (proba.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)


def test_without_noise_two_classes_are_scored_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    proba, codes = Binormal(4000, 0.3, 1.5).draw(rng)
    seen, said = table(rng, proba, codes, CERTAIN, bins=50), proba.argmax(axis=1)
    for c in (0, 1):
        assert seen.precision(c).value == pytest.approx(precision_score(codes, said, pos_label=c), abs=1e-6)
        assert seen.recall(c).value == pytest.approx(recall_score(codes, said, pos_label=c), abs=1e-6)
    assert seen.auc().value == pytest.approx(roc_auc_score(codes, proba[:, 1]), abs=0.003)
    assert seen.log_loss().value == pytest.approx(log_loss(codes, proba), abs=0.01)
    assert seen.calibration_error().low == 0


def test_without_noise_five_classes_are_scored_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    proba, codes = classes_of(rng, 4000, 5)
    seen, said = table(rng, proba, codes, CERTAIN), proba.argmax(axis=1)
    assert [seen.recall(c).value for c in range(5)] == pytest.approx(recall_score(codes, said, average=None), abs=1e-6)
    precision = precision_score(codes, said, average=None)
    assert [seen.precision(c).value for c in range(5)] == pytest.approx(precision, abs=1e-6)
    assert seen.log_loss().value == pytest.approx(log_loss(codes, proba), abs=0.05)
    assert seen.auc().value == pytest.approx(roc_auc_score(codes, proba, multi_class="ovr"), abs=0.05)


def test_the_calibration_error_of_an_overconfident_model_is_large():
    rng = np.random.default_rng(0)
    proba, codes = Binormal(20_000, 0.5, 1.0, confidence=3.0).draw(rng)
    found = table(rng, proba, codes, 1.0).calibration_error()
    groups = cut_into_slices(proba[:, 1], np.ones(20_000), 200)
    gaps = [abs(codes[groups == g].mean() - proba[groups == g, 1].mean()) for g in range(200)]
    assert found.low > 0.05
    assert found.low <= np.mean(gaps) <= found.high + 0.02


@pytest.mark.parametrize("epsilon", [0.25, 1, 4])
def test_intervals_of_rare_positives_cover(epsilon):
    """At one positive in a hundred, the truth of the population, and for AUC also that of the held-out rows themselves.

    Pairs hidden in bins may go either way, so that AUC is covered more often than in 95 % of a thousand repetitions.
    The others must come within three binomial deviations of that. An interval may be all of [0, 1], where positives
    drown in noise; the last line says how often it must not.
    """
    rng, world, of_share = np.random.default_rng(0), Binormal(2000, 0.01, 2.5), cache(proportion_interval)
    covered, has_value = [], []
    for _ in range(1000):
        proba, codes = world.draw(rng)
        seen = table(rng, proba, codes, epsilon)
        right = (proba.argmax(axis=1) == codes).sum() + laplace(rng, 2 / epsilon, 1)[0]
        auc, accuracy = seen.auc(), of_share(int(right), 2000, 2 / epsilon)
        ones = np.flatnonzero(codes)
        among_rows = (rankdata(proba[:, 1])[ones].mean() - (ones.size + 1) / 2) / (2000 - ones.size)
        truths = (auc, world.auc), (auc, among_rows), (accuracy, world.accuracy)
        truths += (seen.recall(1), world.recall), (seen.precision(1), world.precision)
        covered.append([interval.low <= truth <= interval.high for interval, truth in truths])
        has_value.append(auc.value is not None)
    assert (np.mean(covered, axis=0) >= [0.95, 0.95, *[0.95 - 3 * math.sqrt(0.95 * 0.05 / 1000)] * 3]).all()
    assert np.mean(has_value) >= {0.25: 0.0, 1: 0.5, 4: 0.95}[epsilon]


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.25, 1, 4])
@pytest.mark.parametrize("rows", [2000, 20_000])
def test_a_model_of_noisy_labels_is_covered_too(rows, epsilon):
    """A model of unmodified randomized responses at epsilon 1 expects many positives, and bins are cut by that."""
    rng, world, p_true = np.random.default_rng(0), Binormal(rows, 0.01, 1.5), 1 / (1 + math.exp(-1))
    found = []
    for _ in range(1000):
        proba, codes = world.draw(rng)
        found.append(table(rng, (1 - p_true) + (2 * p_true - 1) * proba, codes, epsilon).auc())
    assert coverage(found, world.auc) >= 0.95


def test_few_positives_under_much_noise_are_not_estimable():
    rng, world = np.random.default_rng(0), Binormal(1000, 0.01, 1.2)
    found = [table(rng, *world.draw(rng), 0.1).auc() for _ in range(50)]
    assert np.mean([i == Interval(None, 0.0, 1.0) for i in found]) > 0.8


@pytest.mark.parametrize("epsilon", [0.5, 4])
def test_rates_of_a_class_are_covered(epsilon):
    check_rates(Binormal(1000, 0.3, 1.2), epsilon, 400, slack=0.015)


def check_rates(world, epsilon, repetitions, slack=0.0):
    rng = np.random.default_rng(1)
    seen = [table(rng, *world.draw(rng), epsilon) for _ in range(repetitions)]
    assert 0.93 - slack <= coverage([t.recall(1) for t in seen], world.recall) <= 0.97 + slack
    assert 0.93 - slack <= coverage([t.precision(1) for t in seen], world.precision) <= 0.97 + slack
    assert 0.93 - slack <= coverage([t.log_loss() for t in seen], world.log_loss())
    assert 0.95 - slack <= coverage([t.auc() for t in seen], world.auc)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.25, 1, 4])
@pytest.mark.parametrize("world", [(2000, 0.3, 1.2), (2000, 0.5, 2.0), (500, 0.5, 0.5)], ids=str)
def test_rates_of_a_class_are_covered_everywhere(world, epsilon):
    check_rates(Binormal(*world), epsilon, 2000)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.25, 1, 4])
@pytest.mark.parametrize("apart", [0.3, 1.2, 2.5])
@pytest.mark.parametrize("confidence", [0.5, 1.0, 2.0])
def test_auc_of_rare_positives_is_covered_everywhere(apart, confidence, epsilon):
    rng, world = np.random.default_rng(0), Binormal(10_000, 0.01, apart, confidence)
    found = [table(rng, *world.draw(rng), epsilon).auc() for _ in range(1000)]
    assert coverage(found, world.auc) >= 0.95


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.25, 1, 4])
def test_a_model_of_equal_scores_has_no_hidden_pairs(epsilon):
    """Ten values of the score alone: the bins hide nothing, and the interval is as narrow as it can be."""
    rng, found = np.random.default_rng(0), []
    for _ in range(1000):
        level = rng.integers(1, 10, 2000) / 10
        codes = (rng.random(2000) < level).astype(int)
        found.append(table(rng, np.stack([1 - level, level], axis=1), codes, epsilon).auc())
    levels = np.arange(1, 10) / 10
    yes, no = levels / levels.sum(), (1 - levels) / (1 - levels).sum()
    truth = yes @ (np.cumsum(no) - no / 2)
    assert 0.93 <= coverage(found, truth) <= (0.97 if epsilon > 1 else 1)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=60), st.integers(1, 12))
def test_slices_follow_the_score(scores, count):
    number = cut_into_slices(np.array(scores), np.ones(len(scores)), count)
    order = np.argsort(scores)
    assert (np.diff(number[order]) >= 0).all()
    assert number.min() >= 0
    assert number.max() < count
    assert all(len(set(number[np.array(scores) == s])) == 1 for s in scores)


@settings(max_examples=50)
@given(st.integers(2, 5), st.floats(1e-3, 10), st.integers(1, 20), st.integers(0, 1000))
def test_a_group_has_one_prediction_and_none_is_empty(classes, epsilon, bins, seed):
    proba, _ = classes_of(np.random.default_rng(seed), 200, classes)
    groups = group_predictions(proba, epsilon, bins)
    assert set(groups) == set(range(groups.max() + 1))
    assert groups.max() < bins * classes + 1
    for g in range(groups.max() + 1):
        assert len(set(proba[groups == g].argmax(axis=1))) == 1


def test_more_noise_means_fewer_bins():
    proba, _ = Binormal(2000, 0.3, 1.2).draw(np.random.default_rng(0))
    used = [group_predictions(proba, epsilon, 10).max() + 1 for epsilon in (0.01, 0.1, 2.0)]
    assert used == sorted(used)
    assert used[0] <= 4 < 20 <= used[-1]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 100.0])
def test_whatever_the_noise_intervals_are_intervals(classes, epsilon):
    rng = np.random.default_rng(0)
    for _ in range(10):
        proba, codes = classes_of(rng, 60, classes)
        seen = table(rng, proba, codes, epsilon)
        shares = [seen.auc(), seen.calibration_error()]
        for each in [*shares, *(f(c) for c in range(classes) for f in (seen.recall, seen.precision))]:
            assert 0 <= each.low <= each.high <= 1
            assert each.value is None or each.low <= each.value <= each.high
        loss = seen.log_loss()
        assert 0 <= loss.low <= loss.high
        assert (loss.value is None) == math.isinf(loss.high)
