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

from labeldp.audit.canaries import SURE, Game, canary_game, deal, listen
from labeldp.core.atomic_files import alone, written_whole
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
from labeldp.recipes.arithmetic import response_accuracy
from labeldp.recipes.runner import TrainingResult, all_rows
from labeldp.recipes.runner import train as train_recipe
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.releases.storage import from_bytes, to_bytes
from labeldp.reproduce.tables import Experiment, Row

# What a network needs to learn these pictures, by what it does in an epoch; the rest follows the papers' habits.
_SUPERVISED = {"epochs": 120, "batch": 256, "rate": 0.1, "decay": 5e-4}
_QUIET, _RARELY_WRONG = {"epochs": 60}, 0.05  # so few noisy labels that a network does not need long to see past them
_SEMI = {"epochs": 60, "batch": 256, "rate": 0.03, "decay": 5e-4, "average": 0.999}
_REFINED = {"epochs": 300, "batch": 256, "rate": 0.1, "decay": 5e-4}
_PAIR = {"epochs": 100, "batch": 128, "rate": 0.02, "decay": 5e-4}
_OWN: dict[type[Learner], dict[str, Any]] = {FixMatch: _SEMI, SemiGAN: _SEMI, AugDescent: _PAIR}
_LAST: dict[str, type[Learner]] = {  # what trains a recipe's last network, if that has a schedule of its own
    **dict.fromkeys(["randres-ssl", "randres-denoise", "pate-fm", "pate-fm-ssl", "pate-fm-denoise"], FixMatch),
    **dict.fromkeys(["stable-vote", "immutable"], FixMatch),
    **dict.fromkeys(["pate", "pate-coteaching", "pate-plus", "pate-plus-plus"], SemiGAN),
    **dict.fromkeys(["randres-augdescent", "pate-fm-augdescent"], AugDescent),
}


@dataclass(frozen=True)
class Cell:
    """A row at an epsilon, trained with a seed."""

    row: Row
    epsilon: float
    seed: int
    table: str

    @property
    def key(self) -> str:
        """Name the cell, for results and for its own folder."""
        return f"{self.row.method}, epsilon {self.epsilon:g}, seed {self.seed}"

    def unfinished(self, work: Path) -> Path:
        """Return the folder that the cell needs until it is done."""
        return work / "unfinished" / f"{self.table} {self.key}".replace("/", " ")


@dataclass(frozen=True, eq=False)
class Pictures:
    """A data set: what is learnt from, and what tests."""

    train: Images
    labels: Any
    test: Images
    truth: Any


@dataclass(frozen=True)
class Setting:
    """How cells are trained: where, from which encoder, and shorter than usual for a trial."""

    work: Path
    device: str = "auto"
    encoder: Model | None = None
    epochs: int | None = None
    model: str | None = None
    progress: bool = False

    def training(self, recipe: str, wrong: float, seed: int, checkpoints: Path) -> Training:
        """Return the schedule of a recipe's last network.

        Args:
            recipe: The recipe by name.
            wrong: The share of labels that randomized response gets wrong.
            seed: The seed of the training.
            checkpoints: The folder for its checkpoints.
        """
        last = _LAST.get(recipe)
        if last is not None:
            return self.schedules(seed, checkpoints)[last]
        kind = _REFINED if recipe in ("auto", "refine") else _SUPERVISED
        return self._training(
            kind | _QUIET if kind is _SUPERVISED and wrong < _RARELY_WRONG else kind, seed, checkpoints
        )

    def schedules(self, seed: int, checkpoints: Path) -> dict[type[Learner], Training]:
        """Return the schedules of learners that have one of their own, in whatever recipe they are."""
        return {kind: self._training(schedule, seed, checkpoints) for kind, schedule in _OWN.items()}

    def _training(self, schedule: Mapping[str, Any], seed: int, checkpoints: Path) -> Training:
        own: dict[str, Any] = dict(schedule) | ({"epochs": self.epochs} if self.epochs else {})
        own |= {"compile": self.device.startswith("cuda"), "device": self.device, "progress": self.progress}
        return Training(**own, seed=seed, checkpoint=checkpoints)


class CellVault(Vault):
    """The vault of a cell, which hears what other cells of its row heard if it asks for the same about the same labels.

    It pays for that as if it were new, so each cell has its guarantee by itself. What is learnt from such a release
    need not be learnt again. The labels of these data sets are public: here, a file may be named by them.
    """

    common: Path  # where the row keeps what its cells heard

    def _noised(self, mechanism: Mechanism, codes: Codes, common: dict[str, Any], request: str) -> Release:
        self.common.mkdir(parents=True, exist_ok=True)
        path = self.common / f"{request[:32]}-{hashlib.sha256(codes.tobytes()).hexdigest()[:16]}"
        with alone(path):
            if path.is_file():
                own = {name: common[name] for name in ("entry", "lineage", "guarantee")}
                return mechanism.restore(replace(from_bytes(path.read_bytes()), **own))
            release = super()._noised(mechanism, codes, common, request)
            if release.active is common["active"] and release.rows == common["rows"]:  # teachers choose rows themselves
                with written_whole(path) as partial:
                    partial.write_bytes(to_bytes(release))
        return release


def cells(experiment: Experiment, seeds: int, epsilons: set[float] | None, methods: set[str] | None) -> list[Cell]:
    """Return the cells of a table that are asked for, seed by seed."""
    return [
        Cell(row, epsilon, seed, experiment.name)
        for seed in range(seeds)
        for row in experiment.rows
        if methods is None or row.method in methods
        for epsilon in row.paper
        if epsilons is None or epsilon in epsilons
    ]


def run(cell: Cell, data: Pictures, delta: float, setting: Setting, report: Callable[[str], None]) -> dict[str, Any]:
    """Train one cell and measure it."""
    row, classes = cell.row, int(max(data.labels.max(), data.truth.max())) + 1
    folder = cell.unfinished(setting.work)
    folder.mkdir(parents=True, exist_ok=True)
    space = LabelSpace(list(range(classes)))
    identity = Identity(cell.key, "label", len(data.labels))
    budget = Budget(cell.epsilon, delta)
    everything = all_rows(len(data.labels))
    # A training that is resumed has the same canaries: their coins are the game's, and no noise of the vault's.
    game = deal(data.labels, everything, classes, np.random.default_rng(cell.seed)) if row.audited else None
    labels = data.labels if game is None else game.codes
    vault = CellVault(labels, space, budget, ledger=folder / "ledger.db", identity=identity)
    vault.common = setting.work / "common" / f"{cell.table} {row.method}, seed {cell.seed}".replace("/", " ")
    task = Task(data.train, space, everything, cell.epsilon, delta, seed=cell.seed, folder=setting.work)
    training = setting.training(row.recipe, 1 - response_accuracy(cell.epsilon, classes), cell.seed, folder)
    task = replace(task, schedules=setting.schedules(cell.seed, folder))
    encoder = setting.encoder if row.encoder else None
    task = replace(task, model=backbone(setting.model or row.model), training=training, encoder=encoder)
    begun = time.perf_counter()
    trained = train_recipe(vault, task, row.recipe, row.options, score=False, report=report, with_rehearsal=False)
    seconds = time.perf_counter() - begun + sum(task.reused_seconds)
    if row.measures == "test":
        right = trained.model.predict(data.test) == data.truth
    elif "pate" in row.recipe:
        right = trained.model.predict(data.train) == data.labels
    else:
        right = trained.releases[0].labels() == data.labels
    line = {} if game is None else {"audited": _audited(game, trained, data.train)}
    return line | {
        "cell": cell.key,
        "accuracy": 100 * float(np.mean(right)),
        "epsilon spent": trained.guarantee.epsilon,
        "delta": trained.guarantee.delta,
        "seconds": round(seconds, 1),
        "epochs": training.epochs,
    }


def _audited(game: Game, trained: TrainingResult, pictures: Images) -> list[float | None]:
    """Return the interval of epsilon by the paper's own attack: guesses where the model is sure."""
    played = listen(game, trained, pictures)
    facts = canary_game(played.scores[SURE], played.sureness, game.coins).to_json()
    return list(facts["attack_interval"])


def backbone(name: str) -> Any:
    """Return a backbone by the name that tables use; WideResNets state their width."""
    return partial(build, "wrn28", k=4) if name == "wrn28-4" else name
