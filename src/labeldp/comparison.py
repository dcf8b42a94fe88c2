"""Epsilons by recipes on one data set: a row for each finished cell, so that it can be stopped and resumed."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.datasets import SecretTable
from labeldp.errors import BudgetExceeded, InputError
from labeldp.evaluate import split_rows
from labeldp.features.base import Features
from labeldp.guarantees import Budget
from labeldp.labels import Encoded
from labeldp.reals import exactly
from labeldp.recipes import run as recipes
from labeldp.report.plots import Point, accuracy_by_epsilon
from labeldp.runs import Plan, read_features
from labeldp.vault import Vault

_TEST = 0.2  # the share of rows that score a benchmark with public labels


@dataclass(frozen=True)
class Cell:
    """One training: a recipe at an epsilon, with a seed."""

    recipe: str
    epsilon: float
    seed: int


@dataclass(frozen=True)
class Comparison:
    """What to compare. Cells are written to `folder` as they are finished."""

    folder: Path
    plan: Plan
    recipes: Sequence[str]
    epsilons: Sequence[float]
    seeds: int = 1
    of: str = ""  # the data and how they are scored

    def cells(self) -> list[Cell]:
        """Return every cell, epsilons first, so that whole rows of the table appear early."""
        return [Cell(r, e, s) for s in range(self.seeds) for e in self.epsilons for r in self.recipes]

    def total(self) -> tuple[Fraction, Fraction]:
        """Return what all cells together cost a label at most: every cell is a training of its own."""
        cells = self.cells()
        return sum((exactly(c.epsilon) for c in cells), Fraction(0)), len(cells) * exactly(self.plan.delta)

    def check(self) -> None:
        """Say at once what is wrong with the request."""
        for name in self.recipes:
            replace(self.plan, recipe=name).check()
        if not self.epsilons or not self.recipes or self.seeds < 1:
            raise InputError("A comparison needs at least one epsilon, one recipe and one seed.")

    def done(self) -> list[dict[str, Any]]:
        """Return the rows of the cells that are finished."""
        path = self.folder / "cells.jsonl"
        lines = path.read_text().splitlines() if path.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def run(self, train: Callable[[Plan], dict[str, Any]], report: Callable[[str], None]) -> list[dict[str, Any]]:
        """Train the cells that are missing, and write table and plot."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._belongs()
        wanted = self.cells()
        finished = {Cell(row["recipe"], row["epsilon"], row["seed"]) for row in self.done()}
        for number, cell in enumerate(wanted):
            if cell in finished:
                continue
            report(f"{number + 1} of {len(wanted)}: {cell.recipe} at epsilon {cell.epsilon:g}")
            begun = time.perf_counter()
            outcome = train(replace(self.plan, recipe=cell.recipe, epsilon=cell.epsilon, seed=cell.seed))
            row = asdict(cell) | outcome | {"seconds": round(time.perf_counter() - begun, 1)}
            with (self.folder / "cells.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
        rows = [row for row in self.done() if Cell(row["recipe"], row["epsilon"], row["seed"]) in set(wanted)]
        self._draw(rows)
        return rows

    def _belongs(self) -> None:
        """Note what the cells are of, or refuse to mix them with cells of something else."""
        note = self.folder / "comparison.json"
        plan = self.plan
        own = json.dumps({"of": self.of, "delta": plan.delta, "features": plan.features, "model": plan.model})
        if not note.is_file():
            note.write_text(own + "\n")
        elif note.read_text().strip() != own:
            raise InputError(f"{self.folder} holds another comparison: choose another folder for this one.")

    def _draw(self, rows: list[dict[str, Any]]) -> None:
        curves = {name: list(summarise(rows, name)) for name in self.recipes}
        told = {name: points for name, points in curves.items() if points}
        if told:
            accuracy_by_epsilon(told, self.folder / "accuracy.png", "Accuracy by epsilon")


def summarise(rows: Sequence[dict[str, Any]], recipe: str) -> Iterator[Point]:
    """Average the seeds of a recipe at each epsilon; one seed keeps the interval that it came with."""
    own = [row for row in rows if row["recipe"] == recipe and row["accuracy"] is not None]
    for epsilon in sorted({row["epsilon"] for row in own}):
        here = [row for row in own if row["epsilon"] == epsilon]
        values = np.array([row["accuracy"] for row in here])
        if len(here) == 1:
            yield Point(epsilon, here[0]["accuracy"], here[0]["low"], here[0]["high"])
        else:
            spread = 1.96 * values.std(ddof=1) / np.sqrt(len(here))
            yield Point(epsilon, values.mean(), values.mean() - spread, values.mean() + spread)


def on_private_labels(table: SecretTable, vault: Vault, comparison: Comparison) -> Callable[[Plan], dict[str, Any]]:
    """Return a way to train a cell on labels that stay private: scored privately, charged to the data set's ledger."""
    left_epsilon, left_delta = vault.remaining()
    epsilon, delta = comparison.total()
    spent = comparison.done()
    epsilon -= sum((exactly(row["epsilon"]) for row in spent), Fraction(0))
    delta -= len(spent) * exactly(comparison.plan.delta)
    if epsilon > exactly(left_epsilon) or delta > exactly(left_delta):
        raise BudgetExceeded(
            f"All cells together cost epsilon {float(epsilon):g} and delta {float(delta):g}, and the budget has "
            f"epsilon {left_epsilon:g} and delta {left_delta:g} left: compare less, raise the budget, or declare the "
            "labels public for a benchmark (--labels-public)."
        )
    features = read_features(table, comparison.plan.features)[1]

    def train(plan: Plan) -> dict[str, Any]:
        trained = recipes.train(vault, plan.task(features, table.space), plan.recipe, plan.options)
        if trained.score is None:
            return {"accuracy": None, "low": 0.0, "high": 1.0, "measured": "not measured"}
        found = trained.score.accuracy
        return {"accuracy": found.value, "low": found.low, "high": found.high, "measured": "privately"}

    return train


def on_public_labels(
    features: Features, codes: NDArray[Any], table: SecretTable, test: tuple[Features, NDArray[Any]] | None = None
) -> Callable[[Plan], dict[str, Any]]:
    """Return a way to train a cell of a benchmark, whose labels are public: scored on true labels of other rows."""

    def train(plan: Plan) -> dict[str, Any]:
        if test is None:
            fit, held = split_rows(len(codes), (1 - _TEST, _TEST), plan.seed)
            learn, known, score, truth = features.select(fit), codes[fit], features.select(held), codes[held]
        else:
            learn, known, (score, truth) = features, codes, test
        vault = Vault(Encoded(known), table.space, Budget(plan.epsilon, plan.delta))
        trained = recipes.train(vault, plan.task(learn, table.space), plan.recipe, plan.options, score=False)
        right = trained.model.predict_proba(score).argmax(axis=1) == truth
        half = 1.96 * right.std() / np.sqrt(len(right))
        value = float(right.mean())
        return {"accuracy": value, "low": value - half, "high": value + half, "measured": "on true labels"}

    return train
