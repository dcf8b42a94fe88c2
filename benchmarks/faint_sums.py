"""Sums by class at a small epsilon: what fewer directions are worth, and rows that were averaged with their neighbours.

    python benchmarks/faint_sums.py --data FOLDER [--epsilons 0.003,0.01,0.03,0.1,0.5] [--draws 5]

FOLDER holds train-embeddings.npy and train-labels.npy. Noisy sums over the embeddings give a linear model, at delta
1e-5; the table has the share of the same rows for which it is right, of 256 directions, of as many as the noise asks
for (`Task.n_columns`), and of smoothed rows, as `smooth-moments` and `refine` sum them; and for which the most frequent
class of a row's cluster is right; clusters are found without labels (`noise-cluster` with `method="balanced"`, and
`refine` at the smallest epsilons). True labels score. Writes benchmarks/results/faint_sums-*.json.
"""

import argparse
from pathlib import Path

import numpy as np
from results import save
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.mechanisms import GroupHistogram, LinearQuery
from labeldp.recipes.cluster_votes import assign_cluster_classes
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task
from labeldp.representation.balanced import balanced_kmeans
from labeldp.representation.smooth import smooth_rows

DELTA = 1e-5


def right(query, labels, space, epsilon, draws):
    """Return mean and deviation, in points, of the share of rows for which the sums' linear model is right."""
    found = []
    for _ in range(draws):
        vault = ldp.Vault(labels, space, ldp.Budget(epsilon, DELTA))
        sums = vault.release(LinearQuery(query, epsilon, DELTA))
        found.append(100 * float(((query @ sums.coefficients).argmax(axis=1) == labels).mean()))
    return spread(found)


def accuracy_by_cluster(clusterings, labels, space, epsilon):
    """Return the same for the most frequent class of each cluster, with one draw for the clustering of each seed."""
    found = []
    for groups in clusterings:
        counts = ldp.Vault(labels, space, ldp.Budget(epsilon)).release(GroupHistogram(groups, epsilon))
        found.append(100 * float((assign_cluster_classes(counts)[groups] == labels).mean()))
    return spread(found)


def spread(found):
    return {"mean": float(np.mean(found)), "deviation": float(np.std(found, ddof=1))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilons", default="0.003,0.01,0.03,0.1,0.5")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--name", default="simclr", help="of the file of results")
    chosen = parser.parse_args()
    points = Embeddings(np.load(chosen.data / "train-embeddings.npy"))
    labels = np.load(chosen.data / "train-labels.npy").astype(np.int64)
    space = ldp.LabelSpace(list(range(int(labels.max()) + 1)))
    shown = Table(box=SIMPLE_HEAD, title=f"Rows right in %, mean ± deviation of {chosen.draws} draws")
    for name in ("epsilon", "256 directions", "fewer", "how many", "and smoothed", "by kind"):
        shown.add_column(name, justify="right")
    cells, all_directions, smooth = {}, RowNormalizer.fit(points)(points), smooth_rows(points, 32)
    clusterings = [balanced_kmeans(smooth, len(space), seed).argmax(axis=1) for seed in range(chosen.draws)]
    for epsilon in map(float, chosen.epsilons.split(",")):
        task = Task(points, space, all_rows(len(labels)), epsilon, DELTA)
        queries = {"all": all_directions, "fewer": task.normalized, "smooth": smooth_rows(points, task.n_columns)}
        cell = {name: right(query, labels, space, epsilon, chosen.draws) for name, query in queries.items()}
        cell["kinds"] = accuracy_by_cluster(clusterings, labels, space, epsilon)
        texts = {name: f"{each['mean']:.1f} ± {each['deviation']:.1f}" for name, each in cell.items()}
        shown.add_row(
            f"{epsilon:g}",
            texts["all"],
            texts["fewer"],
            f"{task.normalizer.n_columns - 1}",
            texts["smooth"],
            texts["kinds"],
        )
        cells[epsilon] = cell | {"columns": task.normalizer.n_columns - 1}
    Console(width=100).print(shown)
    save(f"faint_sums-{chosen.name}", {"rows": len(labels), "draws": chosen.draws, "cells": cells})


if __name__ == "__main__":
    main()
