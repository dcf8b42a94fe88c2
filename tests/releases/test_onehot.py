from itertools import product
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.mechanisms import OneHotGaussian, OneHotLaplace
from labeldp.releases import NoisyOneHot

NOISES = {
    "laplace": lambda x, scale: exp(-abs(x) / scale),
    "gaussian": lambda x, scale: exp(-(x**2) / (2 * scale**2)),
}


def noisy_one_hot(values, noise, scale, height=1):
    values = np.array(values)
    return NoisyOneHot(
        space=ldp.LabelSpace(range(values.shape[1])),
        guarantee=ldp.Guarantee(1.0),
        mechanism="test",
        n_rows=len(values),
        values=values,
        noise=noise,
        scale=scale,
        height=height,
    )


@given(
    st.sampled_from(sorted(NOISES)),
    st.floats(0.2, 8),
    st.integers(1, 3),
    st.integers(2, 5).flatmap(
        lambda k: st.lists(st.lists(st.integers(-20, 20), min_size=k, max_size=k), min_size=1, max_size=3)
    ),
)
def test_evidence_is_the_log_of_the_product_of_the_noise(noise, scale, height, values):
    weight = NOISES[noise]
    total = sum(weight(x, scale) for x in range(-500, 501))

    def log_probability(x):
        exponent = -abs(x) / scale if noise == "laplace" else -(x**2) / (2 * scale**2)
        return exponent - log(total)

    evidence = noisy_one_hot(values, noise, scale, height).log_evidence()
    for row, label in product(range(len(values)), range(len(values[0]))):
        expected = sum(log_probability(x - height * (place == label)) for place, x in enumerate(values[row]))
        assert evidence[row, label] == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("height", [1, 2])
def test_the_outputs_of_a_label_have_total_probability_one(noise, height):
    outputs = list(product(range(-30, 31), repeat=2))
    evidence = noisy_one_hot(outputs, noise, 1.5, height).log_evidence()
    assert np.exp(evidence.astype(float)).sum(axis=0) == pytest.approx([1, 1], rel=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int64])
@pytest.mark.parametrize("noise", NOISES)
def test_small_integer_types_do_not_overflow(noise, dtype):
    values = np.array([[127, -127], [-128, 120]])
    narrow = noisy_one_hot(values.astype(dtype), noise, 3.0, height=9).log_evidence()
    assert np.array_equal(narrow, noisy_one_hot(values.astype(float), noise, 3.0, height=9).log_evidence())


@pytest.mark.parametrize("mechanism", [OneHotLaplace(6.0), OneHotGaussian(6.0, 1e-5)], ids=["laplace", "gauss"])
def test_a_vaults_release_points_at_the_labels(mechanism):
    labels = np.random.default_rng(0).integers(0, 4, 2000)
    release = ldp.Vault(labels, ldp.LabelSpace(range(4)), ldp.Budget(6.0, 1e-5)).release(mechanism)
    assert (release.labels() == labels).mean() > 0.4
    evidence = release.log_evidence().astype(float)
    calibrated = np.exp(evidence - np.logaddexp.reduce(evidence, axis=1, keepdims=True)).max(axis=1).mean()
    assert calibrated == pytest.approx((release.labels() == labels).mean(), abs=0.07)


def test_rows_not_released_are_zeros_and_minus_one():
    vault = ldp.Vault(["a", None, "b", "a"], ldp.LabelSpace(["a", "b"], missing="public"), ldp.Budget(1.0))
    release = vault.release(OneHotLaplace(1.0), row_selection=[0, 1, 2])
    assert (release.labels() == -1).tolist() == [False, True, False, True]
    assert (release.log_evidence() == 0).all(axis=1).tolist() == [False, True, False, True]


def test_there_is_no_noise_matrix():
    with pytest.raises(ldp.InputError, match="noise matrix"):
        noisy_one_hot([[0, 1]], "laplace", 1.0).noise_matrix()
