from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import AugDescent, Supervised, Training
from labeldp.learn.augdescent import estimate_class_prior, fit_loss_mixture, sharpen, shift_log_odds
from labeldp.mechanisms import GroupHistogram, OneHotLaplace


def test_the_mixture_splits_losses_as_an_obvious_one_does():
    generator = np.random.default_rng(0)
    losses = np.concatenate([generator.normal(0.5, 0.2, 700), generator.normal(3.0, 0.5, 300)])
    ours = torch.sigmoid(fit_loss_mixture(torch.from_numpy(losses), 0.7)).numpy()
    oracle = GaussianMixture(2, random_state=0).fit(losses[:, None])
    theirs = oracle.predict_proba(losses[:, None])[:, oracle.means_.argmin()]
    assert np.abs(ours - theirs).max() < 0.05


def test_the_known_share_decides_where_losses_overlap():
    generator = np.random.default_rng(0)
    losses = torch.from_numpy(np.concatenate([generator.normal(1, 0.6, 300), generator.normal(2, 0.6, 700)]))
    found = torch.sigmoid(fit_loss_mixture(losses, 0.3))
    assert float(found.mean()) == pytest.approx(0.3, abs=0.08)


def test_sharpening():
    assert torch.allclose(sharpen(torch.tensor([[0.6, 0.4]]), 0.5), torch.tensor([[0.36, 0.16]]) / 0.52)


def test_likely_labels_are_refined_and_others_replaced():
    learner = AugDescent(temperature=1.0)
    expected, own, both = torch.eye(2), torch.full((2, 2), 0.5), torch.tensor([[0.1, 0.9], [0.7, 0.3]])
    target, retained = learner._refine_targets(expected, own, both, torch.tensor([0.8, 0.2]), torch.tensor([0.7, 0.3]))
    assert retained.tolist() == [True, False]
    assert torch.allclose(target, torch.tensor([[0.9, 0.1], [0.7, 0.3]]))


def test_guesses_are_brought_to_the_frequencies_of_classes():
    both = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    frequent, nothing = torch.tensor([0.5, 0.5]), torch.zeros(4, 2)
    target, _ = AugDescent()._refine_targets(nothing, nothing, both, torch.zeros(4), frequent)
    assert abs(float(target.mean(0)[0]) - 0.5) < 0.1 < float(sharpen(both, 0.5).mean(0)[0]) - 0.5
    assert (target[:-1, 0] > target[1:, 0]).all()


@pytest.mark.parametrize("shares", [[0.9, 0.1], [0.6, 0.3, 0.1]])
def test_the_channel_gives_class_frequencies_and_the_share_of_correct_labels(shares):
    codes = np.random.default_rng(0).choice(len(shares), 60_000, p=shares)
    space = ldp.LabelSpace(list(range(len(shares))))
    release = ldp.Vault(codes, space, ldp.Budget(1.5)).release(ldp.RandomizedResponse(1.5))
    said = release.labels()
    frequent, right = estimate_class_prior(release.noise_matrix(), torch.from_numpy(said).long())
    assert frequent.tolist() == pytest.approx(shares, abs=0.02)
    assert right == pytest.approx([(codes[said == each] == each).mean() for each in range(len(shares))], abs=0.05)


def test_the_expected_share_of_labels_of_each_class_is_trusted():
    odds = torch.tensor([-900.0, -5.0, -4.0, -3.0, 1.0])
    assert (shift_log_odds(odds, 0.6) >= 0).tolist() == [False, False, True, True, True]
    assert (shift_log_odds(torch.full((4,), -7.0), 0.3) >= 0).all()  # where nothing tells them apart, none is doubted


def test_a_rare_class_is_not_forgotten():
    """One row in five, and hard to tell: a mixture of losses alone takes every label of it for wrong."""
    generator = np.random.default_rng(0)
    codes = (generator.random(4000) < 0.2).astype(int)
    rows = generator.normal(size=(4000, 6)).astype(np.float32) + 2 * codes[:, None] * np.eye(6, dtype=np.float32)[0]
    release = ldp.Vault(codes, ldp.LabelSpace([0, 1]), ldp.Budget(1.5)).release(ldp.RandomizedResponse(1.5))
    training = Training(epochs=10, batch_size=128, learning_rate=0.1, device="cpu")
    model = AugDescent("mlp", training).fit(Embeddings(rows), release)
    named = model.predict_proba(Embeddings(rows)).argmax(axis=1)
    assert 0.03 < named.mean() < 0.3
    assert (named == codes).mean() > 0.82


def test_noise_that_ruins_plain_training_is_survived(digits, training):
    plain = digits.mean_accuracy(Supervised(training=training), ldp.RandomizedResponse(1.5), seeds=2)
    ours = digits.mean_accuracy(AugDescent(training=training), ldp.RandomizedResponse(1.5), seeds=2)
    assert plain < 0.55
    assert ours > plain + 0.3


def test_other_channels_go_by_their_evidence(digits, training):
    release = digits.release(OneHotLaplace(2.0))
    assert digits.accuracy(AugDescent(training=training).fit(digits.features, release)) > 0.8


def test_priors_are_refused(digits, training):
    release = digits.release(GroupHistogram(np.zeros(1400, int), 1.0))
    with pytest.raises(ldp.InputError, match="use FixMatch"):
        AugDescent(training=replace(training, epochs=1)).fit(digits.features, release)


def test_an_interrupted_training_goes_on_to_the_same_weights(digits, training, tmp_path):
    class Interrupted(type(digits.features)):
        left = 10**9

        def strong(self, batch):
            type(self).left -= 1
            if type(self).left == 0:
                raise KeyboardInterrupt
            return super().strong(batch)

    release = digits.release(ldp.RandomizedResponse(2.0))
    settings = replace(training, epochs=5, batch_size=350)
    whole = AugDescent(training=settings).fit(digits.features, release)
    learner = AugDescent(training=replace(settings, checkpoint=tmp_path / "c.pt"))
    features = Interrupted(digits.features.batch(torch.arange(1400)).numpy())
    Interrupted.left = 22  # in the fourth epoch: 4 steps of one draw, then of two
    with pytest.raises(KeyboardInterrupt):
        learner.fit(features, release)
    Interrupted.left = 10**9
    resumed = learner.fit(features, release)
    pairs = zip(whole.network.state_dict().values(), resumed.network.state_dict().values(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_an_unknown_share_of_right_labels_is_found_with_the_mixture():
    generator = torch.Generator().manual_seed(0)
    right = torch.rand(4000, generator=generator) < 0.8
    losses = torch.where(right, 0.3, 2.0) + 0.2 * torch.randn(4000, generator=generator)
    assert ((fit_loss_mixture(losses, None) > 0) == right).float().mean() > 0.99
