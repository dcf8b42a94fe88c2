"""How fast each learner trains: rows a second, the share of the device's matrix rate, and a plain loop beside it.

    python benchmarks/engine.py [--device cpu|cuda] [--rows N] [--learners supervised,...]

Random pictures and rows: only the time matters here. The plain loop is what many people write: a DataLoader over a
TensorDataset, one network, one optimiser, float32, with the same network, batch and weak augmentation as ours. Rows a
second are of the learner's own steps, so a learner with two networks does about twice the work for a row. Writes
benchmarks/results/engine-<device>.json.
"""

import argparse
import time
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from results import save
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

import labeldp as ldp
from labeldp.features import Embeddings, Images
from labeldp.learn import AugDescent, Bayes, CoTeaching, FixMatch, Supervised, Training
from labeldp.learn.backbones import build
from labeldp.represent.contrastive import SimCLR
from labeldp.represent.momentum import BYOL, MoCo

CLASSES = 10


def matrix_rate(device):
    """Measured operations a second of a large product, in the precision that training uses there."""
    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (2048, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = 0.0
    for _ in range(10):
        start = now(device)
        for _ in range(3):
            a @ b
        best = max(best, 3 * 2 * size**3 / (now(device) - start))
    return best


def now(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def plain_loop(features, labels, network, batch, epochs):
    """The loop to compare with."""
    inputs = features.batch(torch.arange(len(features)))
    loader = DataLoader(TensorDataset(inputs, labels), batch, shuffle=True, drop_last=True)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    network.train()
    for _ in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(network(features.weak(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def rate(run, rows, device, epochs=6, repeats=3):
    """The best of repeated runs, in rows a second, after one epoch to warm up; setting up a run is part of it."""
    run(1)
    best = 0.0
    for _ in range(repeats):
        start = now(device)
        run(epochs)
        best = max(best, epochs * rows / (now(device) - start))
    return best


def flops_per_row(network, features):
    with FlopCounterMode(display=False) as counter:
        network(features.batch(torch.arange(2))).sum().backward()
    return counter.get_total_flops() / 2


LEARNERS = {
    "supervised": Supervised,
    "Bayes (ALIBI)": Bayes,
    "FixMatch": FixMatch,
    "co-teaching": CoTeaching,
    "Aug-Descent": AugDescent,
}
# Heads of the size that two cores can bear; on a GPU they hardly count.
SMALL = {"hidden": 512, "projection": 128}
REPRESENTATIONS = {"SimCLR": SimCLR, "BYOL": partial(BYOL, **SMALL), "MoCo v3": partial(MoCo, **SMALL)}


def measure(title, features, backbone, batch, device, peak):
    """Print and return rows a second for every learner on one kind of features."""
    rows = len(features)
    labels = torch.randint(CLASSES, (rows,))
    space = ldp.LabelSpace(list(range(CLASSES)))
    release = ldp.Vault(labels.numpy(), space, ldp.Budget(2.0)).release(ldp.RandomizedResponse(2.0))
    training = Training(batch=batch, rate=0.01, device=device, compile=device == "cuda")
    work = flops_per_row(backbone(features.shape, CLASSES), features)
    features = features.to(device)

    def learn(learner, epochs):
        learner(backbone, replace(training, epochs=epochs)).fit(features, release)

    def represent(representation, epochs):
        representation(backbone, replace(training, epochs=epochs)).fit(features)

    print(f"\n{title}, batch {batch}, {rows:,} rows on {device}; matrix rate {peak / 1e12:.2f} TFLOP/s")
    results = {}
    if device == "cpu":  # beside `supervised`, which it is compared with
        network = backbone(features.shape, CLASSES)
        results["plain loop"] = rate(partial(plain_loop, features, labels, network, batch), rows, device)
    results |= {name: rate(partial(learn, each), rows, device) for name, each in LEARNERS.items()}
    results |= {name: rate(partial(represent, each), rows, device) for name, each in REPRESENTATIONS.items()}
    for name, speed in results.items():
        share = f"{speed * work / peak:>8.1%} of the matrix rate" if name == "supervised" else ""
        print(f"  {name:<16}{speed:>12,.0f} rows/s {share}")
    if device == "cpu":
        print(f"  supervised / plain loop: {results['supervised'] / results['plain loop']:.2f}")
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--learners", help="only these, separated by commas")
    chosen = parser.parse_args()
    if chosen.learners:
        wanted = chosen.learners.split(",")
        for table in (LEARNERS, REPRESENTATIONS):
            for name in set(table) - set(wanted):
                del table[name]
    device, cuda = chosen.device, chosen.device == "cuda"
    generator = np.random.default_rng(0)
    columns = generator.normal(size=(chosen.rows or 50_000, 64))
    pixels = generator.integers(0, 256, (chosen.rows or (50_000 if cuda else 1024), 3, 32, 32), np.uint8)
    width, batch = (64, 512) if cuda else (8, 128)  # a narrow network, so that two cores are done in minutes
    resnet = partial(build, "resnet18", width=width)
    peak = matrix_rate(device)
    figures = {"matrix rate": peak}
    problems = {
        "MLP, 64 columns": (Embeddings(columns), partial(build, "mlp"), 256),
        f"ResNet-18 of width {width}, 32 x 32": (Images(pixels), resnet, batch),
    }
    for title, (features, backbone, size) in problems.items():
        figures[title] = measure(title, features, backbone, size, device, peak)
    if not chosen.learners:
        save(f"engine-{device}", figures)


if __name__ == "__main__":
    main()
