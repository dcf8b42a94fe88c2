"""Rehearsals: the whole recipe on a few rows with synthetic labels, before the first charge.

A failure for public reasons (features, a model, an option) then occurs before the first charge. The labels come from a
seeded generator over the declared classes, and the vault is discarded, so that a rehearsal depends on no secret. A few
rows can fail where all rows would not, so that a failure counts only if it also occurs on all rows.

An error of this library can result from the synthetic labels (teachers disagree, for example). It is raised only if the
recipe has no teachers and the rehearsal released something before, because the training itself raises earlier errors.
"""

import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labeldp.core.errors import BudgetExceeded, InputError, LabelDPError
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import MISSING, Codes, EncodedLabels, LabelSpace
from labeldp.core.lazy import has_torch
from labeldp.data.base import Features
from labeldp.learn.short_training import SHORT_STEPS, shorten_training
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.privacy.teachers.teacher_votes import TeacherVotes
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.interface import ReleasingVault, VaultWrapper
from labeldp.recipes.progress import Progress
from labeldp.recipes.registry import Recipe
from labeldp.recipes.task import RowMask, Task, default_training
from labeldp.releases.derived import PseudoLabels

# Numbers of training rows, of held-out rows in each part, and of unlabeled rows in a rehearsal.
_N_TRAINING = 120
_N_HELD_OUT = 20
_N_UNLABELED = 10
# Number of training rows of images, whose networks are slow; other parts have a quarter of it.
_N_IMAGES = 16
# Most rows with extreme values.
_N_EXTREME = 60
# Seed of the synthetic labels and of the selection of rows.
_SEED = 20_240_101


@dataclass(frozen=True)
class RowSplit:
    """The masks of the training, selection and scoring rows; None for a part that does not exist."""

    training_mask: RowMask
    selection: RowMask | None
    scoring: RowMask | None

    def select(self, row_ids: NDArray[np.int64]) -> "RowSplit":
        """Return the masks restricted to some rows."""
        held_out_masks = (
            None if row_mask is None else row_mask[row_ids] for row_mask in (self.selection, self.scoring)
        )
        return RowSplit(self.training_mask[row_ids], *held_out_masks)


# Trains variants of a recipe on given parts of the rows of a vault.
TrainVariants = Callable[[ReleasingVault, Sequence[Task], Recipe, Sequence[Mapping[str, Any]], RowSplit], Any]


def rehearse(
    vault: ReleasingVault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    split: RowSplit,
    train: TrainVariants,
) -> None:
    """Run a short training on a few rows with synthetic labels; if it fails, on all rows.

    Args:
        vault: The vault of the training. Only public facts are read: budget, users, and which rows have a label.
        tasks: The task of each variant, on the training rows.
        recipe: The recipe. A recipe of another package is not rehearsed, because it may work on its own rows only.
        options: The options of each variant.
        split: The rows of the training.
        train: Trains the variants.

    Raises:
        InputError: The recipe cannot be trained on these features.
    """
    if not recipe.steps.__module__.startswith("labeldp."):
        return
    arguments = vault, tasks, recipe, options, split, train
    row_ids = sample_row_ids(tasks[0].features, split, vault.labeled_mask)
    problem, released = _try_training(row_ids, *arguments)
    if problem is not None and row_ids.size < vault.n_rows:
        problem, released = _try_training(np.arange(vault.n_rows), *arguments)
    if isinstance(problem, LabelDPError):
        if released and not recipe.uses_teachers and not isinstance(problem, BudgetExceeded):
            raise problem
    elif problem is not None:
        raise InputError(
            f"The recipe {recipe.name!r} cannot be trained on these features: a rehearsal with synthetic labels ended "
            f"in {type(problem).__name__}. Nothing was spent. Choose another recipe or model, or change the features."
        )


def _try_training(
    row_ids: NDArray[np.int64],
    vault: ReleasingVault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    split: RowSplit,
    train: TrainVariants,
) -> tuple[Exception | None, bool]:
    """Train on some rows; return the failure, or None, and whether something was released before."""
    synthetic_vault = _SyntheticVault(
        vault, row_ids, max(task.epsilon for task in tasks), max(task.delta for task in tasks)
    )
    # A search has a limit of its own.
    limited_vault = vault.around(synthetic_vault) if isinstance(vault, VaultWrapper) else synthetic_vault
    try:
        with _without_side_effects():
            train(
                limited_vault, [_shorten_task(task, row_ids) for task in tasks], recipe, options, split.select(row_ids)
            )
    except MemoryError:
        raise
    except Exception as problem:
        return problem, bool(synthetic_vault.ledger.entries())
    return None, True


class _SyntheticVault(Vault):
    """A vault of some rows with synthetic labels. It trains no teachers, which a training does before any charge."""

    def __init__(self, vault: ReleasingVault, row_ids: NDArray[np.int64], epsilon: float, delta: float) -> None:
        codes = np.random.default_rng(_SEED).integers(0, len(vault.space), row_ids.size).astype(np.int32)
        codes[~vault.labeled_mask[row_ids]] = MISSING
        users = None if vault.users is None else vault.users[row_ids]
        budget = vault.budget
        limit = Budget(max(budget.epsilon, epsilon), max(budget.delta, delta), budget.composition)
        super().__init__(EncodedLabels(codes), vault.space, limit, users=users)

    def check_mechanism(self, mechanism: Mechanism) -> Mechanism:
        """Check a mechanism, and return it with synthetic votes in place of those of teachers."""
        return super().check_mechanism(_with_synthetic_votes(mechanism))


def _with_synthetic_votes(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism unchanged, or votes of teachers as synthetic votes."""
    if not isinstance(mechanism, TeacherVotes) or isinstance(mechanism, _SyntheticVotes):
        return mechanism
    attributes = {attribute.name: getattr(mechanism, attribute.name) for attribute in fields(mechanism)}
    return _SyntheticVotes(**attributes | {"n_teachers": 2})


@dataclass(frozen=True, eq=False)
class _SyntheticVotes(TeacherVotes):
    """Synthetic answers to all queries, from which a student can learn."""

    def prepare(self, codes: Codes, space: LabelSpace, cache: dict[Any, Any]) -> "_SyntheticVotes":
        return self

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> PseudoLabels:
        generator = np.random.default_rng(_SEED)
        return self._build_release(
            generator.integers(0, len(release_fields["space"]), len(self._query_points)), release_fields
        )


def _shorten_task(task: Task, row_ids: NDArray[np.int64]) -> Task:
    """Return the task on some rows, with short trainings that write no files."""
    training = task.training or default_training(task)
    epochs = min(training.epochs, SHORT_STEPS)
    public = task.public
    if public is not None and len(public) > _N_TRAINING:
        public = public.select(np.linspace(0, len(public) - 1, _N_TRAINING).astype(np.int64))
    return replace(
        task,
        features=task.features.select(row_ids),
        row_mask=task.row_mask[row_ids],
        users=None if task.users is None else task.users[row_ids],
        training=replace(training, epochs=epochs, checkpoint=None, progress=False, compile=False),
        public=public,
        folder=None,
        reused_seconds=[],
        notes=[],
        progress=Progress(),
        sampled_from=task,
    )


def sample_row_ids(features: Features, split: RowSplit, labeled_mask: RowMask) -> NDArray[np.int64]:
    """Select rows for a rehearsal by public facts.

    Args:
        features: The features of all rows.
        split: The parts of the rows.
        labeled_mask: The rows that have a label.

    Returns:
        The ids of rows with extreme values, and of some rows of each part.
    """
    if features.kind == "images":
        max_rows = {"training": _N_IMAGES, "held out": _N_IMAGES // 4, "unlabeled": _N_IMAGES // 4}
    else:
        max_rows = {"training": _N_TRAINING, "held out": _N_HELD_OUT, "unlabeled": _N_UNLABELED}
    generator = np.random.default_rng(_SEED)
    row_id_groups = [_sample_at_most(features.extreme_row_ids(), _N_EXTREME, generator)]
    row_id_groups.append(_sample_at_most(np.flatnonzero(split.training_mask), max_rows["training"], generator))
    for row_mask in (split.selection, split.scoring):
        if row_mask is not None:
            row_id_groups.append(_sample_at_most(np.flatnonzero(row_mask), max_rows["held out"], generator))
    row_id_groups.append(_sample_at_most(np.flatnonzero(~labeled_mask), max_rows["unlabeled"], generator))
    return np.unique(np.concatenate(row_id_groups))


def _sample_at_most(row_ids: NDArray[np.int64], max_rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return row_ids if row_ids.size <= max_rows else generator.choice(row_ids, max_rows, replace=False)


@contextmanager
def _without_side_effects() -> Iterator[None]:
    """Shorten trainings, suppress warnings, and restore the random states of all libraries."""
    numpy_state = check_random_state(None)
    states = random.getstate(), numpy_state.get_state()
    with _preserve_torch_state(), warnings.catch_warnings(), np.errstate(all="ignore"), shorten_training():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(states[0])
            numpy_state.set_state(states[1])


def _preserve_torch_state() -> AbstractContextManager[Any]:
    """Restore the random state of torch, if it is installed."""
    if not has_torch():
        return nullcontext()
    import torch

    return torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else ())
