import numpy as np
import pytest

import labeldp as ldp
from labeldp.recipes.run import train
from labeldp.recipes.votes import agreed, vote


@pytest.mark.parametrize(
    ("name", "epsilon", "margin"),
    [
        ("randres-mixup", 2.0, 0.1),  # measured: 0.19
        ("randres-denoise", 1.0, 0.3),  # 0.45
        ("randres-augdescent", 2.0, 0.2),  # 0.30
        ("randres-ssl", 2.0, 0.08),  # 0.16
    ],
)
def test_sorting_labels_beats_learning_them_as_they_are_at_a_middle_epsilon(digits, name, epsilon, margin):
    assert digits.mean_accuracy(name, epsilon) > digits.mean_accuracy("randres", epsilon, targets="labels") + margin


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "epsilon", "margin"),
    [
        ("randres-mixup", 1.0, 0.1),
        ("randres-denoise", 1.0, 0.4),
        ("randres-denoise", 2.0, 0.25),
        ("randres-augdescent", 1.0, 0.17),
        ("randres-augdescent", 2.0, 0.27),
        ("randres-ssl", 1.0, 0.05),
        ("randres-ssl", 2.0, 0.12),
    ],
)
def test_it_does_so_over_many_draws(digits, name, epsilon, margin):
    better = digits.mean_accuracy(name, epsilon, seeds=16)
    plain = digits.mean_accuracy("randres", epsilon, seeds=16, targets="labels")
    assert better > plain + margin


def test_what_denoising_keeps_is_part_of_what_was_released(digits):
    noisy = digits.vault(1.0).release(ldp.RandomizedResponse(1.0))
    kept = agreed(noisy, vote(noisy, digits.task(1.0).clusters(20)))
    said = kept.labels() >= 0
    assert 0 < said.sum() < 1400
    assert np.array_equal(kept.labels()[said], noisy.labels()[said])
    assert (digits.labels[said] == kept.labels()[said]).mean() > (digits.labels == noisy.labels()).mean() + 0.3
    assert kept.guarantee == noisy.guarantee


def test_denoising_costs_nothing(digits):
    vault = digits.vault(1.0)
    trained = train(vault, digits.task(1.0), "randres-denoise", score=False)
    assert [r.mechanism for r in trained.releases] == ["RandomizedResponse"]
    assert len(vault.ledger.entries()) == 1
    assert trained.model.guarantee.epsilon == 1.0
