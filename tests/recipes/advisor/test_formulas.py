"""Closed forms beside slow oracles: enumeration, plain sums, and samples of the library's own mechanisms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import xlogy

import labeldp as ldp
from labeldp import mechanisms
from labeldp.accounting.calibration import unit_shift_sigma
from labeldp.mechanisms import GroupHistogram, OneHotLaplace, RRWithPrior
from labeldp.recipes.advisor import formulas
from labeldp.recipes.advisor.forecast import advise


def mutual_information(law):
    """Of a uniform label and a release, law[label, outcome]."""
    mixture = law.mean(axis=0)
    entropy = [float(-xlogy(p, p).sum()) for p in (mixture, *law)]
    return entropy[0] - float(np.mean(entropy[1:]))


def bits_law(flip, classes):
    outcomes = np.array(list(itertools.product([0, 1], repeat=classes)))
    same = outcomes[None] == np.eye(classes, dtype=int)[:, None]
    return np.where(same, 1 - flip, flip).prod(axis=2)


def continuous_laplace(epsilon, points=20_000):
    """The laws of a coordinate's evidence, which lies between -epsilon / 2 and epsilon / 2, ends included."""
    edges = np.linspace(0, 1, points + 1)

    def below(x):
        return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0)), 1 - 0.5 * np.exp(-np.maximum(x, 0)))

    laws = []
    for place in (1, 0):
        inner = below((edges - place) * epsilon / 2)
        laws.append(np.concatenate([inner[:1], np.diff(inner), 1 - inner[-1:]]))
    return laws


@pytest.mark.parametrize(("epsilon", "classes"), [(0.3, 2), (1.0, 5), (3.0, 8)])
def test_information_by_enumeration(epsilon, classes):
    right = formulas.response_accuracy(epsilon, classes)
    law = np.full((classes, classes), (1 - right) / (classes - 1)) + np.eye(classes) * (
        right - (1 - right) / (classes - 1)
    )
    assert math.isclose(formulas.response_information(epsilon, classes), mutual_information(law), rel_tol=1e-9)
    law = bits_law(1 / (1 + math.exp(epsilon / 2)), classes)
    assert math.isclose(formulas.laplace_information(epsilon, classes), mutual_information(law), rel_tol=1e-9)


def test_evidence_of_one_hot_laplace_is_a_bit_for_each_class():
    vault = ldp.Vault(["a"] * 500, ldp.LabelSpace(["a", "b", "c"]), ldp.Budget(epsilon=1.0))
    release = vault.release(OneHotLaplace(epsilon=1.0))
    scores = release.log_evidence()
    expected = np.where(release.values > 0, 0.5, -0.5)
    assert np.allclose(scores - scores[:, :1], expected - expected[:, :1], atol=1e-5)


@pytest.mark.parametrize(("epsilon", "classes"), [(0.5, 2), (1.0, 10), (6.0, 100)])
def test_the_integral_agrees_with_the_closed_form(epsilon, classes):
    f = 1 / (1 + math.exp(epsilon / 2))
    integral = formulas.channel_information(np.array([1 - f, f]), np.array([f, 1 - f]), classes)
    assert math.isclose(integral, formulas.laplace_information(epsilon, classes), rel_tol=1e-9)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_information_of_gaussian_noise_by_a_double_sum(sigma):
    x = np.arange(-60, 62)
    noise, moved = (np.exp(-((x - place) ** 2) / (2 * sigma**2)) for place in (0, 1))
    noise, moved = noise / noise.sum(), moved / moved.sum()
    law = np.stack([np.outer(moved, noise).ravel(), np.outer(noise, moved).ravel()])
    assert math.isclose(formulas.gaussian_information(sigma, 2), mutual_information(law), rel_tol=1e-8)


def test_wide_gaussian_noise_tells_as_much_as_its_signal():
    assert math.isclose(formulas.gaussian_information(300.0, 10), 0.9 / (2 * 300**2), rel_tol=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "classes", "continuous", "response", "ours"),
    [(1.0, 10, 0.0954, 0.0734, 0.1097), (6.0, 100, 1.987, 3.203, 2.621)],
)
def test_continuous_laplace_against_randomized_response_and_ours(epsilon, classes, continuous, response, ours):
    laws = continuous_laplace(epsilon)
    assert math.isclose(formulas.channel_information(*laws, classes), continuous, rel_tol=1e-3)
    assert math.isclose(formulas.response_information(epsilon, classes), response, rel_tol=1e-3)
    assert math.isclose(formulas.laplace_information(epsilon, classes), ours, rel_tol=1e-3)
    # The same figure from samples of the continuous noise.
    rng = np.random.default_rng(0)
    x = rng.laplace(scale=2 / epsilon, size=(40_000, classes))
    x[:, 0] += 1
    evidence = (np.abs(x) - np.abs(x - 1)) * epsilon / 2
    nats = evidence[:, 0] - np.log(np.exp(evidence).mean(axis=1))
    assert abs(nats.mean() - continuous) < 4 * nats.std() / 200


@pytest.mark.parametrize("mechanism", ["RandomizedResponse", "OneHotLaplace", "OneHotGaussian"])
@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 3), (3.0, 10)])
def test_share_of_right_labels_by_the_mechanism_itself(mechanism, epsilon, classes):
    delta = 1e-3 if mechanism == "OneHotGaussian" else 0.0
    labels = np.arange(30_000) % classes
    vault = ldp.Vault(labels, ldp.LabelSpace(list(range(classes))), ldp.Budget(epsilon=epsilon, delta=delta))
    mechanism_type = getattr(mechanisms, mechanism)
    made = mechanism_type(epsilon, delta) if delta else mechanism_type(epsilon)
    seen = (vault.release(made).labels() == labels).mean()
    expected = {
        "RandomizedResponse": lambda: formulas.response_accuracy(epsilon, classes),
        "OneHotLaplace": lambda: formulas.laplace_accuracy(epsilon, classes),
        "OneHotGaussian": lambda: formulas.noisy_argmax_accuracy(
            "gaussian", unit_shift_sigma(epsilon, delta), 1, classes
        ),
    }[mechanism]()
    assert abs(seen - expected) < 5 * math.sqrt(expected * (1 - expected) / labels.size)


@pytest.mark.parametrize(("epsilon", "classes"), [(0.05, 7), (1.0, 2), (5.0, 1000)])
def test_the_largest_value_is_right_as_often_as_the_best_evidence(epsilon, classes):
    by_value = formulas.noisy_argmax_accuracy("laplace", 2 / epsilon, 1, classes)
    assert math.isclose(by_value, formulas.laplace_accuracy(epsilon, classes), rel_tol=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_argmax_by_a_plain_sum(noise):
    scale, lead, x = 1.5, 2, np.arange(-60, 61)
    step = np.exp(-np.abs(x) / scale if noise == "laplace" else -(x**2) / (2 * scale**2))
    step /= step.sum()
    a, b, c = np.meshgrid(x + lead, x, x, indexing="ij")
    weight = step[:, None, None] * step[None, :, None] * step[None, None, :]
    best = np.maximum(b, c)
    share = np.where(a > best, 1.0, np.where(a < best, 0.0, np.where(b == c, 1 / 3, 1 / 2)))
    assert math.isclose(
        formulas.noisy_argmax_accuracy(noise, scale, lead, 3), float((share * weight).sum()), rel_tol=1e-9
    )


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_wide_noise_is_as_good_as_continuous(noise):
    exact, smooth = (formulas.noisy_argmax_accuracy(noise, scale, 4 * scale, 10) for scale in (200.0, 200.001))
    assert abs(exact - smooth) < 1e-4


@given(st.floats(0.01, 8), st.floats(0.01, 1), st.integers(2, 50))
def test_right_answers_with_a_prior(epsilon, quality, classes):
    """The best number of candidates is all or one, for a prior that is even beyond its first class."""
    quality = max(quality, 1 / classes)
    ranked = np.array([[quality, *[(1 - quality) / (classes - 1)] * (classes - 1)]])
    k = int(RRWithPrior(epsilon, ranked).count_candidates(ranked)[0])
    right = ranked[0, :k].sum() / (1 + (k - 1) * math.exp(-epsilon))
    assert math.isclose(formulas.prior_response_accuracy(epsilon, classes, quality), right, rel_tol=1e-9)


@given(st.floats(0.01, 8), st.integers(2, 100))
def test_equation_8(epsilon, classes):
    p = formulas.response_accuracy(epsilon, classes)
    for quality in (1 / classes, 0.7, 1.0):
        both, mistaken = quality * p, (1 - quality) * (1 - p) / (classes - 1)
        assert math.isclose(formulas.agreed_accuracy(epsilon, quality), both / (both + mistaken))
        assert math.isclose(formulas.agreement_rate(epsilon, classes, quality), both + mistaken)
    assert math.isclose(formulas.agreed_accuracy(epsilon, 1 / classes), p)  # chance confirms nothing


@given(st.floats(0.02, 10), st.floats(1.01, 2), st.integers(2, 300))
@settings(max_examples=50)
def test_more_epsilon_tells_more(epsilon, more, classes):
    for figure in (
        formulas.response_accuracy,
        formulas.laplace_accuracy,
        formulas.response_information,
        formulas.laplace_information,
    ):
        assert figure(epsilon, classes) <= figure(epsilon * more, classes) <= max(1, math.log(classes)) + 1e-9
    wide, narrow = (formulas.gaussian_information(sigma, classes) for sigma in (more / epsilon, 1 / epsilon))
    assert wide <= narrow + 1e-9


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_vote_survives_exactly_from_its_epsilon(delta):
    setting = advise(50_000, 10, 1.0, delta).spec
    least = formulas.min_epsilon_for_count_vote(setting, delta)
    for epsilon, survives in ((least * 1.01, True), (least * 0.99, False)):
        scale = unit_shift_sigma(epsilon, delta) if delta else 2 / epsilon
        vote = formulas.noisy_argmax_accuracy("gaussian" if delta else "laplace", scale, setting.margin, 10)
        assert (vote >= formulas.RELIABLE_VOTE) == survives


def test_votes_of_noisy_counts_and_of_noisy_labels_by_sampling():
    rows, classes, epsilon, clusters = 4000, 4, 0.4, 20
    advice = advise(rows, classes, epsilon, n_clusters=clusters, purity=0.55)
    groups = np.arange(rows) % clusters
    place = np.arange(rows) // clusters  # 200 rows a cluster: 110 of the first class, 30 of each other one
    labels = np.where(place < 110, 0, 1 + (place - 110) // 30)
    space, counted, voted = ldp.LabelSpace(list(range(classes))), [], []
    for _ in range(120):
        vault = ldp.Vault(labels, space, ldp.Budget(epsilon=2 * epsilon))
        counts = vault.release(GroupHistogram(groups, epsilon)).counts
        said = vault.release(ldp.RandomizedResponse(epsilon)).labels()
        votes = np.bincount(groups * classes + said, minlength=clusters * classes).reshape(clusters, classes)
        counted.append((counts.argmax(axis=1) == 0).mean())
        first = votes == votes.max(axis=1, keepdims=True)  # of 50 votes for each, some tie, which the limit knows not
        voted.append((first[:, 0] / first.sum(axis=1)).mean())
    expected = formulas.noisy_argmax_accuracy("laplace", 2 / epsilon, advice.spec.margin, classes)
    assert abs(np.mean(counted) - expected) < 0.01
    assert abs(np.mean(voted) - formulas.response_vote_accuracy(advice.spec, epsilon)) < 0.06  # 5 deviations
