"""The accuracy of each step of the recipe `refine` on CIFAR-10, by true labels that no step has seen.

    python benchmarks/refine_steps.py --data DIR --encoder FOLDER [--epsilons 0.5,2] [--device cuda] [--keep FOLDER]

DIR holds the official `cifar-10-batches-py`; FOLDER is an encoder, of encoder.py --save. The recipe trains on the first
45,000 training images. The accuracy of a step is measured on these, and on the 5,000 others, whose labels are
declared public: settings of the recipe may be chosen by them. No test image is read. What several epsilons share is
trained once; --keep keeps it for later runs. Writes benchmarks/results/refine_steps.json.
"""

import argparse
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from results import save

import labeldp as ldp
import labeldp.recipes.pipelines.refine as steps
from labeldp.data.loaders import load
from labeldp.learn import Model, Training
from labeldp.recipes.task import Task
from labeldp.recipes.training import train
from labeldp.reproduce.cells import CellVault


class Steps:
    """Reports the accuracy of each step of the recipe when it ends."""

    def __init__(self, pictures, labels, known):
        self._pictures, self._labels, self._released = pictures, labels, known
        self._begun, self.lines = time.perf_counter(), []

    def report(self, step, probabilities):
        probabilities = np.asarray(probabilities)
        is_correct = probabilities.argmax(axis=1) == self._labels
        is_predicted = np.ptp(probabilities, axis=1) > 0
        line = {"step": step}
        for name, part in (("told", self._released), ("declared", ~self._released)):
            line[name] = round(100 * float(is_correct[part].mean()), 2) if is_predicted[part].any() else None
        line["minutes"] = round((time.perf_counter() - self._begun) / 60, 1)
        self.lines.append(line)
        print("  " + ", ".join(f"{name} {value}" for name, value in line.items()), flush=True)

    def report_model(self, step, model):
        self.report(step, model.predict_proba(self._pictures))

    @contextmanager
    def watching(self):
        """Report the steps of the recipe while the context is open."""
        query_sums, train_or_load, combine_responses = steps._query_sums, steps.train_or_load, steps._combine_responses

        def report_sums(task, points, epsilon, after=()):
            found = yield from query_sums(task, points, epsilon, after)
            self.report(f"sums at {epsilon:g} over {len(points)} embeddings", found.posterior)
            return found

        def report_networks(task, learner, *more):
            found = train_or_load(task, learner, *more)
            for network in found:
                self.report_model(f"{type(learner).__name__} for {learner.training.epochs} epochs", network)
            return found

        def report_responses(*arguments):
            found = combine_responses(*arguments)
            self.report("answers", np.exp(found.log_evidence()))
            return found

        steps._query_sums, steps.train_or_load, steps._combine_responses = (
            report_sums,
            report_networks,
            report_responses,
        )
        try:
            yield
        finally:
            steps._query_sums, steps.train_or_load, steps._combine_responses = (
                query_sums,
                train_or_load,
                combine_responses,
            )


def run(chosen, epsilon, pictures, labels, encoder, folder):
    """The recipe at one epsilon, step by step."""
    known = np.arange(len(labels)) < 0.9 * len(labels)
    space, watcher = ldp.LabelSpace(list(range(10))), Steps(pictures, labels, known)
    vault = CellVault(labels, space, ldp.Budget(epsilon, 1e-5))
    vault.shared_folder = folder / "common"
    fast = chosen.device == "cuda"
    training = Training(chosen.epochs, 256, learning_rate=chosen.rate, compile=fast, device=chosen.device)
    task = Task(pictures, space, known, epsilon, 1e-5, "resnet18", training, encoder, folder=folder)
    with watcher.watching():
        model = train(vault, task, "refine", score=False).model
    watcher.report_model(f"the last network for {chosen.epochs} epochs", model)
    return watcher.lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--epsilons", default="0.5,2")
    parser.add_argument("--epochs", type=int, default=300, help="of the last network")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--rows", type=int, help="only so many pictures, for a trial")
    parser.add_argument("--keep", type=Path, help="a folder for networks that epsilons share")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    pictures, labels = load("cifar10", chosen.data)
    rows = np.arange(chosen.rows or len(labels))
    pictures, labels = pictures.select(rows).to(chosen.device), labels[rows]
    found, encoder = {}, Model.load(chosen.encoder, chosen.device)
    with TemporaryDirectory() as passing:
        folder = chosen.keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        for epsilon in map(float, chosen.epsilons.split(",")):
            print(f"epsilon {epsilon:g}")
            found[f"{epsilon:g}"] = run(chosen, epsilon, pictures, labels, encoder, folder)
    if not chosen.rows:
        save("refine_steps", {"epochs": chosen.epochs, "rate": chosen.rate, "epsilons": found})


if __name__ == "__main__":
    main()
