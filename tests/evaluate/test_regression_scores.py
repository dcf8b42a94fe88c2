"""Errors of numbers, measured privately: right where noise is small, and covered where it is not."""

import numpy as np
import pytest
from scripted import Seeded

import labeldp as ldp
from labeldp.evaluate import ErrorScore, choose, measure_errors
from labeldp.evaluate.regression_scores import estimate_mean_loss
from labeldp.mechanisms import LossSum
from labeldp.releases.scores import NoisyLoss

SPACE = ldp.LabelSpace.range(0, 100, 1)


def world(rows, seed, scatter=8.0):
    generator = np.random.default_rng(seed)
    predictions = generator.uniform(20, 80, rows)
    return predictions, np.clip(np.rint(predictions + generator.normal(0, scatter, rows)), 0, 100)


def scored(rows, epsilon, seed, scatter=8.0):
    predictions, labels = world(rows, seed, scatter)
    vault = ldp.Vault(labels, SPACE, ldp.Budget(epsilon))
    vault._bits = Seeded(seed)
    score = measure_errors(vault, predictions, np.arange(rows), epsilon)
    assert vault.guarantee().epsilon <= epsilon
    return score, predictions, labels


def test_with_hardly_any_noise_it_is_the_error():
    score, predictions, labels = scored(2000, 1e4, 0)
    assert score.rmse.value == pytest.approx(np.sqrt(((predictions - labels) ** 2).mean()), rel=0.01)
    assert score.mae.value == pytest.approx(np.abs(predictions - labels).mean(), rel=0.01)
    assert score.rmse.low < 8 < score.rmse.high
    assert score.n_rows == 2000


@pytest.mark.parametrize("objective", ["squared", "absolute"])
@pytest.mark.parametrize(("rows", "epsilon"), [(100, 0.25), (100, 2.0), (1000, 0.25), (1000, 2.0)])
def test_intervals_cover_the_error_of_new_rows(rows, epsilon, objective):
    """Of two hundred worlds, ten may fail; the bound on the variance makes it fewer."""
    predictions, labels = world(200_000, 999)
    truth = (np.square if objective == "squared" else np.abs)(predictions - labels).mean()
    facts, bits = {"space": SPACE, "guarantee": ldp.Guarantee(1.0), "mechanism": "", "n_rows": rows}, Seeded(7)
    inside = 0
    for seed in range(200):
        predictions, labels = world(rows, seed)
        found = estimate_mean_loss(LossSum(predictions, epsilon, objective).draw(labels.astype(int), facts, bits))
        inside += found.low <= truth <= found.high
    assert inside >= 185


def test_more_rows_and_more_epsilon_say_more():
    width = [
        np.mean([(s := scored(rows, epsilon, seed)[0]).rmse.high - s.rmse.low for seed in range(5)])
        for rows, epsilon in ((200, 0.5), (200, 4.0), (2000, 4.0))
    ]
    assert width[0] > width[1] > width[2]


def test_a_loss_of_less_than_nothing_has_no_value_but_an_upper_end():
    facts = {"space": SPACE, "guarantee": ldp.Guarantee(1.0), "mechanism": "", "n_rows": 50}
    found = estimate_mean_loss(
        NoisyLoss(**facts, total=-3000, n_labels=50, step_size=1 / 65536, max_row_loss=1.0, scale=65536.0)
    )
    assert found.value is None
    assert found.low == 0
    assert found.high < 0.3


def test_a_score_is_written_and_read_back():
    score = scored(100, 1.0, 0)[0]
    assert ErrorScore.from_json(score.to_json()) == score


def test_the_candidate_with_the_least_error_is_chosen():
    predictions, labels = world(500, 0)
    vault = ldp.Vault(labels, SPACE, ldp.Budget(3.0))
    choice = choose(vault, [np.full(500, 50.0), predictions, predictions + 30], np.arange(500), 3.0)
    assert (choice.best_index, choice.n_candidates, choice.mechanism) == (1, 3, "NoisyMinLoss")
    assert vault.guarantee().epsilon == 3.0


def test_predictions_that_are_none_are_refused_before_anything_is_spent():
    vault = ldp.Vault(world(20, 0)[1], SPACE, ldp.Budget(1.0))
    for bad, rows in ((np.zeros(19), None), (np.full(20, np.nan), None), (np.zeros(20), np.zeros(20, bool))):
        with pytest.raises(ldp.InputError, match=r"one predicted number|no rows"):
            measure_errors(vault, bad, rows, 1.0)
    assert not vault.ledger.entries()
