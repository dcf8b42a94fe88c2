from itertools import product
from math import factorial, prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.mechanisms import GroupHistogram
from labeldp.releases import NoisyCounts

NOISES = {
    "geometric": lambda x, scale: -abs(x) / scale,
    "gaussian": lambda x, scale: -(x**2) / (2 * scale**2),
}


def noisy_counts(counts, sizes, noise, scale, concentration=1.0):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return NoisyCounts(
        space=ldp.LabelSpace(range(len(counts[0]))),
        guarantee=ldp.Guarantee(1.0),
        mechanism="test",
        n_rows=len(groups),
        groups=groups,
        counts=np.array(counts, np.int64),
        sizes=np.array(sizes),
        noise=noise,
        scale=scale,
        concentration=concentration,
    )


def urn_probability(counts, weight):
    """The probability of these counts when each label is drawn in proportion to `weight` plus its count so far."""
    orders = factorial(sum(counts)) // prod(factorial(c) for c in counts)
    drawn = prod(weight + i for c in counts for i in range(c))
    return orders * drawn / prod(weight * len(counts) + i for i in range(sum(counts)))


def enumerated_predictive(noisy, size, noise, scale, concentration):
    vectors = [v for v in product(range(size + 1), repeat=len(noisy)) if sum(v) == size]
    log_noise = [sum(NOISES[noise](n - c, scale) for n, c in zip(noisy, v, strict=True)) for v in vectors]
    prior = [urn_probability(v, concentration / len(noisy)) for v in vectors]
    weight = np.array(prior) * np.exp(np.array(log_noise) - max(log_noise))
    return weight @ np.array(vectors) / weight.sum() / size


GROUPS = st.sampled_from([(2, 20), (3, 12), (4, 7)]).flatmap(
    lambda limit: st.tuples(
        st.lists(st.integers(-30, 50), min_size=limit[0], max_size=limit[0]), st.integers(1, limit[1])
    )
)


@settings(max_examples=250)
@given(GROUPS, st.sampled_from(sorted(NOISES)), st.floats(0.15, 200), st.floats(0.05, 20))
@example(([50, -30, 50], 12), "gaussian", 0.15, 1.0)
@example(([-30, -30, -30], 12), "geometric", 0.15, 1.0)
@example(([3, 3, 3, 3], 7), "gaussian", 0.15, 0.05)
def test_predictive_equals_the_mean_over_all_count_vectors(group, noise, scale, concentration):
    noisy, size = group
    fast = noisy_counts([noisy], [size], noise, scale, concentration).class_probabilities[0]
    slow = enumerated_predictive(noisy, size, noise, scale, concentration)
    assert fast == pytest.approx(slow, abs=1e-6)


def log_convolved_predictive(noisy, size, noise, scale):
    """The same mean for larger groups: sums of exponentials in logarithms, term by term."""
    weight = 1 / len(noisy)
    urn = np.concatenate([[0.0], np.cumsum(np.log(weight + np.arange(size)) - np.log(np.arange(1, size + 1)))])
    factors = [urn + [NOISES[noise](n - c, scale) for c in range(size + 1)] for n in noisy]

    def convolve(a, b):
        return np.array([np.logaddexp.reduce(a[: i + 1] + b[i::-1]) for i in range(size + 1)])

    means = []
    for own in range(len(noisy)):
        others = np.concatenate([[0.0], np.full(size, -np.inf)])
        for other in factors[:own] + factors[own + 1 :]:
            others = convolve(others, other)
        law = factors[own] + others[::-1]
        means.append(np.exp(law - np.logaddexp.reduce(law)) @ np.arange(size + 1) / size)
    return means


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scale", [0.3, 4.0, 60.0])
@pytest.mark.parametrize(
    "noisy",
    [[100, 150, 20, 30], [300, 290, -3, -5], [-80, -80, -90, 10], [5, 5, 5, 5], [300, 0, 0, 0]],
    ids=["plausible", "too many", "negative", "too few", "one class"],
)
def test_predictive_is_accurate_where_the_noise_disagrees_with_the_size(noisy, noise, scale):
    fast = noisy_counts([noisy], [300], noise, scale).class_probabilities[0]
    assert fast == pytest.approx(log_convolved_predictive(noisy, 300, noise, scale), abs=1e-6)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_a_large_group_is_close_to_the_truth(noise, scale):
    generator = np.random.default_rng(0)
    truth = generator.multinomial(5000, generator.dirichlet(np.ones(10)))
    noisy = truth + np.rint(generator.laplace(0, scale, 10)).astype(int)
    predictive = noisy_counts([noisy], [5000], noise, scale).class_probabilities[0]
    assert predictive.sum() == pytest.approx(1)
    assert (predictive >= 0).all()
    assert predictive == pytest.approx(truth / 5000, abs=8 * scale / 5000)


@pytest.mark.parametrize("noise", NOISES)
def test_noise_far_larger_than_the_group_gives_a_uniform_predictive(noise):
    predictive = noisy_counts([[41_000, -73_000, 8_000]], [5], noise, 50_000.0).class_probabilities[0]
    assert predictive == pytest.approx([1 / 3] * 3, abs=1e-3)


@pytest.mark.parametrize("noise", NOISES)
def test_a_million_deviations_stay_finite(noise):
    predictive = noisy_counts([[10**6, -(10**6)], [10**6, 10**6]], [10, 10], noise, 1.0).class_probabilities
    assert predictive[0, 0] > 0.99
    assert predictive[1] == pytest.approx([0.5, 0.5])


def test_an_empty_group_is_uniform_and_other_groups_do_not_shift():
    release = noisy_counts([[9, 0], [7, -8], [0, 9]], [9, 0, 9], "gaussian", 0.2)
    assert release.class_probabilities[1] == pytest.approx([0.5, 0.5])
    assert release.labels().tolist() == [0] * 9 + [1] * 9


def test_evidence_is_the_log_of_the_predictive_of_the_rows_group():
    release = noisy_counts([[3, 1], [0, 2]], [4, 2], "geometric", 1.0)
    assert np.exp(release.log_evidence()) == pytest.approx(release.class_probabilities[[0, 0, 0, 0, 1, 1]], rel=1e-5)
    assert np.exp(release.log_evidence([5, 0])) == pytest.approx(release.class_probabilities[[1, 0]], rel=1e-5)


def test_a_class_ruled_out_keeps_finite_evidence():
    assert np.isfinite(noisy_counts([[500, -500]], [500], "gaussian", 0.1).log_evidence()).all()


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["geometric", "gaussian"])
def test_a_vault_counts_only_the_rows_it_releases(delta):
    labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2] * 50)
    groups = np.array([0, 0, 0, 0, 4, 4, 4, 4, 4, 4] * 50)
    vault = ldp.Vault(labels, ldp.LabelSpace(range(3)), ldp.Budget(9.0, 1e-6))
    rows = np.arange(500) % 10 < 9
    release = vault.release(GroupHistogram(groups, 9.0, delta), row_selection=rows)
    assert release.sizes.tolist() == [200, 0, 0, 0, 250]
    assert release.class_probabilities[0] == pytest.approx([0.75, 0.25, 0], abs=0.05)
    assert release.class_probabilities[4] == pytest.approx([0, 0.4, 0.6], abs=0.05)
    assert ((release.labels() == -1) == ~rows).all()
    assert (release.log_evidence()[~rows] == 0).all()
