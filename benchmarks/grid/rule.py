"""What is asked of `auto`: little regret against the best recipe, and no loss to the twenty-line baseline.

Everything here is computed from cells as `cell.py` records them, of one problem and one epsilon at a time.
"""

import math
from dataclasses import dataclass

import numpy as np

from grid.methods import BASELINE

ALLOWED = 0.01  # one point of accuracy, .01 of AUC, or one point of the explained variance of numbers
LARGE = 2_000  # rows x epsilon / classes from which the rule holds; a smaller cell is reported only
_CLEARLY = 0.02  # above .5, from which an AUC is better than chance
HIGHER_IS_BETTER = {"accuracy": True, "auc": True, "r2": True, "log_loss": False}


@dataclass(frozen=True)
class Difference:
    """A mean over seeds with its standard error, and the recipe of each seed that `auto` was compared with."""

    mean: float
    error: float
    best: tuple[str, ...] = ()

    def exceeds(self, allowed):
        return self.mean > allowed + 2 * self.error


def values(cells, method, measure):
    """Return a measure of a method's finished cells, by seed."""
    mine = [cell for cell in cells if cell["method"] == method and cell["status"] == "ok"]
    return {cell["seed"]: cell[measure] for cell in mine if cell.get(measure) is not None}


def is_large(cells):
    """Whether the rule holds for these cells, by what is public."""
    auto = next(cell for cell in cells if cell["method"] == "auto")
    return auto["rows"] * auto["epsilon"] / auto["classes"] >= LARGE


def regret(cells, measure):
    """Return by how much `auto` is below the best recipe, or None without two seeds and another recipe.

    For each seed, the best recipe is the one with the highest mean on the other seeds, so that its luck on this seed
    does not count. A recipe takes part if it finished for every seed of `auto`.
    """
    auto = values(cells, "auto", measure)
    names = dict.fromkeys(c["method"] for c in cells if c["epsilon"] is not None)
    others = {name: values(cells, name, measure) for name in names if name not in ("auto", BASELINE)}
    others = {name: found for name, found in others.items() if auto.keys() <= found.keys()}
    if len(auto) < 2 or not others:
        return None
    best = {seed: max(others, key=lambda name: _mean_without(others[name], auto, seed)) for seed in auto}
    return _difference([others[best[seed]][seed] - auto[seed] for seed in auto], tuple(best.values()))


def _mean_without(found, seeds, left_out):
    return np.mean([found[seed] for seed in seeds if seed != left_out])


def _difference(each, best=()):
    error = float(np.std(each, ddof=1) / math.sqrt(len(each))) if len(each) > 1 else 0.0
    return Difference(float(np.mean(each)), error, best)


def loss_to_baseline(cells, measure):
    """Return by how much `auto` is worse than the baseline, seed by seed; None where no seed has both."""
    auto, baseline = values(cells, "auto", measure), values(cells, BASELINE, measure)
    sign = 1 if HIGHER_IS_BETTER[measure] else -1
    each = [sign * (baseline[seed] - auto[seed]) for seed in auto if seed in baseline]
    return _difference(each) if each else None


def baseline_learns(cells):
    """Whether the baseline beats the majority class: in accuracy, or by an AUC that is clearly above one half."""
    accuracy, auc = (list(values(cells, BASELINE, name).values()) for name in ("accuracy", "auc"))
    if not accuracy:
        return False
    majority = next(cell["majority"] for cell in cells if cell["method"] == BASELINE and cell["status"] == "ok")
    above = _difference([each - 0.5 for each in auc]) if auc else Difference(0.0, 0.0)
    return float(np.mean(accuracy)) > majority or above.mean > max(_CLEARLY, 2 * above.error)


def violations(cells):
    """Return every way in which `auto` breaks its promises here, each a dict with the rule and the figures."""
    problem, epsilon = cells[0]["problem"], next(c["epsilon"] for c in cells if c["epsilon"] is not None)
    found = []

    def add(rule, value=None, error=None, allowed=None):
        place = {"problem": problem, "epsilon": epsilon, "rule": rule}
        found.append(place | {"value": value, "error": error, "allowed": allowed})

    mine = [cell for cell in cells if cell["method"] == "auto"]
    for cell in mine:
        if cell["status"] != "ok":
            add(f"seed {cell['seed']} {cell['status']}")
        elif cell["guarantee"]["epsilon"] > epsilon * (1 + 1e-9):
            add("guarantee", cell["guarantee"]["epsilon"], allowed=epsilon)
    if not any(cell["status"] == "ok" for cell in mine):
        return found
    for measure in ("accuracy", "auc", "r2"):
        here = regret(cells, measure)
        if here is not None and is_large(mine) and here.exceeds(ALLOWED):
            add(f"regret in {measure}", here.mean, here.error, ALLOWED + 2 * here.error)
    for measure in ("auc", "log_loss"):
        here = loss_to_baseline(cells, measure)
        if here is not None and baseline_learns(cells) and here.mean > 0:
            add(f"{BASELINE} in {measure}", here.mean, here.error, 0.0)
    return found
