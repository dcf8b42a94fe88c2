"""The students of pate_plus_plus.py on encodings of the public pictures, with answers to all of their questions.

    python benchmarks/pate_encoded.py --data FOLDER --work FOLDER [--seeds 3] [--encoders 3] [--jobs 2]

Two things differ from pate_plus_plus.py, for all students alike. Their 2,200 questions are all answered (GNMax), so
that no test of agreement picks easy pictures and takes a part of epsilon. And they are linear,
with dropout, over encodings: an encoder learns the 9,000 public pictures without labels (SimCLR), and each encoding is
drawn halfway to the mean of its 20 nearest public ones. The pictures are public, so that this costs no privacy.

FOLDER (data) holds the official idx files, FOLDER (work) the votes as votes.npy (artifacts/fashion-votes.npy), the
encodings and the cells, so that a run goes on where the last one stopped. Settings were chosen on seeds 100 and 101 by
the true labels of the public pictures that were not asked about, but for the width of the encoder (docs/pate.md); `tau`
is the guessed share of wrong answers. A figure is the mean over encoders and seeds, with the deviation of their cells;
that of the gain has the 95 % interval. Writes benchmarks/results/pate_encoded.json.
"""

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pate_plus_plus as paper
import torch
from pate_plus_plus import ANSWERS, BETA, DELTA, LEVELS, PUBLIC, STUDENTS
from results import save
from torch import nn

from labeldp.data import Embeddings, augment
from labeldp.data.loaders import load
from labeldp.learn import Training
from labeldp.learn.backbones import Network
from labeldp.learn.semigan import select_trusted_rows
from labeldp.privacy.mechanisms.vote_aggregators import GNMax
from labeldp.representation.contrastive import SimCLR

NEAR, COLUMNS, COMPARED = 20, 256, 64  # neighbours; directions that are kept; those by which rows are near
TRAINING = Training(epochs=20, batch_size=100, optimizer="adamw", learning_rate=3e-3, weight_decay=1e-2, device="cpu")


class Clothes(paper.LightlyVaried):
    """Pictures whose views keep most of a garment and its sides, and vary in light."""

    def view(self, batch, size=None):
        crop = augment.resized_crop(batch, (0.4, 1.0), flip_probability=0.0)
        varied = augment.jitter(crop, 0.4, 0.4, saturation=0.0, hue=0.0, gray_probability=0.0)
        return varied.contiguous(memory_format=torch.channels_last)


def encode(images, seed):
    """Return encodings of all pictures by an encoder that learnt the public ones."""
    training = Training(30, 256, "adamw", 2e-3, weight_decay=1e-2, device="cpu", precision="bfloat16", seed=seed)
    method = SimCLR(partial(paper.teacher, width=48), training, temperature=0.2, hidden_features=256)
    return method.fit(Clothes.of(images.select(np.arange(PUBLIC)))).embed(images)


def drawn_together(encodings):
    """Return few columns of encodings, each row drawn to the public ones near it, be it public or new."""
    rows = encodings.reshape(len(encodings), -1).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows -= rows[:PUBLIC].mean(axis=0)
    _, directions = np.linalg.eigh(np.cov(rows[:PUBLIC].T))
    rows = rows @ directions[:, ::-1][:, :COLUMNS].astype(np.float32)
    unit = rows[:, :COMPARED] / np.linalg.norm(rows[:, :COMPARED], axis=1, keepdims=True)
    likeness = unit @ unit[:PUBLIC].T
    likeness[np.arange(PUBLIC), np.arange(PUBLIC)] = -np.inf  # nobody is near himself
    nearest = np.argpartition(-likeness, NEAR, axis=1)[:, :NEAR]
    drawn = (rows + rows[nearest].mean(axis=1)) / 2
    return drawn / drawn[:PUBLIC].std()


def linear(shape, classes):
    """A line over columns of which half are left out at each step."""
    recipe = {"name": "dropout line", "shape": list(shape), "classes": classes}
    return Network(nn.Sequential(nn.Flatten(), nn.Dropout(0.5)), int(np.prod(shape)), recipe)


def mechanism(epsilon):
    """Return GNMax for which the paper's formula gives `epsilon`."""
    root = -np.sqrt(np.log(1 / DELTA)) + np.sqrt(np.log(1 / DELTA) + epsilon)  # of the loss at order 1
    return GNMax(float(np.ceil(1000 * np.sqrt(ANSWERS) / root) / 1000), ANSWERS)


def answers(counts, epsilon, seed):
    """Return the answers to the pictures, -1 for those that were not asked about."""
    asked = np.random.default_rng(seed).permutation(PUBLIC)[:ANSWERS]
    codes = np.full(PUBLIC, -1, np.int32)
    codes[asked] = mechanism(epsilon).draw(counts[asked], paper.Seeded(seed, round(100 * epsilon))).codes
    return codes


def job(chosen, encoder, epsilon, seed):
    """Train the four students of one encoder on one draw of the noise."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _, labels = load("fashion-mnist", chosen.data, "test", flip=False)
    counts = np.load(chosen.work / "votes.npy").astype(np.int64)
    rows = Embeddings(np.load(chosen.work / f"encodings-{encoder}.npy"))
    release = paper.as_release(answers(counts, epsilon, seed), mechanism(epsilon).loss(ANSWERS, ANSWERS))
    public, found, contradictions = rows.select(np.arange(PUBLIC)), [], None
    rest, new = np.flatnonzero(~release.row_mask), np.arange(PUBLIC, len(labels))
    for name in STUDENTS:
        training_release = (
            release if name != "PATE++" else release.keep(select_trusted_rows(release, contradictions, BETA))
        )
        learner = paper.student(name, linear, replace(TRAINING, seed=seed))
        # PATE+ comes right before PATE++, which uses its contradictions.
        model, contradictions = learner.fit_and_count_contradictions(public, training_release)
        right = model.predict(rows) == labels
        facts = {"accuracy": float(right[new].mean()), "others": float(right[rest].mean())}
        wrong = float((release.labels() != labels[:PUBLIC])[release.row_mask].mean())
        found.append({"student": name, "epsilon": epsilon, "seed": seed, "encoder": encoder, "wrong": wrong} | facts)
    return found


def prepare(chosen, encoder):
    """Make the encodings of one encoder, unless they are there."""
    torch.set_num_threads(1)
    path, begun = chosen.work / f"encodings-{encoder}.npy", time.perf_counter()
    if not path.is_file():
        images, _ = load("fashion-mnist", chosen.data, "test", flip=False)
        partial_path = path.with_suffix(".partial.npy")
        np.save(partial_path, drawn_together(encode(images, encoder)))
        os.replace(partial_path, path)
    return encoder, round(time.perf_counter() - begun, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--encoders", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    cells, lines = chosen.work / "encoded-cells.jsonl", []
    if cells.is_file():
        lines = [json.loads(line) for line in cells.read_text().splitlines()]
    known = {(line["encoder"], line["epsilon"], line["seed"]) for line in lines}
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(prepare, chosen, seed) for seed in range(chosen.encoders)]):
            print("encoder {}: {} s".format(*future.result()), flush=True)
        every = [(e, level, s) for e in range(chosen.encoders) for level in LEVELS for s in range(chosen.seeds)]
        for future in as_completed([pool.submit(job, chosen, *each) for each in every if each not in known]):
            lines += future.result()
            with cells.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in future.result())
            print(*(f"{line['student']} {line['accuracy']:.3f}" for line in future.result()), flush=True)
    report(lines)


def report(lines):
    """Print and save means by epsilon and student; the gain is paired by encoder and seed."""
    figures, shown = {}, []
    for epsilon in LEVELS:
        here = {name: [x for x in lines if (x["student"], x["epsilon"]) == (name, epsilon)] for name in STUDENTS}
        by = {name: {(x["encoder"], x["seed"]): x for x in rows} for name, rows in here.items()}
        means = {name: paper.spread([x["accuracy"] for x in rows]) for name, rows in here.items()}
        others = {name: paper.spread([x["others"] for x in rows]) for name, rows in here.items()}
        gain = paper.spread([by["PATE++"][k]["accuracy"] - by["PATE"][k]["accuracy"] for k in by["PATE"]])
        votes = mechanism(epsilon)
        facts = {"sigma": votes.sigma, "our epsilon": votes.loss(ANSWERS, ANSWERS).epsilon(DELTA)}
        facts["wrong answers"] = float(np.mean([x["wrong"] for x in here["PATE"]]))
        figures[epsilon] = facts | {"students": means, "pictures not asked about": others, "PATE++ less PATE": gain}
        shown.append(
            [
                epsilon,
                "the last 1,000",
                *map(paper.format_summary, means.values()),
                paper.format_summary(gain, half=True),
            ]
        )
        shown.append(["", "not asked about", *map(paper.format_summary, others.values()), ""])
    paper.show("Accuracy in %: mean ± deviation (cells)", ["epsilon", "pictures", *STUDENTS, "gain"], shown)
    save("pate_encoded", figures)


if __name__ == "__main__":
    main()
