"""Training by a recipe: rehearse it, run it against a vault, select and score privately on held-out rows."""

from collections.abc import Mapping, Sequence
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
from labeldp.privacy.vault.interface import ReleasingVault
from labeldp.recipes.candidates import dropped_note
from labeldp.recipes.held_out import split_held_out
from labeldp.recipes.registry import Recipe, get_recipe
from labeldp.recipes.rehearsal import RowSplit, rehearse
from labeldp.recipes.result import RehearsalHook, TrainingResult
from labeldp.recipes.runner import ReportPhase, name_training, run_steps
from labeldp.recipes.task import Task
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.learn.model import Model

# Number of values of a range up to which predicted distributions are computed to widen intervals.
_MAX_GRID_VALUES = 2_000


def train(
    vault: ReleasingVault,
    task: Task,
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    score: bool = True,
    report: ReportPhase = lambda message: None,
    with_rehearsal: bool = True,
    rehearsal_hook: RehearsalHook = lambda result, vault: None,
) -> TrainingResult:
    """Train on the rows of a task by a recipe, within the task's epsilon and delta.

    Some rows are held out independently of their labels: for model selection where the recipe returns several models,
    and further rows for scoring. Held-out labels are disjoint from training labels, so that each of them may also spend
    the whole epsilon. In a vault of users, epsilon and delta hold for a user: all labels of a user share them.
    An interrupted training continues: the ledger stores its earlier releases, and they are not drawn again.

    Before the first charge, the recipe is rehearsed on a few rows with synthetic labels (see `rehearsal`).

    Args:
        vault: The vault with the labels.
        task: The task.
        name: The name of the recipe.
        options: The recipe's options.
        score: Whether to hold out rows and score the model on them.
        report: Is called with each phase of the training.
        with_rehearsal: Whether to rehearse. Public labels, or a ledger that is discarded, need no rehearsal.
        rehearsal_hook: Is called in the rehearsal with its result and vault, to rehearse what follows the training.

    Returns:
        The model, its releases, guarantee and score.

    Raises:
        InputError: The task, the options or the vault do not suit the recipe. Nothing is charged.
        BudgetExceeded: The budget cannot pay for the whole training.
    """
    settings: dict[str, Any] = {
        "score": score,
        "report": report,
        "with_rehearsal": with_rehearsal,
        "rehearsal_hook": rehearsal_hook,
    }
    return train_best(vault, [task], name, [options or {}], **settings)


def check_encoder_without_labels(encoder: "Model | None") -> None:
    """Refuse an encoder that was trained on released labels, because its cost would be missing in the guarantee."""
    if encoder is not None and (encoder.lineage or encoder.guarantee):
        raise InputError(
            "This encoder was trained with labels: give one that was trained without.", parameter="encoder"
        )


def train_best(
    vault: ReleasingVault,
    tasks: Sequence[Task],
    name: str,
    options: Sequence[Mapping[str, Any]],
    *,
    score: bool = True,
    report: ReportPhase = lambda message: None,
    with_rehearsal: bool = True,
    rehearsal_hook: RehearsalHook = lambda result, vault: None,
) -> TrainingResult:
    """Train several variants on the same releases and return the one that a private selection prefers.

    Variants may differ in their learning, which is post-processing and costs nothing. The budget refuses a variant with
    another release. A variant whose training fails is dropped while another one remains.

    Args:
        vault: The vault with the labels.
        tasks: The task of each variant.
        name: The name of the recipe.
        options: The recipe's options of each variant.
        score: See `train`.
        report: See `train`.
        with_rehearsal: See `train`.
        rehearsal_hook: See `train`.

    Returns:
        The selected model, its releases, guarantee and score.

    Raises:
        InputError: A task, its options or the vault do not suit the recipe. Nothing is charged.
        BudgetExceeded: The budget cannot pay for the whole training.
    """
    if vault.users is not None:  # all rows of a user must fall into one part of the rows
        tasks = [replace(variant, users=vault.users) for variant in tasks]
    recipe, task = get_recipe(name), tasks[0]
    for variant, variant_options in zip(tasks, options, strict=True):
        recipe.check(
            variant.space,
            variant_options,
            delta=variant.delta,
            encoder=variant.encoder is not None,
            model=variant.model,
        )
        check_encoder_without_labels(variant.encoder)
        check_criterion(variant.choose_by, variant.space)
    if len({variant.choose_by for variant in tasks}) > 1:
        raise InputError("Variants are compared by one criterion: give all of them the same choose_by.")
    checkpoints = [
        variant.training.checkpoint for variant in tasks if variant.training is not None and variant.training.checkpoint
    ]
    if not all(checkpoint.is_dir() for checkpoint in checkpoints):
        raise InputError("A recipe can train several networks: make a folder for their checkpoints, and name that.")
    if len(task.features) != vault.n_rows:
        raise InputError(f"There are {len(task.features)} rows of features and {vault.n_rows} labels.")
    if score and task.epsilon < 2 * SMALLEST_EPSILON:
        raise InputError(f"epsilon must be at least {2 * SMALLEST_EPSILON:g}, or there is no half of it for a score.")
    if vault.n_rows < 2:
        raise InputError("There is one row, and nothing to learn from it: bring more.")
    if task.public is not None and not recipe.uses_teachers:
        raise InputError(f"The recipe {name!r} has no use for public rows: take one with teachers, pate for example.")
    # Rows that are held out for selection leave fewer rows to train on, which can change the number of candidates.
    with_selection = len(tasks) > 1 or recipe.has_several_candidates(
        task.with_rows(split_held_out(task, True, score)[0]), **options[0]
    )
    split = RowSplit(*split_held_out(task, with_selection, score))
    unsplit_task, tasks = task, [variant.with_rows(split.training_mask) for variant in tasks]
    for variant in tasks:
        variant.notes.clear()  # the same task may have been trained before
        variant.progress.restart()
    if with_rehearsal:
        report("rehearsing")

        def train_short(synthetic_vault: ReleasingVault, short_tasks: Sequence[Task], *arguments: Any) -> None:
            result = _train_on_split(synthetic_vault, short_tasks, *arguments)
            _predict(result.model, short_tasks[0])
            if isinstance(synthetic_vault, Vault):  # a search has nothing to do with the result of a rehearsal
                rehearsal_hook(result, synthetic_vault)

        rehearse(vault, tasks, recipe, options, split, train_short)
    with note_charge_on_failure(vault):
        result = _train_on_split(vault, tasks, recipe, options, split, report)
    return replace(result, user_summary=_summarize_users(vault, unsplit_task, result.releases))


def _train_on_split(
    vault: ReleasingVault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    split: RowSplit,
    report: ReportPhase = lambda message: None,
) -> TrainingResult:
    """Train every variant, select a model and score it, each on its part of the rows."""
    task, models_of_variants, releases = tasks[0], list[tuple[Predictor, int]](), list[Release]()
    reservation_name = name_training(task, recipe, options[0])
    for index, (variant, variant_options) in enumerate(zip(tasks, options, strict=True)):
        try:
            new_models = run_steps(vault, variant, recipe, variant_options, report, releases, reservation_name)
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
    notes = tuple(dict.fromkeys(note for variant in tasks for note in variant.notes))
    guarantee = vault.guarantee_of(releases)
    effects = describe_effects(model, task.features.encoder) if isinstance(task.features, Table) else None
    return TrainingResult(
        recipe.name,
        model,
        tuple(releases),
        guarantee,
        score,
        n_candidates=len(indices),
        best_index=indices.index(best_index),
        variant=models_of_variants[best_index][1],
        majority_share=majority_share,
        interval_widening=interval_widening,
        notes=notes,
        effects=effects,
    )


def _predict_all(task: Task, models: Sequence[Predictor]) -> dict[int, Any]:
    """Return the predictions of each model by its index; of several models, those that fail are dropped."""
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
    """Return the ratio of the measured error on held-out rows to the error that the model predicts, at least 1.

    A model that learned from noisy labels can underestimate its own error. The measured error is its careful bound.
    """
    held_out, grid = task.features.select(row_ids), label_grid(task.space)
    if grid.size > _MAX_GRID_VALUES:  # too slow, and the predicted deviation is far larger than the step
        widths = [getattr(model, name, None) for name in ("scale", "deviation")]
        return max([1.0, *(score.careful / max(width, 1e-9) for width in widths if isinstance(width, float))])
    expected_error = expected_rmse(model.predict_proba(held_out), grid, np.asarray(model.predict(held_out), np.float64))
    return max(1.0, score.careful / max(expected_error, (grid[1] - grid[0]) / 4))


def _summarize_users(vault: ReleasingVault, task: Task, releases: Sequence[Release]) -> dict[str, Any] | None:
    """Describe the users, rows and labels of a user that took part, and the guarantee of a single label."""
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
    """Return the predictions of a model as selection and scoring take them: probabilities, or numbers."""
    return model.predict_proba(task.features) if task.space.step is None else model.predict(task.features)
