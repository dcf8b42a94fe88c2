import numpy as np
import pytest

import labeldp as ldp
from labeldp.audit.inference import measure_label_inference
from labeldp.core.guarantee import max_guess_accuracy


def drawn(rows=4000, classes=4, seed=0):
    generator = np.random.default_rng(seed)
    prior = generator.dirichlet(np.ones(classes), rows)
    labels = (generator.random((rows, 1)) > prior.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return generator, prior, labels


def test_a_model_that_knows_no_more_than_the_features_gives_no_advantage():
    _, prior, labels = drawn()
    found = measure_label_inference(labels, prior, prior, 1.0)
    assert found.advantage == found.low == found.high == 0
    assert found.features_alone == pytest.approx(prior.max(axis=1).mean(), abs=0.03)


def test_a_model_that_memorized_labels_has_a_large_advantage():
    _, prior, labels = drawn()
    found = measure_label_inference(labels, prior, 0.9 * np.eye(4)[labels] + 0.1 * prior, 1.0)
    assert found.attack == 1
    assert found.low > 0.3
    assert found.advantage > found.allowed  # epsilon 1 does not allow that


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_releases_give_what_epsilon_allows_at_most(epsilon):
    generator, prior, labels = drawn(20_000)
    keep = np.exp(epsilon) / (np.exp(epsilon) + 3)
    noisy = np.where(generator.random(labels.size) < keep, labels, (labels + generator.integers(1, 4, labels.size)) % 4)
    evidence = np.where(np.eye(4)[noisy] > 0, epsilon, 0.0)
    found = measure_label_inference(labels, prior, prior, epsilon, evidence=evidence)
    assert found.view == "releases" or found.advantage == 0
    assert found.low <= found.allowed
    assert found.advantage >= -0.01


def test_the_most_that_is_allowed_is_attained_by_randomized_response():
    """With a uniform prior over two classes it is the chance that randomized response keeps a label."""
    assert max_guess_accuracy(1.0, np.array(0.5)) == pytest.approx(np.exp(1) / (1 + np.exp(1)))
    assert max_guess_accuracy(1.0, np.array(0.25)) == pytest.approx(np.exp(1) / (3 + np.exp(1)))
    assert max_guess_accuracy(0.0, np.array(0.5), 0.1) == pytest.approx(
        0.55
    )  # delta reveals the label in a tenth of cases
    assert max_guess_accuracy(1.0, np.array(1.0)) == 1


def test_probabilities_of_too_few_labels_are_refused():
    with pytest.raises(ldp.InputError, match="probabilities of all classes"):
        measure_label_inference([0, 1], np.ones((2, 2)) / 2, np.ones((2, 2)) / 2, 1.0)
