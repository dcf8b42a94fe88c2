import math
from functools import cache

import numpy as np
import pytest
from scripted import Seeded
from simulated import coverage

import labeldp as ldp
from labeldp.evaluate import measure_responses
from labeldp.evaluate.intervals import proportion_interval
from labeldp.mechanisms import CorrectCount, GroupHistogram, OneHotLaplace, RRTopK, RRWithPrior

SPACE = ldp.LabelSpace(range(4))
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 4, 3000)
SAID = np.where(RNG.random(3000) < 0.7, CODES, (CODES + 1) % 4)


def release(mechanism, rows=None):
    vault = ldp.Vault(CODES, SPACE, ldp.Budget(9.0, 1e-5))
    vault._bits = Seeded(0)
    return vault.release(mechanism, row_selection=rows)


def test_the_channel_is_inverted():
    responses = release(ldp.RandomizedResponse(2.0), rows=np.arange(1000, 3000))
    found = measure_responses(responses, SAID)
    assert found.low < 0.7 < found.high
    assert found.high - found.low < 0.1
    proba = np.full((3000, 4), 0.1)
    proba[np.arange(3000), SAID] = 0.7
    assert measure_responses(responses, proba) == found


def test_nearly_certain_labels_give_the_plain_share():
    found = measure_responses(release(ldp.RandomizedResponse(9.0)), SAID)
    assert found.value == pytest.approx((SAID == CODES).mean(), abs=0.005)


@pytest.mark.parametrize(("epsilon", "accuracy", "classes"), [(0.5, 0.9, 2), (1.0, 0.6, 10), (3.0, 0.98, 2)])
def test_accuracy_is_covered(epsilon, accuracy, classes):
    rng, interval, rows = np.random.default_rng(1), cache(proportion_interval), 400
    p_true = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    p_other = (1 - p_true) / (classes - 1)
    agree = rng.binomial(rows, p_other + (p_true - p_other) * accuracy, 1000)
    found = [interval(int(x), rows, 0.0, p_other, p_true) for x in agree]
    assert 0.93 <= coverage(found, accuracy) <= 0.975


@pytest.mark.parametrize(
    "mechanism",
    [
        RRWithPrior(1.0, np.full((3000, 4), 0.25)),
        RRTopK(1.0, np.full((3000, 4), 0.25), 2),
        OneHotLaplace(1.0),
        GroupHistogram(CODES * 0, 1.0),
        CorrectCount(SAID, 1.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_other_releases_cannot_be_inverted(mechanism):
    with pytest.raises(ldp.InputError, match=r"RandomizedResponse, or score them by measure") as refused:
        measure_responses(release(mechanism), SAID)
    assert ". " not in str(refused.value)


def test_pseudo_labels_cannot_be_inverted():
    with pytest.raises(ldp.InputError, match="Only a release of plain"):
        measure_responses(release(ldp.RandomizedResponse(1.0)).relabel(SAID), SAID)


def test_a_release_without_labels_is_refused():
    with pytest.raises(ldp.InputError, match="no labels"):
        measure_responses(release(ldp.RandomizedResponse(1.0)).keep(np.zeros(3000, bool)), SAID)
