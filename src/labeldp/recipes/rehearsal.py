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
from labeldp.core.label_space import MISSING, Codes, Encoded, LabelSpace
from labeldp.core.lazy import has_torch
from labeldp.data.base import Features
from labeldp.learn.effort import STEPS, shortened
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.privacy.teachers.votes import TeacherVotes
from labeldp.privacy.vault import Vault
from labeldp.recipes.base import Recipe
from labeldp.recipes.progress import Progress
from labeldp.recipes.task import Rows, Task, default_training
from labeldp.releases.base import Release
from labeldp.releases.derived import Relabelled

_FIT, _HELD_OUT, _OTHERS = 120, 20, 10  # rows to train on, to choose or score with, and without a label
_PICTURES = 16  # in place of all of these, as networks of pictures are slow
_EXTREME = 60
_SEED = 20_240_101  # of the public labels and of the choice of rows


@dataclass(frozen=True)
class Parts:
    """The rows to train on, to choose with and to score with."""

    fit: Rows
    choosing: Rows | None
    scoring: Rows | None

    def on(self, rows: NDArray[np.int64]) -> "Parts":
        """Return the parts of some rows."""
        held_out = (None if part is None else part[rows] for part in (self.choosing, self.scoring))
        return Parts(self.fit[rows], *held_out)


# Trains variants of a recipe on given parts of the rows of a vault.
Trainer = Callable[[Vault, Sequence[Task], Recipe, Sequence[Mapping[str, Any]], Parts], Any]


def rehearse(
    vault: Vault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    parts: Parts,
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
    given = vault, tasks, recipe, options, parts, train
    some = sample(tasks[0].features, parts, vault.labelled)
    problem, released = _attempt(some, *given)
    if problem is not None and some.size < vault.rows:
        problem, released = _attempt(np.arange(vault.rows), *given)
    if isinstance(problem, LabelDPError):
        if released and not recipe.asks_teachers and not isinstance(problem, BudgetExceeded):
            raise problem
    elif problem is not None:
        raise InputError(
            f"The recipe {recipe.name!r} cannot be trained on these features: a rehearsal with made-up labels ended in "
            f"{type(problem).__name__}. Nothing was spent. Choose another recipe or model, or change the features."
        )


def _attempt(
    rows: NDArray[np.int64],
    vault: Vault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    parts: Parts,
    train: Trainer,
) -> tuple[Exception | None, bool]:
    """Train on some rows; return why it failed, if it did, and whether something was released before."""
    made_up = _MadeUp(vault, rows, max(task.epsilon for task in tasks), max(task.delta for task in tasks))
    limited: Any = vault.around(made_up) if hasattr(vault, "around") else made_up  # a search has a limit of its own
    try:
        with _unnoticed():
            train(limited, [_short(task, rows) for task in tasks], recipe, options, parts.on(rows))
    except MemoryError:
        raise
    except Exception as problem:
        return problem, bool(made_up.ledger.entries())
    return None, True


class _MadeUp(Vault):
    """A vault of some rows, whose labels anybody could draw. Teachers are not trained: that precedes any charge."""

    def __init__(self, vault: Vault, rows: NDArray[np.int64], epsilon: float, delta: float) -> None:
        codes = np.random.default_rng(_SEED).integers(0, len(vault.space), rows.size).astype(np.int32)
        codes[~vault.labelled[rows]] = MISSING
        owners = None if vault.users is None else vault.users[rows]
        budget = vault.budget
        limit = Budget(max(budget.epsilon, epsilon), max(budget.delta, delta), budget.composition)
        super().__init__(Encoded(codes), vault.space, limit, users=owners)

    def _check(self, mechanism: Mechanism) -> None:
        super()._check(_untrained(mechanism))

    def _draw(self, mechanism: Mechanism, *how: Any) -> Release:
        return super()._draw(_untrained(mechanism), *how)


def _untrained(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism as it is, or votes of teachers as votes that are made up."""
    if not isinstance(mechanism, TeacherVotes) or isinstance(mechanism, _MadeUpVotes):
        return mechanism
    known = {each.name: getattr(mechanism, each.name) for each in fields(mechanism)}
    return _MadeUpVotes(**known | {"teachers": 2})


@dataclass(frozen=True, eq=False)
class _MadeUpVotes(TeacherVotes):
    """Answers to all queries, for a student to learn from."""

    def prepare(self, codes: Codes, space: LabelSpace, memory: dict[Any, Any]) -> "_MadeUpVotes":
        return self

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Relabelled:
        generator = np.random.default_rng(_SEED)
        return self._release(generator.integers(0, len(common["space"]), len(self._asked)), common)


def _short(task: Task, rows: NDArray[np.int64]) -> Task:
    """Return the task on some rows, with short trainings that leave nothing behind."""
    training = task.training or default_training(task)
    epochs = min(training.epochs, STEPS)
    public = task.public
    if public is not None and len(public) > _FIT:
        public = public.select(np.linspace(0, len(public) - 1, _FIT).astype(np.int64))
    return replace(
        task,
        features=task.features.select(rows),
        rows=task.rows[rows],
        users=None if task.users is None else task.users[rows],
        training=replace(training, epochs=epochs, checkpoint=None, progress=False, compile=False),
        public=public,
        folder=None,
        borrowed=[],
        notes=[],
        progress=Progress(),
        sampled_from=task,
    )


def sample(features: Features, parts: Parts, labelled: Rows) -> NDArray[np.int64]:
    """Return rows for a rehearsal, by public facts: extreme ones, and some of each part."""
    if features.kind == "images":
        most = {"fit": _PICTURES, "held out": _PICTURES // 4, "others": _PICTURES // 4}
    else:
        most = {"fit": _FIT, "held out": _HELD_OUT, "others": _OTHERS}
    generator = np.random.default_rng(_SEED)
    chosen = [_some(features.extreme_rows(), _EXTREME, generator)]
    chosen.append(_some(np.flatnonzero(parts.fit), most["fit"], generator))
    for part in (parts.choosing, parts.scoring):
        if part is not None:
            chosen.append(_some(np.flatnonzero(part), most["held out"], generator))
    chosen.append(_some(np.flatnonzero(~labelled), most["others"], generator))
    return np.unique(np.concatenate(chosen))


def _some(rows: NDArray[np.int64], most: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return rows if rows.size <= most else generator.choice(rows, most, replace=False)


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Shorten trainings, and leave no trace: no warnings, and the random states of all libraries as they were."""
    of_numpy = check_random_state(None)
    states = random.getstate(), of_numpy.get_state()
    with _torch_unchanged(), warnings.catch_warnings(), np.errstate(all="ignore"), shortened():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(states[0])
            of_numpy.set_state(states[1])


def _torch_unchanged() -> AbstractContextManager[Any]:
    """Keep the random state of torch, where it is installed."""
    if not has_torch():
        return nullcontext()
    import torch

    return torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else ())
