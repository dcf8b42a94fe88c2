import math
from fractions import Fraction

import numpy as np
import pytest
from noiselaws import sampled_noise_law

import labeldp as ldp
from labeldp.mechanisms import OneHotGaussian, OneHotLaplace
from labeldp.privacy.mechanisms import one_hot as additive
from labeldp.privacy.noise import samplers

SPACE = ldp.LabelSpace(["a", "b", "c"])


def used_scale(monkeypatch, epsilon, height=1):
    """The scale that the mechanism passes to its sampler."""
    seen = []

    def spy(scale, count, bits):
        seen.append(scale)
        return np.zeros(count, np.int64)

    monkeypatch.setattr(additive, "discrete_laplace", spy)
    ldp.Vault(["a"], SPACE, ldp.Budget(epsilon)).release(OneHotLaplace(epsilon, height=height))
    return seen[0]


def loss_of_a_changed_label(scale, height):
    """Two coordinates move by `height`, in opposite directions: twice the worst log-ratio of one."""
    law = sampled_noise_law(scale, 20)
    return 2 * np.abs(np.log(law[height:] / law[:-height])).max()


@pytest.mark.parametrize(("epsilon", "height"), [(0.5, 1), (2.0, 1), (2.0, 4)])
def test_laplace_loses_epsilon_and_no_more(monkeypatch, epsilon, height):
    scale = used_scale(monkeypatch, epsilon, height)
    assert loss_of_a_changed_label(scale, height) == pytest.approx(epsilon, rel=1e-9)
    assert loss_of_a_changed_label(scale * 99 / 100, height) > epsilon * 1.005


def test_noise_law_is_what_is_drawn():
    drawn = samplers.discrete_laplace(Fraction(2), 10**6)
    seen = np.bincount(drawn[np.abs(drawn) <= 5] + 5, minlength=11) / 10**6
    assert np.abs(seen - sampled_noise_law(Fraction(2), 5)).max() < 0.003


def test_coordinates_and_rows_have_independent_noise():
    labels = ["a"] * 20_000
    for mechanism in (OneHotLaplace(1.0), OneHotGaussian(1.0, 1e-5)):
        values = ldp.Vault(labels, SPACE, ldp.Budget(1.0, 1e-5)).release(mechanism).values.astype(float)
        assert np.abs(np.corrcoef(values.T) - np.eye(3)).max() < 0.05
        assert abs(np.corrcoef(values[1:, 0], values[:-1, 0])[0, 1]) < 0.05
        assert np.abs(values.mean(axis=0) - [1, 0, 0]).max() < 6 * values.std() / math.sqrt(len(labels))


def test_gaussian_noise_is_as_wide_as_calibrated():
    mechanism = OneHotGaussian(0.5, 1e-6)
    values = ldp.Vault(["b"] * 50_000, SPACE, ldp.Budget(0.5, 1e-6)).release(mechanism).values
    assert values[:, 0].std() == pytest.approx(mechanism.sigma, rel=0.03)


def test_rows_without_a_label_are_empty():
    space = ldp.LabelSpace(["a", "b"], missing="public")
    release = ldp.Vault(["a", None, "b"], space, ldp.Budget(9.0)).release(OneHotLaplace(9.0), row_selection=[1, 2])
    assert not release.values[:2].any()
    assert (release.labels() == -1).tolist() == [True, True, False]


def test_gaussian_needs_delta_and_a_budget_that_has_one():
    with pytest.raises(ldp.InputError, match="delta must be"):
        OneHotGaussian(1.0, 0.0)
    with pytest.raises(ldp.BudgetExceeded, match="delta 0"):
        ldp.Vault(["a"], SPACE, ldp.Budget(1.0)).release(OneHotGaussian(1.0, 1e-6))


@pytest.mark.parametrize("height", [0, 1.5, True])
def test_bad_height(height):
    with pytest.raises(ldp.InputError, match="height"):
        OneHotLaplace(1.0, height=height)


def test_noise_that_cannot_be_drawn_is_refused_before_the_charge():
    vault = ldp.Vault([0, 1], ldp.LabelSpace([0, 1]), ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match="wider than the sampler draws"):
        vault.release(OneHotLaplace(1e-9, height=10**7))
    assert not vault.ledger.entries()


def test_a_release_states_the_height_and_the_scale_of_its_noise():
    release = ldp.Vault(["a", "b"], SPACE, ldp.Budget(2.0)).release(OneHotLaplace(2.0, height=4))
    assert (release.height, release.scale) == (4, 4.0)
