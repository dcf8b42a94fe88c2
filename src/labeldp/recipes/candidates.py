"""Models to choose from: one that cannot be trained is left out, and the others go on.

Learning sees releases only, so that whether a candidate fails says nothing about labels that the releases do not say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labeldp.core.errors import BudgetExceeded
from labeldp.learn.predictor import Predictor
from labeldp.recipes.task import Task


@dataclass(frozen=True)
class Candidate:
    """A model by name, and how to train it from what was released."""

    name: str
    fit: Callable[[], Predictor]


def fit_candidates(
    task: Task, candidates: Sequence[Candidate], trained_models: Sequence[Predictor] = ()
) -> list[Predictor]:
    """Train every candidate, and leave out those that fail, as long as one model is left.

    Args:
        task: The task, to whose notes each candidate that fails adds one.
        candidates: What to train, in this order.
        already: Models that were trained before and come first.

    Returns:
        The models, at least one.

    Raises:
        Exception: The failure of the last candidate, if all of them failed.
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
    """Say that a candidate is left out. The message of an exception may quote data, so that its type is all."""
    return f"A candidate was left out: {name} could not be trained ({type(problem).__name__})."
