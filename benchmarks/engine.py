"""How fast each learner trains: rows a second, the share of the device's matrix rate, and a plain loop beside it.

    python benchmarks/engine.py [--device cpu|cuda] [--rows N] [--epochs N] [--learners NAMES] [--kind pictures]

Random pictures and rows: only the time matters here. The plain loop is what many people write: a DataLoader over a
TensorDataset, one network, one optimiser, float32, with the same network, batch and weak augmentation as ours. Rows a
second are those of the best epoch in the second half of a training, when all is compiled and warm; the plain loop and
`supervised` take turns, three each, since a machine that others use is not as fast at all times. A learner with two
networks, or several views, does more work for a row: the share of the matrix rate counts all operations of an
epoch. Writes benchmarks/results/engine-<device>.json after each learner; with `--learners` and `--kind`, only these are
measured anew. To compile Aug-Descent with two networks of this size takes minutes.
"""

import argparse
import time
from functools import partial

import numpy as np
import torch
from results import Clock, read, save
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

import labeldp as ldp
from labeldp.data import Embeddings, Images
from labeldp.learn import AugDescent, Bayes, CoTeaching, FixMatch, Supervised, Training
from labeldp.learn.backbones import build
from labeldp.representation.contrastive import SimCLR
from labeldp.representation.momentum import BYOL, MoCo

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


def plain_loop(features, labels, network, batch, epochs, clock):
    """The loop to compare with."""
    inputs = features.batch(torch.arange(len(features)))
    loader = DataLoader(TensorDataset(inputs, labels), batch, shuffle=True, drop_last=True)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    network.train()
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(network(features.weak(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        clock(epoch, loss)


def rate(run, rows, epochs):
    """Rows a second in the best epoch of the second half."""
    clock = Clock()
    run(epochs, clock)
    return rows / min(clock.epochs[epochs // 2 :])


def operations(run, rows):
    """Operations for a row in the last epoch of a training of two, all networks and gradients counted."""
    counts = []
    for epochs in (1, 2):
        with FlopCounterMode(display=False) as counter:
            run(epochs, None)
        counts.append(counter.get_total_flops())
    return (counts[1] - counts[0]) / rows


LEARNERS = {
    "supervised": Supervised,
    "Bayes (ALIBI)": Bayes,
    "FixMatch": FixMatch,
    "co-teaching": CoTeaching,
    "Aug-Descent": AugDescent,
}
# Heads of the size that two cores can bear; on a GPU they hardly count.
SMALL = {"hidden_features": 512, "projection_features": 128}
REPRESENTATIONS = {"SimCLR": SimCLR, "BYOL": partial(BYOL, **SMALL), "MoCo v3": partial(MoCo, **SMALL)}


def measure(title, features, backbone, batch, device, peak, epochs, note):
    """Print and note rows a second, and the share of the matrix rate, for every learner on one kind of features."""
    labels = torch.randint(CLASSES, (len(features),))
    features = features.to(device)

    def fit(make, features, training):
        learner = make(backbone, training)
        if make in REPRESENTATIONS.values():
            return learner.fit(features)
        space = ldp.LabelSpace(list(range(CLASSES)))
        vault = ldp.Vault(labels[: len(features)].numpy(), space, ldp.Budget(2.0))
        return learner.fit(features, vault.release(ldp.RandomizedResponse(2.0)))

    def learn(make, epochs, clock):
        whole = Training(epochs, batch, learning_rate=0.01, device=device, compile=device == "cuda", progress=clock)
        fit(make, features, whole)

    few = features.select(range(32))

    def count(make, epochs, _):
        fit(make, few, Training(epochs, len(few), learning_rate=0.01, device=device))

    print(f"\n{title}, batch {batch}, {len(features):,} rows on {device}; matrix rate {peak / 1e12:.2f} TFLOP/s")
    before = quick = 0.0
    if device == "cpu" and "supervised" in LEARNERS:
        plain = partial(plain_loop, features, labels, backbone(features.shape, CLASSES), batch)
        for _ in range(3):
            before = max(before, rate(plain, len(features), epochs))
            quick = max(quick, rate(partial(learn, Supervised), len(features), epochs))
        note("plain loop", {"rows a second": before})
        print(f"  {'plain loop':<16}{before:>12,.0f} rows/s", flush=True)
    for name, make in (LEARNERS | REPRESENTATIONS).items():
        speed = quick if quick and name == "supervised" else rate(partial(learn, make), len(features), epochs)
        share = speed * operations(partial(count, make), len(few)) / peak
        note(name, {"rows a second": speed, "share of the matrix rate": share})
        print(f"  {name:<16}{speed:>12,.0f} rows/s {share:>8.1%} of the matrix rate", flush=True)
        if device == "cpu" and name == "supervised":
            print(f"  supervised / plain loop: {speed / before:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, help="only so many, for a trial")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--learners", help="only these, separated by commas")
    parser.add_argument("--kind", choices=["columns", "pictures"], help="only these rows")
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
    figures = (read(f"engine-{device}") if chosen.learners or chosen.kind else {}) | {"matrix rate": peak}
    problems = {
        "MLP, 64 columns": (Embeddings(columns), partial(build, "mlp"), 256),
        f"ResNet-18 of width {width}, 32 x 32": (Images(pixels), resnet, batch),
    }
    for title, (features, backbone, size) in problems.items():
        if chosen.kind and chosen.kind != ("columns" if isinstance(features, Embeddings) else "pictures"):
            continue
        found = figures.setdefault(title, {})

        def note(name, values, found=found):
            found[name] = values
            if not chosen.rows:
                save(f"engine-{device}", figures)

        measure(title, features, backbone, size, device, peak, chosen.epochs, note)


if __name__ == "__main__":
    main()
