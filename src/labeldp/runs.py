"""A run: one private training, kept in a folder that another person can read."""

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from labeldp import __version__
from labeldp.datasets import SecretTable
from labeldp.errors import InputError
from labeldp.features.base import Features
from labeldp.features.intake import Intake
from labeldp.features.tables import Table
from labeldp.files import TableFile, written_whole
from labeldp.labels import LabelSpace
from labeldp.learn.predictor import load_predictor
from labeldp.recipes import run as recipes
from labeldp.recipes.base import Task, default_training, find
from labeldp.report.card import make_card
from labeldp.vault import Vault


@dataclass(frozen=True)
class Plan:
    """What to train and how much may be learnt of the labels."""

    epsilon: float
    delta: float = 0.0
    recipe: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    features: str = "table"  # or "embeddings"
    model: str = "auto"
    epochs: int | None = None
    device: str = "auto"
    seed: int = 0
    progress: bool = False

    def check(self) -> None:
        """Say at once what is wrong with the plan, before anything is read or spent."""
        recipes.check_options(find(self.recipe), self.options)
        classifier_or_backbone(self.model)
        if self.features not in ("table", "embeddings"):
            raise InputError('The columns of a file are a "table", or "embeddings": choose one of these.')

    def task(self, features: Features, space: LabelSpace) -> Task:
        """Return the public side of the training."""
        everything = recipes.all_rows(len(features))
        model = classifier_or_backbone(self.model)
        draft = Task(features, space, everything, self.epsilon, self.delta, model=model, seed=self.seed)
        changes: dict[str, Any] = {"device": self.device, "progress": self.progress}
        training = default_training(draft, **changes | ({"epochs": self.epochs} if self.epochs else {}))
        return Task(features, space, everything, self.epsilon, self.delta, model, training, seed=self.seed)


def train(
    table: SecretTable, vault: Vault, plan: Plan, out: Path, report: Callable[[str], None] = lambda what: None
) -> dict[str, Any]:
    """Train as planned and write the run folder `out`; return what it says."""
    with written_whole(out) as folder:
        intake, features = read_features(table, plan.features)
        if len(features) != vault.rows:
            raise InputError(f"{table.file.path} has lines that are no rows: remove blank lines.")
        trained = recipes.train(vault, plan.task(features, table.space), plan.recipe, plan.options, report=report)
        facts = {
            "version": __version__,
            "python": platform.python_version(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": {"name": table.file.path.name, "rows": vault.rows, "label": table.label},
            "space": table.space.to_json(),
            **trained.facts(),
            "options": dict(plan.options),
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "seed": plan.seed,
            "spent": vault.guarantee().to_json(),
            "warnings": [],
        }
        folder.mkdir()
        _dump(folder / "run.json", facts)
        _dump(folder / "features.json", intake.to_json())
        _dump(folder / "ledger.json", [entry.redacted() for entry in vault.ledger.entries()])
        make_card(facts).save(folder / "card.html")
        trained.model.save(folder / "model")
    return facts


def predict(run: Path, data: Path, device: str = "auto") -> pl.DataFrame:
    """Return the predicted label of each row of `data`, and the probability of each class."""
    report = read_report(run)
    space = LabelSpace.from_json(report["space"])
    intake = _intake(run)
    file = TableFile(data)
    absent = [name for name in intake.columns if name not in file.schema.names]
    if absent:
        raise InputError(f"{data} lacks the column {absent[0]!r}, which the model was trained on.")
    model = load_predictor(run / "model", device)
    frame = read_columns(file, list(intake.columns))
    try:
        chances = model.predict_proba(intake(frame))
    except InputError:
        raise
    except (ValueError, TypeError):
        raise InputError(f"The columns of {data} have other types than those that the model was trained on.") from None
    labels = pl.Series("prediction", space.decode(chances.argmax(axis=1)).tolist())
    return pl.DataFrame([labels, *(pl.Series(f"p({c})", chances[:, i]) for i, c in enumerate(space))])


def read_report(run: Path) -> dict[str, Any]:
    """Return what a run folder says about itself."""
    try:
        report: dict[str, Any] = json.loads((run / "run.json").read_text())
    except (OSError, ValueError):
        raise InputError(f"{run} is not a run folder: `labeldp train --out` makes one.") from None
    return report


def read_features(table: SecretTable, kind: str) -> tuple[Intake, Features]:
    """Read the features of a table, in batches where the file allows it, and never the label."""
    columns = table.features
    if kind == "table" and table.file.path.suffix == ".parquet":
        features = Table.from_parquet(table.file.path, columns)
        return Intake("table", tuple(columns), features.to_json()), features
    return Intake.fit(read_columns(table.file, columns), kind)  # type: ignore[arg-type]


def read_columns(file: TableFile, columns: list[str]) -> pl.DataFrame:
    """Read features, and never the label: Polars' message could quote it. Numbers in a CSV become numbers."""
    try:
        read = pl.read_parquet if file.path.suffix == ".parquet" else pl.read_csv
        return read(file.path, columns=columns).select(columns)
    except (pl.exceptions.PolarsError, OSError) as problem:
        kind = type(problem).__name__
    raise InputError(f"{file.path} cannot be read ({kind}).")


def classifier_or_backbone(name: str) -> Any:
    """Return a scikit-learn classifier by its short name, or the name of a backbone as it is."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    from labeldp.learn.backbones import BACKBONES

    classifiers = {"logistic": LogisticRegression(C=0.1, max_iter=300), "trees": HistGradientBoostingClassifier()}
    if name not in ("auto", *classifiers, *BACKBONES):
        raise InputError(f"There is no model {name!r}: choose auto, {', '.join([*classifiers, *BACKBONES])}.")
    return classifiers.get(name, name)


def _intake(run: Path) -> Intake:
    try:
        return Intake.from_json(json.loads((run / "features.json").read_text()))
    except (OSError, ValueError, KeyError):
        raise InputError(f"{run} is damaged: it does not say how to read features.") from None


def _dump(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
