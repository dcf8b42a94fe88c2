"""Candidate models: the training of each, and the handling of those that fail.

A candidate that fails is dropped, and the others are trained. Learning is post-processing of releases, so that a
failure discloses nothing beyond the releases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labeldp.core.errors import BudgetExceeded
from labeldp.learn.predictor import Predictor
from labeldp.recipes.task import Task


@dataclass(frozen=True)
class Candidate:
    """A model to train.

    Attributes:
        name: The name of the model in notes.
        fit: Trains the model from the releases.
    """

    name: str
    fit: Callable[[], Predictor]


def fit_candidates(
    task: Task, candidates: Sequence[Candidate], trained_models: Sequence[Predictor] = ()
) -> list[Predictor]:
    """Train every candidate, and drop those that fail while at least one model remains.

    Args:
        task: The task. Each candidate that fails adds a note to it.
        candidates: The candidates, in the order of training.
        trained_models: Models that are trained already. They come first in the result.

    Returns:
        The models, at least one.

    Raises:
        Exception: The failure of the last candidate, if no model remains.
    """
    models, problem = list(trained_models), None
    for candidate in candidates:
        try:
            models.append(candidate.fit())
        except (MemoryError, BudgetExceeded):
            raise
        except Exception as failure:
            problem = failure
            task.notes.append(dropped_note(candidate.name, failure))
    if not models and problem is not None:
        raise problem
    return models


def dropped_note(name: str, problem: Exception) -> str:
    """Return the note about a failed candidate, without the message of the exception, which may quote data."""
    return f"A candidate was left out: {name} could not be trained ({type(problem).__name__})."
