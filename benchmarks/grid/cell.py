"""One cell of the grid: a method trained once, with its measures on the test rows, its costs and its guarantee."""

from pathlib import Path

import numpy as np

import labeldp as ldp
from grid import measures, references
from grid.methods import BASELINE, CLEAN, SLOW, SLOW_ROWS
from grid.problems import PROBLEMS
from grid.process import Meter, answer, request
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task
from labeldp.recipes.training import train as train_recipe


def train_cell(name, method, epsilon, seed, data):
    """Return what a cell records: measures of the test rows, costs of encoding and training, and the guarantee."""
    problem = PROBLEMS[name].read(Path(data))
    share = np.bincount(problem.truth).max() / len(problem.truth) if not problem.numbers else None
    facts = {"rows": len(problem.labels), "test_rows": len(problem.truth), "majority": share}
    facts |= {"classes": PROBLEMS[name].classes}
    if method in SLOW and len(problem.labels) > SLOW_ROWS:
        problem = problem.some(np.random.default_rng(seed).permutation(len(problem.labels))[:SLOW_ROWS])
    facts["train_rows"] = len(problem.labels)
    trained, meter = None, Meter()
    if method in CLEAN:
        predict = getattr(references, method.replace(" ", "_"))(problem, seed)
    elif method == BASELINE:
        predict = references.twenty_lines(problem, epsilon, seed)
    else:
        predict, trained = train_private(problem, method, epsilon, PROBLEMS[name].delta, seed)
    costs = meter.stop()
    measure = measures.of_numbers if problem.numbers else measures.of_classes
    found = measure(np.asarray(predict(), np.float64), problem.truth)
    return facts | found | costs | _claims(method, epsilon, trained, found)


def train_private(problem, method, epsilon, delta, seed):
    """Train a recipe in a vault of its own; return a function that predicts for the test rows, and what was trained."""
    recipe, *model = method.split(" ")
    features = problem.features()
    vault = ldp.Vault(problem.labels, problem.space, ldp.Budget(epsilon, delta))
    named = {"model": model[0]} if model else {}
    task = Task(features, problem.space, all_rows(len(features)), epsilon, delta, seed=seed, **named)
    trained = train_recipe(vault, task, recipe)

    def predict():
        new = problem.test_features(features)
        return trained.model.predict(new) if problem.numbers else trained.model.predict_proba(new)

    return predict, trained


def _claims(method, epsilon, trained, found):
    """Return the guarantee, the private score's intervals, and whether they hold the measures of the test rows."""
    if trained is None:
        return {"guarantee": None if method in CLEAN else {"epsilon": epsilon, "delta": 0.0}}
    stated = trained.overall_guarantee
    claims = {"guarantee": {"epsilon": stated.epsilon, "delta": stated.delta}, "notes": list(trained.notes)}
    intervals = {name: getattr(trained.score, name, None) for name in found}
    intervals = {name: each for name, each in intervals.items() if each is not None}
    covered = {
        name: each.low <= found[name] <= each.high for name, each in intervals.items() if found[name] is not None
    }
    winner = {"candidates": trained.n_candidates, "winner": trained.best_index, "model": type(trained.model).__name__}
    return claims | winner | {"intervals": {n: i.to_json() for n, i in intervals.items()}, "covered": covered}


if __name__ == "__main__":
    answer(train_cell(**request()))
