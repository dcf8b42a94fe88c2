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
from labeldp.core.exact_real import exactly
from labeldp.core.guarantee import SMALLEST_EPSILON, Guarantee
from labeldp.data.tables import Table
from labeldp.evaluate import ErrorScore, Score, check_criterion, choose, measure, measure_errors
from labeldp.learn.additive.effects import Effect, effects_of
from labeldp.learn.density import believed_error, grid_of
from labeldp.learn.predictor import Predictor, resting_on
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.failure_notes import paid_if_it_fails
from labeldp.privacy.vault.release_plan import Plan, step_losses
from labeldp.recipes.base import Ask, Recipe, Reserve, find
from labeldp.recipes.candidates import left_out
from labeldp.recipes.rehearsal import Parts, rehearse
from labeldp.recipes.task import Rows, Task
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.learn.model import Model

_SHARE, _MOST, _FEWEST = 0.1, 2_500, 20  # rows set aside to choose, and to score: a tenth, but no more and no fewer

_ONE_SIDED = 0.95

_FINE = 2_000  # values of a range

_STRONGEST = 8  # effects that a report describes

_LARGE = 8.0  # whoever gave a label even odds can be sure of it to 99.97 %

Report = Callable[[str], None]
Use = Callable[["Trained", Vault], None]


@dataclass(frozen=True)
class Trained:
    """What a recipe gave: the model, all that was released on the way, and a private score of the model.

    Of several candidates, `winner` is the place of the model among them. `users` says how the labels of users
    took part. `effects` describe an additive model of a table.
    """

    recipe: str
    model: Predictor
    releases: tuple[Release, ...]
    guarantee: Guarantee
    score: Score | ErrorScore | None
    candidates: int = 1
    winner: int = 0
    variant: int = 0  # which of several variants of learning the winner comes from
    users: dict[str, Any] | None = None
    common: float = 0.0  # the share of scored rows to which the model gives one of two classes
    widening: float = 1.0  # by how much intervals of its numbers are wider than what it believes
    notes: tuple[str, ...] = ()  # what the user should know, candidates that were left out for example
    effects: tuple[Effect, ...] | None = None

    @property
    def stated(self) -> Guarantee:
        """What holds for every label: the model's guarantee, and that of held-out labels, which lose to the score."""
        return self.guarantee.covering(0.0 if self.score is None else self.score.epsilon)

    def facts(self) -> dict[str, Any]:
        """Describe the training for a report or a card."""
        return {
            "recipe": self.recipe,
            "summary": find(self.recipe).summary,
            "guarantee": self.guarantee.to_json(),
            "releases": [_describe(release) for release in self.releases],
            "candidates": self.candidates,
            "users": self.users,
            "warnings": self._warnings(),
            "score": self.score and self.score.to_json(),
            "interval_widening": self.widening,
            "effects": self._effects(),
        }

    def _effects(self) -> dict[str, Any] | None:
        """Describe the strongest effects, and whether trees add to them."""
        if self.effects is None:
            return None
        shown = [effect.to_json() for effect in self.effects[:_STRONGEST]]
        return {"count": len(self.effects), "shown": shown, "trees": hasattr(self.model, "trees")}

    def _warnings(self) -> list[str]:
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        rows = self.releases[0].rows
        found = []
        if not math.isfinite(epsilon):
            found.append("This is NOT differentially private: the recipe's published claim does not hold.")
        elif epsilon > _LARGE:
            found.append(f"Epsilon {epsilon:g} is so large that a label is hardly protected.")
        if delta * rows > 1:
            found.append(f"Delta {delta:g} is not small against one in {rows:,} rows: some label may be told outright.")
        if self.common >= _ONE_SIDED:
            found.append(
                f"The model gives {self.common:.1%} of the rows to one class, so that its accuracy says little: look "
                "at AUC, recall and precision."
            )
        return [*found, *self.notes]


def train(
    vault: Vault,
    task: Task,
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    score: bool = True,
    report: Report = lambda what: None,
    rehearsed: bool = True,
    use: Use = lambda trained, vault: None,
) -> Trained:
    """Train on the rows of `task` by the recipe `name`, within its epsilon and delta.

    Some rows are set aside without a look at labels: to choose among models where the recipe gives several, and to
    score the winner on yet other rows. They are other people's labels, so they have the same epsilon for themselves.
    In a vault of users, epsilon and delta are for a user: all labels of a user in one release share them.
    A run that was interrupted goes on: what was released before is in the ledger and is not drawn again.

    Before anything is charged, the recipe is rehearsed on a few rows with made-up labels (see `rehearsal`), and so is
    `use`, which is what will be done with the outcome. `rehearsed=False` leaves that out, for labels that are public or
    a ledger that is thrown away.
    """
    how: dict[str, Any] = {"score": score, "report": report, "rehearsed": rehearsed, "use": use}
    return train_best(vault, [task], name, [options or {}], **how)


def check_untaught(encoder: "Model | None") -> None:
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
    report: Report = lambda what: None,
    rehearsed: bool = True,
    use: Use = lambda trained, vault: None,
) -> Trained:
    """Train several variants on the same releases and keep the one that a private choice prefers.

    Variants may differ in how they learn, which is free. One that asks for another release is refused by the budget,
    and one that cannot be trained is left out, as long as another one is left. See `train`.
    """
    if vault.users is not None:  # who is kept together where rows are dealt out
        tasks = [replace(each, users=vault.users) for each in tasks]
    recipe, task = find(name), tasks[0]
    for variant, each in zip(tasks, options, strict=True):
        recipe.check(variant.space, each, delta=variant.delta, encoder=variant.encoder is not None, model=variant.model)
        check_untaught(variant.encoder)
        check_criterion(variant.choose_by, variant.space)
    if len({variant.choose_by for variant in tasks}) > 1:
        raise InputError("Variants are compared by one criterion: give all of them the same choose_by.")
    places = [each.training.checkpoint for each in tasks if each.training is not None and each.training.checkpoint]
    if not all(place.is_dir() for place in places):
        raise InputError("A recipe can train several networks: make a folder for their checkpoints, and name that.")
    if len(task.features) != vault.rows:
        raise InputError(f"There are {len(task.features)} rows of features and {vault.rows} labels.")
    if score and task.epsilon < 2 * SMALLEST_EPSILON:
        raise InputError(f"epsilon must be at least {2 * SMALLEST_EPSILON:g}, or there is no half of it for a score.")
    if vault.rows < 2:
        raise InputError("There is one row, and nothing to learn from it: bring more.")
    if task.public is not None and not recipe.asks_teachers:
        raise InputError(f"The recipe {name!r} has no use for public rows: take one with teachers, pate for example.")
    # There is less to train on where rows are set aside to choose with, which may decide whether there is a choice.
    several = len(tasks) > 1 or recipe.chooses(task.on(set_aside(task, True, score)[0]), **options[0])
    parts = Parts(*set_aside(task, several, score))
    every_row, tasks = task, [variant.on(parts.fit) for variant in tasks]
    for variant in tasks:
        variant.notes.clear()  # of an earlier training by the same task
        variant.progress.restart()
    if rehearsed:
        report("rehearsing")

        def short(made_up: Vault, some: Sequence[Task], *given: Any) -> None:
            trained = _train_parts(made_up, some, *given)
            _predict(trained.model, some[0])
            use(trained, made_up)

        rehearse(vault, tasks, recipe, options, parts, short)
    with paid_if_it_fails(vault):
        trained = _train_parts(vault, tasks, recipe, options, parts, report)
    return replace(trained, users=_about_users(vault, every_row, trained.releases))


def _train_parts(
    vault: Vault,
    tasks: Sequence[Task],
    recipe: Recipe,
    options: Sequence[Mapping[str, Any]],
    parts: Parts,
    report: Report = lambda what: None,
) -> Trained:
    """Train every variant, choose and score, each on its part of the rows."""
    task, of_variant, releases = tasks[0], list[tuple[Predictor, int]](), list[Release]()
    training = _training_name(task, recipe, options[0])
    for place, (variant, each) in enumerate(zip(tasks, options, strict=True)):
        try:
            found = _follow(vault, variant, recipe, each, report, releases, training)
        except (LabelDPError, MemoryError):
            raise
        except Exception as problem:
            if place + 1 == len(tasks) and not of_variant:
                raise
            task.notes.append(left_out(f"setting {place + 1} of {len(tasks)}", problem))
            continue
        of_variant += [(model, place) for model in found]
    models = [model for model, _ in of_variant]
    compared = len(models) > 1 and parts.choosing is not None
    predictions: dict[int, Any] = {place: None for place in range(len(models))}
    if compared or parts.scoring is not None:
        predictions = _predict_all(task, models)
    places = list(predictions)
    winner = places[0]
    if compared and len(places) > 1:
        report("choosing")
        candidates = list(predictions.values())
        choice = choose(vault, candidates, parts.choosing, task.epsilon, releases, by=task.choose_by)
        releases.append(choice)
        winner = places[choice.best]
    model, common, widening = resting_on(of_variant[winner][0], releases), 0.0, 1.0
    result: Score | ErrorScore | None = None
    if parts.scoring is not None:
        report("scoring")
        predicted = predictions[winner]
        if task.space.step is not None:
            result = measure_errors(vault, predicted, parts.scoring, task.epsilon, releases)
            widening = _widening(model, task, np.flatnonzero(parts.scoring), result)
        else:
            result = measure(vault, predicted, parts.scoring, task.epsilon, releases)
            first = float((predicted[parts.scoring].argmax(axis=1) == 0).mean())
            common = max(first, 1 - first) if len(task.space) == 2 and task.public is None else 0.0
    won = len(places), places.index(winner), of_variant[winner][1]
    notes = tuple(dict.fromkeys(note for variant in tasks for note in variant.notes))
    guarantee = vault.guarantee_of(releases)
    effects = effects_of(model, task.features.encoder) if isinstance(task.features, Table) else None
    return Trained(recipe.name, model, tuple(releases), guarantee, result, *won, None, common, widening, notes, effects)


def _predict_all(task: Task, models: Sequence[Predictor]) -> dict[int, Any]:
    """Return the predictions of each model, by its place; of several models, those that fail are left out."""
    predictions = dict[int, Any]()
    for place, model in enumerate(models):
        try:
            predicted = _predict(model, task)
            if not np.isfinite(predicted).all():
                raise InputError(
                    "The model's predictions for these features are not finite: rescale columns with very large "
                    "numbers, or choose another model."
                )
        except MemoryError:
            raise
        except Exception as problem:
            if place + 1 == len(models) and not predictions:
                raise
            task.notes.append(left_out(type(model).__name__, problem))
        else:
            predictions[place] = predicted
    return predictions


def _widening(model: Predictor, task: Task, rows: NDArray[np.int64], score: ErrorScore) -> float:
    """Return how many times as large as the model believes its errors on held-out rows may be, as they were measured.

    A model of noisy labels does not know how far it is off itself; what was measured does, or that nobody knows.
    """
    held_out, grid = task.features.select(rows), grid_of(task.space)
    if grid.size > _FINE:  # a table of so many values would take long, and scatter is far above the step
        widths = [getattr(model, name, None) for name in ("scale", "deviation")]
        return max([1.0, *(score.careful / max(width, 1e-9) for width in widths if isinstance(width, float))])
    believed = believed_error(model.predict_proba(held_out), grid, np.asarray(model.predict(held_out), np.float64))
    return max(1.0, score.careful / max(believed, (grid[1] - grid[0]) / 4))


def _about_users(vault: Vault, task: Task, releases: Sequence[Release]) -> dict[str, Any] | None:
    """Say how many labels of a user, and rows, took part, and what a single label loses to the model."""
    if vault.users is None:
        return None
    return {
        "count": int(vault.users.max()) + 1,
        "labels_per_user": task.labels_per_user,
        "rows": int(task.rows.sum()),
        "dropped": int(vault.labelled.sum() - task.rows.sum()),
        "label": vault.guarantee_of(releases, unit="label").to_json(),
    }


def _predict(model: Predictor, task: Task) -> Any:
    """Return the predictions of a model as choices and scores take them: probabilities, or numbers."""
    return model.predict_proba(task.features) if task.space.step is None else model.predict(task.features)


def _describe(release: Release) -> dict[str, Any]:
    rows = release.rows if release.active is None else int(release.active.sum())
    epsilon = release.parameters.get("epsilon", release.guarantee.epsilon)
    by = {"by": release.parameters["by"]} if "by" in release.parameters else {}
    return {"mechanism": release.mechanism, "rows": rows, "epsilon": epsilon, **by}


def _follow(
    vault: Vault,
    task: Task,
    chosen: Recipe,
    options: Mapping[str, Any],
    report: Report,
    earlier: list[Release],
    training: str = "",
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
    steps, releases = chosen.steps(task, **options), list[Release]()
    plan: Plan | None = None
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
        first = not releases and plan is None and not earlier
        if isinstance(request, Reserve):
            if plan is not None and plan.left:
                raise LabelDPError(
                    f"The recipe {chosen.name!r} reserves again before it drew all steps: a mistake in it."
                )
            plan = _reserved(vault, task, chosen, request, releases, f"{training} {request.name}".strip(), first)
            reply = plan is not None
            continue
        rows = task.rows if request.rows is None else request.rows & task.rows
        if plan is not None and plan.left:
            if not np.array_equal(rows, task.rows):
                raise LabelDPError(
                    f"The recipe {chosen.name!r} asks for some rows of a reserved step: a mistake in it."
                )
            reply = _draw_reserved(plan, request)
        else:
            mechanism = _shared(vault, task, releases, request.mechanism, rows)
            if mechanism is None:
                raise _asks_too_much(chosen)
            if first:
                _check_means(vault, task, rows, vault.was_released(mechanism, rows))
            reply = vault.release(mechanism, rows=rows, derived_from=request.derived_from)
        releases.append(reply)
        if reply.entry not in {known.entry for known in earlier}:
            earlier.append(reply)


def _reserved(
    vault: Vault, task: Task, chosen: Recipe, request: Reserve, releases: Sequence[Release], name: str, first: bool
) -> Plan | None:
    """Pay for the steps of a recipe; None where users own several labels, whose losses a step may not say.

    A rehearsal on some rows decides as the training will.
    """
    if task.whole.labels_per_user > 1:
        return None
    epsilon, paid = compose(step_losses(request.steps), request.delta), Cost()
    if releases:
        known = vault.guarantee_of(releases)
        paid = Cost(exactly(known.epsilon), exactly(known.delta)) if math.isfinite(known.epsilon) else Cost(math.inf)
    if (
        not math.isfinite(epsilon)
        or paid.epsilon + exactly(epsilon) > exactly(task.epsilon)
        or paid.delta + exactly(request.delta) > exactly(task.delta)
    ):
        raise _asks_too_much(chosen)
    how: dict[str, Any] = {"rows": task.rows, "delta": request.delta, "name": name}
    if first:
        _check_means(vault, task, task.rows, vault.was_planned(*request.steps, **how))
    return vault.plan(*request.steps, **how)


def _draw_reserved(plan: Plan, request: Ask) -> Release:
    try:
        return plan.release(request.mechanism, derived_from=request.derived_from)
    except BudgetExceeded:
        raise BudgetExceeded(
            "This step of the training was reserved and drawn before, with another request. Repeat the earlier "
            "training with all of its settings, or take another seed, which is charged anew."
        ) from None


def _asks_too_much(chosen: Recipe) -> LabelDPError:
    return LabelDPError(f"The recipe {chosen.name!r} asks for more than it was given: a mistake in the recipe.")


def _training_name(task: Task, recipe: Recipe, options: Mapping[str, Any]) -> str:
    """Name a training in the ledger by what the user chose and what is written alike in every process."""
    plain = {name: value for name, value in sorted(options.items()) if type(value) in (bool, int, float, str)}
    return f"{recipe.name} seed {task.seed} {json.dumps(plain) if plain else ''}".strip()


def _check_means(vault: Vault, task: Task, rows: Rows, paid: bool) -> None:
    """Refuse before the first release what could not be paid to the end, unless it is a run that goes on."""
    epsilon, delta = vault.remaining(rows)
    if epsilon < task.epsilon * (1 - 1e-9) and not paid:
        raise BudgetExceeded(
            f"This training costs epsilon {task.epsilon:g} in all, and the budget has epsilon {epsilon:.6g} and delta "
            f"{delta:.3g} left: ask for less, or raise the budget."
        )


def _shared(vault: Vault, task: Task, heard: Sequence[Release], asked: Mechanism, rows: Rows) -> Mechanism | None:
    """Turn what a recipe asks for a unit into what its labels get, within what the task has left; None without such.

    The labels of a user share epsilon. Where delta is left over, many labels can share it to more effect. What is left
    of the budget has no say: a run that goes on must ask for what it asked for before.
    """
    for delta in dict.fromkeys((min(task.delta, vault.budget.delta), 0.0)):
        mechanism = vault.shared(asked, rows, delta)
        after = vault.guarantee_of(heard, mechanism, rows)
        private = math.isfinite(after.epsilon)  # what is not was switched on by name
        if not private or (after.epsilon <= task.epsilon and after.delta <= task.delta):
            return mechanism
    return None


def set_aside(task: Task, several: bool, score: bool) -> tuple[Rows, Rows | None, Rows | None]:
    """Return the rows to train on, to choose with and to score with; parts that would be too small are left out."""
    rows = int(task.rows.sum())
    share = min(_SHARE, _MOST / max(1, rows))
    if rows * share < _FEWEST or not (several or score):
        return task.rows, None, None
    try:
        fit, *others = task.parts([1 - share * (several + score), *[share] * (several + score)])
    except InputError:  # a few users own all rows
        return task.rows, None, None
    others = [_one_each(task, part) for part in others]
    if min(part.sum() for part in others) < _FEWEST:
        return task.rows, None, None
    return fit, others.pop(0) if several else None, others.pop(0) if score else None


def _one_each(task: Task, part: Rows) -> Rows:
    """Keep one row of each user: intervals take rows as independent, and a label alone has the whole of epsilon."""
    if task.users is None:
        return part
    rows = np.random.default_rng(task.seed).permutation(np.flatnonzero(part))
    kept = np.zeros_like(part)
    kept[rows[np.unique(task.users[rows], return_index=True)[1]]] = True
    return kept


def all_rows(count: int) -> Rows:
    """Return the mask of every row."""
    return np.ones(count, bool)
