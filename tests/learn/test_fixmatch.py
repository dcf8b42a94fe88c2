from dataclasses import replace

import numpy as np
import torch

import labeldp as ldp
from labeldp.learn import FixMatch, Supervised
from labeldp.learn.fixmatch import predict_confident


def test_the_mask_is_the_obvious_one():
    logits = torch.tensor([[0.0, 5.0], [0.2, 0.0], [9.0, 0.0]], requires_grad=True)
    predictions, is_confident = predict_confident(logits, 0.95)
    by_hand = [np.exp(row).max() / np.exp(row).sum() >= 0.95 for row in logits.detach().numpy()]
    assert predictions.tolist() == [1, 0, 0]
    assert is_confident.tolist() == by_hand == [True, False, True]
    assert not is_confident.requires_grad


def test_unlabelled_rows_help(digits, training):
    ours, plain = [], []
    for seed in range(3):
        rows = np.random.default_rng(seed).choice(1400, 60, replace=False)
        release = digits.release(ldp.RandomizedResponse(30.0), rows=rows)
        settings = replace(training, epochs=50, seed=seed)
        ours.append(digits.accuracy(FixMatch(training=settings, threshold=0.8).fit(digits.features, release)))
        few = Supervised(training=replace(settings, batch_size=32))
        plain.append(digits.accuracy(few.fit(digits.features, release)))
    assert np.mean(ours) > np.mean(plain) + 0.03
