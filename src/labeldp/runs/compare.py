"""Comparisons of recipes and epsilons on one data set, which store each finished cell and can resume."""

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
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import EncodedLabels, LabelSpace
from labeldp.data.base import Features
from labeldp.evaluate import Score, split_rows
from labeldp.learn.model import Model
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes.training import train as train_recipe
from labeldp.report.plots import Point, plot_accuracy_by_epsilon
from labeldp.runs.config import TrainConfig
from labeldp.runs.feature_files import read_features

_CELL_KEYS = {"recipe", "epsilon", "seed"}
# The fraction of rows that form the test set of a benchmark with public labels.
_TEST_FRACTION = 0.2


@dataclass(frozen=True)
class ComparisonCell:
    """One training: a recipe at an epsilon, with a seed."""

    recipe: str
    epsilon: float
    seed: int


@dataclass(frozen=True)
class Comparison:
    """A request for a comparison. Each finished cell is written to `folder`.

    Args:
        folder: The folder for cells and plot.
        config: The settings that all cells share.
        recipes: The recipes by name.
        epsilons: The epsilons of the cells.
        n_seeds: The number of trainings of each recipe and epsilon.
        data_description: A text that identifies the data and the scores. A folder holds one comparison only.
    """

    folder: Path
    config: TrainConfig
    recipes: Sequence[str]
    epsilons: Sequence[float]
    n_seeds: int = 1
    data_description: str = ""

    def cells(self) -> list[ComparisonCell]:
        """Return every cell, ordered by seed, epsilon and recipe."""
        return [ComparisonCell(r, e, s) for s in range(self.n_seeds) for e in self.epsilons for r in self.recipes]

    def total_cost(self) -> tuple[Fraction, Fraction]:
        """Return the maximum epsilon and delta that all cells together cost a label."""
        return self._cost(self.cells())

    def remaining_cost(self) -> tuple[Fraction, Fraction]:
        """Return the maximum epsilon and delta of the missing cells. An interrupted cell has been charged already."""
        return self._cost([cell for cell in self.missing_cells() if cell != self._started_cell()])

    def check(self, space: LabelSpace | None = None) -> None:
        """Raise an error if the request is invalid, or if its folder holds another comparison."""
        if not self.epsilons or not self.recipes or self.n_seeds < 1:
            raise InputError("A comparison needs at least one epsilon, one recipe and one seed.")
        for name in self.recipes:
            self.config.with_recipe(name).check(space)
        if not self.folder.is_dir():
            check_writable(self.folder)
        description_file = self.folder / "comparison.json"
        if description_file.is_file() and description_file.read_text().strip() != self._describe():
            raise InputError(f"{self.folder} holds another comparison: choose another folder for this one.")

    def finished_cells(self) -> list[dict[str, Any]]:
        """Return the records of the finished cells."""
        records = {
            _parse_cell(record): record
            for record in read_json_lines(self.folder / "cells.jsonl")
            if record.keys() >= _CELL_KEYS
        }
        return [records[cell] for cell in self.cells() if cell in records]

    def missing_cells(self) -> list[ComparisonCell]:
        """Return the cells that are not finished."""
        finished = {_parse_cell(record) for record in self.finished_cells()}
        return [cell for cell in self.cells() if cell not in finished]

    def run(
        self, train: Callable[[TrainConfig], dict[str, Any]], report: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """Train the missing cells, write their records and the plot, and return the records of all cells."""
        self.check()
        self.folder.mkdir(exist_ok=True)
        (self.folder / "comparison.json").write_text(self._describe() + "\n")
        n_cells = len(self.cells())
        for cell in self.missing_cells():
            report(f"{n_cells - len(self.missing_cells()) + 1} of {n_cells}: {cell.recipe} at epsilon {cell.epsilon:g}")
            (self.folder / "begun.json").write_text(json.dumps(asdict(cell)))
            start_time = time.perf_counter()
            outcome = train(self.config.with_recipe(cell.recipe, epsilon=cell.epsilon, seed=cell.seed))
            record = asdict(cell) | outcome | {"seconds": round(time.perf_counter() - start_time, 1)}
            append_json_line(self.folder / "cells.jsonl", record)
        (self.folder / "begun.json").unlink(missing_ok=True)
        records = self.finished_cells()
        self._plot(records)
        return records

    def _cost(self, cells: Sequence[ComparisonCell]) -> tuple[Fraction, Fraction]:
        return sum((as_fraction(c.epsilon) for c in cells), Fraction(0)), len(cells) * as_fraction(self.config.delta)

    def _started_cell(self) -> ComparisonCell | None:
        records = read_json_lines(self.folder / "begun.json")
        return _parse_cell(records[0]) if records and records[0].keys() >= _CELL_KEYS else None

    def _describe(self) -> str:
        """Return the description of data and settings as JSON."""
        config = self.config
        description = {
            "of": self.data_description,
            "delta": config.delta,
            "features": config.features,
            "model": config.model,
            "flip": config.flip,
        }
        description |= {"encoder": Model.load(config.encoder, "cpu").digest()} if config.encoder else {}
        description |= {"choose_by": config.choose_by} if config.choose_by != "auto" else {}
        return json.dumps(description | ({"labels_per_user": config.labels_per_user} if config.labels_per_user else {}))

    def _plot(self, records: list[dict[str, Any]]) -> None:
        curves = {name: list(summarize(records, name)) for name in self.recipes}
        plotted = {name: points for name, points in curves.items() if points}
        if plotted:
            plot_accuracy_by_epsilon(plotted, self.folder / "accuracy.png", "Accuracy by epsilon")


def _parse_cell(record: dict[str, Any]) -> ComparisonCell:
    return ComparisonCell(record["recipe"], record["epsilon"], record["seed"])


def summarize(records: Sequence[dict[str, Any]], recipe: str) -> Iterator[Point]:
    """Yield the mean accuracy of a recipe over its seeds at each epsilon, with an interval.

    One seed has the interval of its record. For several seeds, the interval combines the mean half-width of the records
    with the variation between seeds. The seeds share test rows, so averaging does not reduce the former.
    """
    recipe_records = [record for record in records if record["recipe"] == recipe and record["accuracy"] is not None]
    for epsilon in sorted({record["epsilon"] for record in recipe_records}):
        epsilon_records = [record for record in recipe_records if record["epsilon"] == epsilon]
        values = np.array([record["accuracy"] for record in epsilon_records])
        if len(epsilon_records) == 1:
            yield Point(epsilon, epsilon_records[0]["accuracy"], epsilon_records[0]["low"], epsilon_records[0]["high"])
        else:
            half_width = (
                student_t.ppf(0.975, len(epsilon_records) - 1) * values.std(ddof=1) / np.sqrt(len(epsilon_records))
            )
            below, above = (
                np.mean([abs(record[end] - record["accuracy"]) for record in epsilon_records])
                for end in ("low", "high")
            )
            mean = float(values.mean())
            low, high = mean - np.hypot(half_width, below), mean + np.hypot(half_width, above)
            yield Point(epsilon, mean, max(0.0, float(low)), min(1.0, float(high)))


def make_private_cell_trainer(
    table: SecretTable, vault: Vault, comparison: Comparison
) -> Callable[[TrainConfig], dict[str, Any]]:
    """Return a function that trains a cell on private labels: scores are private, and the ledger is charged."""
    left_epsilon, left_delta = vault.remaining()
    epsilon, delta = comparison.remaining_cost()
    if epsilon > as_fraction(left_epsilon) or delta > as_fraction(left_delta):
        raise BudgetExceeded(
            f"The missing cells cost epsilon {float(epsilon):g} and delta {float(delta):g}, and the budget has "
            f"epsilon {left_epsilon:g} and delta {left_delta:g} left: compare fewer cells, raise the budget, or "
            "declare the labels public for a benchmark.",
            parameter="public_labels",
        )
    features = read_features(table, comparison.config.features, vault.n_rows, comparison.config.flip)[1]
    # All cells use the same selection of rows: another one would use more labels of a user.
    row_mask = vault.cap_labels_per_user(comparison.config.labels_per_user)

    def train_cell(config: TrainConfig) -> dict[str, Any]:
        trained = train_recipe(vault, config.make_task(features, table.space, row_mask), config.recipe, config.options)
        if not isinstance(trained.score, Score):
            return {"accuracy": None, "low": 0.0, "high": 1.0, "measured": "not measured"}
        accuracy = trained.score.accuracy
        return {"accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high, "measured": "privately"}

    return train_cell


def make_public_cell_trainer(
    features: Features, codes: NDArray[Any], table: SecretTable, test: tuple[Features, NDArray[Any]] | None = None
) -> Callable[[TrainConfig], dict[str, Any]]:
    """Return a function that trains a cell on public labels and scores it on the labels of other rows."""
    users = table.read_user_ids()

    def train_cell(config: TrainConfig) -> dict[str, Any]:
        if test is None:
            train_ids, test_ids = split_rows(len(codes), (1 - _TEST_FRACTION, _TEST_FRACTION), config.seed, users)
            train_features = features.select(train_ids)
            train_codes = codes[train_ids]
            test_features = features.select(test_ids)
            test_codes = codes[test_ids]
            train_users = None if users is None else users[train_ids]
        else:
            train_features, train_codes, train_users, (test_features, test_codes) = features, codes, users, test
        vault = Vault(EncodedLabels(train_codes), table.space, Budget(config.epsilon, config.delta), users=train_users)
        row_mask = vault.cap_labels_per_user(config.labels_per_user, config.seed)
        task = config.make_task(train_features, table.space, row_mask)
        trained = train_recipe(vault, task, config.recipe, config.options, score=False, with_rehearsal=False)
        is_correct = trained.model.predict_proba(test_features).argmax(axis=1) == test_codes
        half_width = 1.96 * is_correct.std() / np.sqrt(len(is_correct))
        accuracy = float(is_correct.mean())
        return {
            "accuracy": accuracy,
            "low": accuracy - half_width,
            "high": accuracy + half_width,
            "measured": "on true labels",
        }

    return train_cell
