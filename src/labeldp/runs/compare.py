"""Epsilons by recipes on one data set: a row for each finished cell, so that it can be stopped and resumed."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from labeldp.core.atomic_files import append_json_line, check_writable, read_json_lines
from labeldp.core.errors import BudgetExceeded, InputError
from labeldp.core.exact_real import exactly
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import EncodedLabels, LabelSpace
from labeldp.data.base import Features
from labeldp.evaluate import Score, split_rows
from labeldp.learn.model import Model
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes import runner as recipes
from labeldp.report.plots import Point, plot_accuracy_by_epsilon
from labeldp.runs.config import Plan
from labeldp.runs.feature_files import read_features

_FIELDS = {"recipe", "epsilon", "seed"}
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
        return self._cost(self.cells())

    def still(self) -> tuple[Fraction, Fraction]:
        """Return what the cells to come cost at most. A cell that was stopped midway has been charged already."""
        return self._cost([cell for cell in self.missing() if cell != self._begun()])

    def check(self, space: LabelSpace | None = None) -> None:
        """Say at once what is wrong with the request, for these labels, or with a folder that holds other cells."""
        if not self.epsilons or not self.recipes or self.seeds < 1:
            raise InputError("A comparison needs at least one epsilon, one recipe and one seed.")
        for name in self.recipes:
            self.plan.by(name).check(space)
        if not self.folder.is_dir():
            check_writable(self.folder)
        note = self.folder / "comparison.json"
        if note.is_file() and note.read_text().strip() != self._own():
            raise InputError(f"{self.folder} holds another comparison: choose another folder for this one.")

    def done(self) -> list[dict[str, Any]]:
        """Return the rows of the cells that are finished."""
        rows = {_cell(row): row for row in read_json_lines(self.folder / "cells.jsonl") if row.keys() >= _FIELDS}
        return [rows[cell] for cell in self.cells() if cell in rows]

    def missing(self) -> list[Cell]:
        """Return the cells that are not finished."""
        finished = {_cell(row) for row in self.done()}
        return [cell for cell in self.cells() if cell not in finished]

    def run(self, train: Callable[[Plan], dict[str, Any]], report: Callable[[str], None]) -> list[dict[str, Any]]:
        """Train the cells that are missing, and write table and plot."""
        self.check()
        self.folder.mkdir(exist_ok=True)
        (self.folder / "comparison.json").write_text(self._own() + "\n")
        count = len(self.cells())
        for cell in self.missing():
            report(f"{count - len(self.missing()) + 1} of {count}: {cell.recipe} at epsilon {cell.epsilon:g}")
            (self.folder / "begun.json").write_text(json.dumps(asdict(cell)))
            begun = time.perf_counter()
            outcome = train(self.plan.by(cell.recipe, epsilon=cell.epsilon, seed=cell.seed))
            row = asdict(cell) | outcome | {"seconds": round(time.perf_counter() - begun, 1)}
            append_json_line(self.folder / "cells.jsonl", row)
        (self.folder / "begun.json").unlink(missing_ok=True)
        rows = self.done()
        self._draw(rows)
        return rows

    def _cost(self, cells: Sequence[Cell]) -> tuple[Fraction, Fraction]:
        return sum((exactly(c.epsilon) for c in cells), Fraction(0)), len(cells) * exactly(self.plan.delta)

    def _begun(self) -> Cell | None:
        rows = read_json_lines(self.folder / "begun.json")
        return _cell(rows[0]) if rows and rows[0].keys() >= _FIELDS else None

    def _own(self) -> str:
        """Say what the cells are of."""
        plan = self.plan
        own = {"of": self.of, "delta": plan.delta, "features": plan.features, "model": plan.model, "flip": plan.flip}
        own |= {"encoder": Model.load(plan.encoder, "cpu").digest()} if plan.encoder else {}
        own |= {"choose_by": plan.choose_by} if plan.choose_by != "auto" else {}
        return json.dumps(own | ({"labels_per_user": plan.labels_per_user} if plan.labels_per_user else {}))

    def _draw(self, rows: list[dict[str, Any]]) -> None:
        curves = {name: list(summarise(rows, name)) for name in self.recipes}
        told = {name: points for name, points in curves.items() if points}
        if told:
            plot_accuracy_by_epsilon(told, self.folder / "accuracy.png", "Accuracy by epsilon")


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(row["recipe"], row["epsilon"], row["seed"])


def summarise(rows: Sequence[dict[str, Any]], recipe: str) -> Iterator[Point]:
    """Average the seeds of a recipe at each epsilon; one seed keeps the interval that it came with.

    Seeds are scored on the same people, or on few of them: what a cell's own interval leaves open stays open, and what
    seeds differ by comes to it.
    """
    own = [row for row in rows if row["recipe"] == recipe and row["accuracy"] is not None]
    for epsilon in sorted({row["epsilon"] for row in own}):
        here = [row for row in own if row["epsilon"] == epsilon]
        values = np.array([row["accuracy"] for row in here])
        if len(here) == 1:
            yield Point(epsilon, here[0]["accuracy"], here[0]["low"], here[0]["high"])
        else:
            between = student_t.ppf(0.975, len(here) - 1) * values.std(ddof=1) / np.sqrt(len(here))
            below, above = (np.mean([abs(row[end] - row["accuracy"]) for row in here]) for end in ("low", "high"))
            mean = float(values.mean())
            low, high = mean - np.hypot(between, below), mean + np.hypot(between, above)
            yield Point(epsilon, mean, max(0.0, float(low)), min(1.0, float(high)))


def on_private_labels(table: SecretTable, vault: Vault, comparison: Comparison) -> Callable[[Plan], dict[str, Any]]:
    """Return a way to train a cell on labels that stay private: scored privately, charged to the data set's ledger."""
    left_epsilon, left_delta = vault.remaining()
    epsilon, delta = comparison.still()
    if epsilon > exactly(left_epsilon) or delta > exactly(left_delta):
        raise BudgetExceeded(
            f"The cells to come cost epsilon {float(epsilon):g} and delta {float(delta):g}, and the budget has "
            f"epsilon {left_epsilon:g} and delta {left_delta:g} left: compare less, raise the budget, or declare the "
            "labels public for a benchmark (--labels-public)."
        )
    features = read_features(table, comparison.plan.features, vault.rows, comparison.plan.flip)[1]
    rows = vault.capped(comparison.plan.labels_per_user)  # one choice for all seeds: a second would use more labels

    def train(plan: Plan) -> dict[str, Any]:
        trained = recipes.train(vault, plan.task(features, table.space, rows), plan.recipe, plan.options)
        if not isinstance(trained.score, Score):
            return {"accuracy": None, "low": 0.0, "high": 1.0, "measured": "not measured"}
        found = trained.score.accuracy
        return {"accuracy": found.value, "low": found.low, "high": found.high, "measured": "privately"}

    return train


def on_public_labels(
    features: Features, codes: NDArray[Any], table: SecretTable, test: tuple[Features, NDArray[Any]] | None = None
) -> Callable[[Plan], dict[str, Any]]:
    """Return a way to train a cell of a benchmark, whose labels are public: scored on true labels of other rows."""
    users = table.owners()

    def train(plan: Plan) -> dict[str, Any]:
        if test is None:
            fit, held = split_rows(len(codes), (1 - _TEST, _TEST), plan.seed, users)
            learn, known, score, truth = features.select(fit), codes[fit], features.select(held), codes[held]
            owners = None if users is None else users[fit]
        else:
            learn, known, owners, (score, truth) = features, codes, users, test
        vault = Vault(EncodedLabels(known), table.space, Budget(plan.epsilon, plan.delta), users=owners)
        rows = vault.capped(plan.labels_per_user, plan.seed)
        task = plan.task(learn, table.space, rows)
        trained = recipes.train(vault, task, plan.recipe, plan.options, score=False, with_rehearsal=False)
        right = trained.model.predict_proba(score).argmax(axis=1) == truth
        half = 1.96 * right.std() / np.sqrt(len(right))
        value = float(right.mean())
        return {"accuracy": value, "low": value - half, "high": value + half, "measured": "on true labels"}

    return train
