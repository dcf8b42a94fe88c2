from dataclasses import replace

import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.learn import SoftMatch, Supervised
from labeldp.learn.softmatch import PseudoLabeler, fit_class_proportions


def test_guesses_are_aligned_and_weighed_as_by_hand():
    judge = PseudoLabeler(torch.tensor([6, 3, 2]) / 11, decay=0.9)
    probabilities, evidence = torch.softmax(torch.randn(8, 3), dim=1), torch.randn(8, 3)
    predictions, weight = judge(probabilities, evidence)
    shares = np.array([6, 3, 2]) / 11
    p = probabilities.numpy().astype(np.float64)
    usual = 0.9 * shares + 0.1 * p.mean(axis=0)
    aligned = p * shares / usual * np.exp(evidence.numpy().astype(np.float64))
    aligned /= aligned.sum(axis=1, keepdims=True)
    confidence = aligned.max(axis=1)
    center, spread = 0.9 / 3 + 0.1 * confidence.mean(), 0.9 + 0.1 * confidence.var(ddof=1)
    by_hand = [1.0 if s >= center else np.exp(-((center - s) ** 2) / (2 * spread / 4)) for s in confidence]
    assert predictions.tolist() == aligned.argmax(axis=1).tolist()
    assert weight.tolist() == pytest.approx(by_hand, rel=1e-5)


def test_a_class_that_is_guessed_too_often_is_held_back():
    judge = PseudoLabeler(torch.tensor([0.5, 0.5]))
    lopsided, nothing = torch.tensor([[0.95, 0.05]] * 3 + [[0.55, 0.45]]), torch.zeros(4, 2)
    before = judge.eval()(lopsided, nothing)[0].tolist()
    judge.train()
    for _ in range(500):
        judge(lopsided, nothing)
    assert before == [0, 0, 0, 0]
    assert judge(lopsided, nothing)[0].tolist() == [0, 0, 0, 1]


def test_shares_are_the_likeliest_ones():
    evidence = torch.randn(400, 3)
    found = fit_class_proportions([evidence[:150], evidence[150:]], n_rounds=2000).numpy().astype(np.float64)

    def likelihood(shares):  # with one row of each class beside those of the evidence
        return np.log(np.exp(evidence.numpy().astype(np.float64)) @ shares).sum() + np.log(shares).sum()

    for a, b in ((0, 1), (1, 2), (0, 2)):
        for step in (0.01, -0.01):
            other = found.copy()
            other[[a, b]] += step, -step
            assert likelihood(other) < likelihood(found)


def test_unlabelled_rows_help(digits, training):
    ours, plain = [], []
    for seed in range(3):
        rows = np.random.default_rng(seed).choice(1400, 60, replace=False)
        release = digits.release(ldp.RandomizedResponse(30.0), rows=rows)
        settings = replace(training, epochs=50, seed=seed)
        start = Supervised(training=replace(settings, batch_size=32)).fit(digits.features, release)
        plain.append(digits.accuracy(start))
        ours.append(digits.accuracy(SoftMatch(training=settings, ema_decay=0.99).fit(digits.features, release, start)))
    assert np.mean(ours) > np.mean(plain) + 0.03


def test_wrong_labels_are_doubted(digits, training):
    release = digits.release(ldp.RandomizedResponse(30.0))
    codes = release.labels()
    generator = np.random.default_rng(0)
    known, wrong = np.split(generator.permutation(1400)[:300], [270])
    marked = np.full(1400, -1, np.int32)
    marked[known] = codes[known]
    marked[wrong] = (codes[wrong] + generator.integers(1, 10, len(wrong))) % 10
    start = Supervised(training=replace(training, batch_size=64, epochs=10)).fit(
        digits.features, release.relabel(marked)
    )
    found = {}
    for confidence in (0.9, 1 - 1e-6):
        learner = SoftMatch(training=training, ema_decay=0.99)
        found[confidence] = digits.accuracy(learner.fit(digits.features, release.relabel(marked, confidence), start))
    assert found[0.9] > found[1 - 1e-6]
    assert found[0.9] > 0.9


def test_noisy_labels_of_all_rows_are_evidence(digits, training):
    """Three labels of four are wrong; plain training on them is the start."""
    release = digits.release(ldp.RandomizedResponse(1.1))
    settings = replace(training, epochs=30)
    start = Supervised(training=settings).fit(digits.features, release)
    model = SoftMatch(training=settings, ema_decay=0.99, unlabeled_ratio=1).fit(digits.features, release, start)
    assert digits.accuracy(model) > digits.accuracy(start) + 0.05


def test_networks_that_guess_together_learn_from_each_other(digits, training):
    """One start knows the classes; the other has seen one row of each, and alone would believe its own mistakes."""
    release = digits.release(ldp.RandomizedResponse(30.0), rows=np.arange(200))
    settings = replace(training, epochs=12)
    first_rows = [int(np.flatnonzero(release.labels() == label)[0]) for label in range(10)]
    few = release.keep(np.isin(np.arange(1400), first_rows))
    good, poor = (Supervised(training=replace(settings, batch_size=10)).fit(digits.features, r) for r in (release, few))
    learner = SoftMatch(training=settings, ema_decay=0.95)
    alone = digits.accuracy(learner.fit(digits.features, few, poor))
    beside_good = learner.fit_many(digits.features, few, [good, poor])
    assert digits.accuracy(beside_good[1]) > alone + 0.05
    assert digits.accuracy(beside_good[0]) > digits.accuracy(good) - 0.05


def test_networks_that_guess_together_rest_on_all_starts(digits, training):
    release, other = (digits.release(ldp.RandomizedResponse(epsilon), seed=7) for epsilon in (1.0, 8.0))
    short = replace(training, epochs=1)
    starts = [Supervised(training=short).fit(digits.features, each) for each in (release, other)]
    for model in SoftMatch(training=short).fit_many(digits.features, release, starts):
        assert set(model.lineage) == {*release.lineage, *other.lineage}
        assert model.guarantee.epsilon == 9.0
