"""How long, and how, to train on noisy labels: trials on CIFAR-10 by labels that no trial has seen.

    python benchmarks/schedules.py --data DIR --try epochs=100,mixup=4 --try learner=alibi,augment=strong

DIR holds the official `cifar-10-batches-py`. Each trial hears the noisy labels of the first 45,000 training pictures
(randomized response, or ALIBI's Laplace noise) and is scored on the 5,000 others, whose labels are declared: schedules
of the papers' rows may be chosen by them. No test picture is read. A trial has settings, each with a usual value:
learner (lp, which learns labels as they come, evidence, alibi, augdescent, or stages, which is `lp-mst` in two),
epsilon, epochs, batch, rate, decay, average, mixup, augment (Aug-Descent looks at weak views and learns strong ones,
whatever that says), compile. Each is printed, and added to benchmarks/results/schedules.jsonl, as it ends.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from results import HERE

import labeldp as ldp
from labeldp.data.loaders import load
from labeldp.learn import AugDescent, Bayes, Supervised, Training
from labeldp.mechanisms import OneHotLaplace
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

USUAL = {"learner": "lp", "epsilon": 1.0, "epochs": 120, "batch": 256, "rate": 0.1, "decay": 5e-4, "average": None}
USUAL |= {"mixup": 4.0, "augment": "weak", "compile": 1}
LEARNERS = {"lp": Supervised, "evidence": Bayes, "alibi": Bayes, "augdescent": AugDescent}
DECLARED = 0.1  # of the training pictures, the last ones


def settings(words):
    """The settings of one trial, from words such as epochs=20,mixup=8."""
    given = dict(part.split("=") for part in words.split(",")) if words else {}
    unknown = set(given) - set(USUAL)
    if unknown:
        raise SystemExit(f"A trial has no setting {min(unknown)!r}: it has {', '.join(USUAL)}.")
    if given.get("learner", "lp") not in [*LEARNERS, "stages"]:
        raise SystemExit(f"There is no learner {given['learner']!r}: choose one of {', '.join(LEARNERS)} or stages.")
    usual = USUAL | ({"mixup": 0.0} if given.get("learner") == "alibi" else {})
    return usual | {name: value if name in ("learner", "augment") else float(value) for name, value in given.items()}


def trial(chosen, training_images, codes, declared_images, truth, device):
    """Train once; return the accuracy on declared labels, and the share of its own noisy labels that it predicts."""
    epsilon = chosen["epsilon"]
    vault = ldp.Vault(codes, ldp.LabelSpace(list(range(10))), ldp.Budget(epsilon))
    schedule = {"learning_rate": chosen["rate"], "weight_decay": chosen["decay"], "ema_decay": chosen["average"]}
    fast = bool(chosen["compile"]) and device == "cuda"
    training = Training(int(chosen["epochs"]), int(chosen["batch"]), compile=fast, device=device, **schedule)
    form, begun = {"mixup": chosen["mixup"], "augment": chosen["augment"]}, time.perf_counter()
    if chosen["learner"] == "stages":
        task = Task(training_images, vault.space, all_rows(len(codes)), epsilon, model="resnet18", training=training)
        trained = train(vault, task, "lp-mst", form, score=False)
        model, noisy = trained.model, ldp.Release.concat(*trained.releases)
    else:
        form = {"mixup": chosen["mixup"]} if chosen["learner"] == "augdescent" else form
        mechanism = (OneHotLaplace if chosen["learner"] == "alibi" else ldp.RandomizedResponse)(epsilon)
        noisy = vault.release(mechanism)
        model = LEARNERS[chosen["learner"]]("resnet18", training, **form).fit(training_images, noisy)
    seconds = time.perf_counter() - begun
    right, repeated = model.predict(declared_images) == truth, model.predict(training_images) == noisy.labels()
    shares = {"declared": right, "own noisy labels": repeated}
    return {name: round(100 * float(np.mean(each)), 2) for name, each in shares.items()} | {"seconds": round(seconds)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--try", dest="trials", action="append", default=[], help="as epochs=20,mixup=8; repeatable")
    parser.add_argument("--rows", type=int, help="only so many pictures, to see that it runs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    pictures, labels = load("cifar10", chosen.data)
    count = chosen.rows or len(labels)
    cut = round((1 - DECLARED) * count)
    training_images, declared_images = (
        pictures.select(np.arange(*ends)).to(chosen.device) for ends in ((0, cut), (cut, count))
    )
    for words in chosen.trials or [""]:
        own = settings(words)
        found = trial(own, training_images, labels[:cut], declared_images, labels[cut:count], chosen.device)
        card = torch.cuda.get_device_name() if chosen.device == "cuda" else "CPU"
        line = {name: value for name, value in own.items() if name != "compile"} | found | {"device": card}
        print(f"{words or 'usual'}: " + ", ".join(f"{name} {value}" for name, value in found.items()), flush=True)
        if not chosen.rows:
            with (HERE / "results" / "schedules.jsonl").open("a") as lines:
                lines.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
