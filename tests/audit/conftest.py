"""Digits that ship with scikit-learn: their features and labels, and tasks on them."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import Training
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task

torch.set_num_threads(1)


class AuditDigits:
    def __init__(self):
        pixels, labels = load_digits(return_X_y=True)
        self.features, self.labels = Embeddings(pixels / 16), labels.astype(np.int64)
        self.space = ldp.LabelSpace(list(range(10)))

    def task(self, epsilon, delta=0.0, count=1797, **more):
        training = Training(epochs=more.pop("epochs", 30), batch_size=128, learning_rate=0.1, device="cpu")
        features = self.features.select(np.arange(count))
        return Task(features, self.space, all_rows(count), epsilon, delta, training=training, **more)


@pytest.fixture(scope="session")
def digits():
    return AuditDigits()
