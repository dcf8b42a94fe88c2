import json

import numpy as np
import pytest
from scripted import Seeded
from simulated import Binormal

import labeldp as ldp
from labeldp.evaluate import Interval, Score, measure
from labeldp.evaluate.intervals import proportion_interval
from labeldp.privacy.mechanisms import linear, selection

SPACE = ldp.LabelSpace(["no", "yes"])
WORLD = Binormal(600, 0.4, 1.5)
PROBA, CODES = WORLD.draw(np.random.default_rng(0))
ROWS = np.arange(200, 600)


def vault(epsilon=1.0, **more):
    made = ldp.Vault(np.array(["no", "yes"])[CODES], SPACE, ldp.Budget(epsilon), **more)
    made._bits = Seeded(0)
    return made


def test_a_score_costs_its_epsilon_and_no_more():
    mine = vault(1.0)
    score = measure(mine, PROBA, ROWS, 1.0)
    assert mine.guarantee().epsilon == 1.0
    assert mine.remaining(np.arange(200))[0] == 1.0
    assert (score.n_rows, score.epsilon) == (400, 1.0)
    assert {entry.details["mechanism"] for entry in mine.ledger.entries()} == {"CorrectCount", "GroupHistogram"}


def test_a_repeated_score_costs_nothing_more():
    mine = vault(1.0)
    assert measure(mine, PROBA, ROWS, 1.0) == measure(mine, PROBA, ROWS, 1.0)
    garbage = PROBA.copy()
    garbage[:200] = np.nan  # the probabilities of other rows do not matter
    assert measure(mine, garbage, ROWS, 1.0) == measure(mine, PROBA, ROWS, 1.0)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.7, 1 / 3, 2.0000000000000004, 0.12345678901234567])
def test_two_halves_are_never_more_than_the_whole(epsilon):
    mine = vault(epsilon)
    measure(mine, PROBA, ROWS, epsilon)
    assert mine.guarantee().epsilon == pytest.approx(epsilon, rel=1e-12)


def test_noise_is_as_wide_as_the_intervals_take_it_to_be(monkeypatch):
    """The coverage tests draw noise from NumPy: this ties them to what the vault draws."""
    scales = []

    def nothing(width, count, bits):
        scales.append(float(width))
        return np.zeros(count, np.int64)

    monkeypatch.setattr(selection, "discrete_laplace", nothing)
    monkeypatch.setattr(linear, "discrete_laplace", nothing)
    score = measure(vault(0.5), PROBA, ROWS, 0.5)
    assert scales == [2 / 0.5, 4 / 0.5]
    right = int((PROBA.argmax(axis=1) == CODES)[ROWS].sum())
    assert score.accuracy == proportion_interval(right, 400, 4.0)
    assert score.recall[1].value == pytest.approx(PROBA.argmax(axis=1)[ROWS][CODES[ROWS] == 1].mean())


def test_intervals_hold_the_truth_at_a_large_epsilon():
    score = measure(vault(20.0), PROBA, ROWS, 20.0)
    assert score.accuracy.low < WORLD.accuracy < score.accuracy.high
    assert score.auc.low < WORLD.auc < score.auc.high
    assert score.log_loss.low < WORLD.log_loss() < score.log_loss.high
    assert len(score.recall) == len(score.precision) == 2
    assert "400 held-out rows" in score.method


def test_scores_survive_a_round_trip_through_json():
    for epsilon in (1.0, 1e-4):
        score = measure(vault(2.0), PROBA, ROWS, epsilon)
        assert Score.from_json(json.loads(json.dumps(score.to_json(), allow_nan=False))) == score
    assert score.accuracy == score.auc == Interval(None, 0.0, 1.0)
    assert score.log_loss == Interval(None, 0.0, np.inf)


def test_the_ledger_records_the_releases_that_the_model_learned_from():
    mine = vault(2.0)
    learned = mine.release(ldp.RandomizedResponse(1.0), row_selection=np.arange(200))
    measure(mine, PROBA, ROWS, 1.0, derived_from=[learned])
    assert [e.details["origin"] for e in mine.ledger.entries()] == ["declared public", [learned.entry], [learned.entry]]
    assert mine.guarantee().epsilon == 1.0  # other rows


def test_users_pay_for_all_their_rows():
    mine = vault(0.6, users=np.arange(600) // 3)
    measure(mine, PROBA, np.arange(300, 600), 0.6)
    assert 0.6 - 1e-9 < mine.guarantee().epsilon <= 0.6
    assert [e.details["parameters"]["epsilon"] for e in mine.ledger.entries()] == [pytest.approx(0.1)] * 2


def test_missing_labels_take_no_part():
    labels = [None if i % 2 else ["no", "yes"][c] for i, c in enumerate(CODES)]
    mine = ldp.Vault(labels, ldp.LabelSpace(["no", "yes"], missing="public"), ldp.Budget(1.0))
    assert measure(mine, PROBA, ROWS, 1.0).n_rows == 200


def test_constant_predictions_are_scored():
    for certain in (0.0, 0.5, 1.0):
        proba = np.tile([1 - certain, certain], (600, 1))
        score = measure(vault(5.0), proba, ROWS, 4.0)
        assert score.auc.low <= 0.5 <= score.auc.high
        assert score.accuracy.value is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PROBA[:5], ROWS, 1.0), "all 600 rows and 2 classes"),
        ((PROBA[:, 0], ROWS, 1.0), "all 600 rows and 2 classes"),
        ((PROBA * 2, ROWS, 1.0), "add up to 1"),
        ((PROBA * np.nan, ROWS, 1.0), "add up to 1"),
        ((PROBA, [600], 1.0), "from 0 to 599"),
        ((PROBA, [], 1.0), "from 0 to 599|No labelled row"),
        ((PROBA, ROWS, -1.0), "epsilon must be"),
        ((PROBA, ROWS, 1.0, (), 0), "n_bins must be"),
    ],
)
def test_bad_requests_cost_nothing(arguments, message):
    mine = vault()
    with pytest.raises(ldp.InputError, match=message):
        measure(mine, *arguments)
    assert mine.guarantee().epsilon == 0
