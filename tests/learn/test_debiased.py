from dataclasses import replace

import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.learn import Debiased
from labeldp.learn.base import soft_cross_entropy
from labeldp.mechanisms import GroupHistogram, RRTopK
from labeldp.releases import Responses

SPACE = ldp.LabelSpace([0, 1, 2, 3])


def every_answer(prior, k, epsilon):
    """A release that holds each possible answer once, for a row with this prior."""
    rows = len(SPACE)
    vault = ldp.Vault([0] * rows, SPACE, ldp.Budget(epsilon))
    release = vault.release(RRTopK(epsilon, np.tile(prior, (rows, 1)), k=k))
    assert isinstance(release, Responses)
    object.__setattr__(release, "codes", np.arange(rows))
    return release


@pytest.mark.parametrize("k", [2, 3, 4])
def test_gradients_are_those_of_the_clean_loss_on_average(k):
    prior, epsilon = np.array([0.4, 0.3, 0.2, 0.1]), 1.3
    release = every_answer(prior, k, epsilon)
    unbiased, channel = torch.from_numpy(release.unbiased_labels()), torch.from_numpy(release.noise_matrix())
    logits = torch.randn(4, dtype=torch.float64)
    for label in range(k):  # labels among the candidates
        mean = sum(
            channel[said, label]
            * torch.autograd.functional.jacobian(
                lambda x, t=unbiased[said]: soft_cross_entropy(x[None], t[None]), logits
            )
            for said in range(k)
        )
        clean = torch.autograd.functional.jacobian(
            lambda x, y=label: torch.nn.functional.cross_entropy(x[None], torch.tensor([y])), logits
        )
        assert torch.allclose(mean, clean, atol=1e-6)


def test_a_linear_model_learns(digits, training):
    learner = Debiased("linear", replace(training, learning_rate=0.02))
    assert digits.mean_accuracy(learner, ldp.RandomizedResponse(2.0)) > 0.75


def test_what_has_no_unbiased_label_says_so(digits, training):
    release = digits.release(GroupHistogram(np.zeros(1400, int), 1.0))
    with pytest.raises(ldp.InputError, match="no unbiased labels"):
        Debiased("linear", training).fit(digits.features, release)
