"""A run: one private training, kept in a folder that another person can read."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from filelock import FileLock, Timeout

from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError, MissingExtra
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import require_torch
from labeldp.core.version import __version__
from labeldp.data.base import Features, check_device
from labeldp.data.feature_reader import Intake, check_kind
from labeldp.data.files import TableFile
from labeldp.evaluate import Criterion, check_criterion
from labeldp.learn.density import intervals
from labeldp.learn.predictor import Predictor, load_predictor
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.reading import column_of_pictures, doubts, read_columns, read_features
from labeldp.recipes import runner as recipes
from labeldp.recipes.base import find
from labeldp.recipes.crosses import RECIPES as CROSSING
from labeldp.recipes.crosses import check_crosses
from labeldp.recipes.models import find_model
from labeldp.recipes.progress import Progress
from labeldp.recipes.task import Rows, Task, default_training
from labeldp.report.card import write_card
from labeldp.report.card.origin import describe_model, versions

if TYPE_CHECKING:
    from labeldp.learn.model import Model

_AXES = {"table": 1, "embeddings": 1, "pairs": 2, "images": 3}  # of a row's shape


@dataclass(frozen=True)
class Plan:
    """What to train and how much may be learnt of the labels."""

    epsilon: float
    delta: float = 0.0
    recipe: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    features: str = "table"  # or "embeddings", "images", "pairs"
    model: str = "auto"
    encoder: Path | None = None  # a model that was trained without labels, for images
    flip: bool = False  # whether a mirror image has the same label
    epochs: int | None = None
    device: str = "auto"
    seed: int = 0
    progress: bool = False
    public: Path | None = None  # rows of other people, for teachers to vote on
    labels_per_user: int | None = None  # the most of a user that take part
    choose_by: Criterion = "auto"  # what makes a model the best of several

    def check(self, space: LabelSpace | None = None, table: SecretTable | None = None) -> None:
        """Say at once what is wrong with the plan, and for these labels and columns, before anything is spent."""
        recipe = find(self.recipe)
        recipe.check(space, self.options, delta=self.delta, encoder=self.encoder is not None, model=self.model)
        if self.features not in _AXES:
            raise InputError(
                'The columns of a file are a "table", "embeddings", "images" or "pairs": choose one of these.'
            )
        if table is not None and self.public is not None and self.public.resolve() == table.file.path.resolve():
            raise InputError("The public rows are those with the secret labels: give a table of other people, or none.")
        if self.encoder is not None and self.features != "images":
            raise InputError("An encoder is for images: leave it out, or choose --features images.")
        if space is not None:
            check_criterion(self.choose_by, space)
        numbers = space is not None and space.step is not None
        find_model(self.model, axes=_AXES[self.features], numbers=numbers)
        check_kind(self.features)
        check_device(self.device)
        if self.features != "table" and self.recipe in CROSSING and self.options.get("cross"):
            raise InputError("Crosses are for tables: leave them out, or choose --features table.")
        if table is not None:
            table.file.frame_schema(table.features)
            check_crosses(self.recipe, self.options, table.features)
        if table is not None and self.features == "images":
            column_of_pictures(table.file, table.features)
        if self.encoder is not None:
            _check_encoder(_load_encoder(self.encoder, "cpu"), self.model)

    def by(self, recipe: str, **changes: Any) -> Plan:
        """Return the plan by another recipe, without a model or crosses if that has no use for them."""
        model = self.model if find(recipe).takes_model else "auto"
        options = {name: value for name, value in self.options.items() if name != "cross" or recipe in CROSSING}
        return replace(self, recipe=recipe, model=model, options=options, **changes)

    def read(self, table: SecretTable, rows: int) -> tuple[Intake, Features, Features | None]:
        """Read the features and, where there are any, the public rows, from which alone it is learnt how to read."""
        if self.public is None:
            return *read_features(table, self.features, rows, self.flip), None
        frame = read_columns(TableFile(self.public), table.features)
        intake, public = Intake.fit(frame, self.features, self.flip)  # type: ignore[arg-type]
        return intake, intake(read_columns(table.file, list(intake.columns), intake.texts)), public

    def task(
        self, features: Features, space: LabelSpace, rows: Rows, checkpoints: Path | None = None, **more: Any
    ) -> Task:
        """Return the public side of the training on `rows`."""
        model = find_model(self.model, self.seed, _AXES[self.features], space.step is not None)
        encoder = None if self.encoder is None else _load_encoder(self.encoder, self.device)
        more |= {"encoder": encoder, "seed": self.seed, "choose_by": self.choose_by}
        task = Task(features, space, rows, self.epsilon, self.delta, model, **more)
        changes = {"device": self.device, "progress": self.progress, "checkpoint": checkpoints}
        return replace(
            task, training=default_training(task, **changes | ({"epochs": self.epochs} if self.epochs else {}))
        )


def train(
    table: SecretTable,
    vault: Vault,
    plan: Plan,
    out: Path,
    report: Callable[[str], None] = lambda what: None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train as planned and write the run folder `out`; return what it says.

    What is being done is said to `report`, and `progress` counts the steps of recipes that plan them.

    A training of networks that is stopped leaves its checkpoints beside `out`, and the same request goes on from there.
    """
    rows = vault.capped(plan.labels_per_user, plan.seed)
    with written_whole(out) as folder, checkpoints_of(out) as checkpoints:
        intake, features, public = plan.read(table, vault.rows)
        task = plan.task(features, table.space, rows, checkpoints, public=public, progress=progress or Progress())
        doubted = [] if public is not None else doubts(table, features)
        for doubt in doubted:  # before anything is spent on columns that were read in another way than they are meant
            report(f"Note: {doubt}")
        encoder = task.encoder and task.encoder.digest()[:16]

        def write(place: Path, trained: recipes.Trained, vault: Vault) -> dict[str, Any]:
            facts = _facts(table, vault, plan, trained)
            facts |= {"encoder": encoder, "warnings": [*facts["warnings"], *doubted]}
            _write(place, facts, intake, trained, vault)
            return facts

        def rehearse(trained: recipes.Trained, made_up: Vault) -> None:
            with TemporaryDirectory() as place:
                write(Path(place) / "run", trained, made_up)

        trained = recipes.train(vault, task, plan.recipe, plan.options, report=report, use=rehearse)
        return write(folder, trained, vault)


def _facts(table: SecretTable, vault: Vault, plan: Plan, trained: recipes.Trained) -> dict[str, Any]:
    """Return what a run folder says about itself."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "packages": versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {"name": table.file.path.name, "rows": vault.rows, "label": table.label},
        "space": table.space.to_json(),
        **trained.facts(),
        "options": dict(plan.options),
        "features": plan.features,
        "plan": {
            "model": plan.model,
            "epochs": plan.epochs,
            "public": plan.public is not None,
            "choose_by": plan.choose_by,
        },
        "users": trained.users and trained.users | {"column": table.users},
        "model": describe_model(trained.model),
        "model_unit": trained.model.guarantee.unit if trained.model.guarantee else None,
        "entries": [release.entry for release in trained.releases],
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "seed": plan.seed,
        "spent": vault.guarantee().to_json(),
    }


def _write(folder: Path, facts: dict[str, Any], intake: Intake, trained: recipes.Trained, vault: Vault) -> None:
    folder.mkdir()
    _dump(folder / "run.json", facts)
    _dump(folder / "features.json", intake.to_json())
    _dump(folder / "ledger.json", [entry.redacted() for entry in vault.ledger.entries()])
    write_card(folder)
    trained.model.save(folder / "model")


def predict(
    run: Path, data: Path, ids: str | None = None, note: Callable[[str], None] = lambda what: None
) -> pl.DataFrame:
    """Return the predicted label of each row of `data`, and the probability of each class, beside a column of `ids`.

    Ordered classes that are numbers, such as ratings, also have an expected number. Of the numbers of a range, `low`
    and `high` are what four of five labels should lie between, by what the model believes and by its measured error.
    What looks wrong about the rows is said to `note`.
    """
    intake = intake_of(run)
    file = TableFile(data)
    if ids is not None:
        file.column_type(ids)  # it is there, or that is said
    named = [] if ids is None else [read_columns(file, [ids], [ids]).to_series()]
    frame = read_columns(file, list(intake.columns), intake.texts)
    for name in intake.strangers(frame):
        note(f"No value of column {name!r} occurred in training: they count as unknown. Are they written as then?")
    model = load_predictor(run / "model", "auto")
    space = model.space
    if space is None:
        raise InputError(f"{run} is damaged: its model knows no classes.")
    try:
        told = _told(model, space, intake(frame), float(read_report(run).get("interval_widening", 1.0)))
    except InputError:
        raise
    except (ValueError, TypeError):
        raise InputError(f"The columns of {data} have other types than those that the model was trained on.") from None
    return _beside(named, [pl.Series(name, values) for name, values in told.items()])


def _told(model: Predictor, space: LabelSpace, features: Features, widening: float) -> dict[str, Any]:
    """Return the columns that say what a model predicts."""
    if space.step is not None:
        numbers = np.asarray(model.predict(features), np.float64) if len(features) else np.zeros(0)
        low, high = intervals(model, features, 0.8, widening)
        return {"prediction": numbers, "low": low, "high": high}
    chances = model.predict_proba(features) if len(features) else np.zeros((0, len(space)))  # some models need a row
    expected = {} if space.numbers is None else {"expected": chances @ space.numbers}
    named = {f"p({name})": chances[:, place] for place, name in enumerate(space)}
    return {"prediction": space.decode(chances.argmax(axis=1)).tolist()} | expected | named


def _beside(named: list[pl.Series], told: list[pl.Series]) -> pl.DataFrame:
    if {column.name for column in named} & {column.name for column in told}:
        raise InputError(f"The ids have the name of a column of predictions, {named[0].name!r}: rename them.")
    return pl.DataFrame([*named, *told])


def read_report(run: Path) -> dict[str, Any]:
    """Return what a run folder says about itself."""
    try:
        report: dict[str, Any] = json.loads((run / "run.json").read_text())
    except (OSError, ValueError):
        raise InputError(f"{run} is not a run folder: `labeldp train --out` makes one.") from None
    return report


@contextmanager
def checkpoints_of(out: Path) -> Iterator[Path]:
    """Give a folder for checkpoints beside `out`. It goes when all went well, or when nothing is in it."""
    folder = out.with_name(f".{out.name}.checkpoints")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is in the way of checkpoints: remove it.")
    folder.mkdir(exist_ok=True)
    with _only_one(folder / "lock", out):
        try:
            yield folder
            shutil.rmtree(folder)
        finally:
            if folder.is_dir() and [path.name for path in folder.iterdir()] == ["lock"]:
                shutil.rmtree(folder)


@contextmanager
def _only_one(lock: Path, out: Path) -> Iterator[None]:
    try:
        with FileLock(lock, timeout=0):
            yield
    except Timeout:
        raise InputError(f"Another command is making {out}: wait for it, or choose another path.") from None


def _load_encoder(folder: Path, device: str) -> Model:
    require_torch("An encoder")
    from labeldp.learn.model import Model

    return Model.load(folder, device)


def _check_encoder(encoder: Model, model: str) -> None:
    """Networks begin from the encoder, so that they are of its kind."""
    from labeldp.learn.encoded import members

    recipes.check_untaught(encoder)
    kind = getattr(members(encoder)[0].network, "recipe", {}).get("name")
    if model not in ("auto", kind):
        raise InputError(f"Networks begin from the encoder, which is a {kind}, not a {model}: leave out --model.")


def intake_of(run: Path) -> Intake:
    """Return how a run reads rows."""
    read_report(run)
    try:
        return Intake.from_json(json.loads((run / "features.json").read_text()))
    except MissingExtra:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{run} is damaged: it does not say how to read features.") from None


def _dump(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
