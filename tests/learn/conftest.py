"""Digits that ship with scikit-learn, as embeddings and as images, with noisy labels."""

import numpy as np
import pytest
import torch
from scripted import Seeded
from sklearn.datasets import load_digits

import labeldp as ldp
from labeldp.data import Embeddings, Images
from labeldp.learn import Training

torch.set_num_threads(1)

SPACE = ldp.LabelSpace(list(range(10)))


class Digits:
    """1,400 digits to learn from, the others to test on."""

    def __init__(self):
        pixels, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(labels))
        known, new = order[:1400], order[1400:]
        self.labels, self.new_labels = labels[known], labels[new]
        self.features, self.new = Embeddings(pixels[known] / 16), Embeddings(pixels[new] / 16)
        images = (pixels.reshape(-1, 1, 8, 8) * 15.9).astype(np.uint8)
        self.images = Images(images[known], flip=False)

    def release(self, mechanism, rows=None, seed=0):
        """A draw of the mechanism on the digits' labels."""
        vault = ldp.Vault(self.labels, SPACE, ldp.Budget(mechanism.epsilon, 1e-5))
        vault._bits = Seeded(seed)
        return vault.release(mechanism, row_selection=rows)

    def accuracy(self, model):
        return float((model.predict(self.new) == self.new_labels).mean())

    def mean_accuracy(self, learner, mechanism, seeds=3):
        """Over draws of the noise and of the training's seed."""
        fits = (
            learner.with_training(seed=seed).fit(self.features, self.release(mechanism, seed=seed))
            for seed in range(seeds)
        )
        return float(np.mean([self.accuracy(model) for model in fits]))


@pytest.fixture(scope="session")
def digits():
    return Digits()


@pytest.fixture(scope="session")
def training():
    return Training(epochs=30, batch_size=128, learning_rate=0.1, device="cpu")
