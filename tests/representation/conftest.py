"""Digits that ship with scikit-learn, an encoder of them, and ways to judge encodings by true labels."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from labeldp.data import Images
from labeldp.learn import Training
from labeldp.learn.backbones import build
from labeldp.representation.contrastive import SimCLR

torch.set_num_threads(1)


class Digits:
    """Pictures and their labels, which only the tests look at."""

    def __init__(self):
        self.pixels, self.labels = load_digits(return_X_y=True)
        self.images = Images((self.pixels.reshape(-1, 1, 8, 8) * 15.9).astype(np.uint8), flip=False)

    def matched_accuracy(self, clusters):
        """The share of rows whose cluster, matched with a class one to one, is right."""
        table = np.zeros((10, 10))
        np.add.at(table, (clusters, self.labels), 1)
        return table[linear_sum_assignment(-table)].sum() / len(self.labels)

    def nearest_accuracy(self, embeddings):
        """The share of rows whose five nearest rows have its label."""
        nearest = KNeighborsClassifier(5).fit(embeddings[::2], self.labels[::2])
        return nearest.score(embeddings[1::2], self.labels[1::2])


@pytest.fixture(scope="session")
def digits():
    return Digits()


@pytest.fixture(scope="session")
def cnn():
    return partial(build, "cnn", width=16)


@pytest.fixture(scope="session")
def encoder(digits, cnn):
    settings = Training(epochs=40, batch_size=256, optimizer="adamw", learning_rate=3e-3, device="cpu")
    return SimCLR(cnn, settings).fit(digits.images)
