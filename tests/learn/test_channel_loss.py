import numpy as np
import pytest
from scipy.special import expit, softmax

from labeldp.learn.channel_loss import (
    ChannelLoss,
    fit_log_proportions,
    fit_shift,
    match_proportions,
    to_probabilities,
    to_scores,
)

SHARES = {2: [0.9, 0.1], 3: [0.5, 0.3, 0.2]}


def responses(classes, epsilon, rows=600):
    """Log-evidence of randomized response, each outcome as often as the shares of the classes make it."""
    channel = np.where(np.eye(classes, dtype=bool), np.exp(epsilon), 1.0) / (np.exp(epsilon) + classes - 1)
    counts = np.round(rows * channel @ SHARES[classes]).astype(int)
    return np.log(channel)[np.repeat(np.arange(classes), counts)]


def some(classes, kind):
    generator = np.random.default_rng(0)
    evidence = generator.normal(size=(40, classes)) * 3
    return ChannelLoss.of(evidence, kind), generator.normal(size=(40, 1 if classes == 2 else classes)) * 2


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["likelihood", "prior"])
def test_the_gradient_is_that_of_the_loss(classes, kind):
    loss, scores = some(classes, kind)
    gradient, step = loss.gradient_and_curvature(scores)[0], 1e-5
    for index in range(scores.shape[1]):
        moved = step * (np.arange(scores.shape[1]) == index)
        slope = (loss.losses(scores + moved) - loss.losses(scores - moved)) / (2 * step)
        assert np.allclose(gradient[:, index], slope, atol=1e-8)


@pytest.mark.parametrize("kind", ["likelihood", "prior"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_is_the_likelihood_of_what_was_released(classes, kind):
    loss, scores = some(classes, kind)
    probabilities = to_probabilities(scores)
    if kind == "prior":
        expected = -(softmax(loss.evidence, axis=1) * np.log(probabilities)).sum(axis=1)
    else:
        expected = -np.log((probabilities * np.exp(loss.evidence)).sum(axis=1))
    assert np.allclose(loss.losses(scores), expected)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_curvature_of_binary_randomized_response_is_its_fisher_information(epsilon):
    loss = ChannelLoss.of(responses(2, epsilon, 400_000), "likelihood")
    scores = np.linspace(-6, 6, len(loss.evidence))[:, None]
    flip = 1 / (1 + np.exp(epsilon))
    m, p = 1 - 2 * flip, expit(scores)
    released = flip + m * p
    expected = (m * p * (1 - p)) ** 2 / (released * (1 - released))
    assert np.allclose(loss.gradient_and_curvature(scores)[1], expected, rtol=0.01)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_curvature_of_more_classes_is_the_information_of_each_score(epsilon):
    """By enumeration of the outcomes, where the other classes have the proportions of their shares."""
    loss = ChannelLoss.of(responses(3, epsilon, 400_000), "likelihood")
    channel = np.where(np.eye(3, dtype=bool), np.exp(epsilon), 1.0) / (np.exp(epsilon) + 2)
    for index in range(3):
        for probability in (0.05, 0.4, 0.9):
            others = np.array(SHARES[3]) * (np.arange(3) != index)
            p = (1 - probability) * others / others.sum() + probability * (np.arange(3) == index)
            released = channel @ p
            expected = (released * (probability - probability * channel[:, index] / released) ** 2).sum() * 3 / 2
            found = loss.gradient_and_curvature(np.tile(np.log(p), (len(loss.evidence), 1)))[1][0, index]
            assert found == pytest.approx(expected, rel=0.02)


def test_the_curvature_is_positive_and_finite_for_any_scores():
    for classes in (2, 3):
        for kind in ("likelihood", "prior"):
            loss, scores = some(classes, kind)
            for scale in (0.0, 1.0, 1e3, 1e6):
                gradient, curvature = loss.gradient_and_curvature(scores * scale)
                assert np.isfinite(gradient).all()
                assert np.isfinite(curvature).all()
                assert (curvature > 0).all()


def test_continuous_evidence_has_the_information_of_its_law():
    """Normal noise of deviation 2 around 0 or 1: the information at even odds, by numerical integration."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=100_000) * 2 + (generator.random(100_000) < 0.5)
    loss = ChannelLoss.of(np.stack([-(values**2), -((values - 1) ** 2)], axis=1) / 8, "likelihood")
    grid = np.linspace(-15, 16, 4001)
    for score in (-2.0, 0.0, 1.0):
        p = expit(score)
        densities = np.exp(np.stack([-(grid**2), -((grid - 1) ** 2)]) / 8) / np.sqrt(8 * np.pi)
        released = (1 - p) * densities[0] + p * densities[1]
        expected = (released * (p - p * densities[1] / released) ** 2).sum() * (grid[1] - grid[0])
        found = loss.gradient_and_curvature(np.full((len(values), 1), score))[1][0, 0]
        assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_constant_has_the_shares_of_the_classes(classes):
    loss = ChannelLoss.of(responses(classes, 2.0, 100_000), "likelihood")
    assert np.allclose(to_probabilities(loss.constant[None])[0], SHARES[classes], atol=1e-3)


def test_no_share_is_zero_though_noise_says_so():
    evidence = np.log([[0.6, 0.4], [0.4, 0.6]])
    shares = np.exp(
        fit_log_proportions(evidence, np.array([700.0, 300.0]))
    )  # fewer of the second than noise alone makes
    assert 0.001 < shares[1] < 0.05


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_shifted_only_if_the_release_contradicts_them(classes):
    loss = ChannelLoss.of(responses(classes, 1.0, 20_000), "likelihood")
    right = np.tile(loss.constant, (len(loss.evidence), 1))
    assert not fit_shift(loss, right).any()
    off = right + 1.5 * (np.arange(right.shape[1]) == 0)
    assert np.allclose(to_probabilities(off + fit_shift(loss, off))[0], SHARES[classes], atol=0.02)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_matching_shift_gives_the_means_that_are_wanted(classes):
    scores = np.random.default_rng(0).normal(size=(500, 1 if classes == 2 else classes)) * 3
    moved = scores + match_proportions(scores, np.array(SHARES[classes]))
    assert np.allclose(to_probabilities(moved).mean(axis=0), SHARES[classes], atol=1e-5)
    assert np.ptp(moved - scores, axis=0).max() < 1e-12


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_and_probabilities_are_each_other_s_inverse(classes):
    probabilities = softmax(np.random.default_rng(0).normal(size=(20, classes)), axis=1)
    assert np.allclose(to_probabilities(to_scores(np.log(probabilities))), probabilities)
