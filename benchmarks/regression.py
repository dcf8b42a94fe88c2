"""Numbers under label privacy: squared error by epsilon, for every recipe, on real numeric columns.

    python benchmarks/regression.py [--seeds 20] [--epsilons 0.25,0.5,1,2,4] [--adult FOLDER]

What ships with scikit-learn: the progression of diabetes (442 rows, the target it is meant for), the smoothness of
breast masses (569 rows, from the columns of other measures) and the alcohol of wines (178 rows, from the other
columns); the last two are columns that were made targets here. With --adult, instead of these, the age of people in
UCI Adult (FOLDER as for adult.py; 32,561 rows). Ranges are declared from what such numbers can be, not from the data. A
seed draws a split, three quarters to learn from, and the noise. Errors are on the true labels of the rest, as shares of
the variance there: 1 is what the mean of the true labels would have.

Beside the recipes: the middle of the range, which tells nothing; the mean of all labels at the whole epsilon; ridge
regression on clean labels. Writes regression.json and regression.png in benchmarks/results, or regression-adult.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch
from results import save, use_one_core
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import Ridge

import labeldp as ldp
from labeldp.data import Table
from labeldp.learn.regression import Regression
from labeldp.mechanisms import NumberSums, RROnBins
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task
from labeldp.recipes.training import train
from labeldp.report.plots import COLORS, MARKERS, new_figure, save_figure

RECIPES = ("laplace", "bins", "sums", "auto")


def problems(adult):
    """Name, features, labels, range."""
    if adult is not None:
        people = pl.read_parquet(adult / "train.parquet")
        yield "age of people", people.drop("age", "income"), people["age"].to_numpy().astype(np.float64), (0, 100, 1)
        return
    diabetes = load_diabetes(as_frame=True, scaled=False)
    yield "diabetes progression", pl.from_pandas(diabetes.data), diabetes.target.to_numpy(), (0, 400, 5)
    masses = load_breast_cancer(as_frame=True).data
    others = [name for name in masses if "smoothness" not in name]
    yield "smoothness of masses", pl.from_pandas(masses[others]), masses["mean smoothness"].to_numpy(), (0, 0.2, 0.002)
    wine = load_wine(as_frame=True).data
    yield "alcohol of wines", pl.from_pandas(wine.drop(columns="alcohol")), wine["alcohol"].to_numpy(), (8, 16, 0.1)


def errors(frame, labels, limits, epsilon, seed):
    """Squared error of each way to predict, over the variance of the test labels."""
    order = np.random.default_rng(seed).permutation(len(labels))
    fit, test = np.split(order, [3 * len(order) // 4])
    features = Table.fit(frame[fit])
    new, truth = features.apply(frame[test]), labels[test]
    space = ldp.LabelSpace.range(*limits)
    task = Task(features, space, all_rows(len(fit)), epsilon, seed=seed)

    def vault():
        return ldp.Vault(labels[fit], space, ldp.Budget(epsilon))

    def share(predicted):
        return float(((predicted - truth) ** 2).mean() / truth.var())

    mean = vault().release(NumberSums(np.ones((len(fit), 1)), epsilon, n_values=len(space)))
    found = {"middle of the range": share(mean.center), "private mean": share(mean.center + mean.mean)}
    for recipe in RECIPES:
        found[recipe] = share(train(vault(), task, recipe, score=False).model.predict(new))
    clean = vault().release(RROnBins(epsilon, np.full(len(space), 1 / len(space))))  # for its space alone
    plain = Regression(Ridge(alpha=float(np.prod(features.shape)))).fit_values(features, clean, labels[fit])
    return found | {"clean labels": share(plain.predict(new))}


def summary(runs):
    """Mean and standard error of each way, and of what bins gain over plain noise, seed by seed."""
    table = {name: [run[name] for run in runs] for name in runs[0]}
    table["bins less laplace"] = [run["bins"] - run["laplace"] for run in runs]
    return {
        name: [round(float(np.mean(values)), 4), round(float(np.std(values, ddof=1) / len(values) ** 0.5), 4)]
        for name, values in table.items()
    }


def draw(figures, path):
    figure, axes = new_figure(len(figures))
    shown = ("laplace", "private mean", "bins", "sums", "auto")
    for each, (problem, by_epsilon) in zip(np.atleast_1d(axes), figures.items(), strict=True):
        epsilons = [float(epsilon) for epsilon in by_epsilon]
        for place, name in enumerate(shown):
            mean, error = np.array([row[name] for row in by_epsilon.values()]).T
            x = np.array(epsilons) * 1.012 ** (place - 2)
            style = {"color": COLORS[place], "marker": MARKERS[place], "markersize": 5, "linewidth": 1.5}
            each.errorbar(x, mean, yerr=2 * error, label=name, capsize=2, elinewidth=0.8, **style)
        clean = np.mean([row["clean labels"][0] for row in by_epsilon.values()])
        each.axhline(clean, color="#777777", linestyle="--", linewidth=1, label="clean labels")
        each.set(ylabel="error / variance", title=problem, yscale="log")
        each.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["0.25", "0.5", "1", "2", "4", "8"])
        each.set_ylim(0.8 * clean, None)
        each.set_xscale("log")
        each.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        each.minorticks_off()
    np.atleast_1d(axes)[-1].set(xlabel="epsilon (smaller is more private)")
    np.atleast_1d(axes)[0].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilons", default="0.25,0.5,1,2,4")
    parser.add_argument("--adult", type=Path)
    chosen = parser.parse_args()
    use_one_core()
    torch.set_num_threads(1)
    figures, began = {}, time.perf_counter()
    for problem, frame, labels, limits in problems(chosen.adult):
        for epsilon in chosen.epsilons.split(","):
            runs = [errors(frame, labels, limits, float(epsilon), seed) for seed in range(chosen.seeds)]
            figures.setdefault(problem, {})[epsilon] = summary(runs)
            words = "  ".join(f"{name} {mean:.2f}+-{error:.2f}" for name, (mean, error) in summary(runs).items())
            print(f"{problem}, epsilon {epsilon}, {chosen.seeds} seeds: {words}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s")
    name = "regression" if chosen.adult is None else "regression-adult"
    save(name, figures)
    draw(figures, Path(__file__).parent / "results" / f"{name}.png")


if __name__ == "__main__":
    main()
