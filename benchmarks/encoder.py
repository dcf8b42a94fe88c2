"""How good an encoder is that never saw a label, and how long it takes: ResNet-18 on CIFAR-10.

    python benchmarks/encoder.py --data DIR [--method simclr|byol|moco] [--epochs N] [--save FOLDER] [--device cuda]

DIR holds the official `cifar-10-batches-py`. Labels are used for nothing but scoring: the k-NN accuracy of test
pictures (200 nearest training pictures by cosine, weighted by exp(cosine / 0.1)), and a linear probe. `--watch N`
prints the k-NN accuracy of the network in training every N epochs, outside of the time that is measured. Preparation
is what the first epoch takes more than the others: compilation and the search for fast kernels. `--save` keeps the
encoder as `Model.load` reads it, its weights rounded to 8 bits; the scores are of that file. Writes
benchmarks/results/encoder-<method>.json, or encoder-<method>-again.json where it goes on from another (`--start`).
"""

import argparse
import copy
from pathlib import Path

import torch
from results import Clock, save, show
from torch import nn
from torch.nn import functional as F

from labeldp.data.loaders import load
from labeldp.learn import Model, Training
from labeldp.learn.backbones import build
from labeldp.learn.encoded import concat_encoders, split_encoder
from labeldp.representation.contrastive import SimCLR
from labeldp.representation.momentum import BYOL, MoCo

# Settings that go together: of the method, and of its training.
HEADS = {"view_size": 24, "n_views": 4, "hidden_features": 4096, "projection_features": 256}
METHODS = {
    "simclr": (
        SimCLR,
        HEADS | {"temperature": 0.2},
        {"batch_size": 256, "learning_rate": 0.5, "epochs": 300, "final_rate_fraction": 0.2},
    ),
    "byol": (BYOL, HEADS, {"batch_size": 256, "learning_rate": 0.5, "epochs": 240, "final_rate_fraction": 0.2}),
    # At a low rate it begins to memorize the training images: a fifth of the rate is left at the end.
    "moco": (MoCo, HEADS, {"batch_size": 256, "learning_rate": 0.5, "epochs": 240, "final_rate_fraction": 0.2}),
}


def nearest_accuracy(bank, bank_labels, query, labels, count=200, temperature=0.1):
    """The share of query rows whose nearest rows of the bank vote for their label."""
    bank, right = F.normalize(bank, dim=1), 0
    for rows, wanted in zip(F.normalize(query, dim=1).split(1000), labels.split(1000), strict=True):
        likeness, nearest = (rows @ bank.T).topk(min(count, len(bank)), dim=1)
        votes = torch.zeros(len(rows), 10, device=rows.device)
        votes.scatter_add_(1, bank_labels[nearest], (likeness / temperature).exp())
        right += (votes.argmax(1) == wanted).sum().item()
    return right / len(query)


def linear_accuracy(train, train_labels, test, labels, steps=100):
    """The accuracy of logistic regression on the encodings."""
    mean, deviation = train.mean(0), train.std(0) + 1e-5
    train, test = (train - mean) / deviation, (test - mean) / deviation
    head = nn.Linear(train.shape[1], 10).to(train.device)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=steps, history_size=20, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = F.cross_entropy(head(train), train_labels) + 1e-5 * head.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return (head(test).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--method", choices=METHODS, default="moco")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rows", type=int, help="only so many pictures, for a trial")
    parser.add_argument("--size", type=int, help="the height of views")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--start", type=Path, help="an encoder to go on from; its own time is not counted here")
    parser.add_argument("--beside", action="store_true", help="keep that one too, and the new one beside it")
    parser.add_argument("--watch", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    device = chosen.device
    method, settings, schedule = METHODS[chosen.method]
    settings = settings | ({"view_size": chosen.size} if chosen.size else {})
    schedule = schedule | ({"epochs": chosen.epochs} if chosen.epochs else {})
    sets = [load("cifar10", chosen.data, split) for split in ("train", "test")]
    sets = [(x.select(range(chosen.rows or len(x))).to(device), torch.from_numpy(y[: chosen.rows])) for x, y in sets]
    (pictures, labels), (test, test_labels) = ((x, y.to(device)) for x, y in sets)
    before, made = split_encoder(Model.load(chosen.start, device)) if chosen.start else [], []

    def backbone(shape, classes):
        made.append(copy.deepcopy(before[-1].network) if before else build("resnet18", shape, classes))
        return made[-1].requires_grad_(True)

    def score(model, measure):
        encodings = [torch.from_numpy(model.embed(x)).to(device) for x in (pictures, test)]
        return measure(encodings[0], labels, encodings[1], test_labels)

    def watch(epoch, loss):
        if chosen.watch and epoch % chosen.watch == 0:
            accuracy = score(Model(made[0], None), nearest_accuracy)
            print(f"  epoch {epoch}: {clock.epoch:.3f} s an epoch, loss {loss:.4f}, k-NN {accuracy:.2%}", flush=True)

    clock = Clock(watch)
    training = Training(
        **schedule,
        weight_decay=1e-4,
        warmup_fraction=0.02,
        compile=device == "cuda",
        device=device,
        seed=chosen.seed,
        progress=clock,
    )
    model = method(backbone, training, **settings).fit(pictures)
    if chosen.save:
        combined = concat_encoders([*before, model], pictures) if chosen.beside else model
        combined.save(chosen.save, quantize=True)
        model = split_encoder(Model.load(chosen.save, device))[-1]
    figures = {"method": chosen.method, "seed": chosen.seed, "views": len(pictures) * settings.get("n_views", 2)}
    figures |= {"settings": settings | schedule, "goes on": chosen.start is not None} | clock.figures()
    figures["seconds for 100,000 views"] = round(clock.epoch / figures["views"] * 100_000, 4)
    figures["k-NN accuracy"] = score(model, nearest_accuracy)
    figures["linear accuracy"] = score(model, linear_accuracy)
    if device == "cuda":
        figures["peak GPU memory, GiB"] = torch.cuda.max_memory_reserved() / 2**30
    show(figures)
    if not chosen.rows:
        save(f"encoder-{chosen.method}{'-again' if chosen.start else ''}", figures)


if __name__ == "__main__":
    main()
