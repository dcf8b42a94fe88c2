"""Run a recipe against a vault: ask, train, choose privately, score privately."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeldp.errors import InputError, LabelDPError
from labeldp.evaluate import Score, choose, measure
from labeldp.guarantees import Guarantee
from labeldp.learn.predictor import Predictor
from labeldp.recipes.base import Ask, Recipe, Rows, Task, find
from labeldp.releases.base import Release, rest_on
from labeldp.vault import Vault

_SHARE, _MOST, _FEWEST = 0.1, 2_500, 20  # rows set aside to choose, and to score: a tenth, but no more and no fewer

Report = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """What a recipe gave: the model, all that was released on the way, and a private score of the model."""

    recipe: str
    model: Predictor
    releases: tuple[Release, ...]
    guarantee: Guarantee
    score: Score | None
    candidates: int = 1


def train(
    vault: Vault,
    task: Task,
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    score: bool = True,
    report: Report = lambda what: None,
) -> Trained:
    """Train on the rows of `task` by the recipe `name`, within its epsilon and delta.

    Some rows are set aside without a look at labels: to choose among models where the recipe gives several, and to
    score the winner on yet other rows. They are other people's labels, so they have the same epsilon for themselves.
    A run that was interrupted goes on: what was released before is in the ledger and is not drawn again.
    """
    chosen = find(name)
    steps = dict(options or {})
    _check_options(chosen, steps)
    fit, choosing, scoring = _set_aside(task, chosen, score)
    models, releases = _follow(vault, replace(task, rows=fit), chosen, steps, report)
    winner = 0
    if choosing is not None and len(models) > 1:
        report("choosing")
        chances = [model.predict_proba(task.features) for model in models]
        choice = choose(vault, chances, choosing, task.epsilon, releases)
        releases.append(choice)
        winner = choice.best
    model, result = models[winner], None
    if scoring is not None:
        report("scoring")
        result = measure(vault, model.predict_proba(task.features), scoring, task.epsilon, releases)
    _, guarantee = rest_on(releases, vault.rows)
    if guarantee.epsilon > task.epsilon or guarantee.delta > task.delta:
        raise LabelDPError(f"The recipe {name!r} spent more than it was given: this is a mistake in the recipe.")
    return Trained(name, model, tuple(releases), guarantee, result, len(models))


def _follow(
    vault: Vault, task: Task, chosen: Recipe, options: Mapping[str, Any], report: Report
) -> tuple[Sequence[Predictor], list[Release]]:
    """Answer a recipe's requests until it returns."""
    steps, releases = chosen.steps(task, **options), list[Release]()
    reply = None
    while True:
        report("training" if releases else "preparing")
        try:
            ask: Ask = steps.send(reply)
        except StopIteration as done:
            models = done.value if isinstance(done.value, list) else [done.value]
            return models, releases
        report("releasing")
        rows = task.rows if ask.rows is None else ask.rows & task.rows
        reply = vault.release(ask.mechanism, rows=rows, derived_from=ask.derived_from)
        releases.append(reply)


def _set_aside(task: Task, chosen: Recipe, score: bool) -> tuple[Rows, Rows | None, Rows | None]:
    """Return the rows to train on, to choose with and to score with; a part that would be too small is left out."""
    rows = int(task.rows.sum())
    share = min(_SHARE, _MOST / max(1, rows))
    wanted = [task.epsilon >= chosen.chooses_from, score]
    if rows * share < _FEWEST or not any(wanted):
        return task.rows, None, None
    parts = task.parts([1 - share * sum(wanted), *[share] * sum(wanted)])
    fit, *others = parts
    return fit, others.pop(0) if wanted[0] else None, others.pop(0) if wanted[1] else None


def _check_options(chosen: Recipe, options: Mapping[str, Any]) -> None:
    known = list(inspect.signature(chosen.steps).parameters)[1:]
    for name in options:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InputError(f"The recipe {chosen.name!r} has no option {name!r}: {takes}.")


def all_rows(count: int) -> Rows:
    """Return the mask of every row."""
    return np.ones(count, bool)
