"""The training of one cell of a table: a new vault, the recipe of the row at one epsilon, and its accuracy.

Each cell has its own ledger in the work folder. An interrupted training therefore resumes with the same release from
its last complete epoch. The labels of these data sets are public; the recipes need vaults nevertheless.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labeldp.audit.canaries import CONFIDENT_VIEW, CanarySet, measure_canary_game, plant_canaries, score_canaries
from labeldp.core.atomic_files import atomic_write, path_lock
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import Codes, LabelSpace
from labeldp.data.images import Images
from labeldp.learn.augdescent import AugDescent
from labeldp.learn.backbones import build
from labeldp.learn.base import Learner
from labeldp.learn.fixmatch import FixMatch
from labeldp.learn.model import Model
from labeldp.learn.semigan import SemiGAN
from labeldp.learn.training import Training
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault import Identity, Vault
from labeldp.recipes.advisor.formulas import response_accuracy
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.result import TrainingResult
from labeldp.recipes.task import Task
from labeldp.recipes.training import train as train_recipe
from labeldp.releases.base import Release
from labeldp.releases.storage import from_bytes, to_bytes
from labeldp.reproduce.tables import Experiment, ExperimentRow

# Schedules of networks for these images, by learner. The other hyperparameters follow the papers.
_SUPERVISED_SCHEDULE = {"epochs": 120, "batch_size": 256, "learning_rate": 0.1, "weight_decay": 5e-4}
# With fewer wrong labels than this fraction, fewer epochs are enough.
_LOW_NOISE_RATE = 0.05
_LOW_NOISE_SCHEDULE = {"epochs": 60}
_SEMI_SUPERVISED_SCHEDULE = {
    "epochs": 60,
    "batch_size": 256,
    "learning_rate": 0.03,
    "weight_decay": 5e-4,
    "ema_decay": 0.999,
}
_REFINED_SCHEDULE = {"epochs": 300, "batch_size": 256, "learning_rate": 0.1, "weight_decay": 5e-4}
_AUGDESCENT_SCHEDULE = {"epochs": 100, "batch_size": 128, "learning_rate": 0.02, "weight_decay": 5e-4}
_LEARNER_SCHEDULES: dict[type[Learner], dict[str, Any]] = {
    FixMatch: _SEMI_SUPERVISED_SCHEDULE,
    SemiGAN: _SEMI_SUPERVISED_SCHEDULE,
    AugDescent: _AUGDESCENT_SCHEDULE,
}
# The learner of the last network of each recipe, where that learner has its own schedule.
_LAST_LEARNERS: dict[str, type[Learner]] = {
    **dict.fromkeys(["randres-ssl", "randres-denoise", "pate-fm", "pate-fm-ssl", "pate-fm-denoise"], FixMatch),
    **dict.fromkeys(["stable-vote", "immutable"], FixMatch),
    **dict.fromkeys(["pate", "pate-coteaching", "pate-plus", "pate-plus-plus"], SemiGAN),
    **dict.fromkeys(["randres-augdescent", "pate-fm-augdescent"], AugDescent),
}


@dataclass(frozen=True)
class ExperimentCell:
    """One training: a row of a table at an epsilon, with a seed."""

    row: ExperimentRow
    epsilon: float
    seed: int
    table: str

    @property
    def key(self) -> str:
        """The name of the cell in results and folders."""
        return f"{self.row.method}, epsilon {self.epsilon:g}, seed {self.seed}"

    def checkpoint_folder(self, work_folder: Path) -> Path:
        """Return the folder that the cell needs until it is finished."""
        return work_folder / "unfinished" / f"{self.table} {self.key}".replace("/", " ")


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """An image data set with training and test parts."""

    train: Images
    labels: Any
    test: Images
    test_labels: Any


@dataclass(frozen=True)
class CellConfig:
    """The settings of all cells.

    Args:
        work_folder: The folder for results and unfinished cells.
        device: The device of the trainings.
        encoder: The encoder of rows that use one.
        epochs: For a trial: the number of epochs of every training.
        model: For a trial: the network of every row.
        progress: Whether trainings show their progress.
    """

    work_folder: Path
    device: str = "auto"
    encoder: Model | None = None
    epochs: int | None = None
    model: str | None = None
    progress: bool = False

    def training(self, recipe: str, error_rate: float, seed: int, checkpoints: Path) -> Training:
        """Return the schedule of a recipe's last network.

        Args:
            recipe: The recipe by name.
            error_rate: The fraction of labels that randomized response changes.
            seed: The seed of the training.
            checkpoints: The folder for its checkpoints.
        """
        learner = _LAST_LEARNERS.get(recipe)
        if learner is not None:
            return self.schedules(seed, checkpoints)[learner]
        schedule = _REFINED_SCHEDULE if recipe in ("auto", "refine") else _SUPERVISED_SCHEDULE
        return self._training(
            schedule | _LOW_NOISE_SCHEDULE
            if schedule is _SUPERVISED_SCHEDULE and error_rate < _LOW_NOISE_RATE
            else schedule,
            seed,
            checkpoints,
        )

    def schedules(self, seed: int, checkpoints: Path) -> dict[type[Learner], Training]:
        """Return the schedules of learners that have their own, which hold in all recipes."""
        return {
            learner: self._training(schedule, seed, checkpoints) for learner, schedule in _LEARNER_SCHEDULES.items()
        }

    def _training(self, schedule: Mapping[str, Any], seed: int, checkpoints: Path) -> Training:
        options: dict[str, Any] = dict(schedule) | ({"epochs": self.epochs} if self.epochs else {})
        options |= {"compile": self.device.startswith("cuda"), "device": self.device, "progress": self.progress}
        return Training(**options, seed=seed, checkpoint=checkpoints)


class CellVault(Vault):
    """The vault of a cell, which shares releases with other cells of its row.

    Equal requests about the same labels return the same release. Each cell is charged for it, so each cell has a valid
    guarantee by itself. A network that was trained on such a release need not be trained again. File names contain a
    hash of the labels, which is acceptable only because the labels of these data sets are public.

    Attributes:
        shared_folder: The folder for the releases of a row.
    """

    shared_folder: Path

    def draw_noise(self, mechanism: Mechanism, codes: Codes, release_fields: dict[str, Any], request: str) -> Release:
        """Return the release that another cell of the row stored for this request, or draw and store one."""
        self.shared_folder.mkdir(parents=True, exist_ok=True)
        path = self.shared_folder / f"{request[:32]}-{hashlib.sha256(codes.tobytes()).hexdigest()[:16]}"
        with path_lock(path):
            if path.is_file():
                replaced = {name: release_fields[name] for name in ("entry", "lineage", "guarantee")}
                return mechanism.restore(replace(from_bytes(path.read_bytes()), **replaced))
            release = super().draw_noise(mechanism, codes, release_fields, request)
            # A vote of teachers selects its own rows and is not shared.
            if release.row_mask is release_fields["row_mask"] and release.n_rows == release_fields["n_rows"]:
                with atomic_write(path) as partial:
                    partial.write_bytes(to_bytes(release))
        return release


def select_cells(
    experiment: Experiment, seeds: int, epsilons: set[float] | None, methods: set[str] | None
) -> list[ExperimentCell]:
    """Return the requested cells of a table, ordered by seed.

    Args:
        experiment: The table.
        seeds: The number of trainings of each row and epsilon.
        epsilons: The epsilons; None for all.
        methods: The names of the rows; None for all.
    """
    return [
        ExperimentCell(row, epsilon, seed, experiment.name)
        for seed in range(seeds)
        for row in experiment.rows
        if methods is None or row.method in methods
        for epsilon in row.paper
        if epsilons is None or epsilon in epsilons
    ]


def run_cell(
    cell: ExperimentCell, data: ImageDataset, delta: float, config: CellConfig, report: Callable[[str], None]
) -> dict[str, Any]:
    """Train one cell and return its results."""
    row, n_classes = cell.row, int(max(data.labels.max(), data.test_labels.max())) + 1
    folder = cell.checkpoint_folder(config.work_folder)
    folder.mkdir(parents=True, exist_ok=True)
    space = LabelSpace(list(range(n_classes)))
    identity = Identity(cell.key, "label", len(data.labels))
    budget = Budget(cell.epsilon, delta)
    row_mask = all_rows(len(data.labels))
    # A resumed training has the same canaries. Their seeded coins are not privacy noise.
    canary_set = (
        plant_canaries(data.labels, row_mask, n_classes, np.random.default_rng(cell.seed)) if row.audited else None
    )
    labels = data.labels if canary_set is None else canary_set.codes
    vault = CellVault(labels, space, budget, ledger=folder / "ledger.db", identity=identity)
    vault.shared_folder = (
        config.work_folder / "common" / f"{cell.table} {row.method}, seed {cell.seed}".replace("/", " ")
    )
    task = Task(data.train, space, row_mask, cell.epsilon, delta, seed=cell.seed, folder=config.work_folder)
    training = config.training(row.recipe, 1 - response_accuracy(cell.epsilon, n_classes), cell.seed, folder)
    task = replace(task, schedules=config.schedules(cell.seed, folder))
    encoder = config.encoder if row.encoder else None
    task = replace(task, model=backbone(config.model or row.model), training=training, encoder=encoder)
    start = time.perf_counter()
    trained = train_recipe(vault, task, row.recipe, row.options, score=False, report=report, with_rehearsal=False)
    seconds = time.perf_counter() - start + sum(task.reused_seconds)
    if row.measures == "test":
        is_correct = trained.model.predict(data.test) == data.test_labels
    elif "pate" in row.recipe:
        is_correct = trained.model.predict(data.train) == data.labels
    else:
        is_correct = trained.releases[0].labels() == data.labels
    audit = {} if canary_set is None else {"audited": _audited_interval(canary_set, trained, data.train)}
    return audit | {
        "cell": cell.key,
        "accuracy": 100 * float(np.mean(is_correct)),
        "epsilon spent": trained.guarantee.epsilon,
        "delta": trained.guarantee.delta,
        "seconds": round(seconds, 1),
        "epochs": training.epochs,
    }


def _audited_interval(canary_set: CanarySet, trained: TrainingResult, images: Images) -> list[float | None]:
    """Return the interval of epsilon from the attack of the paper, which guesses where the model is confident."""
    scores = score_canaries(canary_set, trained, images)
    result = measure_canary_game(scores.scores[CONFIDENT_VIEW], scores.model_confidence, canary_set.coins).to_json()
    return list(result["attack_interval"])


def backbone(name: str) -> Any:
    """Return a backbone by its name in the tables; names of WideResNets include the width."""
    return partial(build, "wrn28", k=4) if name == "wrn28-4" else name
