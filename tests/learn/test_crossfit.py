from dataclasses import replace

import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import CrossFit, Supervised
from labeldp.learn.base import soft_cross_entropy
from labeldp.learn.crossfit import fit_inverse_temperature, tempered_posterior
from labeldp.mechanisms import GroupHistogram


class Fixed(torch.nn.Module):
    """A network that gives the logits which its rows hold."""

    def forward(self, rows):
        return rows


def test_evidence_says_how_far_to_trust_a_network():
    """Labels follow the logits, and the network states them three times as sure, or a third as sure."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probabilities.cumsum(axis=1) > generator.random((20_000, 1))).argmax(axis=1)
    vault = ldp.Vault(labels, ldp.LabelSpace([0, 1, 2]), ldp.Budget(2.0))
    evidence = torch.from_numpy(vault.release(ldp.RandomizedResponse(2.0)).log_evidence())
    rows = torch.arange(20_000)
    for stated in (1 / 3, 1.0, 3.0):
        features = Embeddings((stated * logits).astype(np.float32))
        found = float(fit_inverse_temperature(Fixed(), features, rows, lambda part: evidence[part]))
        assert found == pytest.approx(1 / stated, rel=0.25)


def test_posteriors_are_those_of_bayes_with_as_much_trust_as_the_evidence_allows():
    generator = np.random.default_rng(1)
    logits = torch.from_numpy(generator.normal(size=(3000, 3)).astype(np.float32))
    evidence = torch.from_numpy(generator.normal(size=(3000, 3)).astype(np.float32))
    features, rows = Embeddings(logits.numpy()), torch.arange(500, 3000)
    power = fit_inverse_temperature(Fixed(), features, rows, lambda part: evidence[part])
    found = tempered_posterior(Fixed(), features, rows, lambda part: evidence[part])
    for row in (500, 2999):
        prior, likelihood = torch.softmax(logits[row].double(), dim=0), evidence[row].double().exp()
        weights = prior**power * likelihood
        assert found[row - 500].double() == pytest.approx(weights / weights.sum(), rel=1e-4)


def test_it_learns_what_long_training_on_noisy_labels_forgets(digits, training):
    """Half of the labels are wrong. The start knows sixty right ones."""
    ours, plain, begun = [], [], []
    for seed in range(2):
        few = digits.release(ldp.RandomizedResponse(30.0), rows=np.arange(60), seed=seed)
        noisy = digits.release(ldp.RandomizedResponse(2.1), seed=seed)
        settings = replace(training, epochs=20, seed=seed)
        start = Supervised(training=replace(settings, epochs=30, batch_size=32)).fit(digits.features, few)
        begun.append(digits.accuracy(start))
        plain.append(digits.accuracy(Supervised(training=settings).fit(digits.features, noisy, start)))
        ours.append(digits.accuracy(CrossFit(training=settings, ema_decay=0.99).fit(digits.features, noisy, start)))
    assert np.mean(ours) > max(np.mean(plain), np.mean(begun)) + 0.05


def test_each_network_is_trained_on_one_half(digits, training, monkeypatch):
    calls = []
    release = digits.release(ldp.RandomizedResponse(1.0), rows=np.arange(101))
    plain = type(release).log_evidence
    monkeypatch.setattr("labeldp.learn.crossfit.make_evidence_fn", lambda release, device: evidence_of)

    def evidence_of(rows):
        calls.append(rows.tolist())
        return torch.from_numpy(plain(release, rows.numpy()))

    CrossFit(training=replace(training, epochs=2, batch_size=50)).fit(digits.features, release)
    first, second = set(calls[0]), set(calls[1])  # as trust looked at them
    assert len(first) == len(second) == 50
    assert not first & second
    assert first | second < set(range(101))
    assert all(set(rows) <= first or set(rows) <= second for rows in calls)


def test_two_starts_begin_one_network_each(digits, training, monkeypatch):
    release = digits.release(ldp.RandomizedResponse(2.0))
    starts = [
        Supervised(training=replace(training, epochs=1, seed=seed)).fit(digits.features, release) for seed in (0, 1)
    ]
    begun, make = [], CrossFit._make_network
    monkeypatch.setattr(CrossFit, "_make_network", lambda self, *a: begun.append(a[2]) or make(self, *a))
    posteriors = CrossFit(training=replace(training, epochs=1)).posteriors(digits.features, release, starts)
    assert [found is start for found, start in zip(begun, starts, strict=True)] == [True, True]
    assert np.exp(posteriors.log_evidence()).sum(axis=1) == pytest.approx(1, abs=1e-4)
    assert (posteriors.labels() == digits.labels).mean() > (release.labels() == digits.labels).mean()


def test_a_prior_is_refused(digits, training):
    counts = digits.release(GroupHistogram(np.arange(1400) % 7, 1.0))
    with pytest.raises(ldp.InputError, match="needs likelihoods: use SoftMatch"):
        CrossFit(training=training).fit(digits.features, counts)


class Always(torch.nn.Module):
    """A network that gives every row to one class."""

    def __init__(self, label):
        super().__init__()
        self.logits = torch.nn.Parameter(4.0 * torch.eye(10)[label])

    def forward(self, rows):
        return self.logits.expand(len(rows), 10)


def test_a_row_is_predicted_by_the_network_that_was_not_trained_on_it(digits, training, monkeypatch):
    release = digits.release(ldp.RandomizedResponse(1.0))
    silent = torch.zeros(10)  # evidence that tells nothing, so that a posterior is what the network says
    monkeypatch.setattr("labeldp.learn.crossfit.make_evidence_fn", lambda release, device: lambda rows: silent)
    observed = []
    monkeypatch.setattr(CrossFit, "train_pair", lambda *args: observed.append(args[3]) or [Always(3), Always(7)])
    posteriors = CrossFit(training=training).posteriors(digits.features, release, [None]).log_evidence().argmax(axis=1)
    first, second = (half.numpy() for half in observed[0])
    assert (posteriors[first] == 7).all()
    assert (posteriors[second] == 3).all()


def test_each_network_is_trained_on_predictions_of_the_other(digits, training, monkeypatch):
    release = digits.release(ldp.RandomizedResponse(1.0))
    silent, learnt = torch.zeros(10), []
    monkeypatch.setattr("labeldp.learn.crossfit.make_evidence_fn", lambda release, device: lambda rows: silent)
    monkeypatch.setattr(CrossFit, "_make_network", lambda self, features, classes, start, index: Always((3, 7)[index]))

    def note(logits, posterior):
        learnt.append((int(logits[0].argmax()), int(posterior[0].argmax())))
        return soft_cross_entropy(logits, posterior)

    monkeypatch.setattr("labeldp.learn.crossfit.soft_cross_entropy", note)
    CrossFit(training=replace(training, epochs=1)).posteriors(digits.features, release, [None])
    assert learnt[:2] == [(3, 7), (7, 3)]
