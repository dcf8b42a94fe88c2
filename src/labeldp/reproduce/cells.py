"""One cell of a table: a fresh vault, the row's recipe at one epsilon, and the accuracy that the paper measured.

A cell has a ledger of its own in the work folder, so that a training which was stopped goes on with the same release,
from its last whole epoch. The labels of these data sets are public: the vaults are here because the recipes need them.
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

# What a network needs to learn these pictures, by what it does in an epoch; the rest follows the papers' habits.
_SUPERVISED_SCHEDULE = {"epochs": 120, "batch_size": 256, "learning_rate": 0.1, "weight_decay": 5e-4}
_LOW_NOISE_SCHEDULE, _LOW_NOISE_RATE = (
    {"epochs": 60},
    0.05,
)  # so few noisy labels that a network does not need long to see past them
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
_LAST_LEARNERS: dict[str, type[Learner]] = {  # what trains a recipe's last network, if that has a schedule of its own
    **dict.fromkeys(["randres-ssl", "randres-denoise", "pate-fm", "pate-fm-ssl", "pate-fm-denoise"], FixMatch),
    **dict.fromkeys(["stable-vote", "immutable"], FixMatch),
    **dict.fromkeys(["pate", "pate-coteaching", "pate-plus", "pate-plus-plus"], SemiGAN),
    **dict.fromkeys(["randres-augdescent", "pate-fm-augdescent"], AugDescent),
}


@dataclass(frozen=True)
class ExperimentCell:
    """A row at an epsilon, trained with a seed."""

    row: ExperimentRow
    epsilon: float
    seed: int
    table: str

    @property
    def key(self) -> str:
        """Name the cell, for results and for its own folder."""
        return f"{self.row.method}, epsilon {self.epsilon:g}, seed {self.seed}"

    def checkpoint_folder(self, work_folder: Path) -> Path:
        """Return the folder that the cell needs until it is done."""
        return work_folder / "unfinished" / f"{self.table} {self.key}".replace("/", " ")


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A data set: what is learnt from, and what tests."""

    train: Images
    labels: Any
    test: Images
    test_labels: Any


@dataclass(frozen=True)
class CellConfig:
    """How cells are trained: where, from which encoder, and shorter than usual for a trial."""

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
            wrong: The share of labels that randomized response gets wrong.
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
        """Return the schedules of learners that have one of their own, in whatever recipe they are."""
        return {
            learner: self._training(schedule, seed, checkpoints) for learner, schedule in _LEARNER_SCHEDULES.items()
        }

    def _training(self, schedule: Mapping[str, Any], seed: int, checkpoints: Path) -> Training:
        options: dict[str, Any] = dict(schedule) | ({"epochs": self.epochs} if self.epochs else {})
        options |= {"compile": self.device.startswith("cuda"), "device": self.device, "progress": self.progress}
        return Training(**options, seed=seed, checkpoint=checkpoints)


class CellVault(Vault):
    """The vault of a cell, which hears what other cells of its row heard if it asks for the same about the same labels.

    It pays for that as if it were new, so each cell has its guarantee by itself. What is learnt from such a release
    need not be learnt again. The labels of these data sets are public: here, a file may be named by them.
    """

    shared_folder: Path  # where the row keeps what its cells heard

    def _draw_noise(self, mechanism: Mechanism, codes: Codes, release_fields: dict[str, Any], request: str) -> Release:
        self.shared_folder.mkdir(parents=True, exist_ok=True)
        path = self.shared_folder / f"{request[:32]}-{hashlib.sha256(codes.tobytes()).hexdigest()[:16]}"
        with path_lock(path):
            if path.is_file():
                replaced = {name: release_fields[name] for name in ("entry", "lineage", "guarantee")}
                return mechanism.restore(replace(from_bytes(path.read_bytes()), **replaced))
            release = super()._draw_noise(mechanism, codes, release_fields, request)
            if (
                release.row_mask is release_fields["row_mask"] and release.n_rows == release_fields["n_rows"]
            ):  # teachers choose rows themselves
                with atomic_write(path) as partial:
                    partial.write_bytes(to_bytes(release))
        return release


def select_cells(
    experiment: Experiment, seeds: int, epsilons: set[float] | None, methods: set[str] | None
) -> list[ExperimentCell]:
    """Return the cells of a table that are asked for, seed by seed."""
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
    """Train one cell and measure it."""
    row, n_classes = cell.row, int(max(data.labels.max(), data.test_labels.max())) + 1
    folder = cell.checkpoint_folder(config.work_folder)
    folder.mkdir(parents=True, exist_ok=True)
    space = LabelSpace(list(range(n_classes)))
    identity = Identity(cell.key, "label", len(data.labels))
    budget = Budget(cell.epsilon, delta)
    row_mask = all_rows(len(data.labels))
    # A training that is resumed has the same canaries: their coins are the game's, and no noise of the vault's.
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
    """Return the interval of epsilon by the paper's own attack: guesses where the model is sure."""
    scores = score_canaries(canary_set, trained, images)
    result = measure_canary_game(scores.scores[CONFIDENT_VIEW], scores.model_confidence, canary_set.coins).to_json()
    return list(result["attack_interval"])


def backbone(name: str) -> Any:
    """Return a backbone by the name that tables use; WideResNets state their width."""
    return partial(build, "wrn28", k=4) if name == "wrn28-4" else name
