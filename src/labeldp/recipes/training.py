"""Train by a recipe: rehearse, run it against a vault, choose and score privately on held-out rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError, LabelDPError
from labeldp.core.guarantee import SMALLEST_EPSILON
from labeldp.data.tables import Table
from labeldp.evaluate import ErrorScore, Score, check_criterion, choose, measure, measure_errors
from labeldp.learn.additive.effects import describe_effects
from labeldp.learn.density import expected_rmse, label_grid
from labeldp.learn.predictor import Predictor, with_lineage
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.failure_notes import note_charge_on_failure
from labeldp.recipes.candidates import dropped_note
from labeldp.recipes.registry import Recipe, get_recipe
from labeldp.recipes.rehearsal import RowSplit, rehearse
from labeldp.recipes.task import Task
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.learn.model import Model

from labeldp.recipes.held_out import split_held_out
from labeldp.recipes.result import TrainingResult
from labeldp.recipes.runner import name_training, run_steps

_ONE_SIDED_SHARE = 0.95

_MAX_GRID_VALUES = 2_000  # values of a range

_N_EFFECTS_SHOWN = 8  # effects that a report describes

_LARGE_EPSILON = 8.0  # whoever gave a label even odds can be sure of it to 99.97 %

Report = Callable[[str], None]
RehearsalHook = Callable[["TrainingResult", Vault], None]


def train(
    vault: Vault,
    task: Task,
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    score: bool = True,
    report: Report = lambda message: None,
    with_rehearsal: bool = True,
    rehearsal_hook: RehearsalHook = lambda result, vault: None,
) -> TrainingResult:
    """Train on the rows of `task` by the recipe `name`, within its epsilon and delta.

    Some rows are set aside without a look at labels: to choose among models where the recipe gives several, and to
    score the winner on yet other rows. They are other people's labels, so they have the same epsilon for themselves.
    In a vault of users, epsilon and delta are for a user: all labels of a user in one release share them.
    A run that was interrupted goes on: what was released before is in the ledger and is not drawn again.

    Before anything is charged, the recipe is rehearsed on a few rows with made-up labels (see `rehearsal`), and so is
    `use`, which is what will be done with the outcome. `rehearsed=False` leaves that out, for labels that are public or
    a ledger that is thrown away.
    """
    settings: dict[str, Any] = {
        "score": score,
        "report": report,
        "with_rehearsal": with_rehearsal,
        "rehearsal_hook": rehearsal_hook,
    }
    return train_best(vault, [task], name, [options or {}], **settings)


def check_encoder_without_labels(encoder: "Model | None") -> None:
    """Refuse an encoder that has learnt from labels, which a release would then tell of twice."""
    if encoder is not None and (encoder.lineage or encoder.guarantee):
        raise InputError("This encoder has learnt from labels: give one that was trained without, by `labeldp encode`.")


def train_best(
    vault: Vault,
    tasks: Sequence[Task],
    name: str,
    options: Sequence[Mapping[str, Any]],
    *,
    score: bool = True,
    report: Report = lambda message: None,
    with_rehearsal: bool = True,
    rehearsal_hook: RehearsalHook = lambda result, vault: None,
) -> TrainingResult:
    """Train several variants on the same releases and keep the one that a private choice prefers.

    Variants may differ in how they learn, which is free. One that asks for another release is refused by the budget,
    and one that cannot be trained is left out, as long as another one is left. See `train`.
    """
    if vault.users is not None:  # who is kept together where rows are dealt out
        tasks = [replace(settings, users=vault.users) for settings in tasks]
    recipe, task = get_recipe(name), tasks[0]
    for variant, settings in zip(tasks, options, strict=True):
        recipe.check(
            variant.space, settings, delta=variant.delta, encoder=variant.encoder is not None, model=variant.model
        )
        check_encoder_without_labels(variant.encoder)
        check_criterion(variant.choose_by, variant.space)
    if len({variant.choose_by for variant in tasks}) > 1:
        raise InputError("Variants are compared by one criterion: give all of them the same choose_by.")
    checkpoints = [
        settings.training.checkpoint
        for settings in tasks
        if settings.training is not None and settings.training.checkpoint
    ]
    if not all(checkpoint.is_dir() for checkpoint in checkpoints):
        raise InputError("A recipe can train several networks: make a folder for their checkpoints, and name that.")
    if len(task.features) != vault.n_rows:
        raise InputError(f"There are {len(task.features)} rows of features and {vault.n_rows} labels.")
    if score and task.epsilon < 2 * SMALLEST_EPSILON:
        raise InputError(f"epsilon must be at least {2 * SMALLEST_EPSILON:g}, or there is no half of it for a score.")
    if vault.n_rows < 2:
        raise InputError("There is one row, and nothing to learn from it: bring more.")
    if task.public is not None and not recipe.asks_teachers:
        raise InputError(f"The recipe {name!r} has no use for public rows: take one with teachers, pate for example.")
    # There is less to train on where rows are set aside to choose with, which may decide whether there is a choice.
    with_selection = len(tasks) > 1 or recipe.has_several_candidates(
        task.with_rows(split_held_out(task, True, score)[0]), **options[0]
    )
    split = RowSplit(*split_held_out(task, with_selection, score))
    unsplit_task, tasks = task, [variant.with_rows(split.training) for variant in tasks]
    for variant in tasks:
        variant.notes.clear()  # of an earlier training by the same task
        variant.progress.restart()
    if with_rehearsal:
        report("rehearsing")

        def train_short(synthetic_vault: Vault, short_tasks: Sequence[Task], *arguments: Any) -> None:
            result = _train_on_split(synthetic_vault, short_tasks, *arguments)
            _predict(result.model, short_tasks[0])
            rehearsal_hook(result, synthetic_vault)

        rehearse(vault, tasks, recipe, options, split, train_short)
    with note_charge_on_failure(vault):
        result = _train_on_split(vault, tasks, recipe, options, split, report)
    return replace(result, user_summary=_summarize_users(vault, unsplit_task, result.releases))


def _train_on_split(
    vault: Vault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    split: RowSplit,
    report: Report = lambda message: None,
) -> TrainingResult:
    """Train every variant, choose and score, each on its part of the rows."""
    task, models_of_variants, releases = tasks[0], list[tuple[Predictor, int]](), list[Release]()
    reservation_name = name_training(task, recipe, options[0])
    for index, (variant, settings) in enumerate(zip(tasks, options, strict=True)):
        try:
            new_models = run_steps(vault, variant, recipe, settings, report, releases, reservation_name)
        except (LabelDPError, MemoryError):
            raise
        except Exception as problem:
            if index + 1 == len(tasks) and not models_of_variants:
                raise
            task.notes.append(dropped_note(f"setting {index + 1} of {len(tasks)}", problem))
            continue
        models_of_variants += [(model, index) for model in new_models]
    models = [model for model, _ in models_of_variants]
    with_selection = len(models) > 1 and split.selection is not None
    predictions: dict[int, Any] = {index: None for index in range(len(models))}
    if with_selection or split.scoring is not None:
        predictions = _predict_all(task, models)
    indices = list(predictions)
    best_index = indices[0]
    if with_selection and len(indices) > 1:
        report("choosing")
        candidates = list(predictions.values())
        choice = choose(vault, candidates, split.selection, task.epsilon, releases, criterion=task.choose_by)
        releases.append(choice)
        best_index = indices[choice.best_index]
    model, majority_share, interval_widening = with_lineage(models_of_variants[best_index][0], releases), 0.0, 1.0
    score: Score | ErrorScore | None = None
    if split.scoring is not None:
        report("scoring")
        prediction = predictions[best_index]
        if task.space.step is not None:
            score = measure_errors(vault, prediction, split.scoring, task.epsilon, releases)
            interval_widening = _interval_widening(model, task, np.flatnonzero(split.scoring), score)
        else:
            score = measure(vault, prediction, split.scoring, task.epsilon, releases)
            first_share = float((prediction[split.scoring].argmax(axis=1) == 0).mean())
            majority_share = max(first_share, 1 - first_share) if len(task.space) == 2 and task.public is None else 0.0
    selection_facts = len(indices), indices.index(best_index), models_of_variants[best_index][1]
    notes = tuple(dict.fromkeys(note for variant in tasks for note in variant.notes))
    guarantee = vault.guarantee_of(releases)
    effects = describe_effects(model, task.features.encoder) if isinstance(task.features, Table) else None
    return TrainingResult(
        recipe.name,
        model,
        tuple(releases),
        guarantee,
        score,
        *selection_facts,
        None,
        majority_share,
        interval_widening,
        notes,
        effects,
    )


def _predict_all(task: Task, models: Sequence[Predictor]) -> dict[int, Any]:
    """Return the predictions of each model, by its place; of several models, those that fail are left out."""
    predictions = dict[int, Any]()
    for index, model in enumerate(models):
        try:
            prediction = _predict(model, task)
            if not np.isfinite(prediction).all():
                raise InputError(
                    "The model's predictions for these features are not finite: rescale columns with very large "
                    "numbers, or choose another model."
                )
        except MemoryError:
            raise
        except Exception as problem:
            if index + 1 == len(models) and not predictions:
                raise
            task.notes.append(dropped_note(type(model).__name__, problem))
        else:
            predictions[index] = prediction
    return predictions


def _interval_widening(model: Predictor, task: Task, row_ids: NDArray[np.int64], score: ErrorScore) -> float:
    """Return how many times as large as the model believes its errors on held-out rows may be, as they were measured.

    A model of noisy labels does not know how far it is off itself; what was measured does, or that nobody knows.
    """
    held_out, grid = task.features.select(row_ids), label_grid(task.space)
    if grid.size > _MAX_GRID_VALUES:  # a table of so many values would take long, and scatter is far above the step
        widths = [getattr(model, name, None) for name in ("scale", "deviation")]
        return max([1.0, *(score.careful / max(width, 1e-9) for width in widths if isinstance(width, float))])
    expected_error = expected_rmse(model.predict_proba(held_out), grid, np.asarray(model.predict(held_out), np.float64))
    return max(1.0, score.careful / max(expected_error, (grid[1] - grid[0]) / 4))


def _summarize_users(vault: Vault, task: Task, releases: Sequence[Release]) -> dict[str, Any] | None:
    """Say how many labels of a user, and rows, took part, and what a single label loses to the model."""
    if vault.users is None:
        return None
    return {
        "count": int(vault.users.max()) + 1,
        "labels_per_user": task.labels_per_user,
        "rows": int(task.row_mask.sum()),
        "dropped": int(vault.labeled_mask.sum() - task.row_mask.sum()),
        "label": vault.guarantee_of(releases, unit="label").to_json(),
    }


def _predict(model: Predictor, task: Task) -> Any:
    """Return the predictions of a model as choices and scores take them: probabilities, or numbers."""
    return model.predict_proba(task.features) if task.space.step is None else model.predict(task.features)
