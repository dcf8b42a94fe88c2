"""Do private intervals hold the truth where one row in a hundred is positive? And do models rank such rows?

    python benchmarks/rare.py [--repetitions 1000] [--seeds 10] [--part intervals|models|both]

Intervals: scores of two classes are normal, some way apart, and one row in a hundred is positive. Each repetition draws
held-out rows and the noise of a private score at epsilon, and looks whether the intervals hold the AUC of the
population, the AUC of the held-out rows themselves, and the population's recall, precision and accuracy. "told" is the
share of intervals that are not all of [0, 1], "width" the median width of all. What they promise is 95 %.

Models: 20,000 rows with one positive in a hundred and a strong signal (three of ten columns; AUC 0.93 for who knows
it), recipes at epsilon 1 and 4, AUC on 20,000 other rows, over seeds (3 at most for networks). The table goes to
benchmarks/results/rare.json.
"""

import argparse
import math
import time

import numpy as np
from results import read, save, use_one_core
from scipy.stats import norm, rankdata

import labeldp as ldp
from labeldp.evaluate.intervals import proportion_interval
from labeldp.evaluate.prediction_table import PredictionTable, group_predictions
from labeldp.releases import NoisyCounts

RARE = 0.01
EPSILONS, ROWS, APART = (0.25, 1.0, 4.0), (2_000, 20_000), (0.5, 1.2, 2.5)
RECIPES = ("auto", "randres", "alibi", "moments", "lp-mst")


class World:
    """Two normal classes; the model knows them."""

    def __init__(self, apart):
        self.apart, self.odds = apart, math.log(RARE / (1 - RARE))
        cut = apart / 2 - self.odds / apart
        right, false = RARE * norm.sf(cut - apart), (1 - RARE) * norm.sf(cut)
        self.truth = {"AUC": norm.cdf(apart / math.sqrt(2)), "recall": norm.sf(cut - apart)}
        self.truth |= {"precision": right / (right + false), "accuracy": right + 1 - RARE - false}

    def draw(self, random, rows):
        codes = (random.random(rows) < RARE).astype(int)
        logit = self.apart * (random.normal(size=rows) + self.apart * codes) - self.apart**2 / 2 + self.odds
        yes = 1 / (1 + np.exp(-logit))
        return np.stack([1 - yes, yes], axis=1), codes


def laplace(random, scale, shape):
    stop = 1 - math.exp(-1 / scale)
    return random.geometric(stop, shape) - random.geometric(stop, shape)


def intervals(random, proba, codes, epsilon):
    """What `measure` would release of these rows and say of them, with NumPy's noise: a vault would take minutes."""
    groups = group_predictions(proba, epsilon / 2, 10)
    true = np.bincount(groups * 2 + codes, minlength=2 * groups.max() + 2).reshape(-1, 2)
    counts = NoisyCounts(
        space=ldp.LabelSpace([0, 1]),
        guarantee=ldp.Guarantee(epsilon),
        mechanism="",
        n_rows=len(codes),
        groups=groups,
        counts=true + laplace(random, 4 / epsilon, true.shape),
        sizes=np.bincount(groups),
        noise="geometric",
        scale=4 / epsilon,
    )
    table = PredictionTable(counts, proba, groups)
    right = int((proba.argmax(axis=1) == codes).sum() + laplace(random, 2 / epsilon, 1)[0])
    found = {"AUC": table.auc(), "recall": table.recall(1), "precision": table.precision(1)}
    return found | {"accuracy": proportion_interval(right, len(codes), 2 / epsilon)}


def auc(score, codes):
    """Return the share of pairs in the right order, or None where a class is absent."""
    ones = int(codes.sum())
    if not 0 < ones < len(codes):
        return None
    return float((rankdata(score)[codes == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(codes) - ones)))


def covered(world, rows, epsilon, repetitions):
    random, collected = np.random.default_rng(0), {}
    for _ in range(repetitions):
        proba, codes = world.draw(random, rows)
        found, here = intervals(random, proba, codes, epsilon), auc(proba[:, 1], codes)
        truths = [(name, name, truth) for name, truth in world.truth.items()]
        for name, source, truth in [*truths, ("AUC of the rows", "AUC", here)]:
            if truth is not None:
                interval = found[source]
                is_released = interval.value is not None
                held = interval.low <= truth <= interval.high
                collected.setdefault(name, []).append((held, is_released, interval.high - interval.low))
    figures = {name: np.array(each, float) for name, each in collected.items()}
    return {
        name: {"covered": each[:, 0].mean(), "told": each[:, 1].mean(), "width": np.median(each[:, 2])}
        for name, each in figures.items()
    }


def all_intervals(repetitions):
    lines = []
    for rows in ROWS:
        for apart in APART:
            for epsilon in EPSILONS:
                world = World(apart)
                found = covered(world, rows, epsilon, repetitions)
                lines.append({"rows": rows, "apart": apart, "truth": world.truth, "epsilon": epsilon, "found": found})
                texts = [
                    f"{n} {100 * f['covered']:5.1f} % ({f['told']:.2f}, {f['width']:.2f})" for n, f in found.items()
                ]
                print(f"{rows:6,} rows, AUC {world.truth['AUC']:.2f}, epsilon {epsilon:<4} ", *texts, flush=True)
    return lines


def people(random, rows):
    """Ten columns, three of which tell who is positive."""
    codes = (random.random(rows) < RARE).astype(int)
    x = random.normal(size=(rows, 10))
    x[:, :3] += 1.2 * codes[:, None]
    return x.astype(np.float32), codes


def models(seeds):
    import polars as pl

    from labeldp.data import Table as TableFeatures
    from labeldp.recipes.held_out import all_rows
    from labeldp.recipes.task import Task
    from labeldp.recipes.training import train

    lines = []
    for epsilon in (1.0, 4.0):
        for recipe in RECIPES:
            for model in ("auto", "logistic") if recipe in ("randres", "alibi") else ("auto",):
                found, private, start = [], [], time.perf_counter()
                networks = model == "auto" and recipe not in ("auto", "moments")
                tried = min(seeds, 3) if networks else seeds
                for seed in range(tried):
                    random = np.random.default_rng(seed)
                    (x, y), (z, truth) = people(random, 20_000), people(random, 20_000)
                    features = TableFeatures.fit(pl.DataFrame(x))
                    space = ldp.LabelSpace([0, 1])
                    vault = ldp.Vault(y, space, ldp.Budget(epsilon, 1e-6))
                    task = Task(features, space, all_rows(len(y)), epsilon, 1e-6, model=model, seed=seed)
                    trained = train(vault, task, recipe)
                    found.append(auc(trained.model.predict_proba(features.apply(pl.DataFrame(z)))[:, 1], truth))
                    private.append(trained.score.auc.to_json())
                line = {"recipe": recipe, "model": model, "epsilon": epsilon, "auc": found, "private": private}
                lines.append(line | {"seconds": round((time.perf_counter() - start) / tried, 1)})
                print(
                    f"epsilon {epsilon:<4} {recipe:8} {model:9} AUC {np.mean(found):.3f} +- {np.std(found, ddof=1):.3f}"
                    f"  {lines[-1]['seconds']} s",
                    flush=True,
                )
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--part", choices=("intervals", "models", "both"), default="both")
    chosen = parser.parse_args()
    use_one_core()
    figures = read("rare") | {"positives": RARE}
    if chosen.part != "models":
        figures |= {"repetitions": chosen.repetitions, "intervals": all_intervals(chosen.repetitions)}
        save("rare", figures)
    if chosen.part != "intervals":
        figures |= {"seeds": chosen.seeds, "models": models(chosen.seeds)}
        save("rare", figures)


if __name__ == "__main__":
    main()
