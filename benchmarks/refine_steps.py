"""What each step of the recipe `refine` knows of CIFAR-10, by true labels that no step has seen.

    python benchmarks/refine_steps.py --data DIR --encoder FOLDER [--epsilons 0.5,2] [--device cuda] [--keep FOLDER]

DIR holds the official `cifar-10-batches-py`; FOLDER is an encoder, of encoder.py --save. The recipe hears of the first
45,000 training pictures. How often a step is right is counted on these, and on the 5,000 others, whose labels are
declared: settings of the recipe may be chosen by them. No test picture is read. What several epsilons share is
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
    """Tells how often each step of the recipe is right, as it comes."""

    def __init__(self, pictures, labels, known):
        self._pictures, self._labels, self._released = pictures, labels, known
        self._begun, self.lines = time.perf_counter(), []

    def tell(self, step, chances):
        chances = np.asarray(chances)
        right, said = chances.argmax(axis=1) == self._labels, np.ptp(chances, axis=1) > 0
        line = {"step": step}
        for name, part in (("told", self._released), ("declared", ~self._released)):
            line[name] = round(100 * float(right[part].mean()), 2) if said[part].any() else None
        line["minutes"] = round((time.perf_counter() - self._begun) / 60, 1)
        self.lines.append(line)
        print("  " + ", ".join(f"{name} {value}" for name, value in line.items()), flush=True)

    def tell_model(self, step, model):
        self.report(step, model.predict_proba(self._pictures))

    @contextmanager
    def watching(self):
        """Put an ear to the recipe's own steps."""
        look, taught, after_answers = steps._query_sums, steps.train_or_load, steps._combine_responses

        def watched_look(task, seen, epsilon, after=()):
            found = yield from look(task, seen, epsilon, after)
            self.report(f"sums at {epsilon:g} over {len(seen)} embeddings", found.posterior)
            return found

        def watched_taught(task, learner, *more):
            found = taught(task, learner, *more)
            for network in found:
                self.tell_model(f"{type(learner).__name__} for {learner.training.epochs} epochs", network)
            return found

        def watched_answers(*words):
            found = after_answers(*words)
            self.report("answers", np.exp(found.log_evidence()))
            return found

        steps._query_sums, steps.train_or_load, steps._combine_responses = watched_look, watched_taught, watched_answers
        try:
            yield
        finally:
            steps._query_sums, steps.train_or_load, steps._combine_responses = look, taught, after_answers


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
    watcher.tell_model(f"the last network for {chosen.epochs} epochs", model)
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
