"""What the benchmarks of recipes share: cells that are trained once, a table of means and spreads, a plot."""

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import HERE, save
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import labeldp as ldp
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task, default_training
from labeldp.recipes.training import train as train_recipe
from labeldp.report.plots import Point, plot_accuracy_by_epsilon


@dataclass(frozen=True)
class Problem:
    name: str
    train: tuple[Any, Any]
    test: tuple[Any, Any]
    classes: int
    delta: float
    epochs: int


def train(problem, recipe, epsilon, seed):
    """One cell: a fresh vault, the recipe, its private estimate, and the truth on the test rows."""
    (features, labels), (new, truth) = problem.train, problem.test
    space = ldp.LabelSpace(list(range(problem.classes)))
    vault = ldp.Vault(labels, space, ldp.Budget(epsilon, problem.delta))
    task = Task(features, space, all_rows(len(labels)), epsilon, problem.delta, seed=seed)
    task = replace(task, training=default_training(task, epochs=problem.epochs))
    begun = time.perf_counter()
    trained = train_recipe(vault, task, recipe)
    seconds = time.perf_counter() - begun
    right = (trained.model.predict_proba(new).argmax(axis=1) == truth).mean()
    estimate = trained.score.accuracy
    return {
        "recipe": recipe,
        "epsilon": epsilon,
        "seed": seed,
        "accuracy": float(right),
        "estimated": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "spent": trained.guarantee.epsilon,
        "seconds": round(seconds, 1),
    }


RECIPES = (
    "auto,log-linear,moments,cluster-prior,noise-cluster,alibi,lp-mst,randres-mixup,randres,randres-denoise,"
    "randres-ssl,randres-augdescent"
)


def arguments(epsilons, seeds):
    """What every such script asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilons", default=epsilons)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def fill(problem, chosen, clean):
    """Train the cells that are missing, print the table, save it and draw it."""
    epsilons = [float(word) for word in chosen.epsilons.split(",")]
    recipes = chosen.recipes.split(",")
    cells = [(r, e, s) for s in range(chosen.seeds) for e in epsilons for r in recipes]
    path = HERE / "results" / f"{problem.name}-cells.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    known = {(row["recipe"], row["epsilon"], row["seed"]) for row in rows}
    missing = [cell for cell in cells if cell not in known]
    context = get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(chosen.jobs, context, initializer=_quiet, initargs=(problem, chosen.jobs)) as pool:
        for future in as_completed([pool.submit(_cell, *cell) for cell in missing]):
            row = future.result()
            rows.append(row)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{row['recipe']:<20}{row['epsilon']:>6g}  {row['accuracy']:.4f}  {row['seconds']:>6.0f} s", flush=True
            )
    rows = [row for row in rows if row["recipe"] in recipes and row["epsilon"] in epsilons]
    table = {r: {e: _summary(rows, r, e) for e in epsilons} for r in recipes}
    _print(problem, table, epsilons, clean)
    covered = [row["low"] <= row["accuracy"] <= row["high"] for row in rows]
    print(
        f"The private 95 % interval held the accuracy on the test rows in {np.mean(covered):.1%} of {len(rows)} cells."
    )
    save(problem.name, {"clean": clean, "delta": problem.delta, "recipes": table})
    curves = {
        name: [Point(e, c["mean"], c["mean"] - c["spread"], c["mean"] + c["spread"]) for e, c in by.items()]
        for name, by in table.items()
    }
    plot_accuracy_by_epsilon(
        curves,
        HERE / "results" / f"{problem.name}.png",
        f"{problem.name}, delta {problem.delta:g}",
        max(clean.values()),
    )


_PROBLEM: list[Problem] = []


def _quiet(problem, jobs):
    warnings.simplefilter("ignore")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    _PROBLEM.append(problem)


def _cell(recipe, epsilon, seed):
    return train(_PROBLEM[0], recipe, epsilon, seed)


def _summary(rows, recipe, epsilon):
    here = [row for row in rows if row["recipe"] == recipe and row["epsilon"] == epsilon]
    values = np.array([row["accuracy"] for row in here])
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {
        "mean": float(values.mean()),
        "spread": spread,
        "seeds": len(values),
        "seconds": float(np.mean([r["seconds"] for r in here])),
    }


def _print(problem, table, epsilons, clean):
    without = ", ".join(f"{name} {value:.1%}" for name, value in clean.items())
    title = f"{problem.name}: accuracy in %, mean ± deviation over seeds, delta {problem.delta:g}"
    title += f"; no privacy: {without}"
    shown = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    shown.add_column("recipe")
    for epsilon in epsilons:
        shown.add_column(f"{epsilon:g}", justify="right")
    shown.add_column("seeds", justify="right")
    shown.add_column("seconds", justify="right")
    for name, by in table.items():
        cells = [f"{100 * by[e]['mean']:.1f} ± {100 * by[e]['spread']:.1f}" for e in epsilons]
        shown.add_row(
            name,
            *cells,
            f"{min(by[e]['seeds'] for e in epsilons)}",
            f"{np.mean([by[e]['seconds'] for e in epsilons]):.0f}",
        )
    Console(width=120).print(shown)
