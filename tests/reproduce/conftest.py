"""CIFAR files of a few pictures, in the official formats: digits, made larger and coloured by class."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

torch.set_num_threads(1)


def _pixels(count, seed):
    pictures, labels = load_digits(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(labels))[:count]
    grey = np.kron(pictures[chosen].reshape(-1, 1, 8, 8), np.ones((1, 3, 4, 4))) * 15
    return grey.reshape(count, -1).astype(np.uint8), labels[chosen]


@pytest.fixture(scope="session")
def cifar(tmp_path_factory):
    """A folder with CIFAR-10 and CIFAR-100, whose hundred classes are ten times these ten."""
    folder = tmp_path_factory.mktemp("cifar")
    ten, hundred = folder / "cifar-10-batches-py", folder / "cifar-100-python"
    ten.mkdir()
    hundred.mkdir()
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        pixels, labels = _pixels(120, number)
        (ten / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": labels.tolist()}))
    for name, count in (("train", 600), ("test", 120)):
        pixels, labels = _pixels(count, count)
        fine = (10 * labels + np.arange(count) % 10).tolist()
        (hundred / name).write_bytes(pickle.dumps({b"data": pixels, b"fine_labels": fine}))
    return folder
