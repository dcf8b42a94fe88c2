"""A rehearsal before the first charge: the whole recipe on a few rows, with labels that anybody could draw.

What fails for public reasons (features, a model, an option) then fails before anything is spent. The labels come from a
seeded generator over the declared classes, and the vault is thrown away, so that nothing here depends on a secret.
A few rows can fail where all would not, so that a failure counts only if it also occurs on all rows. An error of this
library can follow from the labels that were drawn (teachers disagree, for example): it is only reported where a recipe
asks no teachers and something was released already, because before that the training itself reports it.
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
from labeldp.recipes.progress import Progress
from labeldp.recipes.registry import Recipe
from labeldp.recipes.task import RowMask, Task, default_training
from labeldp.releases.base import Release
from labeldp.releases.derived import PseudoLabels

_N_TRAINING, _N_HELD_OUT, _N_UNLABELED = 120, 20, 10  # rows to train on, to choose or score with, and without a label
_N_IMAGES = 16  # in place of all of these, as networks of pictures are slow
_N_EXTREME = 60
_SEED = 20_240_101  # of the public labels and of the choice of rows


@dataclass(frozen=True)
class RowSplit:
    """The rows to train on, to choose with and to score with."""

    training: RowMask
    selection: RowMask | None
    scoring: RowMask | None

    def select(self, row_ids: NDArray[np.int64]) -> "RowSplit":
        """Return the parts of some rows."""
        held_out_masks = (
            None if row_mask is None else row_mask[row_ids] for row_mask in (self.selection, self.scoring)
        )
        return RowSplit(self.training[row_ids], *held_out_masks)


# Trains variants of a recipe on given parts of the rows of a vault.
Trainer = Callable[[Vault, Sequence[Task], Recipe, Sequence[Mapping[str, Any]], RowSplit], Any]


def rehearse(
    vault: Vault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    split: RowSplit,
    train: Trainer,
) -> None:
    """Train in short on a few rows with public labels; if that fails, on all rows.

    Args:
        vault: The vault of the training. Only public facts are read: budget, users, and which rows have a label.
        tasks: A task for each variant, on the rows to train on.
        recipe: The recipe. One of somebody else's may only work on the rows it was written for: it is not rehearsed.
        options: The options of each variant.
        parts: The rows of the training.
        train: What trains.

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
        if released and not recipe.asks_teachers and not isinstance(problem, BudgetExceeded):
            raise problem
    elif problem is not None:
        raise InputError(
            f"The recipe {recipe.name!r} cannot be trained on these features: a rehearsal with made-up labels ended in "
            f"{type(problem).__name__}. Nothing was spent. Choose another recipe or model, or change the features."
        )


def _try_training(
    row_ids: NDArray[np.int64],
    vault: Vault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    split: RowSplit,
    train: Trainer,
) -> tuple[Exception | None, bool]:
    """Train on some rows; return why it failed, if it did, and whether something was released before."""
    synthetic_vault = _SyntheticVault(
        vault, row_ids, max(task.epsilon for task in tasks), max(task.delta for task in tasks)
    )
    limited_vault: Any = (
        vault.around(synthetic_vault) if hasattr(vault, "around") else synthetic_vault
    )  # a search has a limit of its own
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
    """A vault of some rows, whose labels anybody could draw. Teachers are not trained: that precedes any charge."""

    def __init__(self, vault: Vault, row_ids: NDArray[np.int64], epsilon: float, delta: float) -> None:
        codes = np.random.default_rng(_SEED).integers(0, len(vault.space), row_ids.size).astype(np.int32)
        codes[~vault.labeled_mask[row_ids]] = MISSING
        users = None if vault.users is None else vault.users[row_ids]
        budget = vault.budget
        limit = Budget(max(budget.epsilon, epsilon), max(budget.delta, delta), budget.composition)
        super().__init__(EncodedLabels(codes), vault.space, limit, users=users)

    def _check(self, mechanism: Mechanism) -> None:
        super()._check_mechanism(_with_synthetic_votes(mechanism))

    def _draw(self, mechanism: Mechanism, *arguments: Any) -> Release:
        return super()._draw(_with_synthetic_votes(mechanism), *arguments)


def _with_synthetic_votes(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism as it is, or votes of teachers as votes that are made up."""
    if not isinstance(mechanism, TeacherVotes) or isinstance(mechanism, _SyntheticVotes):
        return mechanism
    attributes = {attribute.name: getattr(mechanism, attribute.name) for attribute in fields(mechanism)}
    return _SyntheticVotes(**attributes | {"n_teachers": 2})


@dataclass(frozen=True, eq=False)
class _SyntheticVotes(TeacherVotes):
    """Answers to all queries, for a student to learn from."""

    def prepare(self, codes: Codes, space: LabelSpace, memory: dict[Any, Any]) -> "_SyntheticVotes":
        return self

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> PseudoLabels:
        generator = np.random.default_rng(_SEED)
        return self._build_release(generator.integers(0, len(common["space"]), len(self._query_points)), common)


def _shorten_task(task: Task, row_ids: NDArray[np.int64]) -> Task:
    """Return the task on some rows, with short trainings that leave nothing behind."""
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
    """Return rows for a rehearsal, by public facts: extreme ones, and some of each part."""
    if features.kind == "images":
        max_rows = {"fit": _N_IMAGES, "held out": _N_IMAGES // 4, "others": _N_IMAGES // 4}
    else:
        max_rows = {"fit": _N_TRAINING, "held out": _N_HELD_OUT, "others": _N_UNLABELED}
    generator = np.random.default_rng(_SEED)
    row_id_groups = [_sample_at_most(features.extreme_row_ids(), _N_EXTREME, generator)]
    row_id_groups.append(_sample_at_most(np.flatnonzero(split.training), max_rows["fit"], generator))
    for row_mask in (split.selection, split.scoring):
        if row_mask is not None:
            row_id_groups.append(_sample_at_most(np.flatnonzero(row_mask), max_rows["held out"], generator))
    row_id_groups.append(_sample_at_most(np.flatnonzero(~labeled_mask), max_rows["others"], generator))
    return np.unique(np.concatenate(row_id_groups))


def _sample_at_most(row_ids: NDArray[np.int64], max_rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return row_ids if row_ids.size <= max_rows else generator.choice(row_ids, max_rows, replace=False)


@contextmanager
def _without_side_effects() -> Iterator[None]:
    """Shorten trainings, and leave no trace: no warnings, and the random states of all libraries as they were."""
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
    """Keep the random state of torch, where it is installed."""
    if not has_torch():
        return nullcontext()
    import torch

    return torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else ())
