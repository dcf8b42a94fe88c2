"""How well and how fast plain supervised training does on clean labels: ResNet-18 on CIFAR-10.

    python benchmarks/supervised.py --data DIR [--epochs N] [--batch N] [--seeds N] [--device cuda]

DIR holds the official `cifar-10-batches-py`. The labels are released at epsilon 60, where no label is changed in
practice: this measures the engine, not privacy. Preparation (compilation, the search for fast kernels) is what the
first epoch takes more than the others. Writes benchmarks/results/supervised.json.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from results import Clock, save, show

import labeldp as ldp
from labeldp.data.loaders import load
from labeldp.learn import Supervised, Training


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=130)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--rows", type=int, help="only so many pictures, for a trial")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    (pictures, labels), (test, wanted) = (load("cifar10", chosen.data, split) for split in ("train", "test"))
    rows = np.arange(chosen.rows or len(pictures))
    space, budget = ldp.LabelSpace(list(range(10))), ldp.Budget(epsilon=60.0)
    release = ldp.Vault(labels[rows], space, budget).release(ldp.RandomizedResponse(60.0))
    pictures, test = (
        pictures.select(rows).to(chosen.device),
        test.select(range(chosen.rows or len(test))).to(chosen.device),
    )
    runs = []
    for seed in range(chosen.seeds):
        clock = Clock()
        training = Training(
            epochs=chosen.epochs,
            batch_size=chosen.batch,
            learning_rate=chosen.rate,
            compile=chosen.device == "cuda",
            device=chosen.device,
            seed=seed,
            progress=clock,
        )
        learner = Supervised("resnet18", training, augment="strong", label_smoothing=0.1)
        model = learner.fit(pictures, release)
        figures = {"seed": seed, "batch": chosen.batch, "rate": chosen.rate} | clock.figures()
        figures["accuracy"] = float((model.predict(test) == wanted[: len(test)]).mean())
        if chosen.device == "cuda":
            figures["peak GPU memory, GiB"] = torch.cuda.max_memory_reserved() / 2**30
        show(figures)
        runs.append(figures)
    if not chosen.rows:
        save("supervised", runs)


if __name__ == "__main__":
    main()
