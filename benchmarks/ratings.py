"""Ratings of items by people: LP-MST with one stage against two, root mean squared error on other ratings.

    python benchmarks/ratings.py --data FILE [--epsilons 1,2,3,4,8] [--seeds 3] [--models mf,ncf]
    python benchmarks/ratings.py --generated

FILE is one of MovieLens: u.data, ratings.dat or ratings.csv. `--generated` makes a file of the size and the shape of
MovieLens-100k (943 people, 1,682 items, 100,000 ratings, few of them for most items) whose ratings are rounded numbers
of low rank with noise: its figures say how one stage compares with two, and nothing of films. A fifth of the ratings
tests, other ones for each seed, the same for one stage and for two. Privacy noise is real: it has no seed.

"evidence" is what `lp-mst` does with ordered numbers: randomized response, then bins around what the model expects,
both learnt as evidence. "labels" is the form of Ghazi et al. (2021): the likeliest classes, learnt as labels. The table
goes to benchmarks/results/ratings-generated.json, or to ratings-NAME.json for a file.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from results import save, use_one_core

import labeldp as ldp
from labeldp.data import Pairs, read_ratings
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

CLEAN = 30.0  # an epsilon at which randomized response changes no label
# Ghazi et al. (2021), Table 3: test RMSE on MovieLens-1M.
PAPER = {1: {"1.0": 1.122, "2.0": 0.981, "3.0": 0.902, "4.0": 0.877, "8.0": 0.867, "clean": 0.868}}
PAPER[2] = {"1.0": 1.034, "2.0": 0.928, "3.0": 0.891, "4.0": 0.874, "8.0": 0.865}


def generate(path, people=943, items=1682, ratings=100_000, rank=6, seed=0):
    """Write a file like u.data: biases, a product of factors, noise, rounded and cut to 1..5."""
    random = np.random.default_rng(seed)
    active, popular = random.lognormal(0, 1.0, people), random.lognormal(0, 1.5, items)
    draws = (random.choice(len(p), 5 * ratings // 2, p=p / p.sum()) for p in (active, popular))
    cells = random.permutation(np.unique(next(draws) * items + next(draws)))[:ratings]
    person, item = cells // items, cells % items
    person_bias = random.normal(0, 0.42, people)
    item_bias = random.normal(0, 0.45, items) + 0.1 * np.log(popular)
    person_factors, item_factors = random.normal(0, 1, (people, rank)), random.normal(0, 1, (items, rank))
    score = 3.55 + person_bias[person] + item_bias[item] + random.normal(0, 0.8, len(cells))
    score += 0.45 * (person_factors[person] * item_factors[item]).sum(axis=1) / np.sqrt(rank)
    columns = {"user": person + 1, "item": item + 1, "rating": np.clip(np.rint(score), 1, 5).astype(int)}
    pl.DataFrame(columns).with_columns(time=pl.lit(0)).write_csv(path, separator="\t", include_header=False)


def space_of(ratings):
    """Return the scale of the file's ratings, which is public: stars, or half stars, written as texts."""
    whole = ratings.dtype.is_integer()
    return ldp.LabelSpace([1, 2, 3, 4, 5] if whole else [f"{stars / 2}" for stars in range(1, 11)], ordered=True)


def cell(frame, space, epsilon, model, stages, loss, seed):
    """Return the test error of one training."""
    order = np.random.default_rng(seed).permutation(frame.height)
    test, rows = frame[order[: len(order) // 5]], frame[order[len(order) // 5 :]]
    features = Pairs.fit(rows.select("user", "item"))
    labels = rows["rating"] if isinstance(space.classes[0], int) else rows["rating"].cast(pl.String)
    vault = ldp.Vault(labels, space, ldp.Budget(epsilon))
    task = Task(features, space, all_rows(rows.height), epsilon, model=model, seed=seed)
    found = train(vault, task, "lp-mst", {"stages": stages, "loss": loss}, score=False).model
    expected = found.predict_proba(features.apply(test.select("user", "item"))) @ space.class_values
    return float(np.sqrt(((expected - test["rating"].to_numpy()) ** 2).mean()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path)
    source.add_argument("--generated", action="store_true")
    parser.add_argument("--epsilons", default="1,2,3,4,8")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", default="mf,ncf")
    chosen = parser.parse_args()
    use_one_core()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.data or Path(folder) / "u.data"
        if chosen.generated:
            generate(path)
        frame = read_ratings(path)
    space = space_of(frame["rating"])
    about = "GENERATED data, not MovieLens" if chosen.generated else f"{chosen.data.name}"
    nothing = float(frame["rating"].std())
    print(f"{about}: {frame.height:,} ratings; always the mean: {nothing:.3f}. Test RMSE, {chosen.seeds} seeds.")
    start, rows = time.perf_counter(), []
    for model in chosen.models.split(","):
        for loss, name in (("squared", "evidence"), ("right", "labels")):
            for epsilon in [*map(float, chosen.epsilons.split(",")), CLEAN]:
                label = "clean" if epsilon == CLEAN else str(epsilon)
                stage_counts = (1,) if epsilon == CLEAN else (1, 2)
                found = {
                    k: [cell(frame, space, epsilon, model, k, loss, s) for s in range(chosen.seeds)]
                    for k in stage_counts
                }
                rows.append({"model": model, "learns": name, "epsilon": label, "rmse": found})
                print(line(rows[-1]), flush=True)
    figures = {
        "data": about,
        "ratings": frame.height,
        "always the mean": nothing,
        "seeds": chosen.seeds,
        "seconds": round(time.perf_counter() - start),
        "paper, MovieLens-1M": PAPER,
        "cells": rows,
    }
    save("ratings-generated" if chosen.generated else f"ratings-{chosen.data.stem}", figures)


def line(row):
    text = f"{row['model']:4} {row['learns']:9} epsilon {row['epsilon']:5}"
    for stages, errors in row["rmse"].items():
        spread = np.std(errors, ddof=1) if len(errors) > 1 else 0.0
        text += f"  {stages} stage{'s'[: stages - 1]:1} {np.mean(errors):.4f} +- {spread:.4f}"
        text += f" (paper {PAPER[stages][row['epsilon']]:.3f})" if row["epsilon"] in PAPER[stages] else ""
    if len(row["rmse"]) == 2:
        gaps = np.subtract(row["rmse"][2], row["rmse"][1])
        text += f"  gap {gaps.mean():+.4f}, at most {gaps.max():+.4f}"
    return text


if __name__ == "__main__":
    main()
