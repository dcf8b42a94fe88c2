"""How well pictures fall into their classes without a single label: k-means on pixels, on an encoder, and SCAN.

    python benchmarks/scan.py                                             # the digits of scikit-learn, on the CPU
    python benchmarks/scan.py --data DIR --encoder FOLDER [--device cuda]  # CIFAR-10; FOLDER is of encoder.py --save

DIR holds the official `cifar-10-batches-py`. Accuracy is that of the best one-to-one match of clusters and classes, on
the pictures that were clustered; labels are used for nothing else. Writes benchmarks/results/scan-<data>.json.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from results import save, show
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits

from labeldp.data import Images
from labeldp.data.loaders import load
from labeldp.learn import Model, Training
from labeldp.learn.backbones import build
from labeldp.representation.clusters import kmeans
from labeldp.representation.contrastive import SimCLR
from labeldp.representation.scan import SCAN


def matched_accuracy(clusters, labels):
    """The share of rows whose cluster, matched with a class one to one, is right."""
    table = np.zeros((10, 10))
    np.add.at(table, (clusters, labels), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(labels))


def digits(seed):
    """Pictures, labels, an encoder of the pictures, and SCAN with settings for few rows."""
    pixels, labels = load_digits(return_X_y=True)
    pictures = Images((pixels.reshape(-1, 1, 8, 8) * 15.9).astype(np.uint8), flip=False)
    training = Training(epochs=40, batch_size=256, optimizer="adamw", learning_rate=3e-3, device="cpu", seed=seed)
    encoder = SimCLR(partial(build, "cnn", width=16), training).fit(pictures)
    training = Training(epochs=40, batch_size=128, optimizer="adamw", learning_rate=1e-3, device="cpu", seed=seed)
    scan = SCAN(10, n_neighbors=10, entropy_weight=3.0, threshold=0.9, training=training, self_label_epochs=15)
    return pictures, labels, encoder, scan


def cifar10(data, folder, device, epochs, seed):
    pictures, labels = load("cifar10", data)
    training = Training(
        epochs=epochs,
        batch_size=500,
        optimizer="adamw",
        learning_rate=1e-4,
        weight_decay=1e-4,
        device=device,
        seed=seed,
    )
    return pictures, labels, Model.load(folder, device), SCAN(10, training=training, self_label_epochs=epochs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rows", type=int, help="only so many pictures, for a trial")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.data:
        arguments = chosen.data, chosen.encoder, chosen.device, chosen.epochs, chosen.seed
        pictures, labels, encoder, scan = cifar10(*arguments)
    else:
        pictures, labels, encoder, scan = digits(chosen.seed)
    rows = np.arange(chosen.rows or len(pictures))
    pictures, labels = pictures.select(rows), labels[rows]
    pixels = pictures.batch(torch.from_numpy(rows)).flatten(1).numpy()
    pictures = pictures.to(scan.training.device)
    figures = {"seed": chosen.seed, "rows": len(rows)}
    figures["k-means on pixels"] = matched_accuracy(kmeans(pixels, 10, chosen.seed), labels)
    figures["k-means on the encoder"] = matched_accuracy(kmeans(encoder.embed(pictures), 10, chosen.seed), labels)
    start = time.perf_counter()
    model = scan.fit(pictures, encoder)
    figures["SCAN"] = matched_accuracy(scan.assign(model, pictures), labels)
    figures["seconds of SCAN"] = round(time.perf_counter() - start, 1)
    show(figures)
    if not chosen.rows:
        save(f"scan-{'cifar10' if chosen.data else 'digits'}", figures)


if __name__ == "__main__":
    main()
