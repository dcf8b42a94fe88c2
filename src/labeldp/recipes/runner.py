"""Run a recipe against a vault: ask, train, choose privately, score privately."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import Cost
from labeldp.accounting.losses import compose
from labeldp.core.errors import BudgetExceeded, InputError, LabelDPError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import SMALLEST_EPSILON, Guarantee
from labeldp.data.tables import Table
from labeldp.evaluate import ErrorScore, Score, check_criterion, choose, measure, measure_errors
from labeldp.learn.additive.effects import Effect, describe_effects
from labeldp.learn.density import expected_rmse, label_grid
from labeldp.learn.predictor import Predictor, with_lineage
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.failure_notes import note_charge_on_failure
from labeldp.privacy.vault.release_plan import ReleasePlan, step_losses
from labeldp.recipes.base import Recipe, Request, Reserve, get_recipe
from labeldp.recipes.candidates import dropped_note
from labeldp.recipes.rehearsal import RowSplit, rehearse
from labeldp.recipes.task import RowMask, Task
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.learn.model import Model

_HELD_OUT_FRACTION, _MAX_HELD_OUT, _MIN_HELD_OUT = (
    0.1,
    2_500,
    20,
)  # rows set aside to choose, and to score: a tenth, but no more and no fewer

_ONE_SIDED_SHARE = 0.95

_MAX_GRID_VALUES = 2_000  # values of a range

_N_EFFECTS_SHOWN = 8  # effects that a report describes

_LARGE_EPSILON = 8.0  # whoever gave a label even odds can be sure of it to 99.97 %

Report = Callable[[str], None]
RehearsalHook = Callable[["TrainingResult", Vault], None]


@dataclass(frozen=True)
class TrainingResult:
    """What a recipe gave: the model, all that was released on the way, and a private score of the model.

    Of several candidates, `winner` is the place of the model among them. `users` says how the labels of users
    took part. `effects` describe an additive model of a table.
    """

    recipe: str
    model: Predictor
    releases: tuple[Release, ...]
    guarantee: Guarantee
    score: Score | ErrorScore | None
    n_candidates: int = 1
    best_index: int = 0
    variant: int = 0  # which of several variants of learning the winner comes from
    user_summary: dict[str, Any] | None = None
    majority_share: float = 0.0  # the share of scored rows to which the model gives one of two classes
    interval_widening: float = 1.0  # by how much intervals of its numbers are wider than what it believes
    notes: tuple[str, ...] = ()  # what the user should know, candidates that were left out for example
    effects: tuple[Effect, ...] | None = None

    @property
    def overall_guarantee(self) -> Guarantee:
        """What holds for every label: the model's guarantee, and that of held-out labels, which lose to the score."""
        return self.guarantee.with_scoring_cost(0.0 if self.score is None else self.score.epsilon)

    def to_json(self) -> dict[str, Any]:
        """Describe the training for a report or a card."""
        return {
            "recipe": self.recipe,
            "summary": get_recipe(self.recipe).summary,
            "guarantee": self.guarantee.to_json(),
            "releases": [_describe_release(release) for release in self.releases],
            "candidates": self.n_candidates,
            "users": self.user_summary,
            "warnings": self._collect_warnings(),
            "score": self.score and self.score.to_json(),
            "interval_widening": self.interval_widening,
            "effects": self._describe_effects(),
        }

    def _describe_effects(self) -> dict[str, Any] | None:
        """Describe the strongest effects, and whether trees add to them."""
        if self.effects is None:
            return None
        shown = [effect.to_json() for effect in self.effects[:_N_EFFECTS_SHOWN]]
        return {"count": len(self.effects), "shown": shown, "trees": hasattr(self.model, "trees")}

    def _collect_warnings(self) -> list[str]:
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        n_rows = self.releases[0].n_rows
        warnings = []
        if not math.isfinite(epsilon):
            warnings.append("This is NOT differentially private: the recipe's published claim does not hold.")
        elif epsilon > _LARGE_EPSILON:
            warnings.append(f"Epsilon {epsilon:g} is so large that a label is hardly protected.")
        if delta * n_rows > 1:
            warnings.append(
                f"Delta {delta:g} is not small against one in {n_rows:,} rows: some label may be told outright."
            )
        if self.majority_share >= _ONE_SIDED_SHARE:
            warnings.append(
                f"The model gives {self.majority_share:.1%} of the rows to one class, so that its accuracy says little: look "
                "at AUC, recall and precision."
            )
        return [*warnings, *self.notes]


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
    training_name = _training_name(task, recipe, options[0])
    for index, (variant, settings) in enumerate(zip(tasks, options, strict=True)):
        try:
            new_models = _run_steps(vault, variant, recipe, settings, report, releases, training_name)
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


def _describe_release(release: Release) -> dict[str, Any]:
    n_rows = release.n_rows if release.row_mask is None else int(release.row_mask.sum())
    epsilon = release.parameters.get("epsilon", release.guarantee.epsilon)
    criterion = {"by": release.parameters["by"]} if "by" in release.parameters else {}
    return {"mechanism": release.mechanism, "rows": n_rows, "epsilon": epsilon, **criterion}


def _run_steps(
    vault: Vault,
    task: Task,
    recipe: Recipe,
    options: Mapping[str, Any],
    report: Report,
    earlier_releases: list[Release],
    training_name: str = "",
) -> Sequence[Predictor]:
    """Answer a recipe's requests until it returns, and add new releases to the earlier ones of other variants.

    Args:
        vault: The vault of the training.
        task: What to learn, and how much it may cost.
        chosen: The recipe.
        options: Its options.
        report: Is called with what is being done.
        earlier: The releases of other variants, which are free; new ones are added.
        training: A name of the training, under which all variants reserve releases.

    Returns:
        The models.

    Raises:
        BudgetExceeded: The budget cannot pay for the training to its end, or a reserved step was drawn otherwise.
        LabelDPError: The recipe asks for more than it may.
    """
    steps, releases = recipe.steps(task, **options), list[Release]()
    plan: ReleasePlan | None = None
    reply: Any = None
    while True:
        report("training" if releases else "preparing")
        try:
            request = steps.send(reply)
        except StopIteration as done:
            return done.value if isinstance(done.value, list) else [done.value]
        report("releasing")
        if not releases and plan is None and task.encoder is not None:
            task.encoder.check_shape(task.features)  # a learner would find out after the charge
        is_first = not releases and plan is None and not earlier_releases
        if isinstance(request, Reserve):
            if plan is not None and plan.n_remaining:
                raise LabelDPError(
                    f"The recipe {recipe.name!r} reserves again before it drew all steps: a mistake in it."
                )
            plan = _reserve_steps(
                vault, task, recipe, request, releases, f"{training_name} {request.name}".strip(), is_first
            )
            reply = plan is not None
            continue
        row_mask = task.row_mask if request.row_mask is None else request.row_mask & task.row_mask
        if plan is not None and plan.n_remaining:
            if not np.array_equal(row_mask, task.row_mask):
                raise LabelDPError(
                    f"The recipe {recipe.name!r} asks for some rows of a reserved step: a mistake in it."
                )
            reply = _draw_reserved(plan, request)
        else:
            mechanism = _scale_to_task(vault, task, releases, request.mechanism, row_mask)
            if mechanism is None:
                raise _overspending_error(recipe)
            if is_first:
                _check_remaining_budget(vault, task, row_mask, vault.was_released(mechanism, row_mask))
            reply = vault.release(mechanism, row_selection=row_mask, derived_from=request.derived_from)
        releases.append(reply)
        if reply.entry not in {release.entry for release in earlier_releases}:
            earlier_releases.append(reply)


def _reserve_steps(
    vault: Vault, task: Task, recipe: Recipe, request: Reserve, releases: Sequence[Release], name: str, is_first: bool
) -> ReleasePlan | None:
    """Pay for the steps of a recipe; None where users own several labels, whose losses a step may not say.

    A rehearsal on some rows decides as the training will.
    """
    if task.full_task.labels_per_user > 1:
        return None
    epsilon, spent = compose(step_losses(request.steps), request.delta), Cost()
    if releases:
        composed = vault.guarantee_of(releases)
        spent = (
            Cost(as_fraction(composed.epsilon), as_fraction(composed.delta))
            if math.isfinite(composed.epsilon)
            else Cost(math.inf)
        )
    if (
        not math.isfinite(epsilon)
        or spent.epsilon + as_fraction(epsilon) > as_fraction(task.epsilon)
        or spent.delta + as_fraction(request.delta) > as_fraction(task.delta)
    ):
        raise _overspending_error(recipe)
    plan_options: dict[str, Any] = {"row_selection": task.row_mask, "delta": request.delta, "name": name}
    if is_first:
        _check_remaining_budget(vault, task, task.row_mask, vault.was_planned(*request.steps, **plan_options))
    return vault.plan(*request.steps, **plan_options)


def _draw_reserved(plan: ReleasePlan, request: Request) -> Release:
    try:
        return plan.release(request.mechanism, derived_from=request.derived_from)
    except BudgetExceeded:
        raise BudgetExceeded(
            "This step of the training was reserved and drawn before, with another request. Repeat the earlier "
            "training with all of its settings, or take another seed, which is charged anew."
        ) from None


def _overspending_error(recipe: Recipe) -> LabelDPError:
    return LabelDPError(f"The recipe {recipe.name!r} asks for more than it was given: a mistake in the recipe.")


def _training_name(task: Task, recipe: Recipe, options: Mapping[str, Any]) -> str:
    """Name a training in the ledger by what the user chose and what is written alike in every process."""
    plain = {name: value for name, value in sorted(options.items()) if type(value) in (bool, int, float, str)}
    return f"{recipe.name} seed {task.seed} {json.dumps(plain) if plain else ''}".strip()


def _check_remaining_budget(vault: Vault, task: Task, row_mask: RowMask, is_paid: bool) -> None:
    """Refuse before the first release what could not be paid to the end, unless it is a run that goes on."""
    epsilon, delta = vault.remaining(row_mask)
    if epsilon < task.epsilon * (1 - 1e-9) and not is_paid:
        raise BudgetExceeded(
            f"This training costs epsilon {task.epsilon:g} in all, and the budget has epsilon {epsilon:.6g} and delta "
            f"{delta:.3g} left: ask for less, or raise the budget."
        )


def _scale_to_task(
    vault: Vault, task: Task, releases: Sequence[Release], requested: Mechanism, row_mask: RowMask
) -> Mechanism | None:
    """Turn what a recipe asks for a unit into what its labels get, within what the task has left; None without such.

    The labels of a user share epsilon. Where delta is left over, many labels can share it to more effect. What is left
    of the budget has no say: a run that goes on must ask for what it asked for before.
    """
    for delta in dict.fromkeys((min(task.delta, vault.budget.delta), 0.0)):
        mechanism = vault.scaled_to_unit(requested, row_mask, delta)
        composed = vault.guarantee_of(releases, mechanism, row_mask)
        is_private = math.isfinite(composed.epsilon)  # what is not was switched on by name
        if not is_private or (composed.epsilon <= task.epsilon and composed.delta <= task.delta):
            return mechanism
    return None


def split_held_out(
    task: Task, with_selection: bool, with_scoring: bool
) -> tuple[RowMask, RowMask | None, RowMask | None]:
    """Return the rows to train on, to choose with and to score with; parts that would be too small are left out."""
    n_rows = int(task.row_mask.sum())
    fraction = min(_HELD_OUT_FRACTION, _MAX_HELD_OUT / max(1, n_rows))
    if n_rows * fraction < _MIN_HELD_OUT or not (with_selection or with_scoring):
        return task.row_mask, None, None
    try:
        training, *held_out_masks = task.split_rows(
            [1 - fraction * (with_selection + with_scoring), *[fraction] * (with_selection + with_scoring)]
        )
    except InputError:  # a few users own all rows
        return task.row_mask, None, None
    held_out_masks = [_one_row_per_user(task, row_mask) for row_mask in held_out_masks]
    if min(row_mask.sum() for row_mask in held_out_masks) < _MIN_HELD_OUT:
        return task.row_mask, None, None
    return training, held_out_masks.pop(0) if with_selection else None, held_out_masks.pop(0) if with_scoring else None


def _one_row_per_user(task: Task, row_mask: RowMask) -> RowMask:
    """Keep one row of each user: intervals take rows as independent, and a label alone has the whole of epsilon."""
    if task.users is None:
        return row_mask
    row_ids = np.random.default_rng(task.seed).permutation(np.flatnonzero(row_mask))
    selected = np.zeros_like(row_mask)
    selected[row_ids[np.unique(task.users[row_ids], return_index=True)[1]]] = True
    return selected


def all_rows(n_rows: int) -> RowMask:
    """Return the mask of every row."""
    return np.ones(n_rows, bool)
