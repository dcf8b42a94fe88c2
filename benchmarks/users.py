"""What a cap on the labels of a user costs and gains: accuracy by labels per user, at one epsilon for the user.

    python benchmarks/users.py [--seeds 10]

Generated rows of two classes and ten columns: a label follows a linear score, noise of its own, and a bent of its user.
Either each of 5,000 users owns four rows, or 5,000 users own 1 to about 150, a few of them most ("skewed"). Models are
tested on 20,000 rows of other users. Every cell is a training with fresh privacy noise and fresh rows. Prints means and
standard deviations over the seeds, and writes benchmarks/results/users.json. Takes about five minutes on one
core.
"""

import argparse
from itertools import product

import numpy as np
from results import save, use_one_core
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

SPACE = ldp.LabelSpace([0, 1])
EPSILONS, CAPS, PEOPLE, COLUMNS, NEW = (0.25, 1.0, 4.0), (1, 2, 4, 16, None), 5_000, 10, 20_000
RECIPES = {"moments": 0.0, "moments, delta 1e-6": 1e-6, "randres": 0.0, "randres, delta 1e-6": 1e-6}


def owners(kind, rng):
    if kind == "four each":
        return np.repeat(np.arange(PEOPLE), 4)
    many = np.minimum(np.ceil(1.5 * rng.pareto(1.3, PEOPLE) + 1e-9).astype(int), 150)
    return np.repeat(np.arange(PEOPLE), many)


def rows_of(users, weights, rng):
    x = rng.normal(size=(users.size, COLUMNS))
    bent = rng.normal(0, 0.7, users.max() + 1)[users]
    return Embeddings(x), (x @ weights + bent + rng.logistic(size=users.size) > 0).astype(int)


def cell(kind, name, epsilon, cap, seed):
    """Return the accuracy on new users, the rows that took part and the epsilon of a label."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=COLUMNS)
    weights *= 2 / np.linalg.norm(weights)
    users, delta = owners(kind, rng), RECIPES[name]
    features, labels = rows_of(users, weights, rng)
    vault = ldp.Vault(labels, SPACE, ldp.Budget(epsilon, delta), users=users)
    rows = vault.cap_labels_per_user(cap or int(np.bincount(users).max()), seed)
    recipe = name.partition(",")[0]
    model = "auto" if recipe == "moments" else LogisticRegression(C=0.1)
    task = Task(features, SPACE, rows, epsilon, delta, model, seed=seed)
    trained = train(vault, task, recipe, score=False)
    new, truth = rows_of(np.arange(NEW), weights, rng)
    right = float((trained.model.predict(new) == truth).mean())
    return {"right": right, "rows": int(rows.sum()), "label epsilon": trained.user_summary["label"]["epsilon"]}


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seeds", type=int, default=10)
    seeds = options.parse_args().seeds
    use_one_core()
    figures = []
    for kind, name in product(("four each", "skewed"), RECIPES):
        caps = [cap for cap in CAPS if kind == "skewed" or (cap or 99) <= 4]
        print(f"\n{kind}: {name}\n{'epsilon':>10}" + "".join(f"{cap or 'all':>16}" for cap in caps))
        for epsilon in EPSILONS:
            line = f"{epsilon:>10g}"
            for cap in caps:
                found = [cell(kind, name, epsilon, cap, seed) for seed in range(seeds)]
                right = 100 * np.array([each["right"] for each in found])
                spread = float(right.std(ddof=1)) if seeds > 1 else 0.0
                line += f"{right.mean():>9.1f} ± {spread:4.1f}"
                figures.append(
                    {"users": kind, "recipe": name, "epsilon": epsilon, "labels per user": cap or "all", "seeds": seeds}
                    | {"accuracy": round(float(right.mean()), 2), "spread": round(spread, 2)}
                    | {
                        key: round(float(np.mean([each[key] for each in found])), 4)
                        for key in ("rows", "label epsilon")
                    }
                )
            print(line, flush=True)
    save("users", figures)


if __name__ == "__main__":
    main()
