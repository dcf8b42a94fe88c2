import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.learn import CoTeaching, Supervised
from labeldp.learn.coteaching import disagreement_mask, get_noise_rate, select_small_loss
from labeldp.mechanisms import OneHotLaplace


def test_the_rows_of_small_loss_are_picked():
    losses = torch.tensor([3.0, 1.0, 2.0, 0.5, 9.0])
    everything = torch.ones(5, dtype=torch.bool)
    assert select_small_loss(losses, 0.4, everything).tolist() == [0, 1, 1, 1, 0]
    assert select_small_loss(losses, 0.0, everything).tolist() == [1] * 5
    among = torch.tensor([True, False, True, False, True])
    assert select_small_loss(losses, 0.5, among).tolist() == [1, 0, 1, 0, 0]
    assert select_small_loss(losses, 0.9, ~everything).sum() >= 1


def test_disagreement():
    first, second = torch.tensor([[1.0, 0], [0, 1]]), torch.tensor([[1.0, 0], [1, 0]])
    assert disagreement_mask(first, second).tolist() == [False, True]


def test_a_release_knows_its_noise_rate(digits):
    assert get_noise_rate(digits.release(ldp.RandomizedResponse(2.0))) == pytest.approx(9 / (np.exp(2) + 9))
    with pytest.raises(ldp.InputError, match="give noise_rate"):
        get_noise_rate(digits.release(OneHotLaplace(2.0)))


@pytest.mark.parametrize("plus", [False, True])
def test_two_networks_resist_noise(digits, training, plus):
    plain = digits.mean_accuracy(Supervised(training=training), ldp.RandomizedResponse(2.0), seeds=2)
    ours = digits.mean_accuracy(CoTeaching(training=training, plus=plus), ldp.RandomizedResponse(2.0), seeds=2)
    assert ours > plain + 0.2
