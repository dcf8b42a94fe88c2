from dataclasses import replace

import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.learn import SoftMatch, Supervised, Training
from labeldp.learn.softmatch import Judge


def test_guesses_are_aligned_and_weighed_as_by_hand():
    judge = Judge(torch.tensor([5, 2, 1]), inertia=0.9)
    chances = torch.softmax(torch.randn(8, 3), dim=1)
    guess, weight = judge(chances)
    shares = np.array([6, 3, 2]) / 11
    p = chances.numpy().astype(np.float64)
    usual = 0.9 * shares + 0.1 * p.mean(axis=0)
    aligned = p * shares / usual
    aligned /= aligned.sum(axis=1, keepdims=True)
    sure = aligned.max(axis=1)
    centre, spread = 0.9 / 3 + 0.1 * sure.mean(), 0.9 + 0.1 * sure.var(ddof=1)
    by_hand = [1.0 if s >= centre else np.exp(-((centre - s) ** 2) / (2 * spread / 4)) for s in sure]
    assert guess.tolist() == aligned.argmax(axis=1).tolist()
    assert weight.tolist() == pytest.approx(by_hand, rel=1e-5)


def test_a_class_that_is_guessed_too_often_is_held_back():
    judge = Judge(torch.tensor([50, 50]))
    lopsided = torch.tensor([[0.95, 0.05]] * 3 + [[0.55, 0.45]])
    before = judge.eval()(lopsided)[0].tolist()
    judge.train()
    for _ in range(500):
        judge(lopsided)
    assert before == [0, 0, 0, 0]
    assert judge(lopsided)[0].tolist() == [0, 0, 0, 1]


def test_unlabelled_rows_help(digits, training):
    ours, plain = [], []
    for seed in range(3):
        rows = np.random.default_rng(seed).choice(1400, 60, replace=False)
        release = digits.release(ldp.RandomizedResponse(30.0), rows=rows)
        settings = replace(training, epochs=50, seed=seed)
        start = Supervised(training=replace(settings, batch=32)).fit(digits.features, release)
        plain.append(digits.accuracy(start))
        ours.append(digits.accuracy(SoftMatch(training=settings, inertia=0.99).fit(digits.features, release, start)))
    assert np.mean(ours) > np.mean(plain) + 0.03


def test_wrong_labels_are_doubted(digits, training):
    release = digits.release(ldp.RandomizedResponse(30.0))
    codes = release.labels()
    generator = np.random.default_rng(0)
    known, wrong = np.split(generator.permutation(1400)[:300], [270])
    marked = np.full(1400, -1, np.int32)
    marked[known] = codes[known]
    marked[wrong] = (codes[wrong] + generator.integers(1, 10, len(wrong))) % 10
    noisy = release.relabel(marked)
    start = Supervised(training=replace(training, batch=64, epochs=10)).fit(digits.features, noisy)
    found = {}
    for doubt in (True, False):
        learner = SoftMatch(training=training, inertia=0.99, doubt=doubt)
        found[doubt] = digits.accuracy(learner.fit(digits.features, noisy, start))
    assert found[True] > found[False]
    assert found[True] > 0.93


def test_a_stopped_training_goes_on_as_if_it_had_not(digits, tmp_path):
    release = digits.release(ldp.RandomizedResponse(30.0), rows=np.arange(200))

    class Stop(Exception):
        pass

    def stop(epoch, loss):
        if epoch == 2:
            raise Stop

    whole = Training(epochs=4, batch=128, rate=0.05, device="cpu")
    expected = SoftMatch(training=whole).fit(digits.features, release).predict_proba(digits.new)
    part = replace(whole, checkpoint=tmp_path / "half.pt", progress=stop)
    with pytest.raises(Stop):
        SoftMatch(training=part).fit(digits.features, release)
    resumed = SoftMatch(training=replace(part, progress=False)).fit(digits.features, release)
    assert np.array_equal(resumed.predict_proba(digits.new), expected)
