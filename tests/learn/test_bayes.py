import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import Bayes, EvidenceLoss, Supervised, Training
from labeldp.learn.base import soft_cross_entropy
from labeldp.learn.bayes import denoise_labels, posterior, project_on_simplex
from labeldp.mechanisms import GroupHistogram, OneHotLaplace

RR = ldp.RandomizedResponse


def test_the_posterior_is_bayes_rule_written_out():
    space = ldp.LabelSpace([0, 1, 2])
    release = ldp.Vault([0, 2, 1, 1], space, ldp.Budget(1.0)).release(RR(1.0))
    logits = torch.randn(4, 3)
    prior = torch.softmax(logits, 1).numpy()
    channel = release.noise_matrix()  # P(released | true)
    expected = np.array([channel[said] * row for said, row in zip(release.labels(), prior, strict=True)])
    expected /= expected.sum(axis=1, keepdims=True)
    found = posterior(logits, torch.from_numpy(release.log_evidence()))
    assert np.allclose(found.numpy(), expected, atol=1e-6)


def test_the_evidence_loss_descends_as_alibi_does():
    logits, evidence = torch.randn(7, 4, requires_grad=True), 3 * torch.randn(7, 4)
    (direct,) = torch.autograd.grad(EvidenceLoss()(logits, evidence), logits)
    (alibi,) = torch.autograd.grad(soft_cross_entropy(logits, posterior(logits, evidence)), logits)
    assert torch.allclose(direct, alibi, atol=1e-6)


@pytest.mark.parametrize(("mechanism", "margin"), [(RR(2.0), 0.07), (OneHotLaplace(2.0), 0.15)])
def test_the_models_own_prior_takes_more_out_of_noisy_labels(digits, training, mechanism, margin):
    plain = digits.mean_accuracy(Supervised(training=training), mechanism)
    assert digits.mean_accuracy(Bayes(training=training), mechanism) > plain + margin


def test_what_knows_the_model_beats_what_does_not(digits, training):
    informed, clamped = (
        digits.mean_accuracy(Bayes(training=training, denoise=how), OneHotLaplace(2.0), seeds=2)
        for how in ("bayes", "clamp")
    )
    assert informed > clamped + 0.1


@pytest.mark.parametrize("augment", ["weak", "strong"])
def test_rows_are_varied_as_asked(digits, augment, monkeypatch):
    """And with either way of it, clean labels are learnt."""
    seen, vary = [], getattr(Embeddings, augment)
    monkeypatch.setattr(Embeddings, augment, lambda self, batch: seen.append(len(batch)) or vary(self, batch))
    training = Training(epochs=5, batch_size=128, learning_rate=0.1, device="cpu")
    assert digits.mean_accuracy(Bayes(training=training, augment=augment), RR(30.0), seeds=1) > 0.9
    assert len(seen) >= 50


@pytest.mark.parametrize(("mechanism", "margin"), [(RR(1.0), 0.05), (OneHotLaplace(1.0), 0.03)])
def test_mixed_rows_are_not_learnt_by_heart(digits, training, mechanism, margin):
    """Measured over these draws: 0.36 and 0.48, 0.56 and 0.62."""
    plain, mixed = (digits.mean_accuracy(Bayes(training=training, mixup=much), mechanism, 4) for much in (0.0, 4.0))
    assert mixed > plain + margin


def test_a_mixture_is_drawn_to_either_row_by_its_share(digits):
    """With clean labels it is mixup as `Supervised` has it: the same weights after the same training."""
    release, training = digits.release(RR(60.0)), Training(epochs=1, batch_size=128, learning_rate=0.1, device="cpu")
    learnt = [kind(training=training, mixup=2.0).fit(digits.features, release) for kind in (Bayes, Supervised)]
    evidence, labels = (model.predict_proba(digits.new) for model in learnt)
    assert np.allclose(evidence, labels, atol=1e-4)
    assert not np.allclose(evidence, Bayes(training=training).fit(digits.features, release).predict_proba(digits.new))


def test_projection_finds_the_nearest_distribution():
    torch.manual_seed(0)
    vectors = 2 * torch.randn(5, 4)
    for vector, found in zip(vectors.numpy(), project_on_simplex(vectors).numpy(), strict=True):
        best = minimize(
            lambda p, v=vector: ((p - v) ** 2).sum(),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        )
        assert np.allclose(found, best.x, atol=1e-3)


def test_uninformed_targets_are_distributions(digits):
    release = digits.release(OneHotLaplace(1.0))
    for how in ("clamp", "project"):
        targets = denoise_labels(release, how)
        assert torch.allclose(targets.sum(1), torch.ones(1400), atol=1e-5)
        assert (targets >= 0).all()


def test_a_prior_is_not_fed_back(digits, training):
    release = digits.release(GroupHistogram(np.zeros(1400, int), 1.0))
    with pytest.raises(ldp.InputError, match="must not be multiplied"):
        Bayes(training=training).fit(digits.features, release)
