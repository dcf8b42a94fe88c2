import numpy as np
import pytest

import labeldp as ldp
from labeldp.learn import Bayes, Training
from labeldp.mechanisms import OneHotLaplace
from labeldp.recipes.advisor.formulas import laplace_information, response_information
from labeldp.recipes.training import train


def mean_accuracy(digits, mechanism, seeds):
    """Of Bayes, over draws of the noise and of the training's seed."""
    results = []
    for seed in range(seeds):
        learner = Bayes(training=Training(epochs=12, batch_size=128, learning_rate=0.1, device="cpu", seed=seed))
        release = digits.vault(mechanism.epsilon, seed=seed).release(mechanism)
        results.append(digits.accuracy(learner.fit(digits.features, release)))
    return float(np.mean(results))


def test_one_learner_makes_more_of_the_mechanism_that_tells_more(digits):
    """Measured: 0.73 against 0.59."""
    assert laplace_information(1.0, 10) > 1.4 * response_information(1.0, 10)
    one_hot, response = (mean_accuracy(digits, m(1.0), 6) for m in (OneHotLaplace, ldp.RandomizedResponse))
    assert one_hot > response + 0.08


@pytest.mark.long
def test_it_does_so_over_many_draws(digits):
    one_hot, response = (mean_accuracy(digits, m(1.0), 24) for m in (OneHotLaplace, ldp.RandomizedResponse))
    assert one_hot > response + 0.1


def test_the_whole_pipeline_beats_plain_randomized_response(digits):
    assert (
        digits.mean_accuracy("alibi", 1.0) > digits.mean_accuracy("randres", 1.0, targets="labels") + 0.3
    )  # measured: 0.43


def test_laplace_noise_leaves_delta_alone_and_gaussian_noise_spends_it(digits):
    for noise, mechanism, delta in (("laplace", "OneHotLaplace", 0.0), ("gaussian", "OneHotGaussian", 1e-6)):
        vault = digits.vault(1.0, 1e-6)
        trained = train(vault, digits.task(1.0, 1e-6), "alibi", {"noise": noise}, score=False)
        assert [r.mechanism for r in trained.releases] == [mechanism]
        assert (trained.guarantee.epsilon, trained.guarantee.delta) == (1.0, delta)
        assert (vault.guarantee().epsilon, vault.guarantee().delta) == (1.0, delta)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "gaussian"}, "needs a delta above 0"),
        ({"noise": "cauchy"}, "not 'cauchy'"),
        ({"mixup": -1.0}, "'mixup' must not be below zero"),
        ({"mixup": float("inf")}, "mixup is 0, for rows as they are, or a number above 0"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_spent(digits, options, message):
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match=message):
        train(vault, digits.task(1.0), "alibi", options)
    assert not vault.ledger.entries()
