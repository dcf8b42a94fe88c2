"""250 teachers on self-supervised embeddings of CIFAR-10: how fast they train, what they answer, what a student learns.

    python benchmarks/pate_embeddings.py --data FOLDER [--teachers 250] [--epsilons 0.5,1,2,4] [--seeds 3]

FOLDER holds train-embeddings.npy, train-labels.npy, test-embeddings.npy and test-labels.npy. Teachers are linear heads
on rows that a label-free encoder gave, all fitted in closed form; answers are those of Confident-GNMax, its noise
calibrated so that epsilon holds at delta 1e-5 whatever the teachers say, for 20 answers a class. The table has that
many teachers, and as many as the recipe takes, which follow the noise: eight for each unit of its deviation.
The student is FixMatch on the answers (`pate-fm`). True labels score. Writes benchmarks/results/pate_embeddings.json.
"""

import argparse
import time
from itertools import product
from pathlib import Path

import numpy as np
from results import save
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn import FixMatch, Training
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_votes import TeacherVotes
from labeldp.recipes.pipelines.teachers import QueryPlan, choose_confident_votes
from labeldp.recipes.task import Task

DELTA, ANSWERS, QUERIES = 1e-5, 200, 600


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--epsilons", default="0.5,1,2,4")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    train, test = (Embeddings(np.load(chosen.data / f"{part}-embeddings.npy")) for part in ("train", "test"))
    labels, truth = (np.load(chosen.data / f"{part}-labels.npy").astype(np.int64) for part in ("train", "test"))
    normalizer = RowNormalizer.fit(train)
    points, new = normalizer(train), normalizer(test)
    space = ldp.LabelSpace(list(range(10)))

    begun = time.perf_counter()
    weights = Heads().fit(points, labels, assign_teachers(np.ones(len(labels), bool), chosen.teachers, 0), 10)
    seconds = time.perf_counter() - begun
    plurality = float((Heads.vote(weights, new).argmax(axis=1) == truth).mean())
    print(f"{chosen.teachers} teachers in {seconds:.1f} s; their plurality is right for {plurality:.1%} of new rows")

    shown = Table(box=SIMPLE_HEAD, title="Answers and students, mean over seeds", title_justify="left")
    for name in ("epsilon", "teachers", "sigma", "answers", "answers right", "student"):
        shown.add_column(name, justify="right")
    cells = []
    everything = np.ones(len(labels), bool)
    for epsilon, teachers in product(map(float, chosen.epsilons.split(",")), (chosen.teachers, None)):
        count, votes = choose_confident_votes(
            QueryPlan(Task(train, space, everything, epsilon, DELTA), teachers, ANSWERS, QUERIES, 0.5)
        )
        found = []
        for seed in range(chosen.seeds):
            queries = np.random.default_rng(seed).permutation(len(labels))[:QUERIES]
            vault = ldp.Vault(labels, space, ldp.Budget(epsilon, DELTA))
            release = vault.release(TeacherVotes(points, queries, count, votes, DELTA, seed=seed))
            codes = release.labels()
            known = codes >= 0
            student = FixMatch("mlp", Training(epochs=10, batch_size=256, learning_rate=0.05, seed=seed)).fit(
                train, release
            )
            right = (student.predict(test) == truth).mean()
            found.append((known.sum(), (codes[known] == labels[known]).mean(), right))
        answers, correct, accuracy = np.mean(found, axis=0)
        spread = float(np.std([f[2] for f in found], ddof=1)) if chosen.seeds > 1 else 0.0
        cell = {
            "epsilon": epsilon,
            "teachers": count,
            "sigma": votes.sigma2,
            "answers": float(answers),
            "answers right": float(correct),
        }
        cells.append(cell | {"student": float(accuracy), "deviation": spread, "spent": release.guarantee.epsilon})
        shown.add_row(
            f"{epsilon:g}", str(count), f"{votes.sigma2:.0f}", f"{answers:.0f}", f"{correct:.1%}", f"{accuracy:.1%}"
        )
    Console().print(shown)
    facts = {"teachers": chosen.teachers, "seconds of teachers": seconds, "plurality": plurality, "seeds": chosen.seeds}
    save("pate_embeddings", facts | {"delta": DELTA, "cells": cells})


if __name__ == "__main__":
    main()
