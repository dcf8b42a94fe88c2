"""Digits that ship with scikit-learn, behind a vault, and tasks on them."""

from functools import cache

import numpy as np
import pytest
import torch
from scripted import Seeded
from sklearn.datasets import load_digits

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import Training
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

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
        self.mean_accuracy = cache(self._mean_accuracy)

    def vault(self, epsilon, delta=0.0, seed=0, count=1400, **options):
        """A vault of the first `count` labels, whose noise is the same in every run."""
        vault = ldp.Vault(self.labels[:count], SPACE, ldp.Budget(epsilon, delta), **options)
        vault._bits = Seeded(seed)
        return vault

    def task(self, epsilon, delta=0.0, seed=0, count=1400, epochs=1, **options):
        features = self.features.select(np.arange(count))
        training = Training(epochs=epochs, batch_size=128, learning_rate=0.1, device="cpu", seed=seed)
        return Task(
            features,
            SPACE,
            **({"row_mask": all_rows(count), "epsilon": epsilon, "delta": delta, "seed": seed} | options)
            | ({} if "training" in options else {"training": training}),
        )

    def accuracy(self, model):
        return float((model.predict(self.new) == self.new_labels).mean())

    def _mean_accuracy(self, name, epsilon, delta=0.0, seeds=4, epochs=12, **options):
        """Over draws of the noise and of the training's seed."""
        results = []
        for seed in range(seeds):
            vault, task = self.vault(epsilon, delta, seed), self.task(epsilon, delta, seed, epochs=epochs)
            results.append(self.accuracy(train(vault, task, name, options, score=False).model))
        return float(np.mean(results))


@pytest.fixture(scope="session")
def digits():
    return Digits()
